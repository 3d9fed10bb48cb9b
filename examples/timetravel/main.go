// Command timetravel follows a small bank through a week: its tables are read as they were at a time, at a tag and at exact
// coordinates, a wrong balance is traced to who made it, a search index follows by the change feed, and old history goes while what
// a tag needs stays.
//
//	go run ./examples/timetravel
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/internal/pgserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "timetravel:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	return pgserver.WithPool(ctx, func(pool *pgxpool.Pool) error {
		b := &bank{pool: pool, rows: gnomon.New(pool), out: out}
		if err := b.open(ctx); err != nil {
			return err
		}
		for _, chapter := range []func(context.Context) error{b.reports, b.whoWasIt, b.schema, b.follow, b.retention} {
			if err := chapter(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

const tables = `
create table holder (id int primary key, name text not null);
create table account (id int primary key, holder int not null references holder, balance numeric(12, 2) not null, branch text not null);
insert into holder values (1, 'Ada'), (2, 'Bob'), (3, 'Cyd');
insert into account values (10, 1, 500, 'York'), (20, 2, 80, 'York'), (30, 3, 1000, 'Bath')`

type bank struct {
	pool *pgxpool.Pool
	rows *gnomon.Gnomon
	out  io.Writer
	bug  gnomon.Coordinate
}

func (b *bank) open(ctx context.Context) error {
	if _, err := b.pool.Exec(ctx, tables); err != nil {
		return err
	}
	if err := gnomon.Install(ctx, b.pool); err != nil {
		return err
	}
	return b.rows.Track(ctx, "public.holder", "public.account")
}

// as runs statements for somebody, in one transaction.
func (b *bank) as(ctx context.Context, actor string, statements ...string) error {
	return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select set_config('annals.actor', $1, true)", actor); err != nil {
			return err
		}
		for _, sql := range statements {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return err
			}
		}
		return nil
	})
}

const byBranch = "select a.branch, count(*), sum(a.balance)::text from account a join holder h on h.id = a.holder group by a.branch order by a.branch"

func (b *bank) report(ctx context.Context, db gnomon.DB, when string) error {
	fmt.Fprintf(b.out, "  %s:", when)
	rows, err := db.Query(ctx, byBranch)
	if err != nil {
		return err
	}
	var branch, sum string
	var n int
	_, err = pgx.ForEachRow(rows, []any{&branch, &n, &sum}, func() error {
		fmt.Fprintf(b.out, " %s %s in %d;", branch, sum, n)
		return nil
	})
	fmt.Fprintln(b.out)
	return err
}

// One report, at three moments: joins and aggregates over several tables, all as they were at one place.
func (b *bank) reports(ctx context.Context) error {
	fmt.Fprintln(b.out, "Balances by branch:")
	if _, err := b.rows.Tag(ctx, "opening", gnomon.Present, "before the first transfer"); err != nil {
		return err
	}
	if err := b.as(ctx, "ada", "update account set balance = balance - 100 where id = 10", "update account set balance = balance + 100 where id = 20"); err != nil {
		return err
	}
	if _, err := b.rows.Heartbeat(ctx, 0); err != nil { // RunHeartbeat does that every second
		return err
	}
	lunch := time.Now()
	if err := b.as(ctx, "clerk", "insert into account values (31, 3, 250, 'Bath')", "update account set branch = 'York' where id = 30"); err != nil {
		return err
	}
	for _, place := range []struct {
		when string
		ref  gnomon.Ref
	}{{"at the opening", gnomon.AtTag("opening")}, {"at lunch", gnomon.AtTime(lunch)}} {
		past, err := b.rows.At(ctx, place.ref)
		if err != nil {
			return err
		}
		if err := b.report(ctx, past, place.when); err != nil {
			return err
		}
		if _, err := past.Exec(ctx, "update account set balance = 0"); !errors.Is(err, gnomon.ErrReadOnly) {
			return fmt.Errorf("the past was written: %v", err)
		}
	}
	return b.report(ctx, b.pool, "now")
}

// A balance is wrong: the life of its row says since when, and by whom.
func (b *bank) whoWasIt(ctx context.Context) error {
	if err := b.as(ctx, "batch", "update account set balance = balance * 10 where branch = 'Bath'"); err != nil {
		return err
	}
	fmt.Fprintln(b.out, "Cyd wonders about account 31:")
	life, err := b.rows.History(ctx, "public.account", gnomon.KeyOf(31))
	if err != nil {
		return err
	}
	for _, v := range life {
		if balance, changed := v.Columns["balance"]; changed && v.Operation == "update" {
			fmt.Fprintf(b.out, "  balance %s -> %s by %s\n", *balance.From, *balance.To, v.Who.Actor)
		}
	}
	blame, err := b.rows.Blame(ctx, "public.account", gnomon.KeyOf(30))
	if err != nil {
		return err
	}
	for _, c := range blame {
		fmt.Fprintf(b.out, "  of account 30, %s was last changed by %s\n", c.Column, c.Who.Actor)
	}
	return nil
}

// Tables change their columns; the past has those that it had.
func (b *bank) schema(ctx context.Context) error {
	var err error
	if b.bug, err = b.rows.Now(ctx); err != nil {
		return err
	}
	if err := b.as(ctx, "dba", "update account set balance = 250 where id = 31", "alter table account add column currency text not null default 'GBP'"); err != nil {
		return err
	}
	past, err := b.rows.At(ctx, b.bug.Ref())
	if err != nil {
		return err
	}
	then, _, err := gnomon.Get[map[string]any](ctx, past, "public.account", 31)
	if err != nil {
		return err
	}
	present, err := b.rows.At(ctx, gnomon.Present)
	if err != nil {
		return err
	}
	now, _, err := gnomon.Get[map[string]any](ctx, present, "public.account", 31)
	if err != nil {
		return err
	}
	fmt.Fprintf(b.out, "Account 31 had %d columns before a currency was added, and has %d.\n", len(then), len(now))
	for d, err := range b.rows.Diff(ctx, b.bug.Ref(), gnomon.Present, gnomon.DiffOptions{Tables: []string{"public.account"}}) {
		if err != nil {
			return err
		}
		fmt.Fprintf(b.out, "  since then: %s of %s, %v\n", d.Operation, d.Key[0], d.Columns)
	}
	return nil
}

// A search index is built from the rows as they are and kept by what changes then, without a gap or a duplicate.
func (b *bank) follow(ctx context.Context) error {
	if _, err := b.pool.Exec(ctx, "create table search (account text primary key, text text)"); err != nil {
		return err
	}
	if err := b.rows.CreateConsumer(ctx, gnomon.ConsumerParams{Name: "search", Tables: []string{"public.account"}, Snapshot: true}); err != nil {
		return err
	}
	if err := b.as(ctx, "clerk", "update account set branch = 'Leeds' where id = 20", "delete from account where id = 10"); err != nil {
		return err
	}
	fmt.Fprintln(b.out, "A search index follows:")
	return b.rows.Feed("search", gnomon.FeedOptions{Drain: true}).Run(ctx, func(ctx context.Context, tx pgx.Tx, page gnomon.Page) error {
		for _, c := range page.Changes {
			var err error
			if c.Operation == gnomon.Delete {
				_, err = tx.Exec(ctx, "delete from search where account = $1", c.Key[0])
			} else {
				branch, _, _ := c.New.Value("branch")
				_, err = tx.Exec(ctx, "insert into search values ($1, $2) on conflict (account) do update set text = excluded.text", c.Key[0], branch)
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(b.out, "  %s %s\n", c.Operation, c.Key[0])
		}
		return nil
	})
}

// Old history is pruned, as far as nothing needs it.
func (b *bank) retention(ctx context.Context) error {
	if _, err := b.pool.Exec(ctx, "select annals.rotate(tracked, 0) from gnomon.history"); err != nil { // Maintain does that when segments have grown
		return err
	}
	if err := b.rows.Maintain(ctx, nil); err != nil {
		return err
	}
	if _, err := b.rows.Heartbeat(ctx, 0); err != nil {
		return err
	}
	prune := func() error {
		pruned, err := b.rows.Prune(ctx, gnomon.Present, "public.account")
		if err != nil {
			return err
		}
		for _, p := range pruned {
			fmt.Fprintf(b.out, "  %d segments of %s go", p.Segments, p.Table)
			for _, pin := range p.HeldBy {
				fmt.Fprintf(b.out, ", held back by %s %s", pin.Owner, pin.Name)
			}
			fmt.Fprintln(b.out)
		}
		return nil
	}
	fmt.Fprintln(b.out, "History is pruned:")
	if err := prune(); err != nil {
		return err
	}
	if err := errors.Join(b.rows.DropTag(ctx, "opening"), b.rows.DropConsumer(ctx, "search")); err != nil {
		return err
	}
	if err := prune(); err != nil {
		return err
	}
	past, err := b.rows.At(ctx, b.bug.Ref())
	if err != nil {
		return err
	}
	if _, err = gnomon.List[map[string]any](ctx, past, "public.account", ""); !errors.Is(err, gnomon.ErrPruned) {
		return fmt.Errorf("pruned history was read: %v", err)
	}
	fmt.Fprintln(b.out, "  What was before is refused, and never told wrongly.")
	return nil
}
