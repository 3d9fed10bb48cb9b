package automerge

import (
	"context"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/amformat"
	"github.com/annals-db/annals/internal/amsync"
)

// syncSet is a document as the sync protocol sees it. It reads what it is asked for and no more: mostly a few rows, and the snapshot only for a
// peer that lacks part of it.
type syncSet struct {
	s        *Store
	id       uuid.UUID
	heads    []amformat.Hash
	snapshot []amformat.Hash // heads of the snapshot, none where there is no snapshot
	waiting  []amformat.Hash
	missing  []amformat.Hash

	folded []amformat.Hash // hashes of the snapshot's changes, once they were asked for
	tail   []amsync.Link   // the changes after the snapshot, once they were asked for
	doc    *loaded         // once it was asked for
	since  []amformat.Hash // what Since was asked for last
	known  map[amformat.Hash]bool
}

const syncSetSQL = "select d.heads, coalesce(s.heads, '{}'), coalesce(p.waiting, '{}'), coalesce(p.missing, '{}') from automerge.document d left join automerge.snapshot s on s.doc = d.id " +
	"left join lateral (select w.waiting, array(select unnest(w.deps) except select unnest(w.waiting || automerge.known(d.id, w.deps))) as missing " +
	"from (select array(select p.hash from automerge.parked p where p.doc = d.id) as waiting, array(select distinct unnest(p.deps) from automerge.parked p where p.doc = d.id) as deps) w) p on d.parked > 0 " +
	"where d.id = $1"

func (s *Store) syncSet(ctx context.Context, id uuid.UUID) (*syncSet, error) {
	set := &syncSet{s: s, id: id, known: map[amformat.Hash]bool{}}
	var heads, snapshot, waiting, missing [][]byte
	if err := s.row(ctx, id, []any{&heads, &snapshot, &waiting, &missing}, syncSetSQL); err != nil {
		return nil, err
	}
	set.heads, set.snapshot = plain(fromArray(heads)), plain(fromArray(snapshot))
	set.waiting, set.missing = plain(fromArray(waiting)), plain(fromArray(missing))
	for _, h := range slices.Concat(set.heads, set.snapshot) {
		set.known[h] = true
	}
	return set, nil
}

// Heads are the heads when the set was first looked at.
func (set *syncSet) Heads(context.Context) ([]amformat.Hash, error) { return set.heads, nil }

// Waiting are the changes that are parked, and what they wait for.
func (set *syncSet) Waiting(context.Context) (waiting, missing []amformat.Hash, err error) {
	return set.waiting, set.missing, nil
}

// Known looks among the changes, and for what is not there through the list of the folded ones.
func (set *syncSet) Known(ctx context.Context, hashes []amformat.Hash) (known []amformat.Hash, err error) {
	var rest []amformat.Hash
	for _, h := range hashes {
		if known, asked := set.known[h]; !known && !asked {
			rest = append(rest, h)
		}
	}
	if len(rest) > 0 {
		found, err := rowsOf(ctx, set.s.db, pgx.RowTo[[]byte], "select c.hash from automerge.change c where c.doc = $1 and c.hash = any ($2)", set.id, toArray(rest))
		if err != nil {
			return nil, err
		}
		for _, h := range rest {
			set.known[h] = false
		}
		for _, h := range found {
			set.known[amformat.Hash(h)] = true
		}
		if len(found) < len(rest) {
			folded, err := set.foldedHashes(ctx)
			if err != nil {
				return nil, err
			}
			for _, h := range folded {
				if _, asked := set.known[h]; asked {
					set.known[h] = true
				}
			}
		}
	}
	for _, h := range hashes {
		if set.known[h] {
			known = append(known, h)
		}
	}
	return known, nil
}

func (set *syncSet) foldedHashes(ctx context.Context) ([]amformat.Hash, error) {
	if set.folded != nil || len(set.snapshot) == 0 {
		return set.folded, nil
	}
	var list []byte
	if err := set.s.row(ctx, set.id, []any{&list}, "select coalesce((select s.hashes from automerge.snapshot s where s.doc = d.id), '') from automerge.document d where d.id = $1"); err != nil {
		return nil, err
	}
	set.folded = make([]amformat.Hash, 0, len(list)/32)
	for ; len(list) >= 32; list = list[32:] {
		set.folded = append(set.folded, amformat.Hash(list))
	}
	return set.folded, nil
}

// Hashes names the whole snapshot where the heads don't cover it.
func (set *syncSet) Hashes(ctx context.Context, heads []amformat.Hash) (hashes []amformat.Hash, err error) {
	links, covered, err := set.beyond(ctx, heads)
	if err != nil {
		return nil, err
	}
	if !covered {
		folded, err := set.foldedHashes(ctx)
		if err != nil {
			return nil, err
		}
		hashes = slices.Clone(folded)
	}
	for _, l := range links {
		hashes = append(hashes, l.Hash)
	}
	return hashes, nil
}

// Since reads the document where the heads don't cover its snapshot.
func (set *syncSet) Since(ctx context.Context, heads []amformat.Hash) ([]amsync.Link, error) {
	set.since = heads
	links, covered, err := set.beyond(ctx, heads)
	if err != nil || covered {
		return links, err
	}
	d, err := set.load(ctx)
	if err != nil {
		return nil, err
	}
	within, _ := d.upTo(hashesOf(heads))
	links = nil
	for i, in := range within {
		if in {
			continue
		}
		if i >= len(d.hashes) {
			c := d.tail[i-len(d.hashes)]
			links = append(links, amsync.Link{Hash: c.Hash, Deps: c.Deps})
			continue
		}
		l := amsync.Link{Hash: d.hashes[i]}
		for _, dep := range d.snapshot.Metas[i].Deps {
			l.Deps = append(l.Deps, d.hashes[dep])
		}
		links = append(links, l)
	}
	return links, nil
}

func hashesOf(list []amformat.Hash) []Hash {
	hashes := make([]Hash, len(list))
	for i, h := range list {
		hashes[i] = Hash(h)
	}
	return hashes
}

// beyond are the changes after the snapshot that don't belong to what heads name, and whether heads cover the snapshot.
func (set *syncSet) beyond(ctx context.Context, heads []amformat.Hash) (links []amsync.Link, covered bool, err error) {
	within := make(map[amformat.Hash]bool, len(heads))
	for _, h := range heads {
		within[h] = true
	}
	if !slices.ContainsFunc(set.heads, func(h amformat.Hash) bool { return !within[h] }) {
		return nil, true, nil
	}
	if len(heads) > 0 && set.tail == nil {
		if links, ok, err := set.few(ctx, within); ok || err != nil {
			return links, true, err
		}
	}
	if set.tail == nil {
		if set.tail, err = rowsOf(ctx, set.s.db, scanLink, "select c.hash, c.deps from automerge.change c where c.doc = $1 order by c.place", set.id); err != nil {
			return nil, false, err
		}
	}
	for _, l := range slices.Backward(set.tail) {
		if !within[l.Hash] {
			links = append(links, l)
			continue
		}
		for _, d := range l.Deps {
			within[d] = true
		}
	}
	slices.Reverse(links)
	return links, !slices.ContainsFunc(set.snapshot, func(h amformat.Hash) bool { return !within[h] }), nil
}

// few goes back from the heads a few steps, which is most often enough to come to what is within. ok tells whether it was.
func (set *syncSet) few(ctx context.Context, within map[amformat.Hash]bool) (links []amsync.Link, ok bool, err error) {
	seen := map[amformat.Hash]bool{}
	next := slices.DeleteFunc(slices.Clone(set.heads), func(h amformat.Hash) bool { return within[h] })
	for range 3 {
		rows, err := rowsOf(ctx, set.s.db, scanLink, "select c.hash, c.deps from automerge.change c where c.doc = $1 and c.hash = any ($2) order by c.place", set.id, toArray(next))
		if err != nil || len(rows) < len(next) {
			return nil, false, err // it is folded
		}
		links = append(rows, links...)
		next = nil
		for _, l := range rows {
			seen[l.Hash] = true
		}
		for _, l := range rows {
			for _, d := range l.Deps {
				if !within[d] && !seen[d] {
					seen[d] = true
					next = append(next, d)
				}
			}
		}
		if len(next) == 0 {
			return links, true, nil
		}
	}
	return nil, false, nil
}

func scanLink(row pgx.CollectableRow) (l amsync.Link, err error) {
	var hash []byte
	var deps [][]byte
	err = row.Scan(&hash, &deps)
	copy(l.Hash[:], hash)
	l.Deps = plain(fromArray(deps))
	return l, err
}

func (set *syncSet) load(ctx context.Context) (_ *loaded, err error) {
	if set.doc == nil {
		set.doc, err = set.s.load(ctx, set.s.db, set.id)
	}
	return set.doc, err
}

// Chunks are the changes as they are stored; those that are folded are written out of the snapshot, or that itself is sent where a third of it is
// wanted.
func (set *syncSet) Chunks(ctx context.Context, hashes []amformat.Hash, documents bool) ([][]byte, error) {
	type row struct{ Hash, Chunk []byte }
	rows, err := rowsOf(ctx, set.s.db, pgx.RowToStructByPos[row], "select c.hash, c.chunk from automerge.change c where c.doc = $1 and c.hash = any ($2) order by c.place", set.id, toArray(hashes))
	if err != nil {
		return nil, err
	}
	lack := make(map[amformat.Hash]bool, len(hashes))
	for _, h := range hashes {
		lack[h] = true
	}
	for _, r := range rows {
		delete(lack, amformat.Hash(r.Hash))
	}
	var chunks [][]byte
	if documents && len(lack) > 0 {
		d, err := set.load(ctx)
		if err != nil {
			return nil, err
		}
		if 3*len(lack) > len(d.hashes) {
			chunks = append(chunks, d.data)
			for _, h := range d.hashes {
				delete(lack, h)
			}
		}
	}
	for _, since := range [][]amformat.Hash{set.since, nil} {
		if len(lack) == 0 {
			break
		}
		d, err := set.load(ctx)
		if err != nil {
			return nil, err
		}
		changes, err := d.since(ctx, hashesOf(since))
		if err != nil {
			return nil, err
		}
		var more [][]byte
		for _, c := range changes {
			if lack[c.Hash] {
				delete(lack, c.Hash)
				more = append(more, c.chunk)
			}
		}
		chunks = append(more, chunks...) // what belongs to the heads is before what does not
	}
	for _, r := range rows {
		chunks = append(chunks, r.Chunk)
	}
	return chunks, nil
}

// Save is the snapshot and the changes after it.
func (set *syncSet) Save(ctx context.Context) ([]byte, error) { return set.s.Save(ctx, set.id) }
