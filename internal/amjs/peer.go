package amjs

import "testing"

// Peer is a document in JavaScript that is kept in step with another one by the sync protocol.
type Peer struct {
	p  *Process
	id int
}

// Peer makes a peer of chunks in any order.
func (p *Process) Peer(t testing.TB, chunks ...[]byte) *Peer {
	t.Helper()
	p.peers++
	peer := &Peer{p: p, id: p.peers}
	if chunks == nil {
		chunks = [][]byte{}
	}
	peer.ask(t, "begin", chunks)
	return peer
}

// ReadOnlyPeer makes an empty peer that takes no changes.
func (p *Process) ReadOnlyPeer(t testing.TB) *Peer {
	t.Helper()
	p.peers++
	peer := &Peer{p: p, id: p.peers}
	peer.p.ask(t, map[string]any{"peer": peer.id, "begin": [][]byte{}, "readOnly": true})
	return peer
}

func (x *Peer) ask(t testing.TB, what string, value any) State {
	t.Helper()
	return x.p.ask(t, map[string]any{"peer": x.id, what: value})
}

// Receive takes in a message.
func (x *Peer) Receive(t testing.TB, message []byte) {
	t.Helper()
	x.ask(t, "receive", message)
}

// Generate returns the peer's next message; nil is none.
func (x *Peer) Generate(t testing.TB) []byte {
	t.Helper()
	return x.ask(t, "generate", true).Message
}

// Restart begins a connection anew, with the state as it is saved or without.
func (x *Peer) Restart(t testing.TB, saved bool) {
	t.Helper()
	how := "lost"
	if saved {
		how = "saved"
	}
	x.ask(t, "restart", how)
}

// Lose takes the document away.
func (x *Peer) Lose(t testing.TB) {
	t.Helper()
	x.ask(t, "lose", true)
}

// Edit makes a change, another one for each number above 0.
func (x *Peer) Edit(t testing.TB, n int) {
	t.Helper()
	x.ask(t, "edit", n)
}

// Heads are the heads of the peer's document, in order.
func (x *Peer) Heads(t testing.TB) []string {
	t.Helper()
	return x.ask(t, "show", false).Heads
}

// Show returns the document as JSON with its heads.
func (x *Peer) Show(t testing.TB) State {
	t.Helper()
	return x.ask(t, "show", true)
}

// Save returns the document as JavaScript saves it.
func (x *Peer) Save(t testing.TB) []byte {
	t.Helper()
	return x.ask(t, "save", true).Save
}
