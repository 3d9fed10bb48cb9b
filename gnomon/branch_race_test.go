package gnomon_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
)

// Two transactions write one branch. The first has written and not committed when the second comes.
func TestBranchWritersCollide(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, `create schema s`, `create table s.p (id int primary key)`, `create table s.t (id int primary key, n int, u int unique, p int references s.p)`, `insert into s.p select generate_series(1, 9)`, `insert into s.t select i, i, i, 1 from generate_series(1, 9) i`)
	track(t, g, "s.p", "s.t")
	for _, c := range []struct{ name, before, first, second, want, shows string }{
		{"lost update of a row of the base", "", "update t set n = n + 1 where id = 1", "update t set n = n + 1 where id = 1", "40001", "n from t where id = 1|(2)"},
		{"lost update of a row of the branch", "update t set n = 5 where id = 1", "update t set n = n + 1 where id = 1", "update t set n = n + 1 where id = 1", "40001", "n from t where id = 1|(6)"},
		{"update of what goes", "", "delete from t where id = 1", "update t set n = 7 where id = 1", "40001", "count(*) from t where id = 1|(0)"},
		{"deletion of what changes", "", "update t set n = 7 where id = 1", "delete from t where id = 1", "40001", "n from t where id = 1|(7)"},
		{"one key twice", "", "insert into t values (10)", "insert into t values (10)", "23505 40001", "count(*) from t where id = 10|(1)"},
		{"a key that went comes back twice", "delete from t where id = 1", "insert into t values (1)", "insert into t values (1)", "23505 40001", "count(*) from t where id = 1|(1)"},
		{"one unique value twice", "", "insert into t values (10, 0, 10)", "insert into t values (11, 0, 10)", "23505 40001", "count(*) from t where u = 10|(1)"},
		{"one unique value twice, by updates", "update t set n = 0", "update t set u = 10 where id = 1", "update t set u = 10 where id = 2", "23505 40001", "count(*) from t where u = 10|(1)"},
		{"one unique value twice, by first updates", "", "update t set u = 10 where id = 1", "update t set u = 10 where id = 2", "23505 40001", "count(*) from t where u = 10|(1)"},
		{"what a row refers to goes", "", "delete from p where id = 2", "insert into t values (10, 0, 10, 2)", "23503", "count(*) from t where id = 10|(0)"},
		{"what goes is referred to", "", "insert into t values (10, 0, 10, 2)", "delete from p where id = 2", "23503", "count(*) from t where id = 10|(1)"},
		{"rows apart", "", "update t set n = 50 where id = 1", "update t set n = 60 where id = 2", "", "sum(n) from t where id < 3|(110)"},
	} {
		for _, level := range []string{"read committed", "repeatable read", "serializable"} {
			t.Run(c.name+"/"+level, func(t *testing.T) {
				setup := onSchema(t, pool, "s")
				run(t, setup, `select gnomon.reset_branch('b')`, `select gnomon.use('b')`)
				if c.before != "" {
					run(t, setup, c.before)
				}
				one, two := onSchema(t, pool, "s"), onSchema(t, pool, "s")
				for _, x := range []*pgxpool.Conn{one, two} {
					run(t, x, `begin isolation level `+level, `select count(*) from t`)
				}
				run(t, one, c.first)
				done := make(chan error, 1)
				go func() {
					_, err := two.Exec(t.Context(), c.second)
					done <- err
				}()
				select {
				case err := <-done:
					done <- err
				case <-time.After(100 * time.Millisecond):
				}
				run(t, one, `commit`)
				err := <-done
				if err == nil {
					_, err = two.Exec(t.Context(), `commit`)
				}
				want := c.want
				if level == "serializable" && want == "23503" {
					want += " 40001"
				}
				if err == nil && c.want == "23503" && level == "repeatable read" {
					// A snapshot that does not see the other's row sees no foreign key broken. Merging does.
					_, err := g.Merge(t.Context(), "b", gnomon.MergeOptions{})
					refuses(t, err, gnomon.ErrViolation)
					return
				}
				switch {
				case c.want == "" && (err == nil || level == "serializable" && sqlState(err) == "40001"):
				case err == nil || !strings.Contains(want, sqlState(err)):
					t.Fatalf("got %v, want one of %s", err, want)
				}
				if c.want != "" || err == nil {
					query, result, _ := strings.Cut(c.shows, "|")
					shows(t, setup, `select `+query, result)
				}
			})
		}
	}
}

// What PostgreSQL does not let a view take fails, and nothing of it is done.
func TestBranchLimits(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, `create schema s`, `create table s.p (id int primary key)`,
		`create table s.t (id int generated always as identity primary key, n int, p int references s.p, r int4range, exclude using gist (r with &&), unique (n) deferrable)`, `create unique index on s.t ((n + 1))`, `create unique index on s.t (p) where n > 5`,
		`insert into s.p values (1)`, `insert into s.t (n) values (1), (2)`)
	track(t, g, "s.p", "s.t")
	c := onSchema(t, pool, "s")
	before := text(t, c, `select * from t order by 1`)
	for _, l := range []struct{ what, sql, state string }{
		{"ON CONFLICT", `insert into t (id, n) values (1, 5) on conflict (id) do update set n = 5`, "42P10"},
		{"ON CONFLICT DO NOTHING", `insert into t (id, n) values (1, 5) on conflict do nothing`, "23505"},
		{"TRUNCATE", `truncate t`, "42809"},
		{"ctid", `select ctid from t`, "42703"},
		{"xmin", `select xmin from t`, "42703"},
		{"tableoid", `select tableoid from t`, "42703"},
		{"TABLESAMPLE", `select * from t tablesample system (1)`, "0A000"},
		{"ALTER TABLE", `alter table t add column x int`, "42809"},
		{"CREATE INDEX", `create index on t (n)`, "42809"},
		{"WHERE CURRENT OF", `update t set n = 3 where current of nothing`, "0A000"},
		{"unique values change places", `update t set n = 3 - n`, "23505"},
		{"a row twice", `update t set n = x from generate_series(7, 8) x where id = 1`, "21000"},
	} {
		_, err := c.Exec(t.Context(), l.sql)
		if sqlState(err) != l.state {
			t.Errorf("%s: %s: got %v, want SQLSTATE %s", l.what, l.sql, err, l.state)
		}
	}
	shows(t, c, `select * from t order by 1`, before)
	// These work, or do nothing.
	run(t, c, `copy (select * from t) to stdout`, `select * from t for update`)
	if _, err := c.Conn().PgConn().CopyFrom(t.Context(), strings.NewReader("7\t7\t1\t\\N\n"), `copy t from stdin`); err != nil {
		t.Errorf("COPY FROM: %v", err)
	}
	version := column[int](t, pool, `select current_setting('server_version_num')::int / 10000`)[0]
	_, err := c.Exec(t.Context(), `merge into t using (values (7, 70), (8, 80)) v (id, n) on t.id = v.id when matched then update set n = v.n when not matched then insert (id, n) values (v.id, v.n)`)
	if version >= 17 && err != nil || version < 17 && sqlState(err) != "0A000" {
		t.Errorf("MERGE: %v", err)
	}
	// Merging finds what these do not allow.
	run(t, c, `update t set r = '[1,5)'`, `update t set n = 100 where id = 1`, `insert into t (n, p) values (99, 1), (98, 1)`)
	shows(t, pool, `select * from s.t order by 1`, before)
}
