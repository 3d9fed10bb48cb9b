package history_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/annals-db/annals/internal/pgserver"
)

// who is a query for what a history says of the entry for a key.
func who(id, key int) string {
	return fmt.Sprintf(`select coalesce(string_agg(format('%%s as %%s for %%s in %%s', h.login::regrole, c.role_name, c.actor, c.application), ' or '), 'nobody')
		from annals.h%d h left join annals.context c on c.hash = h.ctx and c.login = h.login where h.c1 = %d`, id, key)
}

func TestContext(t *testing.T) {
	t.Parallel()
	pool := installed(t)
	exec(t, pool, "create table t (id int primary key)")
	track(t, pool, "t", "")
	login, role := pgserver.Role(t, pgserver.Shared(t), "login"), pgserver.Role(t, pgserver.Shared(t), "role")
	exec(t, pool, fmt.Sprintf("grant insert on t to %s, %s; grant %s to %s", login, role, role, login))
	conn := session(t, pool, "user="+login+" application_name=shop")
	ok(t, script(t, conn, `insert into t values (1);
		set application_name = 'till'; insert into t values (2);
		begin; insert into t values (3); set local role `+role+`; insert into t values (4); select set_config('annals.actor', 'Ann "A" Ö
|x', true); insert into t values (5); reset role; insert into t values (6); commit;
		insert into t values (7); set annals.actor = ''; insert into t values (8)`))
	ok(t, script(t, conn, "begin; set local application_name = 'rolled back'; insert into t values (100); rollback"))
	ok(t, script(t, conn, `begin; set local application_name = 'rolled back'; insert into t values (9); commit;
		begin; savepoint s; set local application_name = 'with savepoint'; insert into t values (100); rollback to s; set local application_name = 'with savepoint'; insert into t values (10); commit;
		set role `+role+`; insert into t values (11)`))
	// Texts that run together must not be taken for each other.
	ok(t, script(t, conn, "reset role; set application_name = 'a|b'; set annals.actor = 'c'; insert into t values (12); set application_name = 'a'; set annals.actor = 'b|c'; insert into t values (13)"))
	actor := "Ann \"A\" Ö\n|x"
	for key, want := range map[int]string{
		1: login + " as none for  in shop", 2: login + " as none for  in till", 3: login + " as none for  in till", 4: login + " as " + role + " for  in till",
		5: login + " as " + role + " for " + actor + " in till", 6: login + " as none for " + actor + " in till", 7: login + " as none for  in till", 8: login + " as none for  in till",
		9: login + " as none for  in rolled back", 10: login + " as none for  in with savepoint", 11: login + " as " + role + " for  in till", 12: login + " as none for c in a|b", 13: login + " as none for b|c in a", 100: "nobody",
	} {
		if got := one[string](t, pool, who(1, key)); got != want {
			t.Errorf("row %d was inserted by %q, want %q", key, got, want)
		}
	}
	if got := one[int](t, pool, "select count(*) - count(distinct hash) from annals.context"); got != 0 {
		t.Errorf("%d contexts were registered again by the same session", got)
	}
}

// Two sessions that register one context at once don't wait for each other.
func TestContextsRegisteredAtOnce(t *testing.T) {
	t.Parallel()
	pool := installed(t)
	exec(t, pool, "create table t (id int primary key)")
	track(t, pool, "t", "")
	a, b := session(t, pool, "application_name=same"), session(t, pool, "application_name=same")
	exec(t, a, "begin; insert into t values (1)")
	exec(t, b, fmt.Sprintf("set lock_timeout = %d; insert into t values (2)", 5*time.Second.Milliseconds()))
	exec(t, a, "commit")
	for key := range 2 {
		if got := one[int](t, pool, fmt.Sprintf("select count(distinct (c.hash, c.login, c.application, c.actor)) from annals.h1 h join annals.context c on c.hash = h.ctx where c1 = %d and c.application = 'same'", key+1)); got != 1 {
			t.Errorf("%d different contexts for row %d", got, key+1)
		}
	}
}

// Whoever forges the settings of capture hides at most what he could have chosen anyway, and never breaks a write.
func TestForgedSettings(t *testing.T) {
	t.Parallel()
	pool := installed(t)
	exec(t, pool, nesting+"create trigger a after insert or update on t for each row execute function nudge(); create table p (id int, part int, primary key (id, part)) partition by list (part); create table p1 partition of p for values in (1); create table p2 partition of p for values in (2); insert into p values (1, 1), (2, 1)")
	track(t, pool, "t", "")
	track(t, pool, "p", "")
	forger := pgserver.Role(t, pgserver.Shared(t), "forger")
	exec(t, pool, "grant select, insert, update, delete on t, p, p1, p2 to "+forger)
	conn := session(t, pool, "user="+forger)
	for i, value := range []string{"abc", "", ",", ",9999999999999999999999999999", "-1", "yes", "null", ",5,"} {
		for _, name := range []string{"known", "start1", "start2", "start1UPDATE", "keyed1", "keyed2", "working", "actor"} {
			exec(t, conn, "select set_config('annals."+name+"', $1, false)", value)
		}
		remember(t, pool, "t", value)
		remember(t, pool, "p", value)
		ok(t, script(t, conn, fmt.Sprintf("insert into t values (%[1]d, 1, 'w'); update t set x = 1; update t set id = id + 1000 where id = %[1]d; delete from t where id = %[1]d + 1000; update p set part = 3 - part where id = 1; update p set id = id + 10 where id <> 1", 100+i)))
	}
	if got := many[string](t, pool, "select distinct login::regrole::text from annals.h1"); len(got) != 1 || got[0] != forger {
		t.Errorf("roles %v", got)
	}
	assertTold(t, pool, []string{"t", "p"})
	for _, sql := range []string{"select annals.register_context()", "select annals.flush_moves(1)", "select annals.capture_truncate(1, 't'::regclass)", "insert into annals.h1_1 default values", "delete from annals.move", "create table mine (id int); create trigger x after update on mine for each row execute function annals.h1_update()"} {
		if err := script(t, conn, sql); sqlState(err) != "42501" {
			t.Errorf("%s: %v", sql, err)
		}
	}
}

// Functions and operators of a user's own that look like PostgreSQL's are not called by capture.
func TestHijack(t *testing.T) {
	t.Parallel()
	for _, options := range everyForm {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			pool := installed(t)
			exec(t, pool, nesting+"create table n (id int primary key, x int, w text); create table p (id int, part int, w text, primary key (id, part)) partition by list (part); create table p1 partition of p for values in (1); create table p2 partition of p for values in (2); create function twice() returns trigger language plpgsql as $$ begin if pg_catalog.pg_trigger_depth() operator(pg_catalog.=) 1 then update public.n set x = 3 where n.id operator(pg_catalog.=) new.id; end if; return null; end $$; create trigger a after update on n for each row execute function twice()")
			for _, table := range []string{"t", "n", "p"} {
				track(t, pool, table, options)
			}
			thief := pgserver.Role(t, pgserver.Shared(t), "thief")
			exec(t, pool, "grant create on schema public to "+thief+"; grant all on t, n, p, p1, p2 to "+thief)
			exec(t, session(t, pool, "user="+thief), hijackSQL)
			victim := session(t, pool)
			exec(t, victim, "set search_path = public, pg_catalog")
			ok(t, script(t, victim, `insert into t values (100, 1, 'w'); update t set x = 1, w = 'v'; update t set id = 101 where id OPERATOR(pg_catalog.=) 100; delete from t where id OPERATOR(pg_catalog.=) 101;
				insert into n values (1, 1, 'w'); update n set x = 2, w = 'q'; update n set id = 5; delete from n; insert into p values (1, 1); update p set part = 2; update p set id = 9; delete from p; begin; savepoint a; insert into n values (3); update n set x = 1; commit; truncate t, n, p`))
			if got := one[int](t, pool, "select count(*) from public.stolen"); got != 0 {
				t.Errorf("the thief's code ran: %v", many[string](t, pool, "select distinct what from public.stolen"))
			}
		})
	}
}

// hijackSQL makes namesakes of what capture calls, all of which tell when they are called.
const hijackSQL = `
	create table public.stolen (what text); grant all on public.stolen to public;
	create function public.steal(what text) returns void language plpgsql as $$ begin insert into public.stolen values (what); end $$;
	do $do$
	declare
		f record;
	begin
		for f in select p.oid, p.proname, pg_get_function_identity_arguments(p.oid) as args, pg_get_function_result(p.oid) as result, p.provariadic from pg_proc p
				where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'f' and not p.proretset and p.provariadic = 0
					and p.proname in ('nextval', 'pg_current_xact_id', 'now', 'current_setting', 'set_config', 'hashtextextended', 'to_regrole', 'quote_ident', 'inet_client_addr', 'record_image_eq', 'record_image_ne', 'age', 'pg_trigger_depth', 'substring', 'regexp_replace', 'row_number')
					and pg_get_function_result(p.oid) not in ('trigger', 'internal') and pg_get_function_identity_arguments(p.oid) !~ 'anyelement|internal|record'
		loop
			begin
				execute format('create function public.%I(%s) returns %s language plpgsql as $f$ begin perform public.steal(%L); return null; end $f$', f.proname, f.args, f.result, f.proname);
			exception when others then null;
			end;
		end loop;
		for f in select distinct o.oprname, o.oprleft::regtype as l, o.oprright::regtype as r, o.oprresult::regtype as result from pg_operator o
				where o.oprnamespace = 'pg_catalog'::regnamespace and o.oprname in ('=', '<>', '&', '|', '-', '>', '||', '<') and o.oprleft::regtype in ('text', 'int8', 'int4', 'name', 'oid', 'text[]') and o.oprright::regtype in ('text', 'int8', 'int4', 'name', 'oid', 'text[]')
		loop
			execute format('create function public.op_%s(a %s, b %s) returns %s language plpgsql as $f$ begin perform public.steal(%L); return null; end $f$', md5(f::text), f.l, f.r, f.result, f.oprname || f.l);
			execute format('create operator public.%s (function = public.op_%s, leftarg = %s, rightarg = %s)', f.oprname, md5(f::text), f.l, f.r);
		end loop;
	end $do$;
	create function public.concat(variadic text[]) returns text language plpgsql as $$ begin perform public.steal('concat'); return ''; end $$;
	create function public.format(text, text, text) returns text language plpgsql as $$ begin perform public.steal('format'); return ''; end $$;
	create domain public."char" as text check (public.steal(value) is null); create domain public.int8 as pg_catalog.int4 check (value < 0); create domain public.text as pg_catalog.text check (value = ''); create domain public.oid as pg_catalog.int4 check (value < 0); create domain public.regclass as pg_catalog.text check (value = '');
	create view public.pg_class as select public.steal('pg_class')::text as relname;`
