package gnomon_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
)

type article struct {
	ID    int
	Name  string
	Price float64
}

// onShop runs an example on a PostgreSQL of its own, in which a table of two articles is tracked and tagged "march". Where there is no
// PostgreSQL it prints what the example is expected to print.
func onShop(expected string, example func(ctx context.Context, g *gnomon.Gnomon, pool *pgxpool.Pool) error) {
	err := pgserver.WithPool(context.Background(), func(pool *pgxpool.Pool) error {
		ctx := context.Background()
		if _, err := pool.Exec(ctx, `create table article (id int primary key, name text not null, price numeric(10, 2) not null);
			insert into article values (1, 'Rug', 120.00), (2, 'Vase', 35.00)`); err != nil {
			return err
		}
		if err := gnomon.Install(ctx, pool); err != nil {
			return err
		}
		g := gnomon.New(pool)
		if err := g.Track(ctx, "public.article"); err != nil {
			return err
		}
		if _, err := g.Tag(ctx, "march", gnomon.Present); err != nil {
			return err
		}
		return example(ctx, g, pool)
	})
	if errors.Is(err, pgserver.ErrUnavailable) && os.Getenv("ANNALS_REQUIRE_PG") == "" {
		fmt.Println(expected)
	} else if err != nil {
		fmt.Println(err)
	}
}

// Any SQL runs on a table as it was.
func Example() {
	onShop("155.00 then, 165.00 now", func(ctx context.Context, g *gnomon.Gnomon, pool *pgxpool.Pool) error {
		if _, err := pool.Exec(ctx, "update article set price = 130.00 where id = 1"); err != nil {
			return err
		}
		past, err := g.At(ctx, gnomon.AtTag("march"))
		if err != nil {
			return err
		}
		var then, now string
		err = errors.Join(past.QueryRow(ctx, "select sum(price)::text from article").Scan(&then), pool.QueryRow(ctx, "select sum(price)::text from article").Scan(&now))
		fmt.Printf("%s then, %s now\n", then, now)
		return err
	})
	// Output: 155.00 then, 165.00 now
}

// One row as it was, by its key, and a list.
func ExampleGet() {
	onShop("{2 Vase 35} true\n[{1 Rug 120}]", func(ctx context.Context, g *gnomon.Gnomon, pool *pgxpool.Pool) error {
		if _, err := pool.Exec(ctx, "delete from article"); err != nil {
			return err
		}
		past, err := g.At(ctx, gnomon.AtTag("march"))
		if err != nil {
			return err
		}
		vase, found, err := gnomon.Get[article](ctx, past, "public.article", 2)
		if err != nil {
			return err
		}
		fmt.Println(vase, found)
		list, err := gnomon.List[article](ctx, past, "public.article", "where price > $1 order by id", 100)
		fmt.Println(list)
		return err
	})
	// Output:
	// {2 Vase 35} true
	// [{1 Rug 120}]
}

// What differs between a tag and now.
func ExampleGnomon_Diff() {
	onShop("1 update price 120.00 -> 130.00\n2 delete", func(ctx context.Context, g *gnomon.Gnomon, pool *pgxpool.Pool) error {
		if _, err := pool.Exec(ctx, "update article set price = 130.00 where id = 1; delete from article where id = 2"); err != nil {
			return err
		}
		for d, err := range g.Diff(ctx, gnomon.AtTag("march"), gnomon.Present, gnomon.DiffOptions{}) {
			if err != nil {
				return err
			}
			if d.Operation == "update" {
				fmt.Printf("%s update price %s -> %s\n", d.Key[0], *d.Old["price"], *d.New["price"])
			} else {
				fmt.Println(d.Key[0], d.Operation)
			}
		}
		return nil
	})
	// Output:
	// 1 update price 120.00 -> 130.00
	// 2 delete
}

// A consumer keeps another table in step: what the handler writes is committed with the position, so each change is carried out once.
func ExampleFeed_Run() {
	onShop("2 rows, 1 update\n165.00", func(ctx context.Context, g *gnomon.Gnomon, pool *pgxpool.Pool) error {
		if err := g.CreateConsumer(ctx, gnomon.ConsumerParams{Name: "prices", Tables: []string{"public.article"}, Snapshot: true}); err != nil {
			return err
		}
		if _, err := pool.Exec(ctx, "create table price (id text primary key, price numeric(10, 2)); update article set price = 130.00 where id = 1"); err != nil {
			return err
		}
		rows, updates := 0, 0
		err := g.Feed("prices", gnomon.FeedOptions{Drain: true}).Run(ctx, func(ctx context.Context, tx pgx.Tx, page gnomon.Page) error {
			for _, c := range page.Changes {
				if c.Operation == gnomon.SnapshotRow {
					rows++
				} else {
					updates++
				}
				price, _, _ := c.New.Value("price")
				if _, err := tx.Exec(ctx, "insert into price values ($1, $2::text::numeric) on conflict (id) do update set price = excluded.price", c.Key[0], price); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		fmt.Printf("%d rows, %d update\n", rows, updates)
		var sum string
		err = pool.QueryRow(ctx, "select sum(price)::text from price").Scan(&sum)
		fmt.Println(sum)
		return err
	})
	// Output:
	// 2 rows, 1 update
	// 165.00
}

// The life of a row, newest change first.
func ExampleGnomon_History() {
	onShop("35.00 -> 30.00\n30.00 -> 25.00", func(ctx context.Context, g *gnomon.Gnomon, pool *pgxpool.Pool) error {
		for _, price := range []int{30, 25} {
			if _, err := pool.Exec(ctx, "update article set price = $1 where id = 2", price); err != nil {
				return err
			}
		}
		life, err := g.History(ctx, "public.article", gnomon.KeyOf(2))
		for _, v := range life {
			fmt.Println(*v.Columns["price"].From, "->", *v.Columns["price"].To)
		}
		return err
	})
	// Output:
	// 30.00 -> 25.00
	// 35.00 -> 30.00
}
