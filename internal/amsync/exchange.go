package amsync

import (
	"context"
	"slices"

	"github.com/annals-db/annals/internal/amformat"
)

// Set is a set of changes, each with all that it depends on, and changes that wait for others.
type Set interface {
	// Heads are the changes that no other one depends on, in order.
	Heads(ctx context.Context) ([]amformat.Hash, error)
	// Known are those of the hashes that are in the set.
	Known(ctx context.Context, hashes []amformat.Hash) ([]amformat.Hash, error)
	// Waiting are the changes that wait, and what they wait for: dependencies that are neither in the set nor waiting.
	Waiting(ctx context.Context) (waiting, missing []amformat.Hash, err error)
	// Hashes are those of the changes that do not belong to what heads name, and of others if that is less work. All heads are in the set.
	Hashes(ctx context.Context, heads []amformat.Hash) ([]amformat.Hash, error)
	// Since are the changes that do not belong to what heads name, each after those that it depends on; it may be more if that is less work.
	Since(ctx context.Context, heads []amformat.Hash) ([]Link, error)
	// Chunks are changes of the set, each after those that it depends on. Where documents will do, one that has many of them and some others may
	// stand for them: it is smaller.
	Chunks(ctx context.Context, hashes []amformat.Hash, documents bool) ([][]byte, error)
	// Save is the whole set: documents and changes, one behind the other.
	Save(ctx context.Context) ([]byte, error)
}

// Link is a change and what it depends on.
type Link struct {
	Hash amformat.Hash
	Deps []amformat.Hash
}

// maxShared bounds what is remembered of a peer whose heads stay unknown.
const maxShared = 1000

// Receive takes in a message whose changes have been added to the set.
func (s *State) Receive(ctx context.Context, set Set, m *Message) error {
	// Peers begin with version 1, and go on with 2 once they have been answered: another 1 is a new beginning.
	if m.Version == 1 && s.is(writes2) {
		s.Restart()
	}
	if m.Can.Restart {
		*s = State{flags: s.flags &^ upToDate}
	}
	known, err := set.Known(ctx, union(m.Heads, s.shared))
	if err != nil {
		return err
	}
	has := asSet(known)
	switch all := within(m.Heads, has); {
	case all:
		s.shared = m.Heads
	default:
		s.shared = amformat.SortHashes(known)
		if len(s.shared) > maxShared {
			s.shared = slices.DeleteFunc(slices.Clone(m.Heads), func(h amformat.Hash) bool { return !has[h] })
		}
	}
	if len(m.Heads) == 0 {
		s.set(upToDate, false) // it has nothing, whatever it was sent
	}
	s.theirs = m.Heads
	s.set(heard, true)
	s.set(readOnly, m.Can.ReadOnly)
	if m.Can.Version2 || m.Version == 2 {
		s.set(reads2, true)
	}
	if m.Version == 2 {
		s.set(writes2, true)
	}
	asked := &Message{Heads: m.Heads, Need: m.Need, Have: m.Have, Changes: m.Changes, Can: m.Can}
	if s.asked != nil {
		asked.Need = union(asked.Need, s.asked.Need)
	}
	s.asked = asked
	return nil
}

// Generate returns what is to be said to the peer: the answer to what it asked, or what is new. It is nil if that is nothing.
func (s *State) Generate(ctx context.Context, set Set) (*Message, error) {
	heads, err := set.Heads(ctx)
	if err != nil {
		return nil, err
	}
	if s.asked == nil && s.is(told) && slices.Equal(s.told, heads) {
		return nil, nil
	}
	need, waiting, err := s.lacking(ctx, set)
	if err != nil {
		return nil, err
	}
	m := &Message{Version: 1, Heads: heads, Need: need, Can: Abilities{Said: true, Version2: true, KnowsRestart: true}}
	if s.is(reads2) {
		m.Version = 2
	}
	a, err := s.answer(ctx, set, heads)
	if err != nil {
		return nil, err
	}
	if !s.worthSaying(a, heads, need) {
		s.asked = nil
		if slices.Equal(s.theirs, heads) {
			s.told = heads
			s.set(told, true)
		}
		if a.complete {
			s.sent = heads
			s.set(upToDate, true)
		}
		return nil, nil
	}
	since := s.shared
	if a.startOver {
		since = nil
	}
	hashes, err := set.Hashes(ctx, since)
	if err != nil {
		return nil, err
	}
	m.Have = []Have{{Last: since, Filter: NewFilter(append(slices.Clone(hashes), waiting...))}}
	if m.Changes, err = a.chunks(ctx, set, m.Version); err != nil {
		return nil, err
	}
	s.shared, s.told, s.needed, s.asked = since, heads, need, nil
	s.set(told, true)
	if a.complete {
		s.sent = heads
		s.set(upToDate, true)
	}
	return m, nil
}

// lacking is what the set lacks: of the peer's heads, and of what waits.
func (s *State) lacking(ctx context.Context, set Set) (need, waiting []amformat.Hash, err error) {
	waiting, missing, err := set.Waiting(ctx)
	if err != nil {
		return nil, nil, err
	}
	known, err := set.Known(ctx, s.theirs)
	if err != nil {
		return nil, nil, err
	}
	there := asSet(append(known, waiting...))
	need = slices.Clone(missing)
	for _, h := range s.theirs {
		if !there[h] {
			need = append(need, h)
		}
	}
	return amformat.SortHashes(need), waiting, nil
}

// answer is which changes a peer is sent.
type answer struct {
	hashes    []amformat.Hash
	whole     bool // all there is
	complete  bool // after it the peer has all there is
	startOver bool // what the peer believes to be shared is not here
}

func (a *answer) chunks(ctx context.Context, set Set, version int) ([][]byte, error) {
	if a.whole {
		save, err := set.Save(ctx)
		if err != nil || len(save) == 0 {
			return nil, err
		}
		return [][]byte{save}, nil
	}
	if len(a.hashes) == 0 {
		return nil, nil
	}
	chunks, err := set.Chunks(ctx, a.hashes, version == 2)
	if err != nil || version == 1 {
		return chunks, err
	}
	return [][]byte{slices.Concat(chunks...)}, nil
}

func (s *State) answer(ctx context.Context, set Set, heads []amformat.Hash) (a answer, err error) {
	switch {
	case s.is(readOnly):
		return a, nil
	case s.asked == nil && !s.is(upToDate):
		return a, nil // what it has is not known yet
	case s.asked == nil:
		return s.news(ctx, set)
	}
	var last, both []amformat.Hash
	for _, h := range s.asked.Have {
		last = union(last, h.Last)
	}
	known, err := set.Known(ctx, union(union(last, s.asked.Need), s.asked.Heads))
	if err != nil {
		return a, err
	}
	has := asSet(known)
	if !within(last, has) {
		a.startOver = true
		return a, nil
	}
	both = last
	for _, h := range s.asked.Heads {
		if has[h] {
			both = union(both, []amformat.Hash{h})
		}
	}
	send := map[amformat.Hash]bool{}
	for _, h := range s.asked.Need {
		if has[h] {
			send[h] = true
		}
	}
	if len(s.asked.Have) > 0 {
		// What was sent in this connection is on its way. Who writes only version 1 does not show when a connection begins.
		if s.is(upToDate) && s.is(writes2) {
			both = union(both, s.sent)
		}
		a.complete = true
		if a.whole = len(both) == 0 && len(heads) > 0 && s.is(reads2) && s.asked.nothing(); a.whole {
			return a, nil
		}
		if !within(heads, asSet(both)) {
			links, err := set.Since(ctx, both)
			if err != nil {
				return a, err
			}
			choose(links, s.asked.Have, send)
		}
	}
	for h := range send {
		a.hashes = append(a.hashes, h)
	}
	return a, nil
}

// news are the changes that are new since the peer was sent all.
func (s *State) news(ctx context.Context, set Set) (answer, error) {
	both, err := set.Known(ctx, union(union(s.sent, s.shared), s.theirs))
	if err != nil {
		return answer{}, err
	}
	links, err := set.Since(ctx, both)
	a := answer{complete: true}
	for _, l := range links {
		a.hashes = append(a.hashes, l.Hash)
	}
	return a, err
}

// nothing tells whether the sender has nothing at all.
func (m *Message) nothing() bool {
	for i := range m.Have {
		if len(m.Have[i].Last) > 0 || !m.Have[i].Filter.Empty() {
			return false
		}
	}
	return len(m.Heads) == 0
}

// choose adds the changes that no filter holds, and what depends on them: a filter that holds that is wrong.
func choose(links []Link, have []Have, send map[amformat.Hash]bool) {
	lacks := map[amformat.Hash]bool{}
	for _, l := range links {
		lacking := !slices.ContainsFunc(have, func(h Have) bool { return h.Filter.Has(l.Hash) })
		for _, d := range l.Deps {
			lacking = lacking || lacks[d]
		}
		if lacking {
			lacks[l.Hash] = true
			send[l.Hash] = true
		}
	}
}

// worthSaying tells whether there is something in a message that the peer does not know.
func (s *State) worthSaying(a answer, heads, need []amformat.Hash) bool {
	equal := slices.Equal(s.theirs, heads)
	switch {
	case len(a.hashes) > 0 || a.whole || a.startOver:
		return true
	case s.asked == nil:
		return !s.is(told) || !s.is(readOnly) && !slices.Equal(s.told, heads)
	case len(need) > 0 && (!equal || !slices.Equal(need, s.needed)):
		return true
	case s.is(readOnly):
		return false
	case !s.is(told):
		// Who says what it can do wants to hear that once, and who sends changes that they came; to others there is nothing to say.
		return s.asked.Can.Said || len(s.asked.Changes) > 0 || !equal
	case !slices.Equal(s.told, heads):
		return true
	case equal:
		return false
	}
	// It is behind. If that is because what it was sent is on its way, it will say so.
	return !(s.is(writes2) && s.is(upToDate) && slices.Equal(s.sent, heads))
}

func asSet(list []amformat.Hash) map[amformat.Hash]bool {
	set := make(map[amformat.Hash]bool, len(list))
	for _, h := range list {
		set[h] = true
	}
	return set
}

func within(list []amformat.Hash, set map[amformat.Hash]bool) bool {
	return !slices.ContainsFunc(list, func(h amformat.Hash) bool { return !set[h] })
}

func union(a, b []amformat.Hash) []amformat.Hash {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	return amformat.SortHashes(append(slices.Clone(a), b...))
}
