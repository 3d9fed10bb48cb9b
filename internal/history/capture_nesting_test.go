package history_test

import "testing"

// Trigger functions of plays. nudge writes another row, again writes the same row, both within the statement that fires them.
const nesting = item + `
	create function again() returns trigger language plpgsql as $$ begin
		if pg_trigger_depth() = 1 then update t set x = x + 1000 where id = new.id; end if; return new; end $$;
	create function nudge() returns trigger language plpgsql as $$ begin
		if pg_trigger_depth() = 1 then update t set x = x + 1, w = w || 'n' where id = new.id % 9 + 1; end if; return new; end $$;
	create function drop_next() returns trigger language plpgsql as $$ begin
		if pg_trigger_depth() = 1 then delete from t where id = old.id + 1; end if; return null; end $$;
	create function replace() returns trigger language plpgsql as $$ begin delete from t where id = new.id; return new; end $$;
	create function make_room() returns trigger language plpgsql as $$ begin
		if new.id <> old.id then delete from t where id = new.id; end if; return new; end $$;
	create function stamp() returns trigger language plpgsql as $$ begin new.w := coalesce(new.w, '') || '.'; return new; end $$;
	create function rekey() returns trigger language plpgsql as $$ begin new.id := new.id + coalesce(new.x, 0); return new; end $$;
	create function rekey_here() returns trigger language plpgsql as $$ begin
		if pg_trigger_depth() = 1 then update t set id = -new.id where id = new.id; end if; return null; end $$;
	create function vanish() returns trigger language plpgsql as $$ begin if old.id % 2 = 0 then return null; end if; return old; end $$;
	create function sweep() returns trigger language plpgsql as $$ begin
		if pg_trigger_depth() = 1 then update t set x = x + 1 where id < 4; delete from t where id = 9; insert into t select 9, -1 where not exists (select from t where id = 9); end if; return null; end $$;
	create function clear() returns trigger language plpgsql as $$ begin delete from t; return null; end $$;
`

var manySteps = []string{
	"insert into t values (10, 1, 'a'), (11, 2, 'b')", "update t set x = x + 1 where id = 1", "update t set x = x + 1", "update t set w = 'same'", "update t set x = x",
	"update t set id = id + 1", "update t set id = 12 - id where id between 3 and 9", "begin; update t set x = 1; update t set id = id + 100; update t set x = 2; commit", "delete from t where id = 102",
	"begin; insert into t values (1, 1, 'one'); update t set x = 7; delete from t where id = 1; insert into t values (1, 2, 'two'); commit",
	"begin; savepoint s; update t set x = 4; savepoint s; update t set x = 5; rollback to s; update t set x = 6; release s; commit", "delete from t where id > 105", "delete from t",
}

var nestingPlays = []play{
	{name: "after row, same row", setup: nesting + "create trigger z after insert or update on t for each row execute function again();", steps: manySteps},
	{name: "after row, same row, fired before capture", setup: nesting + "create trigger a after insert or update on t for each row execute function again();", steps: manySteps},
	{name: "after row, other row", setup: nesting + "create trigger z after insert or update on t for each row execute function nudge();", steps: manySteps},
	{name: "after row, other row, fired before capture", setup: nesting + "create trigger a after insert or update on t for each row execute function nudge();", steps: manySteps},
	{name: "after row, deletes", setup: nesting + "create trigger a after update or delete on t for each row execute function drop_next();", steps: manySteps},
	{name: "after row, changes the key", setup: nesting + "create trigger a after insert or update on t for each row execute function rekey_here();", steps: manySteps},
	{name: "after statement", setup: nesting + "create trigger a after insert or update or delete on t for each statement execute function sweep();", steps: manySteps},
	{name: "before statement", setup: nesting + "create trigger a before insert on t for each statement execute function sweep(); create trigger z before insert on t for each statement execute function clear();", steps: manySteps},
	{name: "before row, changes the row", setup: nesting + "create trigger z before insert or update on t for each row execute function stamp();", steps: manySteps},
	{name: "before row, changes the key", setup: nesting + "create trigger z before insert or update on t for each row execute function rekey();", steps: []string{
		"insert into t values (100, 1)", "update t set x = 50", "update t set x = -x", "update t set w = 'q' where id = 1", "begin; update t set x = 1; update t set x = -1; commit"}},
	{name: "before row, replaces on insert", setup: nesting + "create trigger z before insert on t for each row execute function replace();", steps: []string{
		"insert into t values (1, 10)", "insert into t values (2, 10), (3, 10), (2, 11)", "begin; insert into t values (1, 20); insert into t values (1, 21); delete from t where id = 1; commit", "insert into t values (1, 30)",
		"begin; insert into t values (50, 1); insert into t values (50, 2); commit", "insert into t select id, x + 1, w from t", "begin; savepoint s; insert into t values (4, 10); release s; savepoint q; insert into t values (4, 11); commit"}},
	{name: "before row, makes room for a key", setup: nesting + "create trigger z before update on t for each row execute function make_room();", steps: []string{
		"update t set id = 2 where id = 1", "update t set id = 7, w = 'seven' where id = 6", "begin; update t set id = 8 where id = 7; update t set id = 9 where id = 8; insert into t values (8, 8); commit"}},
	{name: "before row, other row", setup: nesting + "create trigger z before insert on t for each row execute function nudge();", steps: []string{
		"insert into t values (10, 1), (12, 2), (20, 3), (19, 4)", "begin; insert into t values (30, 1, 'a'); insert into t values (39, 1, 'b'); delete from t where id = 4; insert into t values (3 + 9 * 9, 1), (4, 4); commit"}},
	{name: "before row, vanishing", setup: nesting + "create trigger z before delete on t for each row execute function vanish();", steps: []string{"delete from t where id < 5", "delete from t"}},
	{name: "trigger that writes through another table", setup: nesting + `create table log (n int primary key generated always as identity, id int, w text);
		create function logged() returns trigger language plpgsql as $$ begin insert into log (id) values (new.id); return null; end $$;
		create function reacts() returns trigger language plpgsql as $$ begin if pg_trigger_depth() < 4 then update t set x = x + 10 where id in (new.id, new.id + 1); end if; return null; end $$;
		create trigger a after update on t for each row execute function logged(); create trigger a after insert on log for each row execute function reacts();`, tables: []string{"t", "log"}, steps: manySteps[1:9]},
	{name: "recursion", setup: nesting + `create function deeper() returns trigger language plpgsql as $$ begin if new.x < 8 then update t set x = x + 1, id = -id where id = new.id; end if; return null; end $$;
		create trigger a after update on t for each row execute function deeper();`, steps: []string{"update t set x = 1 where id = 1", "update t set x = 2", "begin; update t set x = 3 where id = 5; update t set x = 9; commit"}},
	{name: "error caught in a nested statement", setup: nesting + `create function tries() returns trigger language plpgsql as $$ begin
			begin update t set x = x + 1 where id = 3; perform 1 / (new.x - 5); exception when division_by_zero then update t set x = 50 where id = 2; end; return null; end $$;
		create trigger a after insert on t for each row execute function tries();`, steps: []string{"insert into t values (10, 1), (11, 5), (12, 6)", "begin; update t set x = 0; insert into t values (20, 5), (21, 7); update t set x = 9 where id > 10; commit"}},
	{name: "constraint trigger at commit", setup: nesting + `create function late() returns trigger language plpgsql as $$ begin
		if coalesce(new.w, '') not like '%late' then update t set w = w || 'late', x = x + 1 where id in (new.id, new.id % 9 + 1) and coalesce(w, '') not like '%late'; end if; return null; end $$;
		create constraint trigger z after insert or update on t deferrable initially deferred for each row execute function late();`, steps: manySteps},
}

// Such tables are captured by row whatever the options say.
var nestingForms = []string{`{}`, `{"wide": ["w"]}`, `{"replica": true}`}

func TestNestedWrites(t *testing.T) {
	t.Parallel()
	perform(t, nestingPlays, nestingForms)
}

var cascadePlays = []play{
	{name: "references", setup: referred + `
		create table child (id int primary key, c int references t on delete cascade on update cascade, n int references t on delete set null on update set null, d int default 9 references t on delete set default on update set default, w text);
		insert into child select i, i % 5 + 1, i % 5 + 2, i % 5 + 3, 'w' from generate_series(1, 20) i;`, tables: []string{"t", "child"}, steps: []string{
		"delete from t where id = 1", "update t set id = 100 where id = 2", "update t set id = id + 1000 where id between 3 and 6", "begin; update t set id = -id where id <> 9; delete from t where id < -1000; commit", "delete from t where id <> 9",
	}},
	{name: "composite reference", setup: `create table t (a int, id int, x int, w text, primary key (a, id)); insert into t select i % 3, i, i, 'w' from generate_series(1, 9) i;
		create table child (a int, b int, id int, w text, primary key (a, id), foreign key (a, b) references t on update cascade on delete cascade); insert into child select a, id, id * 10, 'c' from t;`, tables: []string{"t", "child"}, steps: []string{
		"update t set a = a + 1", "update t set a = 4 - a", "update t set id = id + 1", "delete from t where a = 2", "begin; update t set a = 0; update t set a = 7; commit",
	}},
	{name: "tree", setup: "create table t (id int primary key, x int references t on delete cascade on update cascade, w text); insert into t values (1, null, 'root'), (2, 1, 'a'), (3, 1, 'b'), (4, 2, 'c'), (5, 4, 'd'), (6, 6, 'own');", steps: []string{
		"update t set id = 10 where id = 1", "update t set id = id + 100", "begin; update t set id = id + 1000; update t set w = 'v' where id > 1103; update t set id = id - 1000; commit", "update t set id = 7, x = 7 where id = 106", "delete from t where id = 102", "delete from t",
		"insert into t values (1, null, 'root'), (2, 1, 'a'), (3, 2, 'b')", "begin; update t set id = id * 10; delete from t where id = 20; insert into t values (20, 10), (30, 20); commit",
	}},
	{name: "tree, set null", setup: "create table t (id int primary key, x int references t on delete set null on update set null, w text); insert into t values (1, null, 'root'), (2, 1, 'a'), (3, 1, 'b'), (4, 2, 'c'), (5, 4, 'd'), (6, 6, 'own');", steps: []string{
		"update t set id = 10 where id = 1", "update t set id = id + 100", "delete from t where id in (102, 105)", "update t set x = 104 where id <> 104", "delete from t",
	}},
	{name: "tree with a trigger for inserts", setup: "create table t (id int primary key, x int references t on delete cascade on update cascade, w text); insert into t values (1, null, 'root'), (2, 1, 'a'), (3, 1, 'b'), (4, 2, 'c');" +
		"create function up() returns trigger language plpgsql as $$ begin update t set w = w || '+' where id = new.x; return null; end $$; create trigger a after insert on t for each row execute function up();", steps: []string{
		"update t set id = id + 100", "begin; insert into t values (1, 101); update t set id = id + 1000; insert into t values (2, 1001); commit", "update t set id = -id", "delete from t where x is null",
	}},
	{name: "tree with triggers", setup: "create table t (id int primary key, x int references t on delete cascade on update cascade, w text); insert into t values (1, null, 'root'), (2, 1, 'a'), (3, 1, 'b'), (4, 2, 'c'), (5, 4, 'd'), (6, 6, 'own');" +
		`create function up() returns trigger language plpgsql as $$ begin if pg_trigger_depth() < 3 then update t set w = w || '+' where id in (new.x, new.id); end if; return null; end $$;
		create trigger a after update or insert on t for each row execute function up(); create trigger z after update of x on t for each row execute function up();`, steps: []string{
		"update t set id = 10 where id = 1", "update t set id = id + 100", "begin; update t set id = id + 1000; update t set w = 'v' where id > 1103; commit", "delete from t where id = 1102", "begin; insert into t values (1, null), (2, 1); update t set id = id * 10; delete from t where id = 20; commit", "delete from t",
	}},
	{name: "circle of tables", setup: `create table t (id int primary key, x int, w text); create table b (id int primary key, t int references t on delete cascade on update cascade, w text);
		insert into t values (1, 10, 'w'), (2, 20, 'w'), (3, 10, 'w'); insert into b values (10, 1, 'b'), (20, 2, 'b'), (30, 1, 'b'); alter table t add foreign key (x) references b on delete set null on update cascade;`, tables: []string{"t", "b"}, steps: []string{
		"update t set id = id + 100", "update b set id = id + 1", "begin; update b set id = -id; update t set id = -id; commit", "delete from b where id = -11", "delete from t",
	}},
	{name: "circle that comes back to the row", setup: `create table t (dept int, head int, w text, primary key (dept)); create table b (dept int references t on update cascade on delete cascade, id int, w text, primary key (dept, id));
		insert into t values (1, 1, 'w'), (2, 2, 'w'); insert into b values (1, 1, 'b'), (2, 2, 'b'), (1, 3, 'b'); alter table t add column at int; update t set at = dept; alter table t add foreign key (at, head) references b on update cascade on delete set null;`, tables: []string{"t", "b"}, steps: []string{
		"update t set dept = dept + 10", "update t set dept = dept + 1", "begin; update t set dept = -dept; update t set w = 'x'; commit", "delete from b where id = 1", "delete from t",
	}},
	{name: "child with a trigger that writes the parent", setup: referred + `create table child (id int primary key, t int references t on delete cascade on update cascade, w text); insert into child select i, i, 'c' from generate_series(1, 9) i;
		create function back() returns trigger language plpgsql as $$ begin update t set x = coalesce(x, 0) + 1 where id in (coalesce(new.t, 0), old.t, old.t + 1); return null; end $$; create trigger a after update or delete on child for each row execute function back();`, tables: []string{"t", "child"}, steps: []string{
		"update t set id = id + 100", "delete from t where id in (101, 103)", "begin; update t set id = id + 1000; update t set x = 0; commit", "delete from t",
	}},
}

func TestCascades(t *testing.T) {
	t.Parallel()
	perform(t, cascadePlays, nestingForms)
}
