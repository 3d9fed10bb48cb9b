package main

import (
	"strings"
	"testing"

	"github.com/annals-db/annals/internal/pgserver"
)

const want = `Tom moves Cyd to Berlin, and forgets the WHERE. Eve gives Bob 5.00 of credit.
  All that Tom did but for Cyd is undone: 2 rows previewed, 2 written.
    Ada lives in London, credit 10.00
    Bob lives in Paris, credit 25.00
    Cyd lives in Berlin, credit 30.00
Tom deletes Bob, and with him go his purchases. Eve sells Ada a rug.
  That one transaction is undone: 3 rows previewed, 3 written.
    Ada bought a lamp
    Bob bought a desk
    Bob bought a chair
    Cyd bought a shelf
    Ada bought a rug
A mark is set, and a wrong file imported: it overwrites three customers and adds 97.
  Undone to the mark: 97 rows deleted, 3 put right.
    Ada lives in London, credit 10.00
    Bob lives in Paris, credit 25.00
    Cyd lives in Berlin, credit 30.00
  An undo can be undone, and that as well: 100 rows and 100 rows.
    3 customers
`

func TestUndo(t *testing.T) {
	pgserver.Shared(t) // skips where there is no PostgreSQL
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("it prints\n%s\nnot\n%s", &out, want)
	}
}

func TestMain(m *testing.M) { pgserver.Main(m) }
