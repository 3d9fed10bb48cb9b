package automerge

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// SyncState is what is known about a peer of Automerge's sync protocol, about one document. The zero SyncState is a peer about which nothing is known. It
// is for one goroutine at a time.
type SyncState struct {
	shared, lastSent      []Hash
	theirHeads, theirNeed []Hash
	theirHave             []have
	sent                  map[Hash]bool
	heard                 bool // a message of theirs has come
	responded, inFlight   bool
}

// Sync takes a message of a peer, in Automerge's sync protocol, and returns the answer. What it brings is added to the document as [Store.ApplyOrPark]
// does, and the answer has what the peer lacks. Call it without a message to begin, and whenever the document may have changed otherwise; an answer
// of nil says that there is nothing to send now. Each side goes on answering until both have nothing to send: then both have the same.
//
// What is known about the peer is kept in automerge.peer, by the name that the caller gives it: so the next message may come to another process. Names
// are to be of connections and not of people: one that connects anew begins anew ([Store.ForgetPeer]). Errors are those of [Store.Apply].
func (s *Store) Sync(ctx context.Context, id uuid.UUID, peer string, message []byte) (answer []byte, err error) {
	err = s.write(ctx, func(tx pgx.Tx) error {
		in := s.In(tx)
		// One message of a peer after the other.
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock(hashtextextended($1, 0))", fmt.Sprintf("automerge peer %s %s", id, peer)); err != nil {
			return err
		}
		var stored []byte
		if err := in.row(ctx, id, []any{&stored}, "select p.state from automerge.document d left join automerge.peer p on p.doc = d.id and p.peer = $2 where d.id = $1", peer); err != nil {
			return err
		}
		var state SyncState
		if stored != nil {
			if err := state.UnmarshalBinary(stored); err != nil {
				return err
			}
		}
		if answer, err = in.SyncWith(ctx, id, &state, message); err != nil {
			return err
		}
		after, err := state.MarshalBinary()
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "update automerge.syncing set peer = $2, state = $3 where id = $1", id, peer, after)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// ForgetPeer forgets what is known about a peer, which is what to do when it connects anew.
func (s *Store) ForgetPeer(ctx context.Context, id uuid.UUID, peer string) error {
	return s.write(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "update automerge.syncing set peer = $2, state = null where id = $1", id, peer)
		return err
	})
}

// SyncWith is [Store.Sync] with a state that the caller keeps. Where it fails the state is as it was.
func (s *Store) SyncWith(ctx context.Context, id uuid.UUID, state *SyncState, data []byte) (answer []byte, err error) {
	next := state.clone()
	if data != nil {
		m, err := decodeMessage(data)
		if err != nil {
			return nil, &Error{Kind: ErrMalformed, Message: err.Error(), Doc: id, Index: -1}
		}
		if err := s.receive(ctx, id, next, m); err != nil {
			return nil, err
		}
	}
	m, err := s.generate(ctx, id, next)
	if err != nil {
		return nil, err
	}
	*state = *next
	if m == nil {
		return nil, nil
	}
	return m.encode(), nil
}

// receive takes a message.
func (s *Store) receive(ctx context.Context, id uuid.UUID, st *SyncState, m *message) error {
	before, err := s.Heads(ctx, id)
	if err != nil {
		return err
	}
	after := before
	if len(m.changes) > 0 {
		if after, err = s.takeAll(ctx, id, m.changes); err != nil {
			return err
		}
		shared := slices.DeleteFunc(slices.Clone(after), func(h Hash) bool { return slices.Contains(before, h) })
		for _, h := range st.shared {
			if slices.Contains(after, h) {
				shared = append(shared, h)
			}
		}
		st.shared = sorted(shared)
	}
	if len(st.sent) > 0 {
		// What they have by now needn't be remembered.
		lacking, err := s.ChangeMeta(ctx, id, m.heads...)
		if err != nil {
			return err
		}
		kept := map[Hash]bool{}
		for _, c := range lacking {
			if st.sent[c.Hash] {
				kept[c.Hash] = true
			}
		}
		st.sent = kept
	}
	if len(m.changes) == 0 && slices.Equal(m.heads, before) {
		st.lastSent = m.heads
	}
	known, err := s.has(ctx, id, m.heads)
	if err != nil {
		return err
	}
	if len(known) == len(m.heads) {
		st.shared = m.heads
		if len(m.heads) == 0 { // it has lost everything, or never had anything
			st.lastSent, st.sent = nil, nil
		}
	} else {
		st.shared = sorted(append(known, st.shared...))
	}
	st.inFlight, st.heard = false, true
	st.theirHave, st.theirHeads, st.theirNeed = m.have, m.heads, m.need
	return nil
}

// takeAll adds what a message brings: changes, or saves.
func (s *Store) takeAll(ctx context.Context, id uuid.UUID, chunks [][]byte) ([]Hash, error) {
	changes, saves, err := s.parse(id, chunks...)
	if err != nil {
		return nil, err
	}
	var applied Applied
	err = s.write(ctx, func(tx pgx.Tx) (err error) {
		for _, save := range saves {
			if applied, err = s.mergeSave(ctx, tx, id, save); err != nil {
				return err
			}
		}
		if len(changes) > 0 || len(saves) == 0 {
			applied, err = s.add(ctx, tx, id, changes, true)
		}
		return err
	})
	return applied.Heads, err
}

// has returns those of the hashes that the document has.
func (s *Store) has(ctx context.Context, id uuid.UUID, hashes []Hash) ([]Hash, error) {
	if len(hashes) == 0 {
		return nil, nil
	}
	var known [][]byte
	err := s.row(ctx, id, []any{&known}, "select case when $2::bytea[] <@ heads then $2 else automerge.known(id, $2) end from automerge.document where id = $1", toArray(hashes))
	return fromArray(known), err
}

// generate makes the next message, nil where there is nothing to say.
func (s *Store) generate(ctx context.Context, id uuid.UUID, st *SyncState) (*message, error) {
	m := &message{}
	var err error
	if m.heads, err = s.Heads(ctx, id); err != nil {
		return nil, err
	}
	if m.need, err = s.needs(ctx, id, st.theirHeads); err != nil {
		return nil, err
	}
	elsewhere := slices.ContainsFunc(m.need, func(h Hash) bool { return !slices.Contains(st.theirHeads, h) })
	if !elsewhere {
		beyond, err := s.ChangeMeta(ctx, id, st.shared...)
		if err != nil {
			return nil, err
		}
		hashes := make([]Hash, len(beyond))
		for i, c := range beyond {
			hashes[i] = c.Hash
		}
		m.have = []have{{lastSync: st.shared, bloom: newBloom(hashes)}}
	}
	if st.heard && len(st.theirHave) > 0 {
		last := st.theirHave[0].lastSync
		known, err := s.has(ctx, id, last)
		if err != nil {
			return nil, err
		}
		if len(known) < len(last) { // this is not the document that they synced with last: from the beginning
			return &message{heads: m.heads, have: []have{{}}}, nil
		}
	}
	var changes []Change
	if st.heard {
		if changes, err = s.toSend(ctx, id, st.theirHave, st.theirNeed); err != nil {
			return nil, err
		}
	}
	if st.responded && slices.Equal(st.lastSent, m.heads) && (st.inFlight || st.heard && slices.Equal(st.theirHeads, m.heads) && len(changes) == 0) {
		return nil, nil
	}
	st.responded, st.inFlight, st.lastSent = true, true, m.heads
	if st.sent == nil {
		st.sent = map[Hash]bool{}
	}
	for _, c := range changes {
		if !st.sent[c.Hash] {
			st.sent[c.Hash] = true
			m.changes = append(m.changes, c.Chunk)
		}
	}
	return m, nil
}

// needs returns the hashes that the document lacks: of their heads, and of what parked changes depend on.
func (s *Store) needs(ctx context.Context, id uuid.UUID, heads []Hash) ([]Hash, error) {
	var lacking [][]byte
	err := s.row(ctx, id, []any{&lacking}, "select array(select h from (select unnest($2::bytea[]) union select unnest(p.deps) from automerge.parked p where p.doc = d.id) q (h) "+
		"where automerge.known(d.id, array[h]) = '{}' and not exists (select from automerge.parked p where p.doc = d.id and p.hash = h) order by h) from automerge.document d where d.id = $1", toArray(heads))
	return fromArray(lacking), err
}

// toSend returns the changes that a peer lacks, as far as what it has tells, and those that it asks for.
func (s *Store) toSend(ctx context.Context, id uuid.UUID, haves []have, need []Hash) (list []Change, err error) {
	if len(haves) > 0 {
		var last []Hash
		for _, h := range haves {
			last = append(last, h.lastSync...)
		}
		beyond, err := s.Changes(ctx, id, last...)
		if err != nil {
			return nil, err
		}
		send := map[Hash]bool{}
		for _, c := range beyond { // each after those that it depends on
			lacks := !slices.ContainsFunc(haves, func(h have) bool { return h.bloom.contains(c.Hash) })
			// Who lacks a change lacks what depends on it.
			if lacks || slices.ContainsFunc(c.Deps, func(d Hash) bool { return send[d] }) {
				send[c.Hash] = true
				list = append(list, c)
			}
		}
		need = slices.DeleteFunc(slices.Clone(need), func(h Hash) bool { return send[h] })
	}
	if len(need) == 0 {
		return list, nil
	}
	asked, err := s.changesNamed(ctx, id, need)
	return append(asked, list...), err
}

// changesNamed returns those of the changes with these hashes that the document has.
func (s *Store) changesNamed(ctx context.Context, id uuid.UUID, hashes []Hash) ([]Change, error) {
	found, err := rowsOf(ctx, s.db, scanChange, "select hash, deps, actor, seq, start_op, ops, time, coalesce(message, ''), chunk from automerge.change where doc = $1 and hash = any ($2) order by place", id, toArray(hashes))
	if err != nil || len(found) == len(hashes) {
		return found, err
	}
	if known, err := s.has(ctx, id, hashes); err != nil || len(known) == len(found) {
		return found, err
	}
	all, err := s.Changes(ctx, id) // some are folded
	return slices.DeleteFunc(all, func(c Change) bool { return !slices.Contains(hashes, c.Hash) }), err
}

func sorted(hashes []Hash) []Hash {
	slices.SortFunc(hashes, func(a, b Hash) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(hashes)
}

func (st *SyncState) clone() *SyncState {
	c := *st
	c.sent = map[Hash]bool{}
	for h := range st.sent {
		c.sent[h] = true
	}
	return &c
}

const syncStateVersion = 1

// MarshalBinary writes the state, to go on with it elsewhere.
func (st *SyncState) MarshalBinary() ([]byte, error) {
	flags := byte(0)
	for i, f := range []bool{st.heard, st.responded, st.inFlight} {
		if f {
			flags |= 1 << i
		}
	}
	b := []byte{syncStateVersion, flags}
	sent := make([]Hash, 0, len(st.sent))
	for h := range st.sent {
		sent = append(sent, h)
	}
	for _, hashes := range [][]Hash{st.shared, st.lastSent, st.theirHeads, st.theirNeed, sorted(sent)} {
		b = appendHashes(b, hashes)
	}
	return appendHaves(b, st.theirHave), nil
}

// UnmarshalBinary reads what MarshalBinary wrote.
func (st *SyncState) UnmarshalBinary(data []byte) error {
	r := &stateReader{b: data}
	version, flags := r.byte(), r.byte()
	read := SyncState{heard: flags&1 != 0, responded: flags&2 != 0, inFlight: flags&4 != 0, sent: map[Hash]bool{}}
	read.shared, read.lastSent, read.theirHeads, read.theirNeed = r.hashes(), r.hashes(), r.hashes(), r.hashes()
	for _, h := range r.hashes() {
		read.sent[h] = true
	}
	read.theirHave = r.haves()
	if version != syncStateVersion || r.err != nil || len(r.b) > 0 {
		return errors.New("automerge: the state of a peer is damaged")
	}
	*st = read
	return nil
}
