package amsync

import (
	"slices"

	"github.com/annals-db/annals/internal/amformat"
)

// State is what is known about a peer. The zero state knows nothing. It is not safe for concurrent use.
type State struct {
	shared []amformat.Hash // both have what these name
	theirs []amformat.Hash // the heads that the peer named last
	told   []amformat.Hash // the heads that it was told last
	sent   []amformat.Hash // it has, or was sent in this connection, what these name
	needed []amformat.Hash // what it was last asked for
	flags  flags
	asked  *Message // what it asked for in messages that were received and not answered
}

type flags uint8

const (
	heard    flags = 1 << iota // it has said something in this connection
	told                       // it was told something
	upToDate                   // sent holds
	reads2                     // it reads version 2
	writes2                    // it has written version 2 in this connection
	readOnly                   // it takes no changes
)

func (s *State) is(f flags) bool { return s.flags&f != 0 }

func (s *State) set(f flags, on bool) {
	s.flags &^= f
	if on {
		s.flags |= f
	}
}

// Restart is for the beginning of a connection: it forgets what was under way in the one before, and keeps what is agreed on.
func (s *State) Restart() { *s = State{shared: s.shared} }

// Shared are heads that name what both are known to have.
func (s *State) Shared() []amformat.Hash { return slices.Clone(s.shared) }

// The first bytes of states.
const (
	savedState   = 0x43
	runningState = 0x01
)

// Save writes what is worth keeping between connections, as Automerge's libraries do. [LoadState] reads it.
func (s *State) Save() []byte { return appendHashes([]byte{savedState}, s.shared) }

// LoadState reads what [State.Save] wrote, or one of Automerge's libraries.
func LoadState(data []byte) (*State, error) {
	if len(data) == 0 || data[0] != savedState {
		return nil, malformed("this is no state of the sync protocol")
	}
	p := &parser{b: data[1:]}
	s := &State{shared: p.hashes("heads of the last agreement")}
	if p.err != nil {
		return nil, p.err
	}
	if len(p.b) > 0 {
		return nil, malformed("%d bytes follow a state", len(p.b))
	}
	return s, nil
}

// Suspend writes all of a state after a message was answered, so that another process can answer the next one. [ResumeState] reads it.
func (s *State) Suspend() []byte {
	b := []byte{runningState, byte(s.flags)}
	for _, list := range s.lists() {
		b = appendHashes(b, *list)
	}
	return b
}

func (s *State) lists() []*[]amformat.Hash {
	return []*[]amformat.Hash{&s.shared, &s.theirs, &s.told, &s.sent, &s.needed}
}

// ResumeState reads what [State.Suspend] wrote.
func ResumeState(data []byte) (*State, error) {
	if len(data) < 2 || data[0] != runningState {
		return nil, malformed("this is no state of a connection")
	}
	s := &State{flags: flags(data[1])}
	p := &parser{b: data[2:]}
	for _, list := range s.lists() {
		*list = p.hashes("hashes")
	}
	if p.err != nil {
		return nil, p.err
	}
	if len(p.b) > 0 {
		return nil, malformed("%d bytes follow a state", len(p.b))
	}
	return s, nil
}
