// Package amformat reads and writes the binary format of Automerge: chunks, changes and documents, as bytes and as operations. It is
// pure Go, knows no database and runs no engine, so that bytes from outside are judged here before anything else sees them.
//
// A file is a row of chunks ([SplitChunks]). A change chunk holds the operations of one actor's commit ([ParseChange], [ParseHeader]).
// A document chunk holds the operations of many changes as one table in the order of the document ([ParseDocument]); its changes are
// not in it as bytes, they are written anew from the rows and proven by their hashes ([Document.Changes], [Document.ChangesSince]).
// [Merge] gives the rows that a document has after more changes, in one pass and without loading it, and [WriteDocument] saves them.
//
// Rows of documents come one after another, from a document alone or merged with changes that it doesn't have yet:
//
//	rows := doc.Rows()                 // or: rows, err := amformat.Merge(doc, changes), where doc may be nil
//	for rows.Next() {
//		op := rows.Op()                // ID, Obj, Key or Elem, Action, Value, Succ; used again for the next row
//	}
//	err := rows.Err()
//	actors := rows.Actors()            // the table that indexes mean, in order
//
// They are in the order of objects (by the operation that made them, the root first), within a map by key, within a list by element
// in the list's order, and within a key or an element from the earliest to the latest: of those without successors the last wins.
// Deletions aren't rows: they are successors of what they deleted.
//
// # What is refused
//
// Everything that is parsed has been validated: frames and checksums, columns and the number of their rows, the action, value, key, object
// and predecessors of every operation, the indexes of actors. Run lengths are counted against [Limits] before a byte is allocated for
// them. A change has to be written the one way that every Automerge writes it, because a save keeps the operations and not the bytes: a
// change that is written otherwise would have another hash after the first save. The errors are [ErrMalformed], [ErrChecksum],
// [ErrTruncated], [ErrUnsupported], [ErrHash] and [*LimitError] ([ErrLimit]).
//
// # Actors
//
// Operations name actors by their index in a table, which is the change's ([Header.Actors], the author first) or the document's
// ([Document.Actors], in the order of bytes, so that comparing indexes compares actors).
package amformat
