package history_test

import "testing"

const parts = `create table t (id int not null, x int, w text, part int not null, primary key (id, part)) partition by list (part);
	create table one partition of t for values in (1); create table "Two" (w text, part int not null, gone int, x int, id int not null, primary key (id, part)); alter table "Two" drop gone; alter table t attach partition "Two" for values in (2);
	create table more partition of t default partition by range (part); create table three partition of more for values from (3) to (4); create table rest partition of more default;
	insert into t select i, i, 'w', i % 5 from generate_series(1, 20) i; `

var partitionPlays = []play{
	{name: "partitions", setup: parts, steps: []string{
		"insert into t values (100, 1, 'a', 1), (101, 1, 'b', 2), (102, 1, 'c', 3)", "update t set x = x + 1", `update "Two" set x = 0`, "insert into one values (200, 1, 'd', 1)", "delete from three where x > 5",
		"update t set part = 2 where part = 1", "update t set part = part + 1, w = 'moved' where id < 8", "update more set part = 7 - part where part in (3, 4)", "update t set id = id + 1000 where part = 2", `update "Two" set id = id + 1000`,
		"begin; update t set part = 1 where part = 2; update t set x = 9; update t set part = 2 where part = 1; commit", "insert into t values (1, 1, 'w', 4) on conflict (id, part) do update set x = 77", "insert into more values (1, 1, 'w', 4) on conflict (id, part) do update set w = 'once'",
		"merge into t using (values (100, 1), (4000, 1)) s (id, part) on s.id = t.id and s.part = t.part when matched then update set part = 3 when not matched then insert values (s.id, 0, 'm', s.part)",
		"with gone as (delete from t where part = 4 returning *) insert into t select id, x, w, 1 from gone", "truncate one", "truncate more", "insert into t values (1, 1, 'z', 1), (1, 1, 'z', 2), (1, 1, 'z', 3)", "begin; truncate t; insert into t values (1, 2, 'y', 3); commit", "delete from t",
	}},
	{name: "partitions with triggers", setup: parts + `
		create function bump() returns trigger language plpgsql as $$ begin if pg_trigger_depth() = 1 then update t set x = x + 1 where id in (new.id, new.id + 1); end if; return new; end $$;
		create trigger a after insert or update on t for each row execute function bump();`, steps: []string{
		"insert into t values (100, 1, 'a', 1), (101, 1, 'b', 2)", "update t set x = x + 1", "update t set part = 2 where part = 1", `update "Two" set x = 0`, "begin; update t set part = 3 where id < 9; update t set id = id + 50, part = 1 where id < 5; commit", "delete from t where id < 9",
	}},
	{name: "partition whose trigger swallows what moves there", setup: parts + `create function swallow() returns trigger language plpgsql as $$ begin if new.id % 2 = 0 then return null; end if; return new; end $$;
		create trigger a before insert on three for each row execute function swallow();`, steps: []string{"update t set part = 3 where part = 1", "update t set part = 3", "insert into t values (2, 1, 'w', 3)"}},
	{name: "rows that swap partitions", setup: "create table t (id int not null, x int, w text, primary key (id) deferrable) partition by range (id); create table one partition of t for values from (minvalue) to (0); create table two partition of t for values from (0) to (maxvalue); insert into t select i, i, 'w' from generate_series(-5, 5) i where i <> 0;", steps: []string{
		"update t set id = -id", "update t set id = 3 where id = -3 and false", "begin; update t set id = id + 100; update t set id = -id, w = 'q' where id < 103; commit", "delete from t where id < 0"}},
	{name: "tables that inherit", setup: `create table t (id int primary key, x int, w text); create table child (extra text, primary key (id)) inherits (t); insert into t values (1, 1, 'w'), (2, 2, 'w'); insert into child values (11, 1, 'c', 'e'), (12, 2, 'c', 'f');`, tables: []string{"t", "child"}, steps: []string{
		"update t set x = x + 1", "update only t set x = 0", "update child set extra = 'g', w = 'x'", "update t set id = id + 100", "delete from t where id = 101", "delete from t where id = 111", "insert into child values (1, 1, 'c', 'h')", "insert into t values (1, 1, 'p')", "update t set id = 5000 + id, x = 3 where id = 1",
		"begin; update t set id = -id; update t set id = -id; delete from t where id = 112; commit", "truncate only t", "insert into t values (1)", "truncate t", "insert into child values (1)",
	}},
	{name: "inheritance of which only the parent is tracked", setup: `create table t (id int primary key, x int, w text); create table child (extra text, primary key (id)) inherits (t); insert into t values (1, 1, 'w'), (2, 2, 'w'); insert into child values (11, 1, 'c', 'e'), (12, 2, 'c', 'f');`, steps: []string{
		"update t set x = x + 1", "update t set id = id + 100", "delete from t where id in (101, 111)",
	}},
}

func TestPartitions(t *testing.T) {
	t.Parallel()
	perform(t, partitionPlays, everyForm)
}
