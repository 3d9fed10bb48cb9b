package pgtx

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// cachedPlanChanged is the code of "cached plan must not change result type":
// a prepared statement returns other columns since somebody's ALTER or an upgrade.
const cachedPlanChanged = "0A000"

// maxStatements bounds what is prepared on one connection. Statements beyond
// it still run, in more round trips.
const maxStatements = 128

const customDataKey = "github.com/annals-db/annals/internal/pgtx"

// statements are those that this package has prepared on a connection.
//
// When pgx sends a batch it first prepares what is not in its cache, and a
// statement that the server rejects there fails the transaction before the
// batch's SAVEPOINT is executed. And it closes the connection if an argument
// can't be encoded once other statements of the batch are in its buffer. So only
// a statement that is surely prepared, with arguments that surely can be
// encoded, may be sent along with its SAVEPOINT. pgx's own cache doesn't tell
// what it holds.
type statements struct {
	mode     pgx.QueryExecMode
	prepared map[string]*pgconn.StatementDescription
	builder  pgx.ExtendedQueryBuilder
}

func statementsOf(conn *pgx.Conn) *statements {
	data := conn.PgConn().CustomData()
	s, ok := data[customDataKey].(*statements)
	if !ok {
		s = &statements{
			mode:     conn.Config().DefaultQueryExecMode,
			prepared: map[string]*pgconn.StatementDescription{},
		}
		data[customDataKey] = s
	}
	return s
}

// canPipeline reports whether nothing can go wrong with the statement before
// the SAVEPOINT in front of it has been executed.
func (s *statements) canPipeline(conn *pgx.Conn, sql string, args []any) bool {
	if hasOptions(args) {
		return false
	}
	switch s.mode {
	case pgx.QueryExecModeExec:
		// Arguments are encoded before anything is sent, and the server parses
		// each statement when it comes to it.
		return true
	case pgx.QueryExecModeCacheStatement:
		sd, ok := s.prepared[sql]
		return ok && s.builder.Build(conn.TypeMap(), sd, args) == nil
	}
	return false
}

// prepare prepares sql, so that it can be pipelined the next time.
func (s *statements) prepare(ctx context.Context, conn *pgx.Conn, sql string, args []any) error {
	if s.mode != pgx.QueryExecModeCacheStatement || hasOptions(args) {
		return nil
	}
	if _, ok := s.prepared[sql]; ok || len(s.prepared) >= maxStatements {
		return nil
	}
	sd, err := conn.Prepare(ctx, sql, sql)
	if err != nil {
		return err
	}
	s.prepared[sql] = sd
	return nil
}

// forget drops sql, which the server can no longer execute as it was prepared.
// It reports whether sql had been prepared here and may now be tried afresh.
func (s *statements) forget(ctx context.Context, conn *pgx.Conn, sql string) bool {
	if _, ok := s.prepared[sql]; !ok || conn.PgConn().TxStatus() == failed {
		return false
	}
	delete(s.prepared, sql)
	return conn.Deallocate(ctx, sql) == nil
}

// hasOptions reports whether args begin with one of pgx's options, which a
// batch does not know.
func hasOptions(args []any) bool {
	if len(args) == 0 {
		return false
	}
	switch args[0].(type) {
	case pgx.QueryExecMode, pgx.QueryRewriter, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
		return true
	}
	return false
}
