// Package amsync speaks Automerge's sync protocol: two peers exchange messages until both have all changes that either of them had. It is pure Go
// over a set of changes ([Set]): no engine runs, and no document is loaded.
//
// A message ([Message]) names the sender's heads, what it knows to be missing, what it has as a Bloom filter, and brings changes. A [State] is
// what is known about one peer. Whoever receives a message adds the changes in it to the set, parking those that wait for others, and then:
//
//	err := state.Receive(ctx, set, message)
//	reply, err := state.Generate(ctx, set) // nil: there is nothing to say
//
// Generate also tells the peer what is new in the set without having been asked. Connections are expected to lose nothing and to keep the order.
// When one begins, [State.Restart] forgets what was under way in the one before. Messages that come twice, late or in another order cost
// messages, and never changes.
//
// # On the wire
//
// The first byte is the version: 0x42, or 0x43 for those who have said that they read it. Then come the heads, the hashes that are needed, what is
// had (each the heads of the last agreement and a filter of what came since), and the changes: in version 1 each a chunk, in version 2 chunks one
// behind the other, among which a whole document may be. Behind that later writers put bytes about what they can do, which older ones pass
// over. All numbers are LEB128; all lists have their length before them.
package amsync
