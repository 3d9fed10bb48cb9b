package gnomon_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Each row that a statement writes is compared by its unique keys with the few rows that hold them, not with all that the branch changed.
func TestUniqueKeysOfBranchesAreLookedUpByIndex(t *testing.T) {
	g, db := installed(t)
	run(t, db, `create table code (id text collate "C" primary key, "o" int unique, x text collate "C", "n" int, unique (x, n))`,
		`insert into code select i, i, i, i from generate_series(1, 2000) i`, `analyze code`)
	track(t, g, "code")
	run(t, db, `select gnomon.create_branch('b')`)
	tx := must[pgx.Tx](t)(db.Begin(t.Context()))
	run(t, tx, `select gnomon.use('b', true)`, `update code set o = o + 2000, x = x || 'x' where id <> '1'`)
	if n := column[int](t, tx, `select sum(pg_stat_get_xact_tuples_fetched(c.oid) + pg_stat_get_xact_tuples_returned(c.oid))::int from pg_class c where c.relnamespace = 'gnomon'::regnamespace and c.relname ~ '^o[0-9]+(_|$)'`)[0]; n > 30*2000 {
		t.Errorf("an update of 1999 rows looked at %d entries and rows of the overlay", n)
	}
	ok(t, tx.Rollback(t.Context()))
	// Those of the base and of the branch's own are told apart by what holds on the branch.
	ok(t, pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
		run(t, tx, `select gnomon.use('b', true)`, `update code set o = 9000 where id = '5'`, `update code set o = 5 where id = '6'`)
		for _, statement := range []string{`update code set o = 9000 where id = '7'`, `update code set o = 5 where id = '7'`, `update code set o = 8 where id = '7'`, `insert into code values ('new', 5, 'new', 1)`, `update code set x = '8', n = 8 where id = '7'`} {
			if err := pgx.BeginFunc(t.Context(), tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), statement)
				return err
			}); sqlState(err) != "23505" || !strings.Contains(err.Error(), "duplicate key value violates unique constraint") {
				t.Errorf("%s: %v", statement, err)
			}
		}
		return nil
	}))
}
