// Package automerge keeps Automerge documents in the application's own PostgreSQL, merges them there without loading them, and shows them as JSON, now and
// as they were.
//
// Five minutes: install it, create a document, add what clients send, read.
//
//	err := automerge.Install(ctx, pool)
//	store := automerge.New(pool)
//	id, err := store.Create(ctx, automerge.CreateParams{JSON: []byte(`{"status": "open"}`), Paths: []string{"status"}})
//	applied, err := store.Apply(ctx, id, change)
//	status, err := automerge.Get[string](ctx, store, id, "status")
//	before, err := store.JSON(ctx, id, automerge.AsOf(heads...))
//
// # What is promised
//
//   - A document is the set of its changes. Adding changes is the union of sets: it gives the same document in any order, however often a
//     change comes, from however many sessions at once ([Store.Apply], [Store.MergeSave], [Store.ApplyEach]).
//   - A change is validated to its last operation before it counts, by Go code: bytes from outside reach nothing else. What it depends on must be
//     there; what is missing is named, or waits if that is asked for ([Store.ApplyOrPark]). A save is proven by its hashes.
//   - Two changes of one actor with one number are refused: two programs use one actor id then.
//   - All or nothing: a call adds all that it was given, or nothing and returns an [*Error] that says why.
//   - Limits are looked at before memory is allocated ([Limits]); contexts end what takes long.
//   - To add a change takes as long in a large document as in a small one.
//
// # Reading
//
// [Get], [Store.JSON] and [Store.State] read documents; [AsOf] names a moment of the past, which takes as long as the present. [Store.Diff] gives the patches
// between two moments, [Store.Spans] texts with their marks and blocks, [Store.Conflicts] the values that lost, too.
//
// In JSON, maps are objects with sorted keys, texts are strings in which U+FFFC stands for a block, integers and counters are exact, NaN and infinite
// numbers are null, times are ISO 8601 with milliseconds, bytes are base 64, and U+FFFD stands for NUL.
//
// [Store.SetProjection] has the JSON, or chosen paths of it, kept in automerge.projection by each write, where it is joined, filtered and indexed like any
// other jsonb: data->>'status', GIN, generated columns. What is read from there takes no pass over the document.
//
// # Living documents
//
// [Store.Subscribe] delivers what is added to documents, in order and without a gap. [Store.Sync] speaks Automerge's sync protocol with clients, over
// whatever carries messages. [Store.Edit] edits a document through Automerge's own code, which takes cgo; everything else is pure Go, and a program without cgo
// has all but that.
//
// [Store.Run] does what is to be done in the background: it folds changes into snapshots, so that a document takes little more than its save, and looks after
// what SQL clients append.
//
// # In the database
//
// A row of automerge.document per document, a row of automerge.change per recent change, a row of automerge.snapshot with the older ones, as a save. Changes are
// never altered, and all of them can be read, folded or not. Other tables may refer to automerge.document. It has columns owner and tenant for policies of
// yours: with row-level security enabled there, who sees a document reads it, who may update it writes it, and who may delete it deletes it ([Grant]).
//
// SQL clients read with automerge.heads, contains, changes, save and the aggregate merge, and add with automerge.append. What is appended is
// checked as far as SQL can and waits in automerge.queue; it is no part of the document before a worker has validated it. Each commit that adds changes notifies
// the channel automerge with the document's id and its number of changes, and with no content, since everybody may listen.
//
// # What it does not do
//
// Nothing is ever taken out of a document's history. SQL alone can't read what is folded: automerge.changes says so, automerge.save gives it. Of changes it is not
// proven that what their operations name is in the document, unless [Options].Fit asks for it. [Store.Edit] uses the Automerge of 2023 that automerge-go
// brings: it knows no marks and blocks of its own, keeps those of others, and takes long and much memory to load long texts. Chunks that hold bundles of
// changes are refused.
//
// Tested with automerge-go of October 2024 (Automerge 0.5.0) and @automerge/automerge 3.5.0, in both directions.
package automerge
