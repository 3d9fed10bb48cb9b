package history_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/history"
	"github.com/annals-db/annals/internal/pgserver"
)

// town is a table with row-level security, its history, and who reads it.
type town struct {
	pool                      *pgxpool.Pool
	alice, bob, owner, nobody *pgx.Conn
	names                     map[*pgx.Conn]string
}

// newTown makes table t (id, who, a): each role sees the rows whose column who names it.
func newTown(t *testing.T, install func(*testing.T) *pgxpool.Pool) *town {
	t.Helper()
	d := &town{pool: install(t), names: map[*pgx.Conn]string{}}
	for _, conn := range []**pgx.Conn{&d.alice, &d.bob, &d.owner, &d.nobody} {
		role := pgserver.Role(t, pgserver.Shared(t), "town")
		*conn = session(t, d.pool, "user="+role)
		d.names[*conn] = role
	}
	exec(t, d.pool, fmt.Sprintf(`grant create on schema public to %[3]s; set role %[3]s; create table t (id int primary key, who text, a text); alter table t enable row level security;
		create policy own on t using (who = current_user); grant all on t to %[1]s, %[2]s; reset role; grant usage on schema annals to %[1]s, %[2]s, %[3]s, %[4]s;
		insert into annals.reader select * from unnest(array['%[1]s', '%[2]s', '%[3]s', '%[4]s'])`, d.names[d.alice], d.names[d.bob], d.names[d.owner], d.names[d.nobody]))
	track(t, d.pool, "t", "")
	return d
}

// seen are the entries that a role sees, as operation and key.
func (d *town) seen(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	return strings.Join(many[string](t, conn, "select concat(op, c1) from annals.h1 order by v"), " ")
}

func (d *town) want(t *testing.T, what string, conn *pgx.Conn, want string) {
	t.Helper()
	if got := d.seen(t, conn); got != want {
		t.Errorf("%s: sees %q, want %q", what, got, want)
	}
}

func TestViewFollowsRowLevelSecurity(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	d := newTown(t, func(t *testing.T) *pgxpool.Pool { return installed(t) })
	alice, bob := d.names[d.alice], d.names[d.bob]
	exec(t, d.pool, fmt.Sprintf(`insert into t values (1, '%[1]s', 'a'), (2, '%[2]s', 'b'), (3, '%[1]s', 'c');
		update t set a = 'x'; update t set who = '%[2]s' where id = 3; update t set a = 'y' where id = 3; delete from t where id = 1; update t set id = 4 where id = 2`, alice, bob))
	all := "i1 i2 i3 u1 u2 u3 u3 u3 d1 u2 m2 n4"
	// The images of row 3 were hers until it was given away: so was what is judged by them.
	d.want(t, "alice", d.alice, "i1 i3 u1 u3 u3 d1")
	d.want(t, "bob", d.bob, "i2 u2 u3 u2 m2 n4")
	d.want(t, "the owner", d.owner, all)
	d.want(t, "a superuser", session(t, d.pool), all)
	var pgErr *pgconn.PgError
	if _, err := d.nobody.Exec(ctx, "select * from annals.h1"); !errors.As(err, &pgErr) || pgErr.Code != "42501" {
		t.Errorf("without SELECT: %v", err)
	}
	exec(t, d.pool, "alter role "+alice+" bypassrls")
	d.want(t, "with BYPASSRLS", d.alice, all)
	exec(t, d.pool, "alter role "+alice+" nobypassrls; alter table t force row level security")
	d.want(t, "the owner, forced", d.owner, "")
	exec(t, d.pool, "alter table t no force row level security")

	// What a function of the caller's sees is only what he may see.
	exec(t, d.pool, "grant create on schema public to "+alice)
	exec(t, d.alice, "create function leak(text) returns boolean language plpgsql cost 0.0001 as $$ begin raise notice '%', $1; return true; end $$")
	if rows := many[string](t, d.alice, "select c2 from annals.h1 where leak(c3) and c2 is not null"); slices.Contains(rows, bob) {
		t.Error("rows of another one are read")
	}
	// Nor do his operators change what a policy means.
	exec(t, d.alice, "create function always(text, name) returns boolean language sql as 'select true'; create operator public.= (function = always, leftarg = text, rightarg = name)")
	exec(t, d.alice, "set search_path = public, pg_catalog")
	d.want(t, "with operators of one's own", d.alice, "i1 i3 u1 u3 u3 d1")

	exec(t, d.pool, "create policy no_c on t as restrictive using (a <> 'c')")
	d.want(t, "restrictive", d.alice, "i1 u1 u3 d1")
	exec(t, d.pool, fmt.Sprintf("drop policy no_c on t; create policy for_bob on t to %s using (true)", bob))
	d.want(t, "for a role", d.bob, all)
	d.want(t, "for another role", d.alice, "i1 i3 u1 u3 u3 d1")
	exec(t, d.pool, "drop policy for_bob on t; drop policy own on t; create policy w on t for update using (true)")
	d.want(t, "no policy for reading", d.alice, "")
	exec(t, d.pool, "create policy whole on t using (t is not null and t.id in (1, 4))")
	d.want(t, "the row as a whole", d.alice, "i1 u1 d1 n4")
	exec(t, d.pool, "alter policy whole on t using (tableoid > 0)")
	d.want(t, "what history does not hold", d.alice, "n4") // which is there now
	exec(t, d.pool, "drop policy whole on t; create policy own on t using (who = current_user)")

	// Columns that policies look at.
	exec(t, d.pool, "alter table t add tag text; alter policy own on t using (tag is null)")
	d.want(t, "a column added later", d.alice, "i3 u3 u3 u3 n4") // whose rows are seen now
	for _, sql := range []string{"alter table t rename tag to label", "alter table t rename to t2", "alter table t2 rename to t"} {
		exec(t, d.pool, sql)
		d.seen(t, d.alice)
		d.want(t, sql, d.owner, all)
	}
	exec(t, d.pool, "drop policy own on t; alter table t drop who, drop label, disable row level security")
	d.want(t, "without security", d.alice, all)
	assertWell(t, d.pool)
	exec(t, d.pool, "drop table t")
}

func TestViewWithPoliciesOverOtherTables(t *testing.T) {
	t.Parallel()
	d := newTown(t, func(t *testing.T) *pgxpool.Pool { return installed(t) })
	alice, bob := d.names[d.alice], d.names[d.bob]
	// Members see their own memberships only: a policy that reads the table sees no more than the reader does.
	exec(t, d.pool, fmt.Sprintf(`create table member (name text, org text); alter table member enable row level security; create policy m on member using (name = current_user);
		grant select on member to %[1]s; insert into member values ('%[1]s', 'A'), ('%[2]s', 'B');
		alter policy own on t using (exists (select from member where member.org = t.who));
		insert into t values (1, 'A', ''), (2, 'B', ''); delete from t`, alice, bob))
	d.want(t, "a member", d.alice, "i1 d1")
	if _, err := d.bob.Exec(t.Context(), "select * from annals.h1"); err == nil {
		t.Error("a policy reads a table for one who must not read it")
	}
	d.want(t, "the owner", d.owner, "i1 i2 d1 d2")
	exec(t, d.pool, "drop policy own on t; alter table member drop org; drop table member")
	d.want(t, "no policy", d.alice, "")
}

// TestViewOutOfDate: where no event trigger follows, readers are refused rather than shown what a new policy hides.
func TestViewOutOfDate(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	pool, super := ordinary(t)
	role := pgserver.Role(t, pgserver.Shared(t), "reader")
	exec(t, pool, fmt.Sprintf(`create table t (id int primary key, a int); insert into t values (1, 1); grant usage on schema annals to %[1]s; grant select on t to %[1]s; insert into annals.reader values ('%[1]s')`, role))
	id, err := history.Track(ctx, pool, "t", "test", history.Options{})
	ok(t, err)
	exec(t, pool, "update t set a = 2")
	reader := session(t, super, "user="+role)
	read := func(want int) {
		t.Helper()
		if n := one[int](t, reader, "select count(*) from annals.h1"); n != want {
			t.Errorf("%d entries, want %d", n, want)
		}
	}
	read(1)
	for _, c := range []struct {
		ddl  string
		want int
	}{{"alter table t enable row level security", 0}, {"create policy p on t using (a = 1)", 1}, {"alter policy p on t using (a = 2)", 0}, {"alter table t rename to t2", 0}, {"alter table t2 disable row level security", 1}} {
		exec(t, pool, c.ddl)
		if _, err := reader.Exec(ctx, "select * from annals.h1"); !errors.Is(history.Refused(err), history.ErrStale) {
			t.Errorf("%s: %v", c.ddl, err)
		}
		if _, err := history.Sync(ctx, pool, id); err != nil {
			t.Fatal(err)
		}
		read(c.want)
	}
	exec(t, pool, "revoke select on t2 from "+role)
	if _, err := reader.Exec(ctx, "select * from annals.h1"); err == nil {
		t.Error("it is read without SELECT on the table")
	}
}

// plan is what EXPLAIN tells.
func plan(t *testing.T, conn *pgx.Conn, sql string) string {
	t.Helper()
	return strings.Join(many[string](t, conn, "explain (costs off) "+sql), "\n")
}

func TestViewUsesIndexes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	d := newTown(t, func(t *testing.T) *pgxpool.Pool { return installed(t) })
	var bounds []int64
	for range 3 {
		exec(t, d.pool, fmt.Sprintf("insert into t select g, '%s', '' from generate_series(1, 2000) g; delete from t", d.names[d.alice]))
		bounds = append(bounds, one[int64](t, d.pool, "select last_value from annals.v"))
		if _, err := history.Rotate(ctx, d.pool, 1, 1); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := history.SealSegments(ctx, d.pool); err != nil || n != 3 {
		t.Fatalf("sealed %d: %v", n, err)
	}
	exec(t, d.pool, "analyze")
	super := session(t, d.pool)
	for name, conn := range map[string]*pgx.Conn{"restricted": d.alice, "owner": d.owner, "superuser": super} {
		point := plan(t, conn, "select * from annals.h1 where c1 = 7 and v > 5 order by v limit 1")
		for k := 1; k <= 4; k++ {
			if !strings.Contains(point, fmt.Sprintf("Scan using h1_%[1]d_c1_v_idx on h1_%[1]d", k)) && !strings.Contains(point, fmt.Sprintf("Index Scan on h1_%d_c1_v_idx", k)) {
				t.Errorf("%s, segment %d: no index on the key:\n%s", name, k, point)
			}
		}
		ranged := plan(t, conn, fmt.Sprintf("select * from annals.h1 where v > %d", bounds[1]))
		for k, want := range map[int]bool{1: false, 2: false, 3: true, 4: true} {
			if strings.Contains(ranged, fmt.Sprintf("Scan on h1_%d\n", k)) != want {
				t.Errorf("%s: segment %d read by position: %t, want %t:\n%s", name, k, !want, want, ranged)
			}
		}
	}
}
