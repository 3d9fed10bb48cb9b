package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/shopspring/decimal"

	"github.com/annals-db/annals/ledger"
)

// ledgerStory is a shop: customers load their wallets, buy, and are refused what they don't have.
func ledgerStory(ctx context.Context, out io.Writer, pool *pgxpool.Pool) error {
	fmt.Fprintln(out, "ledger: double-entry accounts and transfers")
	if err := ledger.Install(ctx, pool); err != nil {
		return err
	}
	books := ledger.New(pool)
	if err := books.CreateAsset(ctx, "EUR", 2); err != nil {
		return err
	}
	cash, err := books.OpenAccount(ctx, ledger.AccountParams{Name: "Bank", Code: "assets:bank", Asset: "EUR"})
	if err != nil {
		return err
	}
	// What we owe a customer is a liability: it stands below zero, and may not rise above.
	wallet, err := books.OpenAccount(ctx, ledger.AccountParams{
		Name: "Ada's wallet", Code: "liabilities:wallets:ada", Asset: "EUR",
		NormalSide: ledger.Credit, Max: decimal.NewNullDecimal(decimal.Zero),
	})
	if err != nil {
		return err
	}
	sales, err := books.OpenAccount(ctx, ledger.AccountParams{Name: "Sales", Code: "income:sales", Asset: "EUR", NormalSide: ledger.Credit})
	if err != nil {
		return err
	}

	topUp := ledger.TransferParams{ID: ledger.NewTransferID(), From: wallet, To: cash, Amount: eur("50.00")}
	if _, err := books.Transfer(ctx, topUp); err != nil {
		return err
	}
	again, err := books.Transfer(ctx, topUp)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "  Ada pays 50.00 into her wallet. The request is sent twice and booked once: replayed=%t.\n", again.Replayed)

	hold, err := books.Hold(ctx, ledger.HoldParams{From: sales, To: wallet, Amount: eur("30.00")})
	if err != nil {
		return err
	}
	_, err = books.Transfer(ctx, ledger.TransferParams{From: sales, To: wallet, Amount: eur("25.00")})
	if !errors.Is(err, ledger.ErrLimit) {
		return fmt.Errorf("a purchase above what is available was not refused: %v", err)
	}
	fmt.Fprintln(out, "  30.00 are held for an order, so a purchase of 25.00 is refused: she has 20.00 left.")
	if _, err := books.PostHold(ctx, hold.ID, ledger.PostParams{Amount: decimal.NewNullDecimal(eur("27.50"))}); err != nil {
		return err
	}
	fmt.Fprintln(out, "  The order costs 27.50 in the end; the rest of the hold is hers again.")

	fmt.Fprintln(out, "  Her wallet, as she sees it:")
	for entry, err := range books.Entries(ctx, wallet, ledger.EntryFilter{}) {
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "    entry %d: %7s, balance %6s\n", entry.Version, entry.Amount.Neg().StringFixed(2), entry.Balance.Neg().StringFixed(2))
	}
	trial, err := books.TrialBalance(ctx, time.Time{}, ledger.ByBooking)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "  Trial balance:")
	for _, line := range trial.Lines {
		fmt.Fprintf(out, "    %-24s %8s %8s\n", line.Code, line.Debit.StringFixed(2), line.Credit.StringFixed(2))
	}
	problems := 0
	for problem, err := range books.Verify(ctx, ledger.VerifyOptions{}) {
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "   ", problem.Message)
		problems++
	}
	fmt.Fprintf(out, "  Verify checks balances, amounts, links and guards, and finds %d problems.\n", problems)
	return nil
}

func eur(s string) decimal.Decimal { return decimal.RequireFromString(s) }
