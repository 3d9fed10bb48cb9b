package main

import (
	"strings"
	"testing"

	"github.com/annals-db/annals/internal/pgserver"
)

const want = `Agents work, each on a branch:
  ada, "Write names properly": of public.product 4 rows updated, 0 deleted
  bob, "Order what is sold out": of public.product 2 rows updated, 0 deleted
  cyd, "Prices for the new season": of public.product 4 rows updated, 0 deleted
  dan, "Remove idle suppliers": of public.supplier 0 rows updated, 1 deleted
  eve, "Divide": failed, and left nothing
Main is as it was:
  lamp 40.00, 3 in stock
  desk 220.00, 0 in stock
  chair 90.00, 0 in stock
  shelf 130.00, 12 in stock
The reviewer merges:
  "Write names properly": 4 rows
  "Order what is sold out": what it read has changed; it is refreshed, and looked at again
  "Order what is sold out": 2 rows
  "Prices for the new season": what it read has changed; it is refreshed, and looked at again
  "Prices for the new season": 4 rows
  "Remove idle suppliers": policy 'agents': the merge changes 1 row of public.supplier, which it may not change
Main has what was merged:
  Lamp 440.00, 3 in stock
  Desk 2420.00, 10 in stock
  Chair 990.00, 10 in stock
  Shelf 1430.00, 12 in stock
The prices are undone in 3 rows; 1 has another one since, which stays.
Main in the end:
  Lamp 40.00, 3 in stock
  Desk 220.00, 10 in stock
  Chair 99.00, 10 in stock
  Shelf 130.00, 12 in stock
`

func TestAgentBranch(t *testing.T) {
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
