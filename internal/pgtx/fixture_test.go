package pgtx_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/pgtx"
)

func TestMain(m *testing.M) { pgserver.Main(m) }

const (
	insertItem   = "insert into item values ($1) returning id"
	divideByZero = "insert into item select 1 / $1::int"
)

var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement,
	pgx.QueryExecModeCacheDescribe,
	pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec,
	pgx.QueryExecModeSimpleProtocol,
}

// database is a fresh database with a table of items.
func database(t *testing.T) string {
	t.Helper()
	connString := pgserver.Database(t)
	conn, err := pgx.Connect(t.Context(), connString)
	must(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), "create table item (id int primary key)")
	must(t, err)
	return connString
}

func connect(t *testing.T, connString string, mode pgx.QueryExecMode) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(connString)
	must(t, err)
	config.DefaultQueryExecMode = mode
	conn, err := pgx.ConnectConfig(t.Context(), config)
	must(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func pool(t *testing.T, connString string, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(connString)
	must(t, err)
	config.ConnConfig.DefaultQueryExecMode = mode
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	must(t, err)
	t.Cleanup(p.Close)
	return p
}

// connectCounting connects with a count of the round trips made so far.
func connectCounting(t *testing.T, connString string, mode pgx.QueryExecMode) (*pgx.Conn, *atomic.Int64) {
	t.Helper()
	config, err := pgx.ParseConfig(connString)
	must(t, err)
	config.DefaultQueryExecMode = mode
	trips := new(atomic.Int64)
	dial := config.DialFunc
	config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &countingConn{Conn: conn, trips: trips}, err
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	must(t, err)
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn, trips
}

// countingConn counts how often the client turned from sending to receiving.
type countingConn struct {
	net.Conn
	trips   *atomic.Int64
	sending atomic.Bool
}

func (c *countingConn) Write(b []byte) (int, error) {
	if !c.sending.Swap(true) {
		c.trips.Add(1)
	}
	return c.Conn.Write(b)
}

func (c *countingConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.sending.Store(false)
	return n, err
}

// items reads which items there are.
func items(t *testing.T, db pgtx.DB) []int32 {
	t.Helper()
	rows, err := db.Query(t.Context(), "select id from item order by id")
	must(t, err)
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int32])
	must(t, err)
	return ids
}

func wantItems(t *testing.T, db pgtx.DB, want ...int32) {
	t.Helper()
	if got := items(t, db); !slices.Equal(got, want) {
		t.Errorf("items are %v, want %v", got, want)
	}
}

// wantNoSavepoint checks that an operation in a transaction left no savepoint.
func wantNoSavepoint(t *testing.T, db pgtx.DB) {
	t.Helper()
	_, err := db.Exec(t.Context(), "savepoint probe")
	must(t, err)
	if _, err = db.Exec(t.Context(), "release savepoint annals"); !hasCode(err, "3B001") {
		t.Errorf("releasing a savepoint that should not be there: %v", err)
	}
	_, err = db.Exec(t.Context(), "rollback to savepoint probe; release savepoint probe")
	must(t, err)
}

func insert(ctx context.Context, db pgtx.DB, id int32) error {
	_, err := db.Exec(ctx, "insert into item values ($1)", id)
	return err
}

func hasCode(err error, code string) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == code
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
