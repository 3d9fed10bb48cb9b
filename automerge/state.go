package automerge

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/annals-db/annals/internal/amformat"
	"github.com/annals-db/annals/internal/amstate"
)

// What a document says. See the package documentation for how values become JSON.
type (
	// Value is a value in a document, with what is in it.
	Value = amstate.Value
	// Kind is what a value is.
	Kind = amstate.Kind
	// Path is the way to a value: strings are keys of maps, ints are places in lists and texts, from 0.
	Path = amstate.Path
	// Span is a part of a text with the same marks, or a block.
	Span = amstate.Span
	// Mark is a mark of a part of a text.
	Mark = amstate.Mark
	// Conflict is a place with several values that were written without knowledge of each other: the one that wins first.
	Conflict = amstate.Conflict
	// Patch is a step from one state of a document to another.
	Patch = amstate.Patch
	// Action is what a patch does.
	Action = amstate.Action
	// State is what a document, or a part of it, says at one moment.
	State = amstate.State
)

// The kinds of values.
const (
	Null      = amstate.Null
	Bool      = amstate.Bool
	Int       = amstate.Int
	Uint      = amstate.Uint
	Float     = amstate.Float
	String    = amstate.String
	Bytes     = amstate.Bytes
	Counter   = amstate.Counter
	Timestamp = amstate.Timestamp
	Unknown   = amstate.Unknown
	Map       = amstate.Map
	List      = amstate.List
	Text      = amstate.Text
)

// The actions of patches.
const (
	Put       = amstate.Put
	Remove    = amstate.Delete
	Insert    = amstate.Insert
	Splice    = amstate.Splice
	SetMark   = amstate.SetMark
	Increment = amstate.Increment
)

// A Moment is a state in the life of a document: [Now], or [AsOf] heads that it had.
type Moment struct {
	past  bool
	heads []Hash
}

// Now is the present.
var Now = Moment{}

// AsOf is the moment at which a document had these heads: when it consisted of them and of all that they depend on. Without any it is
// the moment before the first change.
func AsOf(heads ...Hash) Moment { return Moment{past: true, heads: heads} }

// StateOptions say what [Store.State] keeps.
type StateOptions struct {
	At        Moment
	Paths     []Path // what is kept; none: everything
	Conflicts bool   // whether values that lost against concurrent ones are kept
}

// State reads a document, now or as it was, in one pass over its snapshot and the changes after that. It takes about as long for the past as for the
// present. Errors: [ErrNotFound], [ErrUnknownHeads], [ErrLimit] of objects within objects.
func (s *Store) State(ctx context.Context, id uuid.UUID, o StateOptions) (*State, error) {
	d, err := s.load(ctx, s.db, id)
	if err != nil {
		return nil, err
	}
	return s.stateOf(ctx, d, o)
}

func (s *Store) stateOf(ctx context.Context, d *loaded, o StateOptions) (*State, error) {
	clock, err := d.moment(o.At)
	if err != nil {
		return nil, err
	}
	rows, err := d.rows(nil)
	if err != nil {
		return nil, malformed(d.id, err)
	}
	state, err := amstate.Read(ctx, rows, amstate.Options{At: clock, Paths: o.Paths, Conflicts: o.Conflicts, Depth: s.limits.Depth})
	return state, unreadable(d.id, err)
}

func unreadable(id uuid.UUID, err error) error {
	var limit *amformat.LimitError
	if errors.As(err, &limit) && limit.What == "depth" {
		return tooDeep(id, err)
	}
	return malformed(id, err)
}

// moment is the clock of a moment; nil is now.
func (d *loaded) moment(m Moment) (amstate.Clock, error) {
	if !m.past {
		return nil, nil
	}
	within, unknown := d.upTo(m.heads)
	if len(unknown) > 0 {
		return nil, unknownHeads(d.id, unknown)
	}
	return d.clock(within), nil
}

// JSON returns a document as JSON, now or as it was. Where [Store.SetProjection] has been asked for all of it, the present is read from there.
func (s *Store) JSON(ctx context.Context, id uuid.UUID, at Moment) (json.RawMessage, error) {
	if !at.past {
		var data *string
		err := s.row(ctx, id, []any{&data}, "select p.data::text from automerge.document d left join automerge.projection p on p.doc = d.id and d.whole where d.id = $1")
		if err != nil || data != nil {
			return raw(data), err
		}
	}
	state, err := s.State(ctx, id, StateOptions{At: at})
	if err != nil {
		return nil, err
	}
	return state.JSON(), nil
}

func raw(text *string) json.RawMessage {
	if text == nil {
		return nil
	}
	return json.RawMessage(*text)
}

const getSQL = "select d.whole, d.paths, jsonb_path_query_first(p.data, $2::text::jsonpath, '{}', true)::text from automerge.document d left join automerge.projection p on p.doc = d.id where d.id = $1"

// Get reads the value at a path, as encoding/json makes a T of it. Where the projection has it ([Store.SetProjection]) that is the read of a row; else it
// takes a pass over the document. [ErrNoPath]: there is nothing there, or no T.
func Get[T any](ctx context.Context, s *Store, id uuid.UUID, path ...any) (T, error) {
	var v T
	text, err := s.get(ctx, id, path)
	if err != nil {
		return v, err
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return v, &Error{Kind: ErrNoPath, Message: fmt.Sprintf("the value at %s of document %s is no %T: %v", Path(path), id, v, err), Doc: id, Index: -1, cause: err}
	}
	return v, nil
}

func (s *Store) get(ctx context.Context, id uuid.UUID, path Path) ([]byte, error) {
	steps, err := jsonPath(path)
	if err != nil {
		return nil, err
	}
	var whole bool
	var paths []string
	var text *string
	if err := s.row(ctx, id, []any{&whole, &paths, &text}, getSQL, steps); err != nil {
		return nil, err
	}
	nothing := &Error{Kind: ErrNoPath, Message: fmt.Sprintf("there is nothing at %s of document %s", path, id), Doc: id, Index: -1}
	want, err := (&seen{whole: whole, paths: paths}).wanted()
	if err != nil {
		return nil, err
	}
	if want.covers(path) {
		if text == nil {
			return nil, nothing
		}
		return raw(text), nil
	}
	state, err := s.State(ctx, id, StateOptions{Paths: []Path{path}})
	if err != nil {
		return nil, err
	}
	v, ok := state.Get(path...)
	if !ok {
		return nil, nothing
	}
	return v.JSON(), nil
}

// covers tells whether all that is at a path is wanted.
func (w *wanted) covers(path Path) bool {
	for _, step := range path {
		if w == nil {
			return true
		}
		key, ok := step.(string)
		if !ok {
			return false
		}
		if w, ok = w.keys[key]; !ok {
			return false
		}
	}
	return w == nil
}

// jsonPath writes a path as PostgreSQL's. It is strict, since otherwise objects would count as lists of one.
func jsonPath(path Path) (string, error) {
	b := []byte("strict $")
	for _, step := range path {
		switch step := step.(type) {
		case string:
			b = appendString(append(b, '.'), step)
		case int:
			b = fmt.Appendf(b, "[%d]", step)
		default:
			return "", &Error{Kind: ErrInvalid, Message: fmt.Sprintf("a path has strings and ints, and not a %T", step), Index: -1}
		}
	}
	return string(b), nil
}

// Spans returns the parts of a text with their marks, and its blocks, as the JavaScript library's spans does. [ErrNoPath]: there is no text at the path.
func (s *Store) Spans(ctx context.Context, id uuid.UUID, at Moment, path ...any) ([]Span, error) {
	state, err := s.State(ctx, id, StateOptions{At: at, Paths: []Path{path}})
	if err != nil {
		return nil, err
	}
	v, ok := state.Get(path...)
	if !ok {
		return nil, &Error{Kind: ErrNoPath, Message: fmt.Sprintf("there is nothing at %s of document %s", Path(path), id), Doc: id, Index: -1}
	}
	spans, err := v.Spans()
	if errors.Is(err, amstate.ErrNotText) {
		return nil, &Error{Kind: ErrNoPath, Message: fmt.Sprintf("there is no text at %s of document %s", Path(path), id), Doc: id, Index: -1, cause: err}
	}
	return spans, unreadable(id, err)
}

// Conflicts returns the values at a path that were written without knowledge of each other, the one that wins first. [ErrNoPath]: there are none.
func (s *Store) Conflicts(ctx context.Context, id uuid.UUID, at Moment, path ...any) ([]Value, error) {
	state, err := s.State(ctx, id, StateOptions{At: at, Paths: []Path{path}, Conflicts: true})
	if err != nil {
		return nil, err
	}
	values := state.Conflicts(path...)
	if len(values) == 0 {
		return nil, &Error{Kind: ErrNoPath, Message: fmt.Sprintf("there is nothing at %s of document %s", Path(path), id), Doc: id, Index: -1}
	}
	return values, nil
}

// Diff returns the patches that lead from one moment of a document to another, in the order in which they are to be applied.
func (s *Store) Diff(ctx context.Context, id uuid.UUID, from, to Moment) ([]Patch, error) {
	d, err := s.load(ctx, s.db, id)
	if err != nil {
		return nil, err
	}
	return d.diff(ctx, from, to)
}

func (d *loaded) diff(ctx context.Context, from, to Moment) ([]Patch, error) {
	a, err := d.moment(from)
	if err != nil {
		return nil, err
	}
	b, err := d.moment(to)
	if err != nil {
		return nil, err
	}
	rows, err := d.rows(nil)
	if err != nil {
		return nil, malformed(d.id, err)
	}
	patches, err := amstate.Diff(ctx, rows, a, b)
	return patches, unreadable(d.id, err)
}
