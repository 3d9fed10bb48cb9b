package pgserver

import (
	"context"
	_ "embed"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Role makes a role with LOGIN for the test; its name starts with the prefix. To connect as it, append " user=" and
// the name to a connection string. When the test ends it is dropped with all that it owns.
func Role(t testing.TB, s *Server, prefix string) string {
	t.Helper()
	name := unique(prefix)
	if err := s.createRole(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.dropRole(context.WithoutCancel(t.Context()), name); err != nil {
			t.Error(err)
		}
	})
	return name
}

func (s *Server) createRole(ctx context.Context, name string) error {
	err := s.in(ctx, s.adminDatabase(), func(conn *pgx.Conn) error {
		sql := "CREATE ROLE " + pgx.Identifier{name}.Sanitize() + " LOGIN"
		// Somebody else's server may ask for a password, and the connection string holds one.
		if known := conn.Config().Password; known != "" {
			password, err := conn.PgConn().EscapeString(known)
			if err != nil {
				return err
			}
			sql += " PASSWORD '" + password + "'"
		}
		_, err := conn.Exec(ctx, sql)
		return err
	})
	if err != nil {
		return fmt.Errorf("pgserver: create role %s: %w", name, err)
	}
	return nil
}

//go:embed role_databases.sql
var roleDatabasesSQL string

func (s *Server) dropRole(ctx context.Context, name string) error {
	role := pgx.Identifier{name}.Sanitize()
	err := s.in(ctx, s.adminDatabase(), func(conn *pgx.Conn) error {
		// Who is no superuser drops another role's objects only as a member of it.
		if _, err := conn.Exec(ctx, "GRANT "+role+" TO CURRENT_USER"); err != nil {
			return err
		}
		rows, err := conn.Query(ctx, roleDatabasesSQL, name)
		if err != nil {
			return err
		}
		databases, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		for _, database := range append(databases, s.adminDatabase()) {
			err := s.in(ctx, database, func(conn *pgx.Conn) error {
				_, err := conn.Exec(ctx, "DROP OWNED BY "+role+" CASCADE")
				return err
			})
			if err != nil {
				return fmt.Errorf("what it owns in %s: %w", database, err)
			}
		}
		_, err = conn.Exec(ctx, "DROP ROLE "+role)
		return err
	})
	if err != nil {
		return fmt.Errorf("pgserver: drop role %s: %w", name, err)
	}
	return nil
}
