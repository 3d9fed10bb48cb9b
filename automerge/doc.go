// Package automerge keeps Automerge documents in the application's own PostgreSQL, and merges them there without loading them.
//
// Five minutes: install it, create a document, add what clients send.
//
//	err := automerge.Install(ctx, pool)
//	store := automerge.New(pool)
//	id, err := store.Create(ctx, automerge.CreateParams{Content: chunks})
//	applied, err := store.Apply(ctx, id, change)
//	save, err := store.Save(ctx, id)
//
// # What is promised
//
//   - A document is the set of its changes. Adding changes is the union of sets: it gives the same document in any order, however often a
//     change comes, from however many sessions at once.
//   - A change is validated to its last operation before it counts, by Go code: bytes from outside reach nothing else. What it depends on must be
//     there; what is missing is named, or waits if that is asked for ([Store.ApplyOrPark]).
//   - All or nothing: a call adds all that it was given, or nothing and returns an [*Error] that says why.
//   - Limits are looked at before memory is allocated ([Limits]).
//
// # In the database
//
// A row of automerge.document per document, a row of automerge.change per change; changes are never altered. Other tables may refer to
// automerge.document. It has columns owner and tenant for policies of yours: with row-level security enabled there, who sees a document reads it, who
// may update it writes it, and who may delete it deletes it ([Grant]).
//
// SQL clients read with automerge.heads, contains, changes, save and the aggregate merge, and add with automerge.append. What is appended is
// checked as far as SQL can and waits in automerge.queue; it is no part of the document before a worker has validated it.
package automerge
