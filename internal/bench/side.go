package bench

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Op is one operation. One client never calls it twice at once, different clients do. An error ends the
// benchmark as failed; an operation that expects serialization failures retries them itself, and
// its latency then includes the retries.
type Op func(ctx context.Context) error

// Side is one of the ways that a [Run] compares. It has either Open or Share.
//
// A side's backends are recognised by the application_name that the harness gives its connections. A side that
// connects by itself does so with the configuration of the connection or pool it was handed, or its
// CPU goes unnoticed.
type Side struct {
	// Name is what Baseline, Ratio and messages call the side.
	Name string

	// Units is how many units of work one operation does, by default 1.
	Units int

	// Open prepares client number client (0, 1, ...), which has conn for itself until the run ends: it prepares
	// statements, seeds randomness, and returns the client's operation. ctx lives as long as the run.
	Open func(ctx context.Context, conn *pgx.Conn, client int) (Op, error)

	// Share is for a side whose clients share connections, such as callers of a batcher. It is called once and
	// returns what makes each client's operation. ctx lives as long as the run; what Share starts in the
	// background gives its connections back when ctx ends.
	Share func(ctx context.Context, pool *pgxpool.Pool) (func(client int) Op, error)

	// PoolSize is the most connections that Share's pool opens, by default one per client.
	PoolSize int

	// Conn is the side's database, by default Run.Conn. It may be on another server (another major
	// version, say), as the other server idles meanwhile. A pooler in between shares backends among
	// sides: hide the CPU metrics then.
	Conn string

	// Bytes returns how many bytes the side occupies on disk. It is called before the first and
	// after the last measured slice. Clients that compete for space make PostgreSQL extend a table by up to
	// 512 pages at once, so growth means little until it is many times that.
	Bytes func(ctx context.Context, conn *pgx.Conn) (int64, error)
}
