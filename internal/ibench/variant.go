package ibench

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/gnomon"
	"github.com/annals-db/annals/volvra"
)

// A variant is what is done to the tables before the benchmark.
type variant struct {
	prepare func(ctx context.Context, conn *pgx.Conn, tables []string) error

	// moment names the present, and past reads what a table was at a moment. Without a history they are nil.
	moment func(ctx context.Context, conn *pgx.Conn) (string, error)
	past   func(ctx context.Context, conn *pgx.Conn, moment, table string) (content, error)
}

var variants = map[string]variant{
	"plain": {prepare: func(context.Context, *pgx.Conn, []string) error { return nil }},
	"gnomon": {
		prepare: func(ctx context.Context, conn *pgx.Conn, tables []string) error {
			if err := gnomon.Install(ctx, conn); err != nil {
				return err
			}
			return gnomon.New(conn).Track(ctx, tables...)
		},
		moment: func(ctx context.Context, conn *pgx.Conn) (string, error) {
			now, err := gnomon.New(conn).Now(ctx)
			return string(now.Ref()), err
		},
		past: func(ctx context.Context, conn *pgx.Conn, moment, table string) (c content, err error) {
			past, err := gnomon.New(conn).At(ctx, gnomon.Ref(moment))
			if err != nil {
				return c, err
			}
			return c, past.QueryRow(ctx, fmt.Sprintf(contentSQL, table)).Scan(&c.rows, &c.hash)
		},
	},
	"volvra": {
		prepare: func(ctx context.Context, conn *pgx.Conn, tables []string) error {
			if err := volvra.Install(ctx, conn); err != nil {
				return err
			}
			for _, table := range tables {
				covering, err := volvra.New(conn).Enable(ctx, table, volvra.Options{})
				if err == nil {
					err = covering.Err()
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
		moment: func(ctx context.Context, conn *pgx.Conn) (string, error) {
			now, err := volvra.New(conn).Coordinate(ctx)
			return string(now), err
		},
		past: func(ctx context.Context, conn *pgx.Conn, moment, table string) (c content, err error) {
			return c, conn.QueryRow(ctx, fmt.Sprintf(contentSQL, "volvra.as_of(null::public."+table+", $1::text)"), moment).Scan(&c.rows, &c.hash)
		},
	},
}

// content tells whether two states of a table are the same.
type content struct {
	rows int64
	hash string
}

const contentSQL = "select count(*), coalesce(sum(pg_catalog.hashtextextended(r::text, 0)), 0)::text from %s r"
