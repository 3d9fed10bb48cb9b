// Package amstate tells what an Automerge document says: from the rows of operations that amformat reads, in one pass, now or at any
// moment of its past. It is pure Go and knows no database.
//
//	rows, err := amformat.Merge(doc, changes) // or doc.Rows()
//	state, err := amstate.Read(ctx, rows, amstate.Options{})
//	err = state.WriteJSON(w)
//	v, ok := state.Get("items", 3, "done")
//	patches, err := amstate.Diff(ctx, rows, from, to) // what differs between two moments
//
// A sweep keeps what is alive at the moment and nothing of what was overwritten: of objects that aren't reached from the root, rows are
// passed over. [Options.Paths] keeps chosen parts only.
//
// # Values
//
// Of several values that were written to a key or an element without knowledge of each other, the one of the latest operation wins; with
// [Options.Conflicts] the others are kept too ([State.Conflicts]). A counter is the sum of its increments. A table is a map.
//
// # JSON
//
// Maps and tables are objects with keys in the order of their bytes, lists are arrays, texts are strings with U+FFFC for whatever isn't
// text, such as blocks. Integers and counters are exact. Floats are written as ECMAScript writes them, -0 as 0; NaN, infinite ones and
// values of unknown type are null. Timestamps are ISO 8601 in UTC with milliseconds, with six digits and a sign for years that have more than four
// or are before 0, null beyond what ECMAScript's dates can hold. Bytes are base64 with padding. NUL in strings and keys is U+FFFD, because
// PostgreSQL can't store it; two keys that become the same by that are both written.
//
// # Texts
//
// [Value.Spans] are the pieces of a text with their marks, and its blocks. [Diff] tells what differs between two moments as [Patch]es: splices of
// texts, marks, entries and elements. Indexes of texts count Unicode characters.
package amstate
