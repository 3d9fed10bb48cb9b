package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/ledger"
)

// changes reads what one call yields.
func changes(t testing.TB, books *ledger.Ledger, after ledger.Position) (all []ledger.Change) {
	t.Helper()
	for c, err := range books.Changes(t.Context(), after) {
		ok(t, err)
		all = append(all, c)
	}
	return all
}

// allChanges calls again until there is nothing more.
func allChanges(t testing.TB, books *ledger.Ledger, after ledger.Position) (all []ledger.Change) {
	t.Helper()
	for {
		more := changes(t, books, after)
		if len(more) == 0 {
			return all
		}
		all = append(all, more...)
		after = more[len(more)-1].Position
	}
}

// entryName names an entry, without its position, which depends on where the reader began.
func entryName(c ledger.Change) string {
	return fmt.Sprintf("%s %s leg %d: %s version %d amount %s", c.Kind, c.Source, c.Leg, c.Account, c.Version, c.Amount)
}

// complete checks that a reader got every entry of the books once, each account's in order and the legs of a source side by side.
func complete(t testing.TB, books *ledger.Ledger, pool *pgxpool.Pool, read []ledger.Change) {
	t.Helper()
	versions := map[ledger.AccountID]int64{}
	for i, c := range read {
		if versions[c.Account]++; c.Version != versions[c.Account] {
			t.Fatalf("entry %d is %s, want version %d", i, entryName(c), versions[c.Account])
		}
		if before := i - 1; c.Leg > 1 && (before < 0 || read[before].Source != c.Source || read[before].Leg != c.Leg-1) {
			t.Fatalf("entry %d is %s, and the leg before it is elsewhere", i, entryName(c))
		}
	}
	rows, err := pool.Query(t.Context(), "select id, version from ledger.balance")
	ok(t, err)
	var account ledger.AccountID
	var version int64
	_, err = pgx.ForEachRow(rows, []any{&account, &version}, func() error {
		if versions[account] != version {
			t.Errorf("account %s has %d entries, %d were read", account, version, versions[account])
		}
		return nil
	})
	ok(t, err)
}

// writeAtRandom runs transactions with several bookings, some undone in part or whole, that stay open for a while.
func writeAtRandom(t testing.TB, pool *pgxpool.Pool, accounts []ledger.AccountID, writers, rounds int) {
	t.Helper()
	errUndo := errors.New("undo")
	ctx := t.Context()
	together(t, writers, func(i int) error {
		random := rand.New(rand.NewPCG(3, uint64(i)))
		// Writers have accounts of their own, so that they commit in any order, and share one.
		mine := func() (from, to ledger.AccountID) {
			from, to = accounts[1+2*i], accounts[2+2*i]
			if random.IntN(4) == 0 {
				to = accounts[0]
			}
			return from, to
		}
		book := func(db ledger.DB) (err error) {
			books := ledger.New(db)
			from, to := mine()
			switch random.IntN(3) {
			case 0:
				_, err = books.Transfer(ctx, ledger.TransferParams{From: from, To: to, Amount: dec("1")})
			case 1:
				_, err = books.PostJournal(ctx, ledger.JournalParams{Postings: []ledger.Posting{{Account: to, Amount: dec("2")}, {Account: from, Amount: dec("-3")}, {Account: to, Amount: dec("1")}}})
			case 2:
				_, err = books.Transfers(ctx, []ledger.TransferParams{{From: from, To: to, Amount: dec("1")}, {From: to, To: from, Amount: dec("2")}, {From: from, To: to, Amount: dec("3")}})
			}
			return err
		}
		for range rounds {
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "select txid_current()"); err != nil { // ids are given out in another order than bookings
					return err
				}
				time.Sleep(time.Duration(random.IntN(5)) * time.Millisecond)
				for range 1 + random.IntN(2) {
					err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
						if err := book(inner); err != nil || random.IntN(4) > 0 {
							return err
						}
						return errUndo
					})
					if err != nil && err != errUndo {
						return err
					}
				}
				time.Sleep(time.Duration(random.IntN(10)) * time.Millisecond)
				if random.IntN(5) == 0 {
					return errUndo
				}
				return nil
			})
			if err != nil && err != errUndo {
				return err
			}
		}
		return nil
	})
}

func TestChangesWhileManyWrite(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	const writers = 6
	rounds := 25
	if testing.Short() {
		rounds = 10
	}
	var accounts []ledger.AccountID
	for i := range 1 + 2*writers {
		accounts = append(accounts, open(t, books, fmt.Sprint("account ", i)))
	}
	crowd := onLevel(t, pool, "read committed")
	var readers sync.WaitGroup
	written := make(chan struct{})
	read := make([][]ledger.Change, 3)
	for i := range read {
		readers.Go(func() {
			random := rand.New(rand.NewPCG(5, uint64(i)))
			var after ledger.Position
			for last := false; ; {
				before := len(read[i])
				for c, err := range ledger.New(crowd).Changes(t.Context(), after) {
					if err != nil {
						t.Error(err)
						return
					}
					read[i] = append(read[i], c)
					after = c.Position
					if i > 0 && random.IntN(5*i) == 0 {
						break // in the middle of a window, or of a journal entry
					}
				}
				if len(read[i]) > before {
					continue
				}
				if last {
					return
				}
				select {
				case <-written:
					last = true
				default:
				}
			}
		})
	}
	writeAtRandom(t, crowd, accounts, writers, rounds)
	close(written)
	readers.Wait()
	if len(read[0]) == 0 {
		t.Fatal("nothing was read")
	}
	for i := range read {
		complete(t, books, pool, read[i])
	}
	sound(t, books)
}

// TestChangesResumeEverywhere: from the position of each entry a reader goes on with the next one, although more was booked since.
func TestChangesResumeEverywhere(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	var accounts []ledger.AccountID
	for i := range 5 {
		accounts = append(accounts, open(t, books, fmt.Sprint("account ", i)))
	}
	writeAtRandom(t, pool, accounts, 2, 3)
	open, err := pool.Begin(t.Context()) // stays open across the first window
	ok(t, err)
	pay(t, ledger.New(open), accounts[1], accounts[2], "5")
	first := changes(t, books, "")
	ok(t, open.Commit(t.Context()))
	writeAtRandom(t, pool, accounts, 2, 2)
	all := append(slices.Clone(first), allChanges(t, books, first[len(first)-1].Position)...)
	complete(t, books, pool, all)
	if len(all) == len(first) {
		t.Fatal("nothing was booked after the first window")
	}
	for i, c := range all {
		rest := allChanges(t, books, c.Position)
		if !slices.EqualFunc(rest, all[i+1:], func(x, y ledger.Change) bool { return entryName(x) == entryName(y) }) {
			t.Fatalf("after entry %d of %d (the first window has %d) at %s came %d entries, want %d", i, len(all), len(first), c.Position, len(rest), len(all)-i-1)
		}
	}
}

// TestChangesPages: more than a page, in pages of the function as well.
func TestChangesPages(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	batch := make([]ledger.TransferParams, 1100)
	for i := range batch {
		batch[i] = ledger.TransferParams{From: a, To: b, Amount: dec("1")}
	}
	_, err := books.Transfers(t.Context(), batch)
	ok(t, err)
	all := changes(t, books, "")
	complete(t, books, pool, all)
	var positions []string
	for after := ""; ; {
		rows, err := pool.Query(t.Context(), "select position, version from ledger.changes($1, 701)", after)
		ok(t, err)
		var version int64
		_, err = pgx.ForEachRow(rows, []any{&after, &version}, func() error { positions = append(positions, after); return nil })
		ok(t, err)
		if rows.CommandTag().RowsAffected() == 0 {
			break
		}
	}
	if len(positions) != len(all) {
		t.Errorf("%d entries came in pages of 701, %d in one", len(positions), len(all))
	}
}

// TestChangesInTransaction: what the caller's own transaction booked is not committed, so it comes after every position taken inside.
func TestChangesInTransaction(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		books, pool := installed(t)
		a, b := open(t, books, "a"), open(t, books, "b")
		c, d := open(t, books, "c"), open(t, books, "d")
		pay(t, books, a, b, "1")
		tx, err := onLevel(t, pool, level).Begin(t.Context())
		ok(t, err)
		mine := ledger.New(tx)
		pay(t, mine, a, b, "2")
		pay(t, books, c, d, "3") // commits later than the transaction began: its snapshot is beyond the transaction's id
		read := changes(t, mine, "")
		taken := must[ledger.Position](t)(mine.Position(t.Context()))
		want := 4
		if level != "read committed" {
			want = 2
		}
		if len(read) != want {
			t.Errorf("%s: %d entries are committed for the transaction, want %d", level, len(read), want)
		}
		pay(t, books, c, d, "4")
		ok(t, tx.Commit(t.Context()))
		after := read[len(read)-1].Position
		complete(t, books, pool, append(read, allChanges(t, books, after)...))
		if rest := allChanges(t, books, taken); len(rest) != 8-want {
			t.Errorf("%s: %d entries after the position, want %d", level, len(rest), 8-want)
		}
	}
}

// TestChangesOfAnOlderSnapshot: a transaction that sees less than a position says must not take the position past what it can't see.
func TestChangesOfAnOlderSnapshot(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	c, d := open(t, books, "c"), open(t, books, "d")
	writer, err := pool.Begin(t.Context())
	ok(t, err)
	pay(t, ledger.New(writer), c, d, "1")
	pay(t, books, a, b, "1")
	tx, err := onLevel(t, pool, "repeatable read").Begin(t.Context())
	ok(t, err)
	defer tx.Rollback(t.Context())
	old := ledger.New(tx)
	_, err = old.Balance(t.Context(), a)
	ok(t, err)
	ok(t, writer.Commit(t.Context()))
	notYet := changes(t, books, "")
	pay(t, books, a, b, "2")
	all := append(changes(t, books, ""), notYet[:len(notYet)-1]...)
	if len(notYet) != 4 || len(all) != 9 {
		t.Fatalf("%d, then %d entries", len(notYet), len(all))
	}
	for i, c := range all {
		read := all[: i+1 : i+1]
		if i >= 6 {
			read = notYet[: i-5 : i-5]
		}
		after := c.Position
		for c, err := range old.Changes(t.Context(), c.Position) {
			if err != nil {
				break // saying so is fine
			}
			read = append(read, c)
			after = c.Position
		}
		complete(t, books, pool, append(read, allChanges(t, books, after)...))
	}
}

func TestChangesLoopInTransaction(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	for range 3 {
		pay(t, books, a, b, "1")
	}
	_, err := pool.Exec(t.Context(), "create table seen (version bigint)")
	ok(t, err)
	ok(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		mine := ledger.New(tx)
		for c, err := range mine.Changes(t.Context(), "") {
			ok(t, err)
			if _, err := tx.Exec(t.Context(), "insert into seen values ($1)", c.Version); err != nil {
				return err
			}
			inner := 0
			for range mine.Changes(t.Context(), c.Position) {
				if inner++; inner == 2 {
					break
				}
			}
			if _, err := mine.Transfer(t.Context(), ledger.TransferParams{From: a, To: a, Amount: dec("1")}); !errors.Is(err, ledger.ErrSameAccount) {
				t.Errorf("a refusal inside the loop: %v", err)
			}
			if c.Version == 3 {
				break
			}
		}
		var cursors int
		ok(t, tx.QueryRow(t.Context(), "select count(*) from pg_cursors where name like 'ledger%'").Scan(&cursors))
		if cursors != 0 {
			t.Errorf("%d cursors are left open", cursors)
		}
		return nil
	}))
	var n int
	ok(t, pool.QueryRow(t.Context(), "select count(*) from seen").Scan(&n))
	if n != 5 {
		t.Errorf("%d rows are left of what the loop wrote, want 5", n)
	}
}

func TestPositionsRefused(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	pay(t, books, a, b, "1")
	if first := changes(t, books, ""); len(first) != 2 {
		t.Fatalf("%d entries from the beginning", len(first))
	}
	var rows int
	ok(t, pool.QueryRow(t.Context(), "select count(*) from ledger.changes(null)").Scan(&rows))
	if rows != 2 {
		t.Errorf("%d entries from the null position", rows)
	}
	position := string(must[ledger.Position](t)(books.Position(t.Context())))
	if rest := changes(t, books, ledger.Position(position)); len(rest) != 0 {
		t.Errorf("%d entries after the last", len(rest))
	}
	here, snapshot, _ := strings.Cut(position, "/")
	const uuid = "00000000-0000-7000-8000-000000000000"
	for _, bad := range []string{
		"x", "/", " ", here, here + "/", here + "/1", "1" + position, "1/" + snapshot, position + "/", position + "x", " " + position, position + "\n",
		here + "/9:1:", here + "/1:5:9", here + "/1:9:3,2", here + "/1:9:,", here + "/0:0:", here + "/9999999999999999999:9999999999999999999:",
		position + "/" + snapshot + "/999999999999999999/" + uuid + "/1", position + "/" + snapshot + "/1/" + strings.Repeat("-", 36) + "/1",
		position + "/" + snapshot + "/1/" + uuid + "/9999999999", position + "/" + snapshot + "/x/" + uuid + "/1", strings.Repeat("9", 1<<16),
	} {
		for c, err := range books.Changes(t.Context(), ledger.Position(bad)) {
			if !errors.Is(err, ledger.ErrPosition) {
				t.Errorf("position %.60q: %v, %v, want ErrPosition", bad, c.Source, err)
			}
		}
	}
}

// TestPositionsOnStandby: transactions that run on the primary look finished on a standby, so nothing is read there.
func TestPositionsOnStandby(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("makes a base backup")
	}
	primary := pgserver.New(t, pgserver.Options{})
	database, err := primary.CreateDatabase(t.Context())
	ok(t, err)
	pool, err := pgxpool.New(t.Context(), primary.ConnString(database))
	ok(t, err)
	defer pool.Close()
	ok(t, ledger.Install(t.Context(), pool))
	books := ledger.New(pool)
	ok(t, books.CreateAsset(t.Context(), "EUR", 2))
	a, b := open(t, books, "a"), open(t, books, "b")
	pay(t, books, a, b, "1")
	all := changes(t, books, "")
	position := must[ledger.Position](t)(books.Position(t.Context()))
	standby, err := primary.Standby(t.Context())
	ok(t, err)
	defer standby.Stop()
	other, err := pgxpool.New(t.Context(), standby.ConnString(database))
	ok(t, err)
	defer other.Close()
	replica := ledger.New(other)
	if _, err := replica.Position(t.Context()); !errors.Is(err, ledger.ErrPosition) {
		t.Errorf("a position on a standby: %v", err)
	}
	for name, after := range map[string]ledger.Position{"the beginning": "", "a window's end": position, "the middle of a window": all[0].Position} {
		refused := false
		for c, err := range replica.Changes(t.Context(), after) {
			if !errors.Is(err, ledger.ErrPosition) {
				t.Errorf("changes on a standby from %s: %s, %v", name, c.Source, err)
			}
			refused = true
		}
		if !refused {
			t.Errorf("changes on a standby from %s were empty and not refused", name)
		}
	}
	// What was read on the primary goes on where the standby becomes it.
	pay(t, books, a, b, "2")
	ok(t, standby.CatchUp(t.Context()))
	ok(t, primary.Kill(t.Context()))
	ok(t, standby.Promote(t.Context()))
	complete(t, replica, other, append(all[:1:1], allChanges(t, replica, all[0].Position)...))
}

// follow runs Follow until n entries came.
func follow(t testing.TB, books *ledger.Ledger, every time.Duration, n int, began chan<- struct{}) (got []ledger.Change, err error) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	err = books.Follow(ctx, "", every, func(ctx context.Context, c ledger.Change) error {
		got = append(got, c)
		if len(got) == 1 {
			close(began)
		}
		if len(got) == n {
			return errEnough
		}
		return nil
	})
	return got, err
}

var errEnough = errors.New("enough")

func TestFollow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		notify bool
		every  time.Duration
		handle func(pool *pgxpool.Pool, conn *pgx.Conn) ledger.DB
	}{
		{"woken long before the interval is over", true, 10 * time.Minute, func(pool *pgxpool.Pool, _ *pgx.Conn) ledger.DB { return pool }},
		{"looking every so often", false, 20 * time.Millisecond, func(pool *pgxpool.Pool, _ *pgx.Conn) ledger.DB { return pool }},
		{"on one connection", true, 20 * time.Millisecond, func(_ *pgxpool.Pool, conn *pgx.Conn) ledger.DB { return conn }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			books, pool := installed(t)
			a, b := open(t, books, "a"), open(t, books, "b")
			ok(t, books.SetNotify(t.Context(), c.notify))
			conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
			ok(t, err)
			defer conn.Close(context.WithoutCancel(t.Context()))
			pay(t, books, a, b, "1")
			began := make(chan struct{})
			var got []ledger.Change
			var all sync.WaitGroup
			all.Go(func() { got, err = follow(t, ledger.New(c.handle(pool, conn)), c.every, 10, began) })
			<-began
			for range 2 {
				pay(t, books, a, b, "1")
				time.Sleep(30 * time.Millisecond)
			}
			_, journalErr := books.PostJournal(t.Context(), ledger.JournalParams{Postings: []ledger.Posting{{Account: a, Amount: dec("-1")}, {Account: b, Amount: dec("1")}}})
			ok(t, journalErr)
			time.Sleep(30 * time.Millisecond)
			pay(t, books, a, b, "1")
			all.Wait()
			if err != errEnough {
				t.Fatalf("Follow ended with %v, want the handler's error", err)
			}
			complete(t, books, pool, got)
		})
	}
}

func TestFollowEndsWithItsContext(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	pay(t, books, a, b, "1")
	for _, every := range []time.Duration{0, 10 * time.Minute} {
		ctx, cancel := context.WithCancel(t.Context())
		err := books.Follow(ctx, "", every, func(_ context.Context, c ledger.Change) error {
			if c.Leg == 2 {
				time.AfterFunc(20*time.Millisecond, cancel)
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Follow ended with %v", err)
		}
	}
	var listening int
	ok(t, pool.QueryRow(t.Context(), `select count(*) from pg_stat_activity where datname = current_database() and query like 'listen%'`).Scan(&listening))
	if listening > 0 {
		time.Sleep(200 * time.Millisecond)
		ok(t, pool.QueryRow(t.Context(), `select count(*) from pg_stat_activity where datname = current_database() and query like 'listen%'`).Scan(&listening))
		if listening > 0 {
			t.Errorf("%d connections listen on after Follow", listening)
		}
	}
	if err := books.Follow(t.Context(), "nonsense", 0, func(context.Context, ledger.Change) error { return nil }); !errors.Is(err, ledger.ErrPosition) {
		t.Errorf("Follow from a malformed position: %v", err)
	}
}

// TestFollowWithBrokenBell: when the listening connection breaks, looking every so often remains.
func TestFollowWithBrokenBell(t *testing.T) {
	t.Parallel()
	books, pool := installed(t)
	a, b := open(t, books, "a"), open(t, books, "b")
	pay(t, books, a, b, "1")
	began := make(chan struct{})
	var got []ledger.Change
	var err error
	var all sync.WaitGroup
	all.Go(func() { got, err = follow(t, books, 300*time.Millisecond, 4, began) })
	<-began
	_, execErr := pool.Exec(t.Context(), "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and query = 'listen ledger'")
	ok(t, execErr)
	pay(t, books, a, b, "1")
	all.Wait()
	if err != errEnough {
		t.Fatalf("Follow ended with %v", err)
	}
	complete(t, books, pool, got)
}
