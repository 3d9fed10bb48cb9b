package catalog

import "slices"

// Relation names something that [Describe] can describe.
type Relation struct {
	OID    uint32
	Schema string
	Name   string
	Kind   Kind
}

// Kind is what a relation is.
type Kind string

// The kinds of relations that can be described.
const (
	OrdinaryTable    Kind = "ordinary table"
	PartitionedTable Kind = "partitioned table"
	ForeignTable     Kind = "foreign table"
	View             Kind = "view"
	MaterializedView Kind = "materialized view"
)

// Persistence is where a relation's rows outlive a crash or the session.
type Persistence string

// The ways in which rows persist.
const (
	Permanent Persistence = "permanent"
	Unlogged  Persistence = "unlogged"
	Temporary Persistence = "temporary"
)

// Table describes a table, or a view, which has fewer of these things.
type Table struct {
	Relation
	Persistence Persistence
	Owner       string

	Columns    []Column   // by attribute number, without dropped ones
	PrimaryKey *UniqueKey // nil when there is none
	UniqueKeys []UniqueKey
	Exclusions []Exclusion
	Checks     []Check

	ForeignKeys  []ForeignKey // that this table has
	ReferencedBy []ForeignKey // that refer to this table, its own self-references among them

	Triggers []Trigger

	RowSecurity       bool // policies apply to all but the owner
	ForcedRowSecurity bool // and to the owner
	Policies          []Policy

	ReplicaIdentity      ReplicaIdentity
	ReplicaIdentityIndex string // with ReplicaIdentity "index"

	PartitionStrategy PartitionStrategy // "" unless it is partitioned
	PartitionKey      string            // as in PARTITION BY: LIST (region)
	PartitionBound    string            // "" unless it is a partition: FOR VALUES IN ('eu')

	Ancestors   []Relative // partitioned tables above it, or tables it inherits from; nearest first
	Descendants []Relative // its partitions and theirs, or tables that inherit from it; nearest first
}

// Column is one column of a table.
type Column struct {
	Number    int16 // attribute number: stays when the column is renamed, differs after a restore
	Name      string
	Type      string // with its modifier: numeric(10,2), shop.mood[]
	TypeOID   uint32
	TypeMod   int32  // -1 when the type has no modifier
	Collation string // qualified and quoted; "" when it is the type's default or there is none
	NotNull   bool   // true of all rows: not set while the constraint is NOT VALID

	Default   string    // expression; "" when there is none
	Generated Generated // "" for an ordinary column
	Formula   string    // expression of a generated column
	Identity  Identity  // "" for an ordinary column

	Storage   Storage
	Toastable bool // values can be stored out of line
	Inherited bool // defined by an ancestor, perhaps here as well
}

// Generated is how the value of a generated column is kept.
type Generated string

// The kinds of generated columns.
const (
	GeneratedStored  Generated = "stored"
	GeneratedVirtual Generated = "virtual" // computed when read; PostgreSQL 18
)

// Identity says when an identity column takes its value from its sequence.
type Identity string

// The kinds of identity columns.
const (
	IdentityAlways    Identity = "always"
	IdentityByDefault Identity = "by default"
)

// Storage is a column's storage strategy.
type Storage string

// The storage strategies. Only a type of variable length can have another than
// plain.
const (
	StoragePlain    Storage = "plain"
	StorageExternal Storage = "external"
	StorageExtended Storage = "extended"
	StorageMain     Storage = "main"
)

// ReplicaIdentity is which old columns a row's change carries into the log.
type ReplicaIdentity string

// The replica identities.
const (
	IdentityDefault ReplicaIdentity = "default"
	IdentityNothing ReplicaIdentity = "nothing"
	IdentityFull    ReplicaIdentity = "full"
	IdentityIndex   ReplicaIdentity = "index"
)

// PartitionStrategy is how a partitioned table distributes its rows.
type PartitionStrategy string

// The partition strategies.
const (
	PartitionByList  PartitionStrategy = "list"
	PartitionByRange PartitionStrategy = "range"
	PartitionByHash  PartitionStrategy = "hash"
)

// Relative is a table above or below another one.
type Relative struct {
	Relation
	Level          int    // 1 is next to the table, 2 beyond that
	Parent         uint32 // OID of the table above this one on the way; 0 in Ancestors
	PartitionBound string // "" when it is no partition
	DetachPending  bool   // DETACH PARTITION CONCURRENTLY has begun and not ended
}

// IsPartition reports whether the table is a partition of another.
func (t *Table) IsPartition() bool { return t.PartitionBound != "" }

// Column returns the column of that name, nil when there is none.
func (t *Table) Column(name string) *Column {
	i := slices.IndexFunc(t.Columns, func(c Column) bool { return c.Name == name })
	if i < 0 {
		return nil
	}
	return &t.Columns[i]
}
