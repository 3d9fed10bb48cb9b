package ledger_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/annals-db/annals/ledger"
)

func TestMalformedIDs(t *testing.T) {
	id := ledger.NewAccountID()
	text := id.String()
	bad := []string{"", "_", "acct", "acct_", text[:30], text + "0", strings.ToUpper(text), "acct_" + strings.ToUpper(text[5:]), "xfer_" + text[5:], text[5:], " " + text, text + "\n",
		"acct_8" + text[6:], "acct_z" + text[6:], "acct__" + text[6:], "{" + uuid.UUID(id).String() + "}", "urn:uuid:" + uuid.UUID(id).String(), "'; select 1 --", "acct_" + strings.Repeat("é", 13)}
	for _, letter := range "ilouILOU-" {
		bad = append(bad, text[:20]+string(letter)+text[21:])
	}
	for _, s := range bad {
		if got, err := ledger.ParseAccountID(s); err == nil || got != (ledger.AccountID{}) {
			t.Errorf("%q was read as %v", s, got)
		} else {
			refusedAs(t, err, ledger.ErrInvalid)
		}
	}
	for _, s := range []string{text, uuid.UUID(id).String(), strings.ToUpper(uuid.UUID(id).String())} {
		if got := must[ledger.AccountID](t)(ledger.ParseAccountID(s)); got != id {
			t.Errorf("%q was read as %v", s, got)
		}
	}
	if _, err := ledger.ParseTransferID(text); !errors.Is(err, ledger.ErrInvalid) {
		t.Error(err)
	}
	if _, err := ledger.ParseJournalID(ledger.NewHoldID().String()); !errors.Is(err, ledger.ErrInvalid) {
		t.Error(err)
	}
	if _, err := ledger.ParseHoldID(ledger.NewJournalID().String()); !errors.Is(err, ledger.ErrInvalid) {
		t.Error(err)
	}
}

// FuzzParseID: what is read is written back the same, and nothing but a UUID or the written form is read.
func FuzzParseID(f *testing.F) {
	f.Add("acct_01m8py1z8rfg7t6jsnk7khm25z")
	f.Add("acct_7zzzzzzzzzzzzzzzzzzzzzzzzz")
	f.Add("00000000-0000-7000-8000-000000000000")
	f.Add("acct_81234567890123456789012345")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := ledger.ParseAccountID(s)
		if err != nil {
			if id != (ledger.AccountID{}) || !errors.Is(err, ledger.ErrInvalid) || !utf8.ValidString(err.Error()) {
				t.Fatalf("%q: %v, %v", s, id, err)
			}
			return
		}
		if id.String() != s && !strings.EqualFold(uuid.UUID(id).String(), s) {
			t.Fatalf("%q was read as %v", s, id)
		}
		if again, err := ledger.ParseAccountID(id.String()); err != nil || again != id {
			t.Fatalf("%v was read as %v: %v", id, again, err)
		}
	})
}

func TestIDsInGoAndSQLAreTheSame(t *testing.T) {
	_, pool := installed(t)
	r := rand.New(rand.NewPCG(5, 6))
	ids := []uuid.UUID{{}, uuid.Max}
	for range 200 {
		var id uuid.UUID
		for i := range id {
			id[i] = byte(r.Uint32())
		}
		ids = append(ids, id)
	}
	for _, id := range ids {
		want := map[string]string{"acct": ledger.AccountID(id).String(), "xfer": ledger.TransferID(id).String(), "jrnl": ledger.JournalID(id).String(), "hold": ledger.HoldID(id).String()}
		for kind, text := range want {
			var written string
			var read, plain uuid.UUID
			ok(t, pool.QueryRow(t.Context(), "select ledger.id_text($1, $2), ledger.id($1, $3), ledger.id($1, $2::text)", kind, id, text).Scan(&written, &read, &plain))
			if written != text || read != id || plain != id {
				t.Fatalf("%v is %s in SQL and %s in Go, read as %v and %v", id, written, text, read, plain)
			}
		}
	}
	text := ledger.NewAccountID().String()
	for _, bad := range []string{"", "acct_", text + "0", text + "\n", strings.ToUpper(text), "xfer_" + text[5:], "acct_8" + text[6:], text[:20] + "u" + text[21:], "{" + uuid.Nil.String(), uuid.Nil.String() + "}"} {
		_, err := pool.Exec(t.Context(), "select ledger.id('acct', $1)", bad)
		if sqlState(err) != "LG016" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A batch is sorted in Go and locked in the order of the database: the two must be one.
func TestIDsSortAlikeInGoAndSQL(t *testing.T) {
	_, pool := installed(t)
	r := rand.New(rand.NewPCG(7, 8))
	for range 200 {
		var x, y uuid.UUID
		for i := range x {
			x[i], y[i] = byte(r.Uint32()), byte(r.Uint32())
		}
		copy(y[:], x[:r.IntN(16)])
		var less bool
		ok(t, pool.QueryRow(t.Context(), "select $1::uuid < $2::uuid", x, y).Scan(&less))
		if less != (bytes.Compare(x[:], y[:]) < 0) {
			t.Fatalf("%v and %v", x, y)
		}
	}
}
