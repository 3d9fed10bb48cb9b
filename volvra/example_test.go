package volvra_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/volvra"
)

type product struct {
	ID    int
	Name  string
	Price float64
}

// onShop runs an example on a PostgreSQL of its own, in which a table of two products is covered; as executes a statement for an
// actor. Where there is no PostgreSQL it prints what the example is expected to print.
func onShop(expected string, example func(ctx context.Context, v *volvra.Volvra, as func(actor, sql string) error) error) {
	ctx := context.Background()
	server, err := pgserver.Start(ctx, pgserver.Options{Own: true})
	if errors.Is(err, pgserver.ErrUnavailable) && os.Getenv("ANNALS_REQUIRE_PG") == "" {
		fmt.Println(expected)
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = server.Stop() }()
	if err := shop(ctx, server, example); err != nil {
		fmt.Println(err)
	}
}

func shop(ctx context.Context, server *pgserver.Server, example func(context.Context, *volvra.Volvra, func(actor, sql string) error) error) error {
	database, err := server.CreateDatabase(ctx)
	if err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, server.ConnString(database))
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, `create table product (id int primary key, name text not null, price numeric(10, 2) not null);
		insert into product values (1, 'Lamp', 40.00), (2, 'Desk', 220.00)`); err != nil {
		return err
	}
	if err := volvra.Install(ctx, pool); err != nil {
		return err
	}
	v := volvra.New(pool)
	if _, err := v.Enable(ctx, "public.product", volvra.Options{}); err != nil {
		return err
	}
	return example(ctx, v, func(actor, sql string) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if err := volvra.SetActor(ctx, tx, actor); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, sql)
			return err
		})
	})
}

// Who did what, and one of the two undone: what the other did stays.
func Example() {
	onShop("ada: 1 updated\ntom: 2 updated\n2 rows written\n{1 Floor lamp 40}", func(ctx context.Context, v *volvra.Volvra, as func(actor, sql string) error) error {
		if err := as("tom", "update product set price = 0"); err != nil { // he meant the lamp
			return err
		}
		if err := as("ada", "update product set name = 'Floor lamp' where id = 1"); err != nil {
			return err
		}

		list, err := v.Transactions(ctx, volvra.Selection{Tables: []string{"public.product"}}, volvra.Page{})
		if err != nil {
			return err
		}
		for _, t := range list {
			fmt.Printf("%s: %s\n", t.Who.Actor, t.Tables["public.product"])
		}

		result, err := v.Undo(ctx, volvra.Selection{Actor: "tom"}, volvra.UndoOptions{})
		if err != nil {
			return err
		}
		fmt.Println(result.Rows, "rows written")
		now, err := v.Coordinate(ctx)
		if err != nil {
			return err
		}
		lamp, _, err := volvra.AsOfRow[product](ctx, v, "public.product", volvra.KeyOf(1), now)
		fmt.Println(lamp)
		return err
	})
	// Output:
	// ada: 1 updated
	// tom: 2 updated
	// 2 rows written
	// {1 Floor lamp 40}
}

// A conflict is refused, unless the policy says what becomes of such rows.
func ExampleVolvra_Undo() {
	onShop("conflict: product 2, price, by ada\n1 written, 1 skipped", func(ctx context.Context, v *volvra.Volvra, as func(actor, sql string) error) error {
		if err := as("tom", "update product set price = price / 2"); err != nil {
			return err
		}
		if err := as("ada", "update product set price = 199.00 where id = 2"); err != nil {
			return err
		}

		_, err := v.Undo(ctx, volvra.Selection{Actor: "tom"}, volvra.UndoOptions{})
		var refusal *volvra.Error
		if !errors.As(err, &refusal) {
			return err
		}
		for _, row := range refusal.Blocked() {
			for column, by := range row.Block.Columns {
				fmt.Printf("%s: product %s, %s, by %s\n", row.Status, row.Key[0], column, by.Actor)
			}
		}

		result, err := v.Undo(ctx, volvra.Selection{Actor: "tom"}, volvra.UndoOptions{Policy: volvra.SkipConflicts})
		if err != nil {
			return err
		}
		fmt.Printf("%d written, %d skipped\n", result.Rows, result.Skipped)
		return nil
	})
	// Output:
	// conflict: product 2, price, by ada
	// 1 written, 1 skipped
}

// The token of a preview undoes what was shown, and nothing else.
func ExampleVolvra_Preview() {
	onShop("clean: update 1\nclean: insert 2\nprice 20.00 -> 40.00\ntrue", func(ctx context.Context, v *volvra.Volvra, as func(actor, sql string) error) error {
		if err := as("tom", "update product set price = 20.00 where id = 1"); err != nil {
			return err
		}
		if err := as("tom", "delete from product where id = 2"); err != nil {
			return err
		}

		plan, err := v.Preview(ctx, volvra.Selection{Actor: "tom"})
		if err != nil {
			return err
		}
		slices.SortFunc(plan.Rows, func(a, b volvra.PlannedRow) int { return slices.Compare(a.Key, b.Key) })
		for _, row := range plan.Rows {
			fmt.Printf("%s: %s %s\n", row.Status, row.Operation, row.Key[0])
		}
		price := plan.Rows[0].Columns["price"]
		fmt.Println("price", *price.From, "->", *price.To)

		if err := as("ada", "update product set price = 35.00 where id = 1"); err != nil { // before anybody presses the button
			return err
		}
		_, err = v.Undo(ctx, plan.Token, volvra.UndoOptions{})
		fmt.Println(errors.Is(err, volvra.ErrPlanChanged))
		return nil
	})
	// Output:
	// clean: update 1
	// clean: insert 2
	// price 20.00 -> 40.00
	// true
}

// The life of a row, newest change first.
func ExampleVolvra_History() {
	onShop("tom delete\nada update: price 40.00 -> 45.00", func(ctx context.Context, v *volvra.Volvra, as func(actor, sql string) error) error {
		if err := as("ada", "update product set price = 45.00 where id = 1"); err != nil {
			return err
		}
		if err := as("tom", "delete from product where id = 1"); err != nil {
			return err
		}

		changes, err := v.History(ctx, "public.product", volvra.KeyOf(1), 0)
		if err != nil {
			return err
		}
		for _, c := range changes {
			fmt.Print(c.Who.Actor, " ", c.Operation)
			if price := c.Columns["price"]; c.Operation == "update" { // of a deleted row every column was something and became nil
				fmt.Printf(": price %s -> %s", *price.From, *price.To)
			}
			fmt.Println()
		}
		return nil
	})
	// Output:
	// tom delete
	// ada update: price 40.00 -> 45.00
}

// A table as it was. Rows come in no particular order.
func ExampleAsOf() {
	onShop("[{1 Lamp 40} {2 Desk 220}]", func(ctx context.Context, v *volvra.Volvra, as func(actor, sql string) error) error {
		before, err := v.Coordinate(ctx)
		if err != nil {
			return err
		}
		if err := as("tom", "delete from product"); err != nil {
			return err
		}

		products, err := volvra.AsOf[product](ctx, v, "public.product", before)
		if err != nil {
			return err
		}
		slices.SortFunc(products, func(a, b product) int { return a.ID - b.ID })
		fmt.Println(products)
		return nil
	})
	// Output: [{1 Lamp 40} {2 Desk 220}]
}

// What was sealed is compared with what is there, and an entry that somebody with the owner's rights removed is missing.
func ExampleVolvra_Verify() {
	onShop("public.product: intact 2\npublic.product: missing", func(ctx context.Context, v *volvra.Volvra, as func(actor, sql string) error) error {
		if err := as("tom", "update product set price = 0"); err != nil {
			return err
		}
		if _, err := v.Seal(ctx); err != nil {
			return err
		}
		head, err := v.ChainHead(ctx) // kept where the owner of the database can't reach it
		if err != nil {
			return err
		}

		for e, err := range v.Verify(ctx, volvra.VerifyOptions{Head: head}) {
			if err != nil {
				return err
			}
			if e.What == "entry" {
				fmt.Printf("%s: %s %d\n", e.Table, e.Verdict, e.Entries)
			}
		}

		if err := as("tom", "delete from annals.h1_1 where c1 = 1"); err != nil {
			return err
		}
		for e, err := range v.Verify(ctx, volvra.VerifyOptions{Head: head}) {
			if err != nil {
				return err
			}
			if e.Problem {
				fmt.Printf("%s: %s\n", e.Table, e.Verdict)
			}
		}
		return nil
	})
	// Output:
	// public.product: intact 2
	// public.product: missing
}

// A mark before something risky, and the way back to it.
func ExampleVolvra_UndoTo() {
	onShop("map[public.product:2]", func(ctx context.Context, v *volvra.Volvra, as func(actor, sql string) error) error {
		if _, err := v.Mark(ctx, "before the sale"); err != nil {
			return err
		}
		if err := as("tom", "update product set price = price * 0.8"); err != nil {
			return err
		}

		result, err := v.UndoTo(ctx, "before the sale", volvra.UndoOptions{})
		if err != nil {
			return err
		}
		fmt.Println(result.Tables)
		return v.DropMark(ctx, "before the sale") // as long as there is a mark, history is kept from there on
	})
	// Output: map[public.product:2]
}
