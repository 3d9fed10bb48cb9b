package pgserver

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// originals are databases that [Copy] copies, by name.
var originals struct {
	sync.Mutex
	made map[string]string
}

// Copy returns a pool on a copy of a database of the shared server that prepare has filled. That is done once for each name in a test
// process: copying is quicker than installing much in every test. The copy is dropped when the test ends.
func Copy(t testing.TB, name string, prepare func(context.Context, *pgxpool.Pool) error) *pgxpool.Pool {
	t.Helper()
	s := Shared(t)
	from, err := filled(t.Context(), s, name, prepare)
	if err != nil {
		t.Fatal(err)
	}
	copied, err := s.CopyDatabase(t.Context(), from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.DropDatabase(context.WithoutCancel(t.Context()), copied); err != nil {
			t.Error(err)
		}
	})
	pool, err := pgxpool.New(t.Context(), s.ConnString(copied))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// filled returns the name of the database that is copied for name, and makes it first if there is none yet.
func filled(ctx context.Context, s *Server, name string, prepare func(context.Context, *pgxpool.Pool) error) (string, error) {
	originals.Lock()
	defer originals.Unlock()
	if made, ok := originals.made[name]; ok {
		return made, nil
	}
	made, err := s.CreateDatabase(ctx)
	if err != nil {
		return "", err
	}
	pool, err := pgxpool.New(ctx, s.ConnString(made))
	if err != nil {
		return "", err
	}
	err = prepare(ctx, pool)
	pool.Close()
	if err != nil {
		return "", err
	}
	if originals.made == nil {
		originals.made = map[string]string{}
	}
	originals.made[name] = made
	return made, nil
}
