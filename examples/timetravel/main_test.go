package main

import (
	"strings"
	"testing"

	"github.com/annals-db/annals/internal/pgserver"
)

const want = `Balances by branch:
  at the opening: Bath 1000.00 in 1; York 580.00 in 2;
  at lunch: Bath 1000.00 in 1; York 580.00 in 2;
  now: Bath 250.00 in 1; York 1580.00 in 3;
Cyd wonders about account 31:
  balance 250.00 -> 2500.00 by batch
  of account 30, branch was last changed by clerk
Account 31 had 4 columns before a currency was added, and has 5.
  since then: update of 31, [balance currency]
A search index follows:
  snapshot 10
  snapshot 20
  snapshot 30
  snapshot 31
  update 20
  delete 10
History is pruned:
  0 segments of public.account go, held back by gnomon tag opening, held back by gnomon consumer search
  2 segments of public.account go
  What was before is refused, and never told wrongly.
`

func TestTimeTravel(t *testing.T) {
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
