// Command undo is a day in a small shop in which three things go wrong, and each is undone without losing what others did meanwhile: an
// UPDATE without its WHERE, a DELETE that takes a customer's orders with it, and an import of a wrong file.
//
//	go run ./examples/undo
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/volvra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "undo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	return pgserver.WithPool(ctx, func(pool *pgxpool.Pool) error {
		return (&shop{pool: pool, volvra: volvra.New(pool), out: out}).day(ctx)
	})
}

const tables = `
create schema shop;
create table shop.customer (id int primary key, name text not null, city text, credit numeric(10, 2) not null default 0);
create table shop.purchase (id int primary key, customer int not null references shop.customer on delete cascade, item text not null, price numeric(10, 2) not null);
insert into shop.customer values (1, 'Ada', 'London', 10), (2, 'Bob', 'Paris', 20), (3, 'Cyd', 'Rome', 30);
insert into shop.purchase values (1, 1, 'lamp', 40), (2, 2, 'desk', 220), (3, 2, 'chair', 90), (4, 3, 'shelf', 75)`

type shop struct {
	pool   *pgxpool.Pool
	volvra *volvra.Volvra
	out    io.Writer
}

func (s *shop) day(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, tables); err != nil {
		return err
	}
	if err := volvra.Install(ctx, s.pool); err != nil {
		return err
	}
	if _, err := s.volvra.EnableSchema(ctx, "shop", volvra.Options{}); err != nil {
		return err
	}
	for _, chapter := range []func(context.Context) error{s.missingWhere, s.wrongDelete, s.badImport} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

// An UPDATE without its WHERE: what it did to one column is undone, what another did to another column of the same row stays.
func (s *shop) missingWhere(ctx context.Context) error {
	if err := s.as(ctx, "tom", `update shop.customer set city = 'Berlin'`); err != nil { // where id = 3
		return err
	}
	if err := s.as(ctx, "eve", `update shop.customer set credit = credit + 5 where id = 2`); err != nil {
		return err
	}
	fmt.Fprintln(s.out, "Tom moves Cyd to Berlin, and forgets the WHERE. Eve gives Bob 5.00 of credit.")
	return s.undo(ctx, "All that Tom did but for Cyd", volvra.Selection{
		Actor:  "tom",
		Where:  []volvra.Condition{{Column: "id", Op: volvra.NotEqual, Value: 3}},
		Tables: []string{"shop.customer"},
	}, `select name || ' lives in ' || city || ', credit ' || credit from shop.customer order by id`)
}

// A DELETE that takes the customer's purchases with it: they come back with him.
func (s *shop) wrongDelete(ctx context.Context) error {
	if err := s.as(ctx, "tom", `delete from shop.customer where name = 'Bob'`); err != nil {
		return err
	}
	if err := s.as(ctx, "eve", `insert into shop.purchase values (5, 1, 'rug', 60)`); err != nil {
		return err
	}
	fmt.Fprintln(s.out, "Tom deletes Bob, and with him go his purchases. Eve sells Ada a rug.")
	deletions, err := s.volvra.Transactions(ctx, volvra.Selection{Actor: "tom", Tables: []string{"shop.customer"}}, volvra.Page{Limit: 1})
	if err != nil {
		return err
	}
	return s.undo(ctx, "That one transaction", volvra.Selection{Transactions: []volvra.TransactionID{deletions[0].ID}},
		`select c.name || ' bought a ' || p.item from shop.purchase p join shop.customer c on c.id = p.customer order by p.id`)
}

// An import of a wrong file: a mark was set before it.
func (s *shop) badImport(ctx context.Context) error {
	if _, err := s.volvra.Mark(ctx, "before the import"); err != nil {
		return err
	}
	if err := s.as(ctx, "import", `
		insert into shop.customer select n, 'Customer ' || n, null, 0 from generate_series(1, 100) n
		on conflict (id) do update set name = excluded.name, city = excluded.city, credit = excluded.credit`); err != nil {
		return err
	}
	fmt.Fprintln(s.out, "A mark is set, and a wrong file imported: it overwrites three customers and adds 97.")
	result, err := s.volvra.UndoTo(ctx, "before the import", volvra.UndoOptions{})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "  Undone to the mark: %d rows deleted, %d put right.\n", result.Deleted, result.Updated)
	if err := s.show(ctx, `select name || ' lives in ' || city || ', credit ' || credit from shop.customer order by id`); err != nil {
		return err
	}

	redone, err := s.volvra.Redo(ctx, result.Attempt, volvra.UndoOptions{})
	if err != nil {
		return err
	}
	again, err := s.volvra.Redo(ctx, redone.Attempt, volvra.UndoOptions{})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "  An undo can be undone, and that as well: %d rows and %d rows.\n", redone.Rows, again.Rows)
	return s.show(ctx, `select count(*) || ' customers' from shop.customer`)
}

// undo shows what an undo would do, does it, and shows what is there then.
func (s *shop) undo(ctx context.Context, what string, selection volvra.Selection, query string) error {
	plan, err := s.volvra.Preview(ctx, selection)
	if err != nil {
		return err
	}
	result, err := s.volvra.Undo(ctx, plan.Token, volvra.UndoOptions{})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "  %s is undone: %d rows previewed, %d written.\n", what, len(plan.Rows), result.Rows)
	return s.show(ctx, query)
}

func (s *shop) show(ctx context.Context, query string) error {
	rows, err := s.pool.Query(ctx, query)
	if err != nil {
		return err
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, line := range lines {
		fmt.Fprintln(s.out, "   ", line)
	}
	return err
}

// as runs a statement for somebody.
func (s *shop) as(ctx context.Context, actor, sql string) error {
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		if err := volvra.SetActor(ctx, tx, actor); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, sql)
		return err
	})
}
