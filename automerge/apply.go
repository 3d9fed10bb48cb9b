package automerge

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/amformat"
	"github.com/annals-db/annals/internal/pgtx"
)

// Applied is what a write did.
type Applied struct {
	Added   int    // changes that are new in the document, with those that had waited for them
	Parked  int    // changes that wait now
	Heads   []Hash // of the document after it
	Changes int64  // how many changes the document has after it
}

// Apply adds changes to a document: chunks as Automerge writes them, in any order, one behind the other or each by itself, compressed or not. What
// the document has already is passed over; where it has all of them nothing is written. Changes are validated to the last operation before
// any are added, and all of them are added or none.
//
// Errors: [ErrNotFound], [ErrMalformed], [ErrUnsupported], [ErrLimit]; [ErrMissing] names what the changes depend on and neither they nor the document
// have; [ErrReused] says that two programs use one actor id.
func (s *Store) Apply(ctx context.Context, id uuid.UUID, data ...[]byte) (Applied, error) {
	return s.apply(ctx, id, false, data)
}

// ApplyOrPark is [Store.Apply], and keeps changes of which dependencies are missing: they wait, and are added in the transaction that
// brings what they wait for. Until then they are no part of the document. [Limits].Parked says how many may wait.
func (s *Store) ApplyOrPark(ctx context.Context, id uuid.UUID, data ...[]byte) (Applied, error) {
	return s.apply(ctx, id, true, data)
}

func (s *Store) apply(ctx context.Context, id uuid.UUID, park bool, data [][]byte) (applied Applied, err error) {
	changes, saves, err := s.parse(id, data...)
	if err != nil {
		return Applied{}, err
	}
	if len(saves) > 0 {
		return Applied{}, &Error{Kind: ErrUnsupported, Message: "a save is among the changes", Hint: "MergeSave takes saves.", Doc: id, Index: -1}
	}
	return s.addAll(ctx, id, changes, park)
}

// addAll adds changes, which are in causal order, in a transaction of its own if there is none.
func (s *Store) addAll(ctx context.Context, id uuid.UUID, changes []incoming, park bool) (applied Applied, err error) {
	direct := true
	err = refused(pgtx.Retry(ctx, func() (err error) {
		applied, direct, err = s.addDirectly(ctx, id, changes, park)
		return err
	}))
	if !direct {
		err = s.write(ctx, func(tx pgx.Tx) (err error) {
			applied, err = s.add(ctx, tx, id, changes, park)
			return err
		})
	}
	if err != nil {
		return Applied{}, err
	}
	return applied, nil
}

// seen is what [Store.look] saw of a document.
type seen struct {
	known, missing []Hash
	heads          []Hash
	changes        int64
	ops, bytes     int64
	folded, parked int64
	whole          bool
	paths          []string
	state          []byte
}

func (d *seen) projected() bool { return d.whole || len(d.paths) > 0 }

const lookSQL = "select l.known, l.missing, (l.document).heads, (l.document).changes, (l.document).ops, (l.document).bytes, (l.document).folded, " +
	"(l.document).parked, (l.document).whole, (l.document).paths, l.state from automerge.look($1, $2, $3, $4, $5) l"

// look locks the document, unless it has all of the changes.
func (s *Store) look(ctx context.Context, tx pgx.Tx, id uuid.UUID, changes []incoming) (*seen, error) {
	return scanLook(tx.QueryRow(ctx, lookSQL, lookArgs(id, changes)...))
}

func lookArgs(id uuid.UUID, changes []incoming) []any {
	hashes, actors, seqs := make([]amformat.Hash, len(changes)), make([][]byte, len(changes)), make([]int64, len(changes))
	for i, c := range changes {
		hashes[i], actors[i], seqs[i] = c.Hash, []byte(c.Actor), int64(c.Seq)
	}
	return []any{id, toArray(hashes), actors, seqs, toArray(outside(changes))}
}

func scanLook(row pgx.Row) (*seen, error) {
	var d seen
	var known, missing, heads [][]byte
	err := row.Scan(&known, &missing, &heads, &d.changes, &d.ops, &d.bytes, &d.folded, &d.parked, &d.whole, &d.paths, &d.state)
	d.known, d.missing, d.heads = fromArray(known), fromArray(missing), fromArray(heads)
	return &d, err
}

// add adds changes, which are in causal order, to a document.
func (s *Store) add(ctx context.Context, tx pgx.Tx, id uuid.UUID, changes []incoming, park bool) (Applied, error) {
	d, err := s.look(ctx, tx, id, changes)
	if err != nil {
		return Applied{}, err
	}
	applied, args, err := s.decide(ctx, tx, id, d, changes, park)
	if err != nil || args == nil {
		return applied, err
	}
	err = scanPut(tx.QueryRow(ctx, putSQL, args...), &applied)
	return applied, err
}

// decide returns what adding changes does to a document that was looked at, and the arguments of putSQL; none where there is nothing to write.
func (s *Store) decide(ctx context.Context, tx DB, id uuid.UUID, d *seen, changes []incoming, park bool) (applied Applied, args []any, err error) {
	known := make(map[amformat.Hash]bool, len(d.known))
	for _, h := range d.known {
		known[amformat.Hash(h)] = true
	}
	changes = slices.DeleteFunc(slices.Clone(changes), func(c incoming) bool { return known[c.Hash] })
	lacking := d.missing
	var parked map[amformat.Hash]bool
	own := changes
	if len(changes) > 0 && d.parked > 0 {
		// What waits may be what these depend on, and may wait for these.
		if changes, parked, lacking, err = s.withParked(ctx, tx, id, changes); err != nil {
			return Applied{}, nil, err
		}
	}
	changes, waiting := split(changes, lacking)
	if !park {
		for _, c := range waiting {
			if slices.ContainsFunc(own, func(o incoming) bool { return o.Hash == c.Hash }) {
				return Applied{}, nil, missing(id, d.missing)
			}
		}
	}
	waiting = slices.DeleteFunc(waiting, func(c incoming) bool { return parked[c.Hash] })
	applied = Applied{Added: len(changes), Parked: len(waiting), Heads: d.heads, Changes: d.changes}
	if len(changes)+len(waiting) == 0 {
		return applied, nil, nil
	}
	if err := s.fits(id, d, changes, waiting); err != nil {
		return Applied{}, nil, err
	}
	if s.mustFit && len(changes) > 0 {
		if err := s.fit(ctx, tx, id, changes); err != nil {
			return Applied{}, nil, err
		}
	}
	args, err = s.putArgs(ctx, tx, id, d, changes, waiting)
	return applied, args, err
}

// fit proves that changes fit a document.
func (s *Store) fit(ctx context.Context, tx DB, id uuid.UUID, changes []incoming) error {
	rows, err := s.rowsWith(ctx, tx, id, changes)
	if err != nil {
		return err
	}
	for n := 0; rows.Next(); n++ {
		if n%(1<<16) == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return malformed(id, rows.Err())
}

func missing(id uuid.UUID, hashes []Hash) error {
	var names []string
	for _, h := range hashes[:min(len(hashes), 5)] {
		names = append(names, h.String())
	}
	return &Error{Kind: ErrMissing, Message: fmt.Sprintf("changes that others depend on are missing in document %s: %s", id, strings.Join(names, ", ")),
		Hint: "Send them as well, or park what depends on them (ApplyOrPark).", Doc: id, Hashes: hashes, Index: -1}
}

// fits looks at the limits of a document.
func (s *Store) fits(id uuid.UUID, d *seen, changes, waiting []incoming) error {
	ops, bytes := d.ops, d.bytes
	for _, c := range changes {
		ops += c.NumOps
		bytes += int64(len(c.chunk))
	}
	for _, l := range []struct {
		name      string
		got, most int64
	}{
		{"DocumentChanges", d.changes + int64(len(changes)), s.limits.DocumentChanges}, {"DocumentOps", ops, s.limits.DocumentOps}, {"DocumentBytes", bytes, s.limits.DocumentBytes},
		{"Parked", d.parked + int64(len(waiting)), s.limits.Parked},
	} {
		if err := within(id, l.name, l.got, l.most); err != nil {
			return err
		}
	}
	return nil
}

// withParked returns changes and those that are parked, in causal order, which of them are parked, and which of their dependencies are lacking.
func (s *Store) withParked(ctx context.Context, tx DB, id uuid.UUID, changes []incoming) (all []incoming, parked map[amformat.Hash]bool, lacking []Hash, err error) {
	rows, err := tx.Query(ctx, "select p.chunk from automerge.parked p where p.doc = $1", id)
	if err != nil {
		return nil, nil, nil, err
	}
	chunks, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
	if err != nil {
		return nil, nil, nil, err
	}
	list, _, err := s.parse(id, chunks...)
	if err != nil {
		return nil, nil, nil, err
	}
	parked = map[amformat.Hash]bool{}
	for _, c := range list {
		parked[c.Hash] = true
	}
	for _, c := range changes {
		if !parked[c.Hash] {
			list = append(list, c)
		}
	}
	all = inOrder(list)
	var hashes [][]byte
	err = tx.QueryRow(ctx, "select array(select unnest($2::bytea[]) except select unnest(automerge.known($1, $2)))", id, toArray(outside(all))).Scan(&hashes)
	return all, parked, fromArray(hashes), err
}

const putSQL = "update automerge.writing set hash = $2, deps = $3, actor = $4, seq = $5, start_op = $6, ops = $7, time = $8, message = $9, chunk = $10, " +
	"park = $11, park_deps = $12, park_chunk = $13, data = $14, state = $15 where id = $1 returning heads, changes"

func scanPut(row pgx.Row, applied *Applied) error {
	var heads [][]byte
	err := row.Scan(&heads, &applied.Changes)
	applied.Heads = fromArray(heads)
	return err
}

// putArgs are the arguments of putSQL.
func (s *Store) putArgs(ctx context.Context, tx DB, id uuid.UUID, d *seen, changes, waiting []incoming) ([]any, error) {
	n := len(changes)
	hash, deps, actor, chunk := make([][]byte, n), make([][]byte, n), make([][]byte, n), make([][]byte, n)
	seq, startOp, ops, times, messages := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n), make([]*string, n)
	for i, c := range changes {
		hash[i], deps[i], actor[i], chunk[i] = c.Hash[:], joined(c.Deps), []byte(c.Actor), c.chunk
		seq[i], startOp[i], ops[i], times[i], messages[i] = int64(c.Seq), int64(c.StartOp), c.NumOps, c.Time, storable(c.Message)
	}
	park, parkDeps, parkChunk := make([][]byte, len(waiting)), make([][]byte, len(waiting)), make([][]byte, len(waiting))
	for i, c := range waiting {
		park[i], parkDeps[i], parkChunk[i] = c.Hash[:], joined(c.Deps), c.chunk
	}
	var data *string
	var state []byte
	if d.projected() && n > 0 {
		json, after, err := s.project(ctx, tx, id, d, changes)
		if err != nil {
			return nil, err
		}
		if json != nil {
			text := string(json)
			data, state = &text, after
		}
	}
	return []any{id, hash, deps, actor, seq, startOp, ops, times, messages, chunk, park, parkDeps, parkChunk, data, state}, nil
}
