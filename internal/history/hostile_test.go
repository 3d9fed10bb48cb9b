package history_test

import (
	"fmt"
	"testing"

	"github.com/annals-db/annals/internal/pgserver"
)

// What BEFORE triggers change is captured, although the update does not name it: long values, and keys.
func TestCaptureOfWhatUpdatesDoNotName(t *testing.T) {
	pool := installed(t)
	exec(t, pool, `create function by_name() returns trigger language plpgsql as 'begin new.long := ''by trigger''; return new; end'`)
	exec(t, pool, `create function elsewhere() returns trigger language plpgsql as 'begin return jsonb_populate_record(new, jsonb_build_object(tg_argv[0], tg_argv[1])); end'`)
	exec(t, pool, `create function later() returns trigger language plpgsql as 'begin new.v := 7; return new; end'`)
	const long = `(select string_agg('word' || n, ' ') from generate_series(1, 2000) n)`
	for _, c := range []struct{ table, columns, before, after, query, want string }{
		{"by_language", "id int primary key, v text, long text, other tsvector", "create trigger t before insert or update on by_language for each row execute function tsvector_update_trigger(other, 'pg_catalog.simple', v, long)", "",
			"select length(c4)::text from annals.h%d", "2001"},
		{"by_other_row", "id int primary key, v text, long text", "create trigger t before update on by_other_row for each row execute function elsewhere('long', 'x')", "", "select length(c3)::text from annals.h%d", "16892"},
		{"by_new_trigger", "id int primary key, v text, long text", "", "create trigger t before update on by_new_trigger for each row execute function by_name()", "select length(c3)::text from annals.h%d", "16892"},
		{"by_new_function", "id int primary key, v text, long text", "create trigger t before update on by_new_function for each row execute function later()",
			`create or replace function later() returns trigger language plpgsql as 'begin new.long := ''by trigger''; return new; end'`, "select length(c3)::text from annals.h%d", "16892"},
		{"key", "id int primary key, v text", "create trigger t before update on key for each row execute function elsewhere('id', '8')", "",
			"select string_agg(op || c1, ' ' order by v) from annals.h%d", "u1 m1 n8"},
	} {
		exec(t, pool, "create table "+c.table+" ("+c.columns+")")
		exec(t, pool, "insert into "+c.table+" select 1, 'a'")
		if c.table != "key" {
			exec(t, pool, "update "+c.table+" set long = "+long)
		}
		if c.before != "" {
			exec(t, pool, c.before)
		}
		if c.table == "by_language" {
			exec(t, pool, "update by_language set v = 'a'")
		}
		id := track(t, pool, c.table, "")
		if c.after != "" {
			exec(t, pool, c.after)
		}
		exec(t, pool, "update "+c.table+" set v = 'b'")
		if got := one[string](t, pool, "select coalesce(("+fmt.Sprintf(c.query, id)+"), 'nothing')"); got != c.want {
			t.Errorf("%s: %s, want %s", c.table, got, c.want)
		}
		if got := many[string](t, pool, "select detail from annals.check_capture()"); len(got) > 0 {
			t.Errorf("%s: %v", c.table, got)
		}
	}
}

// A changed key is not forgotten when other tables are captured before the statement ends.
func TestCaptureOfKeysBesideOtherTables(t *testing.T) {
	pool := installed(t)
	exec(t, pool, `create table a (id int primary key, code text unique, v int);
		create table b (id int primary key, v int);
		create table c (id int primary key, code text references a (code) on update cascade);
		insert into a select g, 'c' || g, g from generate_series(1, 4) g;
		insert into b select g, g from generate_series(1, 4) g;
		insert into c select g, 'c' || g from generate_series(1, 4) g`)
	id := track(t, pool, "a", "")
	track(t, pool, "b", `{"skip_noop": true}`)
	track(t, pool, "c", "")
	remember(t, pool, "a", "all")
	exec(t, pool, "update a set id = case when id = 1 then 100 else id end, code = case when id = 2 then 'xx' else code end where id in (1, 2)")
	remember(t, pool, "a", "with")
	exec(t, pool, "with x as (update a set id = id + 1000 where id in (3, 4) returning *) update b set v = 99 from x where b.id = x.id - 1000")
	remember(t, pool, "a", "end")
	if got := one[int](t, pool, "select count(*) from annals.move where tracked = $1", id); got != 3 {
		t.Errorf("%d moves", got)
	}
	compare(t, pool, "a")
}

// Policies are code of the table's owner, also where they hold for who installed.
func TestTrackRunsNoPolicies(t *testing.T) {
	pool := pgserver.Pool(t)
	owner, installer := pgserver.Role(t, pgserver.Shared(t), "owner"), pgserver.Role(t, pgserver.Shared(t), "installer")
	exec(t, pool, fmt.Sprintf(`grant %[1]s to %[2]s; create table loot (who text); grant insert on loot to public; create schema o authorization %[1]s;
		do $$ begin execute format('grant create on database %%I to %[2]s', current_database()); end $$`, owner, installer))
	install(t, session(t, pool, "user="+installer))
	o := session(t, pool, "user="+owner)
	exec(t, o, `create function o.judge() returns boolean language plpgsql as 'begin insert into public.loot values (current_user); return true; end';
		create table o.t (id int primary key, long text);
		insert into o.t select 1, repeat('x', 3000);
		create policy p on o.t using (o.judge());
		alter table o.t enable row level security;
		alter table o.t force row level security`)
	track(t, session(t, pool, "user="+installer), "o.t", "")
	exec(t, o, "update o.t set long = 'y'")
	if got := many[string](t, pool, "select distinct who from loot where who <> $1", owner); len(got) > 0 {
		t.Errorf("code of the owner ran as %v", got)
	}
}

// A trigger of another table writes within a statement on a covered one, when foreign keys lead there.
func TestCaptureFollowsWhatCascadesReach(t *testing.T) {
	pool := installed(t)
	exec(t, pool, "create table a (id int primary key, code text unique, v int); insert into a select g, 'c' || g, 0 from generate_series(1, 3) g")
	id := track(t, pool, "a", "")
	exec(t, pool, "create table c (id int primary key, code text); insert into c select g, 'c' || g from generate_series(1, 3) g")
	exec(t, pool, "create function f() returns trigger language plpgsql as 'begin return new; end'")
	exec(t, pool, "create trigger f before update on c for each row execute function f()")
	exec(t, pool, "alter table c add foreign key (code) references a (code) on update cascade")
	exec(t, pool, "create or replace function f() returns trigger language plpgsql as 'begin update a set v = v + 1 where code = new.code; return new; end'")
	remember(t, pool, "a", "all")
	exec(t, pool, "update a set code = code || 'x', v = 10 where id < 3")
	remember(t, pool, "a", "end")
	compare(t, pool, "a")
	if got := many[string](t, pool, "select detail from annals.drift($1)", id); len(got) > 0 {
		t.Error(got)
	}
}

// Settings of the session that changes a table say nothing about the table.
func TestTrackWithOddSettings(t *testing.T) {
	pool := installed(t)
	exec(t, pool, "create table t (id int primary key, long text, b bytea)")
	exec(t, pool, "create function f() returns trigger language plpgsql as 'begin new.long := 1; return new; end'")
	exec(t, pool, "create trigger f before update on t for each row execute function f()")
	odd := session(t, pool)
	exec(t, odd, "set quote_all_identifiers = on; set standard_conforming_strings = off; set escape_string_warning = off")
	id := track(t, odd, "t", "")
	exec(t, odd, "alter table t add column n name")
	if got := many[string](t, pool, "select detail from annals.drift($1)", id); len(got) > 0 {
		t.Error(got)
	}
}
