package gnomon

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/pgtx"
)

// ConfineOptions say what a confined role may do.
type ConfineOptions struct {
	// Branches are names of branches that it may use.
	Branches []string
	// Prefixes are how names of branches begin that it may use, and also make, rename, reset and drop.
	Prefixes []string
	// Tables are what it may do with tables there: "select", "insert", "update" and "delete", by the names of the tables.
	Tables map[string][]string
	// Masks are columns that it does not see and cannot write, by tables and columns: it reads a constant instead, or null. Columns that are computed from
	// them are null. A column of the key cannot be masked.
	Masks map[string]map[string]*string
}

// Confinement tells of a confined role.
type Confinement struct {
	Role string
	ConfineOptions
	Members []string // roles that are members of it, and so confined as well
	Gaps    []string // what lets it reach more than its branches, in words; empty when all is well
}

// Confine lets a role, and whoever is a member of it, use certain branches, and there certain tables and columns, and nothing else: not main, whose rows
// it sees as the bases of its branches only, nor the past, nor other branches. What was said of the role before is forgotten. It is for the role that
// installed gnomon.
//
// Nothing but the login counts, so neither SET ROLE nor settings lead out. The role is refused, with [ErrConfined], when it has rights beyond that by any path: to tracked
// tables and what else is in their schemas, to views over them, by ownership, attributes or memberships, or because everybody has them; what is granted later
// [Gnomon.Check] reports. So it is best made for the purpose. What confinement does not watch are functions of users that run with other rights than
// the caller's (SECURITY DEFINER), the sizes of tables and numbers of their rows, which PostgreSQL shows to everybody, and what can be inferred from
// how a query is planned, how long it takes, or that a constraint refuses a row. Constraints see masked columns, too. Nor does it hold back a role that means to be in the way:
// with LOCK TABLE on a view that it may write, it locks the table of main until its transaction ends.
//
// Of a table with masked columns that has BEFORE triggers, the role is not lent more than reading unless their functions have a search_path of their own, as it would else see by
// its own operators what they compare. Joins between tables that are lent read more than on main: conditions on values reach the indexes, those between tables do not.
//
// [ErrInvalid]: there is no such role or column, or an argument is no use; [ErrNotTracked]: a table is not tracked. A table with row-level security cannot be lent
// ([ErrConfined]), since branches show all rows.
func (g *Gnomon) Confine(ctx context.Context, role string, o ConfineOptions) error {
	if o.Tables == nil {
		o.Tables = map[string][]string{}
	}
	if o.Masks == nil {
		o.Masks = map[string]map[string]*string{}
	}
	_, err := pgtx.Exec(ctx, g.db, "select gnomon.confine($1, coalesce($2::text[], '{}'), coalesce($3::text[], '{}'), $4, $5)", role, o.Branches, o.Prefixes, o.Tables, o.Masks)
	return refused(err)
}

// Release ends the confinement of a role, and takes away what it was lent; false when it was not confined. Its branches stay.
func (g *Gnomon) Release(ctx context.Context, role string) (was bool, err error) {
	err = pgtx.QueryRow(ctx, g.db, []any{&was}, "select gnomon.release($1)", role)
	return was, refused(err)
}

// Confinements lists the roles that are confined.
func (g *Gnomon) Confinements(ctx context.Context) ([]Confinement, error) {
	return rowsOf(ctx, g.db, func(row pgx.CollectableRow) (c Confinement, err error) {
		err = row.Scan(&c.Role, &c.Branches, &c.Prefixes, &c.Tables, &c.Masks, &c.Members, &c.Gaps)
		return c, err
	}, "select role::text, names, prefixes, tables, masks, members::text[], gaps from gnomon.confinements()")
}
