package amstate

import (
	"errors"
)

// ErrNotText means that spans are asked of something that is no text.
var ErrNotText = errors.New("the value is no text")

// Span is a piece of a text that has the same marks throughout, or a block.
type Span struct {
	Text  string
	Block *Value // nil if the span is text
	Marks []Mark // of text, by name
}

// MarshalJSON writes the span as Automerge's spans are written: {"type": "text", "value": ..., "marks": {...}} or {"type": "block", "value": {...}}.
func (s Span) MarshalJSON() ([]byte, error) {
	e := encoder{}
	if s.Block != nil {
		e.buf = append(e.buf, `{"type":"block","value":`...)
		e.value(&s.Block.v)
		return append(e.buf, '}'), nil
	}
	e.buf = append(e.buf, `{"type":"text","value":`...)
	e.string(s.Text)
	if len(s.Marks) > 0 {
		e.buf = append(e.buf, `,"marks":{`...)
		for i := range s.Marks {
			if i > 0 {
				e.buf = append(e.buf, ',')
			}
			e.string(s.Marks[i].Name)
			e.buf = append(e.buf, ':')
			e.value(&s.Marks[i].Value.v)
		}
		e.buf = append(e.buf, '}')
	}
	return append(e.buf, '}'), nil
}

// Spans are the pieces of a text, as long as they can be. It fails with [ErrNotText], and with an [amformat.LimitError] if the pieces have far too many marks.
func (v Value) Spans() ([]Span, error) {
	if v.v.kind != Text {
		return nil, ErrNotText
	}
	n := v.v.node
	if n == nil {
		return []Span{}, nil
	}
	var (
		spans  = []Span{}
		cost   int64
		state  = newMarkState(&cost)
		marks  = n.marks
		blocks = n.blocks
		from   int     // where the piece began
		has    []*mark // its marks
	)
	end := func(at int) error {
		if at > from {
			if err := state.pay(len(has)); err != nil {
				return err
			}
			spans = append(spans, Span{Text: string(n.text[from:at]), Marks: v.marks(has)})
		}
		from = at
		return nil
	}
	for len(marks) > 0 || len(blocks) > 0 {
		if len(marks) == 0 || len(blocks) > 0 && blocks[0].from < marks[0].at {
			if err := end(blocks[0].from); err != nil {
				return nil, err
			}
			from += len(object)
			spans = append(spans, Span{Block: &Value{v: blocks[0].value, actors: v.actors}})
			blocks = blocks[1:]
			continue
		}
		at := marks[0].at
		for len(marks) > 0 && marks[0].at == at {
			if err := state.add(&marks[0]); err != nil {
				return nil, err
			}
			marks = marks[1:]
		}
		if !sameMarks(has, state.set) {
			if err := end(at); err != nil {
				return nil, err
			}
			has = state.set
		}
	}
	return spans, end(len(n.text))
}

func (v Value) marks(set []*mark) []Mark {
	if len(set) == 0 {
		return nil
	}
	ms := make([]Mark, len(set))
	for i, m := range set {
		ms[i] = Mark{Name: m.name, Value: Value{v: m.value, actors: v.actors}}
	}
	return ms
}
