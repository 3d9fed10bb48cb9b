package gnomon

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype/zeronull"

	"github.com/annals-db/annals/internal/pgtx"
)

// Branch is the database on a branch: the rows of its base, which is a place in the past of main, with the changes that were made on the branch
// over them. Ordinary SQL reads and writes it with the names of tables unchanged, and main notices nothing until it is merged. Make one with
// [Gnomon.CreateBranch], or find one with [Gnomon.Branch].
//
// It has the methods Exec, Query, QueryRow, Begin and CopyFrom of pgx's handles. On a pool or an idle connection each call is a transaction of its own;
// in the caller's transaction it is a part of that, under a savepoint. Neither leaves a setting behind in the session.
type Branch struct {
	db DB
	id int

	actor string  // of its transactions; empty: as it is
	reads *[]Read // that its statements make; nil: those that can be seen from them

	mu     sync.Mutex
	name   string
	opened branchOpening
	points map[string]point // by table, see Get
}

// BranchOptions say how a branch begins. The zero value means a net branch of what is committed now.
type BranchOptions struct {
	// From is the place of main where it begins; empty means [Present]. With Of it is the place in the past of that branch.
	From Ref
	// Of is the name of the branch from which it is made, with the changes on that as they are, or as they were at From if that branch is logged.
	Of string
	// Logged keeps every step on the branch, so that it has a past of its own, else only the last state of each row is kept.
	Logged bool
	// Note is for people.
	Note string
	// ExpiresAt is when [Gnomon.Maintain] drops the branch; zero: never.
	ExpiresAt time.Time
	// RecordReads notes what is read on the branch, so that a merge can tell whether that has changed since.
	RecordReads bool
}

// CreateBranch makes a branch. Nothing is copied, but for the changes of the branch from which it is made. History from its base on is
// kept until it is dropped.
//
// [ErrBranchExists]: the name is taken; [ErrUnknownBranch]: there is no branch Of; [ErrConfined]: the role may not make one of this name; [ErrInvalid]:
// the name is empty or has more than 200 characters; [ErrNotOnBranch]: a past of a branch that is not logged was asked for. Other errors are those of places.
func (g *Gnomon) CreateBranch(ctx context.Context, name string, o BranchOptions) (*Branch, error) {
	from, at := o.From, Ref("")
	if o.Of != "" {
		from, at = Ref("branch:"+o.Of), o.From
	}
	if from == "" {
		from = Present
	}
	b := &Branch{db: g.db, name: name}
	err := pgtx.QueryRow(ctx, g.db, []any{&b.id}, "select gnomon.create_branch($1, $2, $3, $4, $5, $6, $7)",
		name, string(from), o.Logged, o.Note, zeronull.Timestamptz(o.ExpiresAt), o.RecordReads, zeronull.Text(at))
	if err != nil {
		return nil, refused(err)
	}
	return b, nil
}

// Branch returns the branch of a name. [ErrUnknownBranch]: there is none, or none that the role may use.
func (g *Gnomon) Branch(ctx context.Context, name string) (*Branch, error) {
	b := &Branch{db: g.db, name: name}
	if err := pgtx.QueryRow(ctx, g.db, []any{&b.id}, "select id from gnomon.branch_named($1)", name); err != nil {
		return nil, refused(err)
	}
	return b, nil
}

// In returns the branch on another handle, such as a transaction.
func (b *Branch) In(db DB) *Branch {
	return &Branch{db: db, id: b.id, name: b.Name(), actor: b.actor, reads: b.reads}
}

// Name is the name of the branch, as far as this handle knows.
func (b *Branch) Name() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.name
}

// BranchInfo tells of a branch.
type BranchInfo struct {
	ID          int
	Name        string
	Logged      bool
	Parent      string     // the branch from which it was made; empty for one of main, and where that is gone
	Base        Coordinate // whose rows it shows where it has none of its own
	Owner       string     // the role that made it
	Note        string
	Protected   bool
	Reads       bool // what is read on it is noted
	ExpiresAt   time.Time
	CreatedAt   time.Time
	RefreshedAt time.Time     // when its base was moved last
	ChangedRows int64         // that it has
	PinnedV     int64         // the position from which on it keeps history from being pruned
	PinnedFor   time.Duration // how old its base is
}

const branchColumns = `id, name, logged, coalesce(parent, ''), coordinate, owner::text, note, protected, reads, expires_at, at, refreshed_at, changed_rows, pinned_v, pinned_for`

func scanBranchInfo(row pgx.CollectableRow) (i BranchInfo, err error) {
	err = row.Scan(&i.ID, &i.Name, &i.Logged, &i.Parent, &i.Base, &i.Owner, &i.Note, &i.Protected, &i.Reads, (*zeronull.Timestamptz)(&i.ExpiresAt), &i.CreatedAt, (*zeronull.Timestamptz)(&i.RefreshedAt), &i.ChangedRows, &i.PinnedV, &i.PinnedFor)
	return i, err
}

// Branches lists the branches that the role may use, the oldest first. It counts their rows.
func (g *Gnomon) Branches(ctx context.Context) ([]BranchInfo, error) {
	return rowsOf(ctx, g.db, scanBranchInfo, "select "+branchColumns+" from gnomon.branches()")
}

// Info tells of the branch. [ErrUnknownBranch].
func (b *Branch) Info(ctx context.Context) (BranchInfo, error) {
	list, err := rowsOf(ctx, b.db, scanBranchInfo, "select "+branchColumns+" from gnomon.branches((select id from gnomon.branch_named($1)))", b.Name())
	if err != nil {
		return BranchInfo{}, err
	}
	return list[0], nil
}

// Rename gives the branch another name. [ErrBranchExists]: it is taken; [ErrConfined]; [ErrUnknownBranch]; [ErrInvalid].
func (b *Branch) Rename(ctx context.Context, to string) error {
	if err := b.call(ctx, "select gnomon.rename_branch($1, $2)", to); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.name, b.opened = to, branchOpening{}
	return nil
}

// Describe writes a note about the branch. [ErrUnknownBranch].
func (b *Branch) Describe(ctx context.Context, note string) error {
	return b.call(ctx, "select gnomon.describe_branch($1, $2)", note)
}

// Expire says when [Gnomon.Maintain] drops the branch; the zero time: never. [ErrUnknownBranch].
func (b *Branch) Expire(ctx context.Context, at time.Time) error {
	return b.call(ctx, "select gnomon.expire_branch($1, $2)", zeronull.Timestamptz(at))
}

// Protect keeps the branch from being written, merged into, reset and dropped, or no longer does. It waits for who is writing on it. [ErrUnknownBranch].
func (b *Branch) Protect(ctx context.Context, protected bool) error {
	return b.call(ctx, "select gnomon.protect_branch($1, $2)", protected)
}

// Drop drops the branch with its changes. Branches made from it stay. It waits for who is writing on it. [ErrUnknownBranch]; [ErrProtected].
func (b *Branch) Drop(ctx context.Context) error {
	return b.call(ctx, "select gnomon.drop_branch($1)")
}

// Reset takes back all changes on the branch: it is its base again, or the place to, where that is not empty. It waits for who is
// writing on it. [ErrUnknownBranch]; [ErrProtected]; other errors are those of places.
func (b *Branch) Reset(ctx context.Context, to Ref) error {
	return b.call(ctx, "select gnomon.reset_branch($1, $2)", zeronull.Text(to))
}

// call calls a function whose first argument is the name of the branch.
func (b *Branch) call(ctx context.Context, sql string, args ...any) error {
	_, err := pgtx.Exec(ctx, b.db, sql, append([]any{b.Name()}, args...)...)
	return refused(err)
}
