package gnomon

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/annals-db/annals/internal/pgtx"
)

// Strategy says what a merge makes of a column that both sides have changed. Where only one did, or both made it the same, there is nothing to be decided.
type Strategy string

const (
	Fail   Strategy = "fail"   // it is a conflict
	Ours   Strategy = "ours"   // what the branch has
	Theirs Strategy = "theirs" // what is there where the branch is merged into
	Newest Strategy = "newest" // that of the row that was changed last
	Min    Strategy = "min"    // the lesser value
	Max    Strategy = "max"    // the greater value
	Sum    Strategy = "sum"    // what both have added to the base, of numbers and intervals; where either is null it is a conflict
	Union  Strategy = "union"  // of arrays as sets: without what either side took out, and with what either put in
	JSON   Strategy = "json"   // of jsonb objects, key by key; where both changed a value within that is no object it is a conflict
)

const callsFunction = "function "

// Function is a strategy that calls a function of the database, given as in SQL with the types of its arguments, such as "shop.worse(text, text, text)". It gets the
// values of the base, ours and theirs, of the column's type, and returns one.
func Function(signature string) Strategy { return Strategy(callsFunction + signature) }

// signature returns the function that a strategy calls, empty when it calls none, and its name.
func (s Strategy) signature() (name, function string) {
	if function, calls := strings.CutPrefix(string(s), callsFunction); calls {
		return "function", function
	}
	return string(s), ""
}

// MarshalJSON returns what options of gnomon.merge have for the strategy.
func (s Strategy) MarshalJSON() ([]byte, error) {
	name, function := s.signature()
	if function != "" {
		return json.Marshal(map[string]string{name: function})
	}
	return json.Marshal(name)
}

// AnyColumn stands for the columns of a table that have no strategy of their own, and for its rows that one side changed and the other deleted: of
// those [Ours] and [Theirs] decide, and others fail.
const AnyColumn = "*"

// Strategies are strategies by table (as in SQL, or [AnyTable]) and column (as in the catalog, or [AnyColumn]).
type Strategies map[string]map[string]Strategy

// AnyTable stands for the tables that have no strategies of their own. It takes [AnyColumn] only.
const AnyTable = "*"

// MarshalJSON returns what options of gnomon.merge have for strategies.
func (s Strategies) MarshalJSON() ([]byte, error) {
	all := make(map[string]any, len(s))
	for table, columns := range s {
		if all[table] = columns; table == AnyTable {
			all[table] = columns[AnyColumn]
		}
	}
	return json.Marshal(all)
}

// SetStrategy says how merges decide about a column of a table where they are not told otherwise, or about any column ([AnyColumn]). [ErrInvalid]: it does not decide values
// of the column's type, or there is no such column; [ErrNotTracked].
func (g *Gnomon) SetStrategy(ctx context.Context, table, column string, s Strategy) error {
	if column == AnyColumn {
		column = ""
	}
	name, function := s.signature()
	_, err := pgtx.Exec(ctx, g.db, "select gnomon.set_strategy($1::text::regclass, $2::text::name, $3, $4::text::regprocedure)", table, zeronull.Text(column), name, zeronull.Text(function))
	return refused(err)
}

// ColumnStrategy is what [Gnomon.SetStrategy] said of a column.
type ColumnStrategy struct {
	Table    string
	Column   string // or AnyColumn
	Strategy Strategy
}

// Strategies lists what SetStrategy said.
func (g *Gnomon) Strategies(ctx context.Context) ([]ColumnStrategy, error) {
	return rowsOf(ctx, g.db, pgx.RowToStructByPos[ColumnStrategy], `select "table", coalesce("column", '*'), case when function is null then strategy else 'function ' || function end from gnomon.strategies()`)
}
