package ledger_test

import (
	"errors"
	"testing"

	"github.com/annals-db/annals/ledger"
)

// Books that carry another cluster's transaction ids are refused as long as following them would leave entries out.
func TestAdoptedBooksAreFollowedFromTheBeginning(t *testing.T) {
	ctx := t.Context()
	books, pool := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	pay(t, books, a, b, "1")
	// What a restore leaves: the identifier of the cluster it came from, and transaction ids far ahead of this one's.
	_, err := pool.Exec(ctx, `begin;
		set local search_path = pg_catalog, pg_temp;
		alter table ledger.transfer disable trigger guard_books;
		update ledger.transfer set xid = 1000000000000;
		alter table ledger.transfer enable trigger guard_books;
		update ledger.home set system_identifier = 7;
		commit`)
	ok(t, err)
	if _, err := books.Position(ctx); !errors.Is(err, ledger.ErrPosition) {
		t.Errorf("position of restored books: %v", err)
	}
	for _, err := range books.Changes(ctx, "") {
		if !errors.Is(err, ledger.ErrPosition) {
			t.Errorf("following restored books: %v", err)
		}
	}
	pay(t, books, a, b, "2") // booking goes on all the time
	ok(t, books.AdoptBooks(ctx))
	ok(t, books.AdoptBooks(ctx))
	if n := len(allChanges(t, books, "")); n != 4 {
		t.Errorf("%d entries are read, 4 were booked", n)
	}
	whole(t, books)

	other, _ := installed(t)
	position, err := other.Position(ctx)
	ok(t, err)
	for _, err := range books.Changes(ctx, position) {
		if !errors.Is(err, ledger.ErrPosition) {
			t.Errorf("a position of another database: %v", err)
		}
	}
}
