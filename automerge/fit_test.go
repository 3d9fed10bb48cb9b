package automerge_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-db/annals/automerge"
	"github.com/annals-db/annals/internal/amformat"
)

// A change that names what the document does not have is refused where that is asked for, and named where it is read else.
func TestFit(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	strict := automerge.NewWith(pool, automerge.Options{Fit: true})
	ctx := t.Context()
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{JSON: []byte(`{"a": {"b": 1}, "list": [1]}`)}))
	first := must[[]automerge.Change](t)(store.Changes(ctx, id))[0]
	of := amformat.ActorID(must[*amformat.Change](t)(amformat.ParseChange(first.Chunk, amformat.Limits{})).Actor)
	forge := func(op amformat.Op) *amformat.Change {
		op.Action, op.Value.Type = amformat.ActionSet, amformat.ValueTrue
		d := amformat.Draft{Actor: "forger", Seq: 1, StartOp: 100, Deps: []amformat.Hash{amformat.Hash(first.Hash)}, Actors: []amformat.ActorID{of}, Ops: []amformat.Op{op}}
		return must[*amformat.Change](t)(d.Write(amformat.Limits{}))
	}
	for name, op := range map[string]amformat.Op{
		"no object": {Obj: amformat.OpID{Counter: 50}, Key: "k"}, "no map": {Obj: amformat.OpID{Counter: 3}, Key: "k"}, "no element": {Obj: amformat.OpID{Counter: 3}, InList: true, Elem: amformat.OpID{Counter: 50}, Insert: true},
		"no value": {Key: "a", Pred: []amformat.OpID{{Counter: 50}}},
	} {
		c := forge(op)
		_, err := strict.Apply(ctx, id, c.Bytes)
		if e := refuses(t, err, automerge.ErrMalformed); !slices.Equal(e.Hashes, []automerge.Hash{automerge.Hash(c.Hash)}) {
			t.Errorf("%s: %+v", name, e)
		}
		fork := must[uuid.UUID](t)(store.Fork(ctx, id, automerge.Now, automerge.CreateParams{}))
		_ = must[automerge.Applied](t)(store.Apply(ctx, fork, c.Bytes))
		_, err = store.JSON(ctx, fork, automerge.Now)
		var e *automerge.Error
		if !errors.As(err, &e) || !slices.Equal(e.Hashes, []automerge.Hash{automerge.Hash(c.Hash)}) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_ = must[automerge.Applied](t)(strict.Apply(ctx, id, forge(amformat.Op{Key: "z"}).Bytes))
}
