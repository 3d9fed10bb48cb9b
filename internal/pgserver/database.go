package pgserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrNotCreated is returned by DropDatabase for a database that CreateDatabase of the same server did not make.
var ErrNotCreated = errors.New("pgserver: refused to drop a database that was not created here")

// CreateDatabase makes an empty database and returns its name, which no other database of the server has or had.
func (s *Server) CreateDatabase(ctx context.Context) (name string, err error) {
	// template0 holds nothing but PostgreSQL's own, whatever the server's owner put into template1, and nobody
	// can be connected to it.
	return s.CopyDatabase(ctx, "template0")
}

// CopyDatabase makes a database that holds what another one does, to which nobody may be connected, and returns its name.
func (s *Server) CopyDatabase(ctx context.Context, from string) (name string, err error) {
	name = unique("annals")
	// To copy its files is quicker than to log their content.
	sql := "CREATE DATABASE " + pgx.Identifier{name}.Sanitize() + " TEMPLATE " + pgx.Identifier{from}.Sanitize() + " STRATEGY file_copy"
	if err := s.admin(ctx, sql); err != nil {
		return "", fmt.Errorf("pgserver: create a database: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.created[name] = true
	return name, nil
}

// DropDatabase drops a database made by CreateDatabase, breaking the connections to it. Any other name gives
// [ErrNotCreated].
func (s *Server) DropDatabase(ctx context.Context, name string) error {
	s.mu.Lock()
	made := s.created[name]
	s.mu.Unlock()
	if !made {
		return fmt.Errorf("%w: %q", ErrNotCreated, name)
	}
	if err := s.admin(ctx, "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)"); err != nil {
		return fmt.Errorf("pgserver: drop database %q: %w", name, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.created, name)
	return nil
}

// dropAll drops what CreateDatabase made and nobody dropped.
func (s *Server) dropAll(ctx context.Context) error {
	var errs []error
	for _, name := range s.databases() {
		errs = append(errs, s.DropDatabase(ctx, name))
	}
	return errors.Join(errs...)
}

func (s *Server) databases() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name := range s.created {
		names = append(names, name)
	}
	return names
}

// adminDatabase is one that is always there, to give orders about the others from.
func (s *Server) adminDatabase() string {
	if s.external != nil {
		return s.external.database
	}
	return "postgres"
}

// admin executes one statement in the admin database.
func (s *Server) admin(ctx context.Context, sql string) error {
	return s.in(ctx, s.adminDatabase(), func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

// in calls work with a connection to the database.
func (s *Server) in(ctx context.Context, database string, work func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, s.ConnString(database))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return work(conn)
}

// unique returns a name that is unused on any server, being random.
func unique(prefix string) string {
	return prefix + "_" + strings.ToLower(rand.Text()[:12])
}
