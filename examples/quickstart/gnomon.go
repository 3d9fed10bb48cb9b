package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
)

// gnomonStory is a shop whose tables are read as they were, compared, followed, and branched.
func gnomonStory(ctx context.Context, out io.Writer, pool *pgxpool.Pool) error {
	fmt.Fprintln(out, "gnomon: version control for rows")
	if _, err := pool.Exec(ctx, `
		create table article (id int primary key, name text not null, price numeric(10, 2) not null);
		create table sale (id int primary key, article int not null references article, pieces int not null);
		insert into article values (1, 'Rug', 120.00), (2, 'Vase', 35.00);
		insert into sale values (1, 1, 2), (2, 2, 4)`); err != nil {
		return err
	}

	if err := gnomon.Install(ctx, pool); err != nil {
		return err
	}
	rows := gnomon.New(pool)
	if err := rows.Track(ctx, "public.article", "public.sale"); err != nil {
		return err
	}
	if _, err := rows.Tag(ctx, "march", gnomon.Present); err != nil {
		return err
	}
	if err := rows.CreateConsumer(ctx, gnomon.ConsumerParams{Name: "mailer"}); err != nil {
		return err
	}
	for _, sql := range []string{
		"update article set price = 130.00 where id = 1",
		"insert into sale values (3, 1, 1)",
		"delete from sale where id = 2",
		"update article set name = 'Tall vase' where id = 2",
		"alter table article add column colour text",
	} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return err
		}
	}

	// Any SQL runs on the past, with the names of tables unchanged.
	march, err := rows.At(ctx, gnomon.AtTag("march"))
	if err != nil {
		return err
	}
	const turnover = "select sum(a.price * s.pieces)::text from sale s join article a on a.id = s.article"
	var then, now string
	if err := errors.Join(march.QueryRow(ctx, turnover).Scan(&then), pool.QueryRow(ctx, turnover).Scan(&now)); err != nil {
		return err
	}
	fmt.Fprintf(out, "  Turnover was %s at the tag march, and is %s now.\n", then, now)

	type article struct {
		ID    int
		Name  string
		Price float64
	}
	vase, _, err := gnomon.Get[article](ctx, march, "public.article", 2)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  Article 2 was called %s then.\n", vase.Name)

	fmt.Fprintln(out, "  What differs since:")
	for d, err := range rows.Diff(ctx, gnomon.AtTag("march"), gnomon.Present, gnomon.DiffOptions{}) {
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "    %s %s: %s", d.Table, d.Key[0], d.Operation)
		if d.Operation == "update" {
			for _, column := range d.Columns {
				fmt.Fprintf(out, " %s %s -> %s", column, *d.Old[column], *d.New[column])
			}
		}
		fmt.Fprintln(out)
	}

	// The handler writes in the transaction that moves the consumer's position: exactly once.
	if _, err := pool.Exec(ctx, "create table mail (text text)"); err != nil {
		return err
	}
	feed := rows.Feed("mailer", gnomon.FeedOptions{Drain: true})
	err = feed.Run(ctx, func(ctx context.Context, tx pgx.Tx, page gnomon.Page) error {
		for _, change := range page.Changes {
			if _, err := tx.Exec(ctx, "insert into mail values ($1)", fmt.Sprintf("%s of %s %s", change.Operation, change.Table, change.Key[0])); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var mails int
	if err := pool.QueryRow(ctx, "select count(*) from mail").Scan(&mails); err != nil {
		return err
	}
	fmt.Fprintf(out, "  The change feed made %d mails of 4 changes.\n", mails)
	return branchStory(ctx, out, pool, rows)
}

// branchStory tries prices on a branch, merges them, and takes that back; and lets somebody work on a branch under a policy.
func branchStory(ctx context.Context, out io.Writer, pool *pgxpool.Pool, rows *gnomon.Gnomon) error {
	summer, err := rows.CreateBranch(ctx, "summer", gnomon.BranchOptions{})
	if err != nil {
		return err
	}
	if _, err := summer.Exec(ctx, "update article set price = price * 0.8"); err != nil {
		return err
	}
	// On main life goes on.
	if _, err := pool.Exec(ctx, "update article set name = 'Red rug' where id = 1"); err != nil {
		return err
	}
	show := func(db gnomon.DB, where string) error {
		var list string
		if err := db.QueryRow(ctx, "select string_agg(format('%s %s', name, price), ', ' order by id) from article").Scan(&list); err != nil {
			return err
		}
		fmt.Fprintf(out, "  %s: %s\n", where, list)
		return nil
	}
	if err := errors.Join(show(summer, "On the branch"), show(pool, "On main")); err != nil {
		return err
	}
	report, err := summer.Merge(ctx, gnomon.MergeOptions{})
	if err != nil {
		return err
	}
	if err := show(pool, "Merged"); err != nil {
		return err
	}
	if _, err := rows.UndoMerge(ctx, report.ID, gnomon.UndoMergeOptions{}); err != nil {
		return err
	}
	if err := show(pool, "Taken back"); err != nil {
		return err
	}

	err = rows.SetMergePolicy(ctx, gnomon.MergePolicy{Name: "agents", Prefix: "agents/", Tables: map[string]gnomon.TableRule{
		"public.article": {MaxRows: 1, Conditions: []gnomon.Condition{{Column: "price", Operator: "<", Value: 1000}}},
	}})
	if err != nil {
		return err
	}
	run := gnomon.RunOptions{Purpose: "Round prices", Actor: "agent", Prefix: "agents/", Merge: true}
	for _, sql := range []string{"update article set price = 149.00 where id = 1", "update article set price = 0"} {
		result, err := gnomon.Run(ctx, pool, run, func(ctx context.Context, b *gnomon.Branch) error {
			_, err := b.Exec(ctx, sql)
			return err
		})
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "  An agent's work is %s", result.Outcome)
		if refused := (*gnomon.Error)(nil); errors.As(result.Refused, &refused) {
			fmt.Fprintf(out, ": %s", refused.Message)
		}
		fmt.Fprintln(out, ".")
	}
	return nil
}
