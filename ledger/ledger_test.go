package ledger_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/schema"
	"github.com/annals-db/annals/ledger"
)

func TestEveryObjectHasAComment(t *testing.T) {
	_, pool := installed(t)
	for _, object := range must[[]string](t)(schema.Uncommented(t.Context(), pool, "ledger")) {
		t.Errorf("%s has no comment", object)
	}
}

// An ordinary role that may create a schema can install, use, install again beside others, and uninstall.
func TestInstallAsOrdinaryRole(t *testing.T) {
	ctx := t.Context()
	conn := pgserver.Database(t)
	admin := must[*pgxpool.Pool](t)(pgxpool.New(ctx, conn))
	defer admin.Close()
	role := pgserver.Role(t, pgserver.Shared(t), "owner")
	_, err := admin.Exec(ctx, fmt.Sprintf("do $$ begin execute format('grant create on database %%I to %s', current_database()); end $$", role))
	ok(t, err)
	pool := must[*pgxpool.Pool](t)(pgxpool.New(ctx, conn+" user="+role))
	defer pool.Close()

	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := ledger.Install(ctx, pool); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	books := ledger.New(pool)
	ok(t, books.CreateAsset(ctx, "EUR", 2))
	pay(t, books, open(t, books, "a"), open(t, books, "b"), "1")
	ok(t, ledger.Install(ctx, pool)) // keeps what is booked
	whole(t, books)
	if _, err := books.AccountByCode(ctx, "a"); err != nil {
		t.Error(err)
	}
	ok(t, ledger.Uninstall(ctx, pool))
	var left bool
	ok(t, admin.QueryRow(ctx, "select to_regnamespace('ledger') is not null").Scan(&left))
	if left {
		t.Error("the schema is still there")
	}
}

// The script for other tools does what Install does.
func TestSQLInstalls(t *testing.T) {
	pool := pgserver.Pool(t)
	_, err := pool.Exec(t.Context(), must[string](t)(ledger.SQL()))
	ok(t, err)
	ok(t, ledger.Install(t.Context(), pool))
	books := ledger.New(pool)
	ok(t, books.CreateAsset(t.Context(), "EUR", 2))
	pay(t, books, open(t, books, "a"), open(t, books, "b"), "1")
}

func TestAccounts(t *testing.T) {
	ctx := t.Context()
	books, _ := installed(t)
	a := openWith(t, books, ledger.AccountParams{Name: "Cash", Code: "assets:cash", Asset: "EUR", Min: limit("0"), Max: limit("10")})
	for _, c := range []struct {
		name string
		p    ledger.AccountParams
		want error
	}{
		{"same again", ledger.AccountParams{ID: a, Name: "Cash", Code: "assets:cash", Asset: "EUR", Min: limit("0"), Max: limit("10")}, nil},
		{"other content", ledger.AccountParams{ID: a, Name: "Cash", Code: "assets:cash", Asset: "EUR"}, ledger.ErrIDReused},
		{"code in use", ledger.AccountParams{Name: "Other", Code: "assets:cash", Asset: "EUR"}, ledger.ErrTaken},
		{"no such asset", ledger.AccountParams{Name: "Other", Asset: "XYZ"}, ledger.ErrAssetNotFound},
		{"no name", ledger.AccountParams{Asset: "EUR"}, ledger.ErrInvalid},
		{"limits crossed", ledger.AccountParams{Name: "Other", Asset: "EUR", Min: limit("2"), Max: limit("1")}, ledger.ErrInvalid},
		{"limit too fine", ledger.AccountParams{Name: "Other", Asset: "EUR", Min: limit("0.001")}, ledger.ErrInvalid},
	} {
		if _, err := books.OpenAccount(ctx, c.p); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	if err := books.CreateAsset(ctx, "EUR", 3); !errors.Is(err, ledger.ErrTaken) {
		t.Errorf("another number of decimals: %v", err)
	}
	ok(t, books.UpdateAccount(ctx, a, "Till", "assets:till", []byte(`{"shop": 7}`)))
	account := must[ledger.Account](t)(books.Account(ctx, a))
	if account.Name != "Till" || account.Code != "assets:till" || string(account.Metadata) != `{"shop": 7}` {
		t.Errorf("after the update: %+v", account)
	}
}

// An account beyond a new limit may only move back, and one that is overdrawn may receive.
func TestLimitsLookAtTheDirection(t *testing.T) {
	ctx := t.Context()
	books, _ := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	pay(t, books, a, b, "10")
	ok(t, books.SetLimits(ctx, a, limit("0"), limit("5")))
	if _, err := books.Transfer(ctx, ledger.TransferParams{From: a, To: b, Amount: dec("0.01")}); !errors.Is(err, ledger.ErrLimit) {
		t.Errorf("an overdrawn account paid: %v", err)
	}
	pay(t, books, b, a, "4") // still overdrawn after it
	pay(t, books, b, a, "11")
	if _, err := books.Transfer(ctx, ledger.TransferParams{From: b, To: a, Amount: dec("0.01")}); !errors.Is(err, ledger.ErrLimit) {
		t.Errorf("a full account received: %v", err)
	}
	ok(t, books.SetLimits(ctx, a, limit("0"), limit("1")))
	pay(t, books, a, b, "2") // still beyond its maximum after it
	whole(t, books)
}
