package catalog

// UniqueKey is a primary key, a unique constraint, or a unique index without a
// constraint.
type UniqueKey struct {
	Name       string // of the constraint, or of the index when there is no constraint
	Constraint bool
	IndexOID   uint32
	Columns    []string // in the key's order; "" in the place of an expression
	Definition string   // of the index, as CREATE UNIQUE INDEX

	Expressions      bool   // some places hold an expression
	Predicate        string // of a partial index; "" when it covers all rows
	NullsNotDistinct bool   // two nulls are equal
	Valid            bool   // false after CREATE UNIQUE INDEX CONCURRENTLY failed
	WithoutOverlaps  bool   // the last column holds ranges that must not overlap; PostgreSQL 18

	Deferrable        bool
	InitiallyDeferred bool
}

// Identifies reports whether the key's columns tell any two rows apart at the
// end of each statement, nulls aside: it covers all rows, by plain columns, and
// its check is not put off to the end of the transaction by default.
func (k *UniqueKey) Identifies() bool {
	return k.Valid && !k.Expressions && k.Predicate == "" && !k.WithoutOverlaps && !k.InitiallyDeferred
}

// Exclusion is an exclusion constraint.
type Exclusion struct {
	Name              string
	Columns           []string // in order; "" in the place of an expression
	Definition        string   // EXCLUDE USING gist (room WITH =, during WITH &&)
	Deferrable        bool
	InitiallyDeferred bool
}

// Check is a check constraint.
type Check struct {
	Name       string
	Columns    []string // that the expression mentions
	Expression string
	Validated  bool // holds for the rows that were there before it, too
	Enforced   bool // false for NOT ENFORCED; PostgreSQL 18
	NoInherit  bool
	Inherited  bool // defined by an ancestor, perhaps here as well
}

// ForeignKey is a foreign key constraint.
type ForeignKey struct {
	Name              string
	Table             Relation // that has it
	Columns           []string
	References        Relation
	ReferencedColumns []string // in the order of Columns

	OnDelete        Action
	OnDeleteColumns []string // that SET NULL or SET DEFAULT are limited to; empty: all
	OnUpdate        Action
	Match           Match

	Deferrable        bool
	InitiallyDeferred bool
	Validated         bool // holds for the rows that were there before it, too
	Enforced          bool // false for NOT ENFORCED; PostgreSQL 18
	Period            bool // the last column must be covered by ranges; PostgreSQL 18

	// Derived says that the constraint is a part of one between partitioned
	// tables, on a partition of either side.
	Derived bool
}

// SelfReferencing reports whether the key refers to the table that has it.
func (k *ForeignKey) SelfReferencing() bool { return k.Table.OID == k.References.OID }

// Action is what happens to a row when the row it refers to goes or changes.
type Action string

// The referential actions.
const (
	NoAction   Action = "no action"
	Restrict   Action = "restrict"
	Cascade    Action = "cascade"
	SetNull    Action = "set null"
	SetDefault Action = "set default"
)

// Match is how a foreign key of several columns treats nulls.
type Match string

// The match types.
const (
	MatchSimple Match = "simple" // one null, and nothing is checked
	MatchFull   Match = "full"   // all null or none
)
