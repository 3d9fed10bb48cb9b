package automerge

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-db/annals/internal/amformat"
	"github.com/annals-db/annals/internal/amsync"
)

// SyncState is what is known about a peer of Automerge's sync protocol, about one document. The zero SyncState is a peer about which nothing is known. It
// is for one goroutine at a time.
type SyncState struct {
	state amsync.State
}

// Sync takes a message of a peer, in Automerge's sync protocol, and returns the answer. What it brings is added to the document as [Store.ApplyOrPark]
// does, and the answer has what the peer lacks. What the document lacks is asked for; it is no error. Call it without a message to begin, and whenever the
// document may have changed otherwise; an answer of nil says that there is nothing to send now. Each side goes on answering until both have
// nothing to send: then both have the same.
//
// What is known about the peer is kept in automerge.peer, by the name that the caller gives it: so the next message may come to another process. A peer
// that connects anew, with what it knew or without, needs no other call. Errors are those of [Store.Apply].
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
		_, err = tx.Exec(ctx, "update automerge.syncing set peer = $2, state = $3::bytea where id = $1 and $3::bytea is distinct from $4::bytea", id, peer, after, stored)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answer, nil
}

// ForgetPeer forgets what is known about a peer: when it is gone for good. If it comes back all the same, it takes a message more.
func (s *Store) ForgetPeer(ctx context.Context, id uuid.UUID, peer string) error {
	return s.write(ctx, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "update automerge.syncing set peer = $2, state = null where id = $1", id, peer)
		return err
	})
}

// SyncWith is [Store.Sync] with a state that the caller keeps. Where it fails the state is as it was.
func (s *Store) SyncWith(ctx context.Context, id uuid.UUID, state *SyncState, message []byte) (answer []byte, err error) {
	next := state.state
	var m *amsync.Message
	if message != nil {
		if m, err = amsync.ParseMessage(message, s.limits.DocumentBytes); err != nil {
			return nil, malformed(id, err)
		}
		if len(m.Changes) > 0 {
			if err := s.takeAll(ctx, id, m.Changes); err != nil {
				return nil, err
			}
		}
	}
	set, err := s.syncSet(ctx, id)
	if err != nil {
		return nil, err
	}
	if m != nil {
		if err := next.Receive(ctx, set, m); err != nil {
			return nil, err
		}
	}
	said, err := next.Generate(ctx, set)
	if err != nil {
		return nil, err
	}
	state.state = next
	if said == nil {
		return nil, nil
	}
	return said.Bytes(), nil
}

// takeAll adds what a message brings: changes, which may have to wait for others, and saves.
func (s *Store) takeAll(ctx context.Context, id uuid.UUID, chunks [][]byte) error {
	changes, saves, err := s.parse(id, chunks...)
	if err != nil {
		return err
	}
	if len(saves) == 0 {
		_, err = s.addAll(ctx, id, changes, true)
		return err
	}
	return s.write(ctx, func(tx pgx.Tx) error {
		for _, save := range saves {
			if _, err := s.mergeSave(ctx, tx, id, save); err != nil {
				return err
			}
		}
		_, err := s.add(ctx, tx, id, changes, true)
		return err
	})
}

// Restart is for the beginning of a connection with a peer of an early version, whose messages don't show it: it forgets what was under way in the connection
// before.
func (st *SyncState) Restart() { st.state.Restart() }

// Shared are heads that name what both are known to have.
func (st *SyncState) Shared() []Hash {
	shared := st.state.Shared()
	hashes := make([]Hash, len(shared))
	for i, h := range shared {
		hashes[i] = Hash(h)
	}
	return hashes
}

// Save writes what is worth keeping between connections, as Automerge's libraries do. [LoadSyncState] reads it.
func (st *SyncState) Save() []byte { return st.state.Save() }

// LoadSyncState reads what [SyncState.Save] wrote, or one of Automerge's libraries. Other bytes are [ErrMalformed].
func LoadSyncState(data []byte) (*SyncState, error) {
	state, err := amsync.LoadState(data)
	if err != nil {
		return nil, malformed(uuid.Nil, err)
	}
	return &SyncState{state: *state}, nil
}

// MarshalBinary writes all of the state, for another process to go on with the connection.
func (st *SyncState) MarshalBinary() ([]byte, error) { return st.state.Suspend(), nil }

// UnmarshalBinary reads what MarshalBinary wrote. Other bytes are [ErrMalformed].
func (st *SyncState) UnmarshalBinary(data []byte) error {
	state, err := amsync.ResumeState(data)
	if err != nil {
		return malformed(uuid.Nil, err)
	}
	st.state = *state
	return nil
}

var _ amsync.Set = (*syncSet)(nil)

// plain makes hashes those of the packages below.
func plain(hashes []Hash) []amformat.Hash {
	list := make([]amformat.Hash, len(hashes))
	for i, h := range hashes {
		list[i] = amformat.Hash(h)
	}
	return list
}
