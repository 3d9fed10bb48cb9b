package gnomon_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
)

// names prints the articles that a handle shows.
func names(ctx context.Context, where string, db gnomon.Reader) error {
	list, err := gnomon.List[article](ctx, db, "public.article", "order by id")
	fmt.Println(where, list)
	return err
}

// A branch is written with ordinary SQL. Main sees nothing of it.
func ExampleGnomon_CreateBranch() {
	onShop("on the branch [{1 Rug 96} {2 Vase 28}]\non main 120.00", func(ctx context.Context, g *gnomon.Gnomon, pool *pgxpool.Pool) error {
		summer, err := g.CreateBranch(ctx, "summer", gnomon.BranchOptions{Note: "prices of the season"})
		if err != nil {
			return err
		}
		if _, err := summer.Exec(ctx, "update article set price = price * 0.8"); err != nil {
			return err
		}
		if err := names(ctx, "on the branch", summer); err != nil {
			return err
		}
		var price string
		err = pool.QueryRow(ctx, "select price::text from article where id = 1").Scan(&price)
		fmt.Println("on main", price)
		return err
	})
	// Output:
	// on the branch [{1 Rug 96} {2 Vase 28}]
	// on main 120.00
}

// What both sides changed is a conflict, and decided one by one. What one side changed is merged with it.
func ExampleBranch_Merge() {
	onShop("1 price: 120.00, on the branch 96.00, on main 130.00\nmerged\n1 Red rug 96.00\n2 Vase 28.00", func(ctx context.Context, g *gnomon.Gnomon, pool *pgxpool.Pool) error {
		summer, err := g.CreateBranch(ctx, "summer", gnomon.BranchOptions{})
		if err != nil {
			return err
		}
		if _, err := summer.Exec(ctx, "update article set price = price * 0.8"); err != nil {
			return err
		}
		if _, err := pool.Exec(ctx, "update article set name = 'Red rug', price = 130.00 where id = 1"); err != nil {
			return err
		}
		report, err := summer.Merge(ctx, gnomon.MergeOptions{})
		if !errors.Is(err, gnomon.ErrConflict) {
			return fmt.Errorf("%v instead of a conflict", err)
		}
		conflicts, err := g.Conflicts(ctx, report.ID)
		if err != nil {
			return err
		}
		for _, c := range conflicts {
			for _, f := range c.Fields {
				fmt.Printf("%s %s: %s, on the branch %s, on main %s\n", c.Key[0], f.Column, f.Base, f.Branch, f.Main)
			}
			if err := g.ResolveConflict(ctx, report.ID, c.Table, c.Key, gnomon.TakeOurs, nil); err != nil {
				return err
			}
		}
		if report, err = g.FinishMerge(ctx, report.ID); err != nil {
			return err
		}
		fmt.Println(report.Status)
		var rows string
		err = pool.QueryRow(ctx, "select string_agg(concat_ws(' ', id, name, price), e'\n' order by id) from article").Scan(&rows)
		fmt.Println(rows)
		return err
	})
	// Output:
	// 1 price: 120.00, on the branch 96.00, on main 130.00
	// merged
	// 1 Red rug 96.00
	// 2 Vase 28.00
}

// What an agent does is on a branch of its own until it is merged. Where it fails, nothing is left.
func ExampleRun() {
	onShop("merged [{1 Rug 96} {2 Vase 28}]\nfailed: out of paint", func(ctx context.Context, g *gnomon.Gnomon, pool *pgxpool.Pool) error {
		o := gnomon.RunOptions{Purpose: "Prices of the season", Actor: "agent 7", Merge: true}
		result, err := gnomon.Run(ctx, pool, o, func(ctx context.Context, b *gnomon.Branch) error {
			if _, err := b.Exec(ctx, "update article set price = price * 0.8"); err != nil {
				return err
			}
			return names(ctx, "merged", b)
		})
		if err != nil || result.Outcome != gnomon.RunMerged {
			return errors.Join(err, fmt.Errorf("the run was %s", result.Outcome))
		}
		_, err = gnomon.Run(ctx, pool, o, func(ctx context.Context, b *gnomon.Branch) error {
			if _, err := b.Exec(ctx, "update article set name = 'Red ' || name"); err != nil {
				return err
			}
			return errors.New("out of paint")
		})
		fmt.Println("failed:", err)
		return nil
	})
	// Output:
	// merged [{1 Rug 96} {2 Vase 28}]
	// failed: out of paint
}
