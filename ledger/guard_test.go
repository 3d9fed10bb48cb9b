package ledger_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/annals-db/annals/ledger"
)

// Tables whose rows never change, and those whose rows change by the functions of the schema alone; with a column that may be written.
var (
	appendOnly = map[string]string{"transfer": "amount", "journal": "description", "posting": "amount", "reversal": "kind", "balancing": "up_to"}
	kept       = map[string]string{"account": "name", "balance": "balance", "hold": "state", "asset": "code", "period": "closed_before", "home": "system_identifier"}
)

// Not even a superuser changes the books by SQL, and is told why and what to do.
func TestGuardsRefuseChanges(t *testing.T) {
	t.Parallel()
	b := newFullBooks(t)
	for _, tables := range []map[string]string{appendOnly, kept} {
		for table, col := range tables {
			for operation, sql := range map[string]string{
				"UPDATE":   "update ledger.T set C = C",
				"update":   "update ledger.T set C = C where false",
				"DELETE":   "delete from ledger.T",
				"TRUNCATE": "truncate ledger.T cascade",
				"MERGE":    "merge into ledger.T using (select 1) q on true when matched then update set C = T.C",
			} {
				_, err := b.pool.Exec(t.Context(), strings.NewReplacer("T", table, "C", col).Replace(sql))
				var refusal *pgconn.PgError
				if !errors.As(err, &refusal) || refusal.Code != "LG015" {
					t.Errorf("%s on %s: %v", operation, table, err)
					continue
				}
				var detail struct{ Table, Operation string }
				ok(t, json.Unmarshal([]byte(refusal.Detail), &detail))
				done := strings.ToUpper(operation)
				if operation == "MERGE" {
					done = "UPDATE"
				}
				if operation == "TRUNCATE" { // cascades to the tables that refer to it
					done, detail.Table = detail.Operation, table
				}
				if detail.Table != table || detail.Operation != done {
					t.Errorf("%s on %s: detail %s", operation, table, refusal.Detail)
				}
				hints := []string{"Book a reversal", "disable the trigger guard_books", "ledger.verify reports that"}
				if done == "UPDATE" && kept[table] != "" {
					hints = []string{"Use the functions of the schema ledger", "The trigger guard_update", "ledger.verify reports"}
				}
				if done == "UPDATE" && table == "asset" { // nothing of an asset ever changes
					hints = []string{"disable the trigger guard_fixed", "ledger.verify reports that"}
				}
				unsaid := slices.ContainsFunc(hints, func(hint string) bool { return !strings.Contains(refusal.Hint, hint) })
				if unsaid || !strings.Contains(refusal.Message, "append-only: "+detail.Operation+" on ledger.") {
					t.Errorf("%s on %s: %s / %s", operation, table, refusal.Message, refusal.Hint)
				}
			}
		}
	}
	if found := problems(t, b.Verify(t.Context(), ledger.VerifyOptions{})); len(found) != 0 {
		t.Errorf("%+v", found)
	}
}

// Rows that are kept can be inserted over, too: an upsert is an update.
func TestGuardsRefuseUpserts(t *testing.T) {
	t.Parallel()
	b := newFullBooks(t)
	for table, sql := range map[string]string{
		"transfer": "insert into ledger.transfer select * from ledger.transfer on conflict (id) do update set amount = excluded.amount + 1",
		"balance":  "insert into ledger.balance select * from ledger.balance on conflict (id) do update set balance = excluded.balance + 1",
		"hold":     "insert into ledger.hold select * from ledger.hold on conflict (id) do update set state = 'voided'",
	} {
		_, err := b.pool.Exec(t.Context(), sql)
		var refusal *pgconn.PgError
		if !errors.As(err, &refusal) || refusal.Code != "LG015" {
			t.Errorf("%s: %v", table, err)
		}
	}
}

// The way around is open to the owner, and leaves a trace while it is.
func TestADisabledGuardIsReported(t *testing.T) {
	t.Parallel()
	b := newFullBooks(t)
	for _, statement := range []string{
		"alter table ledger.transfer disable trigger guard_books",
		"update ledger.transfer set metadata = '{}'",
	} {
		_, err := b.pool.Exec(t.Context(), statement)
		ok(t, err)
	}
	found := problems(t, b.Verify(t.Context(), ledger.VerifyOptions{}))
	if len(found) != 1 || found[0].Kind != ledger.ProblemGuard || !strings.Contains(found[0].Message, "guard_books on ledger.transfer") {
		t.Errorf("%+v", found)
	}
	_, err := b.pool.Exec(t.Context(), "alter table ledger.transfer enable trigger guard_books")
	ok(t, err)
	if found := problems(t, b.Verify(t.Context(), ledger.VerifyOptions{})); len(found) != 0 {
		t.Errorf("enabled again: %+v", found)
	}
}
