package bench

import (
	"context"
	"maps"
	"testing"

	"github.com/annals-db/annals/internal/pgserver"
)

// Durability is whether a benchmark's server survives a crash.
type Durability bool

const (
	// Volatile waits for no disk, so that what is measured is the work that the code under test causes.
	Volatile Durability = false
	// Durable waits for the disk at every commit, as a production server does.
	Durable Durability = true
)

// settings are the same for every benchmark, whatever machine it runs on.
var settings = map[string]string{
	// Memory that a small machine has, and that holds what a benchmark of seconds works on.
	"shared_buffers": "256MB",
	// No checkpoint comes in the middle: it would hit one side and not the other.
	"max_wal_size":       "4GB",
	"checkpoint_timeout": "1h",
	// Nor does a vacuum or analyze, which also would change plans and write WAL in somebody else's slice. Run
	// vacuums and analyzes before the first slice, and pruning by the backends goes on as ever.
	"autovacuum": "off",
	// Compiling a plan costs more than most of our queries take, at a threshold that estimates cross by chance.
	"jit": "off",
	// Workers are processes that come and go, so that their CPU could not be counted.
	"max_parallel_workers_per_gather": "0",
	// Several sides with 64 clients each.
	"max_connections": "300",
}

// durability are the settings that Durable switches on and Volatile off. Without page images, WAL per operation
// does not depend on how long ago the last checkpoint was.
var durability = []string{"fsync", "synchronous_commit", "full_page_writes"}

// Server starts a server with the settings above for b and all its sub-benchmarks. It stops when b ends, so start it in
// the outermost benchmark: that costs about a second, and no benchmark sees what another one left. It never is
// the server that DATABASE_URL names: a Run takes that one as its Conn like any other.
func Server(b testing.TB, d Durability) *pgserver.Server {
	b.Helper()
	s := maps.Clone(settings)
	for _, name := range durability {
		s[name] = map[Durability]string{Volatile: "off", Durable: "on"}[d]
	}
	return pgserver.New(b, pgserver.Options{Settings: s})
}

// Database returns the connection string of a new database on s, dropped when b ends.
func Database(b testing.TB, s *pgserver.Server) string {
	b.Helper()
	name, err := s.CreateDatabase(b.Context())
	if err != nil {
		b.Fatalf("bench: creating a database: %v", err)
	}
	b.Cleanup(func() {
		if err := s.DropDatabase(context.WithoutCancel(b.Context()), name); err != nil {
			b.Errorf("bench: dropping database %s: %v", name, err)
		}
	})
	return s.ConnString(name)
}
