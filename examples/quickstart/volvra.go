package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/volvra"
)

// volvraStory is a price list in which somebody forgets a WHERE, while somebody else goes on working.
func volvraStory(ctx context.Context, out io.Writer, pool *pgxpool.Pool) error {
	fmt.Fprintln(out, "volvra: selective undo and audit")
	if _, err := pool.Exec(ctx, `
		create table product (id int primary key, name text not null, price numeric(10, 2) not null, stock int not null);
		insert into product values (1, 'Lamp', 40.00, 3), (2, 'Desk', 220.00, 1), (3, 'Chair', 90.00, 8)`); err != nil {
		return err
	}

	if err := volvra.Install(ctx, pool); err != nil {
		return err
	}
	tables := volvra.New(pool)
	if _, err := tables.Enable(ctx, "public.product", volvra.Options{}); err != nil {
		return err
	}

	// as runs a statement for somebody.
	as := func(actor, sql string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := volvra.SetActor(ctx, tx, actor); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, sql)
			return err
		})
	}
	if err := as("tom", "update product set price = price / 2"); err != nil { // he meant the lamp
		return err
	}
	if err := as("ada", "update product set stock = stock - 1 where id = 3"); err != nil {
		return err
	}
	if err := as("ada", "update product set price = 199.00 where id = 2"); err != nil {
		return err
	}

	mistake := volvra.Selection{Actor: "tom", Tables: []string{"public.product"}}
	plan, err := tables.Preview(ctx, mistake)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "  Tom halved all prices. Meanwhile Ada sold a chair and set a new price for the desk. Undoing what Tom did would mean:")
	slices.SortFunc(plan.Rows, func(a, b volvra.PlannedRow) int { return slices.Compare(a.Key, b.Key) })
	for _, row := range plan.Rows {
		price := row.Columns["price"]
		fmt.Fprintf(out, "    product %s: price %s -> %s (%s)\n", row.Key[0], *price.From, *price.To, row.Status)
	}

	_, err = tables.Undo(ctx, plan.Token, volvra.UndoOptions{})
	if !errors.Is(err, volvra.ErrConflict) {
		return fmt.Errorf("a conflict was not refused: %v", err)
	}
	result, err := tables.Undo(ctx, plan.Token, volvra.UndoOptions{Policy: volvra.SkipConflicts})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  Without a word about the conflict that is refused. Skipping it, %d rows are put right and %d is left as Ada wants it.\n", result.Rows, result.Skipped)

	changes, err := tables.History(ctx, "public.product", volvra.KeyOf(3), 0)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "  The life of the chair, newest change first:")
	for _, c := range changes {
		for name, d := range c.Columns {
			fmt.Fprintf(out, "    %s: %s -> %s by %s\n", name, *d.From, *d.To, orNobody(c.Who.Actor))
		}
	}

	if _, err := tables.Seal(ctx); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, "update annals.h1_1 set c3 = 1.00 where v = (select min(v) from annals.h1_1)"); err != nil { // the owner can do that
		return err
	}
	fmt.Fprintln(out, "  History was sealed. Then somebody with the owner's rights changes it, and Verify reports:")
	for e, err := range tables.Verify(ctx, volvra.VerifyOptions{}) {
		if err != nil {
			return err
		}
		if e.Problem {
			fmt.Fprintf(out, "    %s: %s\n", e.Table, e.Message)
		}
	}
	return nil
}

func orNobody(actor string) string {
	if actor == "" {
		return "the undo"
	}
	return actor
}
