package volvra

import "context"

// Redo undoes an undo, given its attempt: what it undid stands again. Changes that others have made since are guarded as in any undo. An
// undo is an ordinary transaction too, so Undo with a Selection of it does the same. [ErrNotAnUndo]: the attempt is none that was done.
func (v *Volvra) Redo(ctx context.Context, attempt int64, o UndoOptions) (*Result, error) {
	return v.attempt(ctx, "redo", nil, o, "volvra.redo($1, $2, $3, $4)", attempt)
}

// UndoTo undoes all changes of all covered tables since a mark was set, whoever made them. Within the transaction that set it, these include
// the transaction's own later changes. The mark stays. [ErrMark]: there is none of that name.
func (v *Volvra) UndoTo(ctx context.Context, mark string, o UndoOptions) (*Result, error) {
	since := selectionText(Selection{Since: AtMark(mark)})
	return v.attempt(ctx, "undo_to", &since, o, "volvra.undo_to($1, $2, $3, $4)", mark)
}
