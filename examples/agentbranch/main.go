// Command agentbranch lets agents work on a shop's real database at the same time, each on a branch of its own: main sees nothing of what
// they do. A policy says what a merge may change at all, and a reviewer decides what is merged. One merge that was approved turns
// out to be a mistake, and is undone, without what was done since.
//
//	go run ./examples/agentbranch
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "agentbranch:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	return pgserver.WithPool(ctx, func(pool *pgxpool.Pool) error {
		s := &shop{pool: pool, rows: gnomon.New(pool), out: out}
		for _, chapter := range []func(context.Context) error{s.open, s.work, s.review, s.regret} {
			if err := chapter(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

const tables = `
create table product (id int primary key, name text not null, price numeric(10, 2) not null check (price > 0), stock int not null);
create table supplier (id int primary key, name text not null);
insert into product values (1, 'lamp', 40, 3), (2, 'desk', 220, 0), (3, 'chair', 90, 0), (4, 'shelf', 130, 12);
insert into supplier values (1, 'Woods')`

type shop struct {
	pool     *pgxpool.Pool
	rows     *gnomon.Gnomon
	out      io.Writer
	repriced int64 // the merge that is regretted
}

func (s *shop) open(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, tables); err != nil {
		return err
	}
	if err := gnomon.Install(ctx, s.pool); err != nil {
		return err
	}
	if err := s.rows.Track(ctx, "public.product", "public.supplier"); err != nil {
		return err
	}
	return s.rows.SetMergePolicy(ctx, gnomon.MergePolicy{
		Name: "agents", Prefix: "agents/", MaxRows: 100, NoStaleReads: true, Reviews: 1,
		SelfReview: true, // all are one role here; agents with roles of their own could not approve what they did
		Tables: map[string]gnomon.TableRule{"public.product": {
			Operations: []gnomon.Operation{gnomon.Insert, gnomon.Update},
			Conditions: []gnomon.Condition{{Column: "price", Operator: "<=", Value: 5000}},
		}},
	})
}

// Agents work at the same time. What they do is theirs until it is merged, and what fails leaves nothing.
func (s *shop) work(ctx context.Context) error {
	agents := []struct{ name, purpose, sql string }{
		{"ada", "Write names properly", "update product set name = initcap(name)"},
		{"bob", "Order what is sold out", "update product set stock = 10 where stock = 0"},
		{"cyd", "Prices for the new season", "update product set price = price * 11"}, // it was to be 1.1
		{"dan", "Remove idle suppliers", "delete from supplier"},
		{"eve", "Divide", "update product set price = price / (stock - 3)"},
	}
	results, errs := make([]gnomon.RunResult, len(agents)), make([]error, len(agents))
	var group sync.WaitGroup
	for i, a := range agents {
		group.Go(func() {
			results[i], errs[i] = gnomon.Run(ctx, s.pool, gnomon.RunOptions{Purpose: a.purpose, Actor: a.name, Prefix: "agents/", RecordReads: true}, func(ctx context.Context, b *gnomon.Branch) error {
				_, err := b.Exec(ctx, a.sql)
				return err
			})
		})
	}
	group.Wait()
	fmt.Fprintln(s.out, "Agents work, each on a branch:")
	for i, a := range agents {
		if errs[i] != nil {
			fmt.Fprintf(s.out, "  %s, %q: failed, and left nothing\n", a.name, a.purpose)
			continue
		}
		request, err := s.rows.ChangeRequest(ctx, results[i].Request)
		if err != nil {
			return err
		}
		for table, c := range request.Counts {
			fmt.Fprintf(s.out, "  %s, %q: of %s %d rows updated, %d deleted\n", a.name, a.purpose, table, c.Updates, c.Deletes)
		}
	}
	return s.show(ctx, "Main is as it was:")
}

// The reviewer approves of all of them. The policy does not.
func (s *shop) review(ctx context.Context) error {
	fmt.Fprintln(s.out, "The reviewer merges:")
	for _, purpose := range []string{"Write names properly", "Order what is sold out", "Prices for the new season", "Remove idle suppliers"} {
		requests, err := s.rows.ChangeRequests(ctx, "")
		if err != nil {
			return err
		}
		for _, r := range requests {
			if r.Title == purpose {
				if err := s.decide(ctx, r); err != nil {
					return err
				}
			}
		}
	}
	return s.show(ctx, "Main has what was merged:")
}

func (s *shop) decide(ctx context.Context, r gnomon.ChangeRequest) error {
	if err := s.rows.Review(ctx, r.ID, gnomon.Review{Verdict: gnomon.Approve, BranchState: r.BranchState}); err != nil {
		return err
	}
	report, err := s.rows.MergeRequest(ctx, r.ID, gnomon.MergeOptions{})
	var refused *gnomon.Error
	switch {
	case errors.Is(err, gnomon.ErrStaleReads):
		// Others were merged since it read. It looks again: here it says that this makes no difference.
		fmt.Fprintf(s.out, "  %q: what it read has changed; it is refreshed, and looked at again\n", r.Title)
		b, err := s.rows.Branch(ctx, r.Branch)
		if err != nil {
			return err
		}
		if _, err := b.Refresh(ctx, gnomon.Present, gnomon.MergeOptions{}); err != nil {
			return err
		}
		if err := b.ForgetReads(ctx); err != nil {
			return err
		}
		if r, err = s.rows.ChangeRequest(ctx, r.ID); err != nil {
			return err
		}
		return s.decide(ctx, r)
	case errors.As(err, &refused):
		fmt.Fprintf(s.out, "  %q: %s\n", r.Title, refused.Message)
		return nil
	case err != nil:
		return err
	}
	if r.Title == "Prices for the new season" {
		s.repriced = report.ID
	}
	fmt.Fprintf(s.out, "  %q: %d rows\n", r.Title, report.Updated)
	return nil
}

// The prices were a mistake. Somebody has set one of them right since: that stays.
func (s *shop) regret(ctx context.Context) error {
	if _, err := s.pool.Exec(ctx, "update product set price = 99 where id = 3"); err != nil {
		return err
	}
	report, err := s.rows.UndoMerge(ctx, s.repriced, gnomon.UndoMergeOptions{})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "The prices are undone in %d rows; %d has another one since, which stays.\n", report.Updated, report.Conflicts)
	return s.show(ctx, "Main in the end:")
}

func (s *shop) show(ctx context.Context, title string) error {
	fmt.Fprintln(s.out, title)
	rows, err := s.pool.Query(ctx, "select format('%s %s, %s in stock', name, price, stock) from product order by id")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return err
		}
		fmt.Fprintln(s.out, "  "+line)
	}
	return rows.Err()
}
