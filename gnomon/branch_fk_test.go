package gnomon_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// onSchema is a connection that uses branch b of a schema.
func onSchema(t testing.TB, pool *pgxpool.Pool, schema string) *pgxpool.Conn {
	t.Helper()
	c := must[*pgxpool.Conn](t)(pool.Acquire(t.Context()))
	t.Cleanup(func() {
		_ = c.Conn().Close(t.Context())
		c.Release()
	})
	run(t, c, `set search_path = "`+schema+`"`, `select gnomon.create_branch('b') where not exists (select from gnomon.branch where name = 'b')`, `select gnomon.use('b')`)
	return c
}

func TestBranchForeignKeys(t *testing.T) {
	t.Parallel()
	g, pool := installed(t)
	run(t, pool, `create schema s`)
	run(t, pool,
		`create table s.p (a int, b text, n int unique, primary key (a, b))`,
		`create table s.outside (id int primary key)`, `insert into s.outside values (1)`,
		`create table s.na (id int primary key, a int, b text, foreign key (a, b) references s.p)`,
		`create table s.cas (id int primary key, a int, b text, foreign key (a, b) references s.p on delete cascade on update cascade)`,
		`create table s.deep (id int primary key, cas int references s.cas on delete cascade, o int references s.outside)`,
		`create table s.nul (id int primary key, a int, b text, foreign key (a, b) references s.p match full on delete set null on update set null)`,
		`create table s.def (id int primary key, n int default 7 references s.p (n) on delete set default on update restrict)`,
		`create table s.self (id int primary key, up int references s.self on delete cascade)`,
		`create table s.late (id int primary key, p int references s.late deferrable initially deferred)`,
		`insert into s.p select i, 'x', i from generate_series(1, 9) i`,
		`insert into s.na values (1, 1, 'x')`, `insert into s.cas values (2, 2, 'x'), (3, 3, 'x')`, `insert into s.deep values (22, 2, 1)`, `insert into s.nul values (4, 4, 'x')`, `insert into s.def values (5, 5)`,
		`insert into s.self values (1, null), (2, 1), (3, 2)`)
	track(t, g, "s.p", "s.na", "s.cas", "s.deep", "s.nul", "s.def", "s.self", "s.late")
	c := onSchema(t, pool, "s")

	// Rows refer to what the branch has.
	e := fails(t, c, "23503", `insert into na values (10, 10, 'x')`)
	if e.ConstraintName != "na_a_b_fkey" || e.TableName != "na" || e.SchemaName != "s" || e.Detail != `Key (a, b)=(10, x) is not present in table "p".` || e.Message != `insert or update on table "na" violates foreign key constraint "na_a_b_fkey"` {
		t.Fatalf("%+v", e)
	}
	run(t, c, `insert into p values (10, 'x', 10)`, `insert into na values (10, 10, 'x'), (11, 10, null), (12, null, null)`)
	fails(t, c, "23503", `update na set a = 99 where id = 1`)
	fails(t, c, "23503", `insert into deep values (1, 2, 2)`)
	run(t, c, `insert into deep values (1, 2, 1)`, `delete from deep where id = 1`)
	fails(t, c, "23503", `insert into nul values (1, 1, null)`)
	fails(t, pool, "23503", `insert into s.na values (10, 10, 'x')`)

	// And what rows refer to stays.
	e = fails(t, c, "23503", `delete from p where a = 1`)
	if e.ConstraintName != "na_a_b_fkey" || e.TableName != "na" || e.Detail != `Key (a, b)=(1, x) is still referenced from table "na".` || e.Message != `update or delete on table "p" violates foreign key constraint "na_a_b_fkey" on table "na"` {
		t.Fatalf("%+v", e)
	}
	fails(t, c, "23503", `update p set b = 'y' where a = 1`)
	fails(t, c, "23503", `update p set n = 50 where a = 5`) // restrict
	run(t, c, `update p set n = 60 where a = 6`, `delete from na where id = 1`, `delete from p where a = 1`)

	// What follows is done.
	run(t, c, `delete from p where a = 2`)
	shows(t, c, `select (select count(*) from cas), (select count(*) from deep)`, "(1,0)")
	run(t, c, `update p set a = 30, b = 'z' where a = 3`)
	shows(t, c, `select * from cas`, "(3,30,z)")
	run(t, c, `delete from p where a = 4`)
	shows(t, c, `select * from nul`, "(4,,)")
	run(t, c, `delete from p where a = 5`)
	shows(t, c, `select * from def`, "(5,7)")
	fails(t, c, "23503", `delete from p where a = 7`) // the default itself is gone
	shows(t, pool, `select (select count(*) from s.p), (select count(*) from s.cas), (select count(*) from s.deep)`, "(9,2,1)")

	// A statement is judged when it has ended.
	run(t, c, `insert into self values (10, 11), (11, 10)`, `delete from self where id in (10, 11)`)
	fails(t, c, "23503", `insert into self values (10, 12)`)
	run(t, c, `delete from self where id = 1`)
	shows(t, c, `select count(*) from self`, "(0)")
	shows(t, pool, `select count(*) from s.self`, "(3)")
	// Deferred keys when the transaction commits.
	run(t, c, `begin`, `insert into late values (1, 2)`, `insert into late values (2, 1)`, `commit`, `begin`, `insert into late values (3, 4)`)
	fails(t, c, "23503", `commit`)
	shows(t, c, `select count(*) from late`, "(2)")
	shows(t, pool, `select count(*) from gnomon.pending`, "(0)")
}
