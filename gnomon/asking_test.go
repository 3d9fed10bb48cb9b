package gnomon_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/gnomon"
)

// asked is what can be asked: the past, or a branch.
type asked interface {
	gnomon.Reader
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// askings are ways to ask where the table o has rows 1 to 3, whose values sum to 6, among them those that fail.
var askings = map[string]func(ctx context.Context, p asked) error{
	"query": func(ctx context.Context, p asked) error {
		rows, err := p.Query(ctx, "select id from o order by id")
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if err == nil && fmt.Sprint(ids) != "[1 2 3]" {
			return fmt.Errorf("ids are %v", ids)
		}
		return err
	},
	"query, in part": func(ctx context.Context, p asked) error {
		rows, err := p.Query(ctx, "select id, repeat('x', 10000) from o, generate_series(1, 300)")
		if err == nil {
			rows.Next()
			rows.Close()
			rows.Close()
			err = rows.Err()
		}
		return err
	},
	"row": func(ctx context.Context, p asked) error {
		return errors.Join(scanOne(p.QueryRow(ctx, "select n from o where id = 77"), pgx.ErrNoRows), scanOne(p.QueryRow(ctx, "select sum(n) from o"), nil), scanOne(p.QueryRow(ctx, "select note from o"), errAny))
	},
	"failing": func(ctx context.Context, p asked) error {
		return errors.Join(scanOne(p.QueryRow(ctx, "select 1 / (n - 1) from o where id = 1"), errAny), scanOne(p.QueryRow(ctx, "selekt"), errAny))
	},
	"failing later": func(ctx context.Context, p asked) error {
		rows, err := p.Query(ctx, "select 1 / (3000 - i) from generate_series(1, 3000) i")
		if err != nil {
			return err
		}
		for rows.Next() {
		}
		if sqlState(rows.Err()) != "22012" {
			return fmt.Errorf("it says %w", rows.Err())
		}
		return nil
	},
	"get": func(ctx context.Context, p asked) error {
		row, found, err := gnomon.Get[map[string]any](ctx, p, "public.o", 2)
		if err == nil && (!found || fmt.Sprint(row["n"]) != "2") {
			return fmt.Errorf("row 2 is %v", row)
		}
		if _, found, missed := gnomon.Get[map[string]any](ctx, p, "public.o", 9); found || missed != nil {
			return fmt.Errorf("row 9 is there, %w", missed)
		}
		return err
	},
	"get, wrongly": func(ctx context.Context, p asked) error {
		if _, _, err := gnomon.Get[map[string]any](ctx, p, "public.o", "no number"); err == nil {
			return errors.New("no error")
		}
		if _, _, err := gnomon.Get[map[string]any](ctx, p, "public.nothing", 1); err == nil {
			return errors.New("no error")
		}
		if _, _, err := gnomon.Get[map[string]any](ctx, p, "public.o", 1, 2); !errors.Is(err, gnomon.ErrInvalid) {
			return fmt.Errorf("two keys: %w", err)
		}
		if _, _, err := gnomon.Get[map[string]any](ctx, p, "pg_catalog.pg_class", 1); !errors.Is(err, gnomon.ErrNotTracked) {
			return fmt.Errorf("an untracked table: %w", err)
		}
		if _, _, err := gnomon.Get[struct{ ID int }](ctx, p, "public.o", 1); err == nil {
			return errors.New("no error")
		}
		return nil
	},
	"list": func(ctx context.Context, p asked) error {
		list, err := gnomon.List[map[string]any](ctx, p, "public.o", "where n > $1 order by id", 1)
		if err == nil && len(list) != 2 {
			return fmt.Errorf("list is %v", list)
		}
		if _, err := gnomon.List[map[string]any](ctx, p, "public.o", "where"); err == nil {
			return errors.New("no error")
		}
		return err
	},
}

// askedOf adds askings to what only the past, or only a branch, can be asked.
func askedOf[T asked](more map[string]func(context.Context, T) error) map[string]func(context.Context, T) error {
	for name, asking := range askings {
		more[name] = func(ctx context.Context, p T) error { return asking(ctx, p) }
	}
	return more
}

var errAny = errors.New("any")

// scanOne scans a number, and returns an error unless that fails as it should.
func scanOne(row pgx.Row, want error) error {
	var n int
	err := row.Scan(&n)
	if err == nil && want != nil || err != nil && !errors.Is(err, want) && want != errAny {
		return fmt.Errorf("got %v, want %v", err, want)
	}
	return nil
}
