//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	engine "github.com/automerge/automerge-go"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/automerge"
)

func run(ctx context.Context, out io.Writer, pool *pgxpool.Pool) error {
	s := &story{out: out, pool: pool, store: automerge.New(pool)}
	for _, chapter := range []func(context.Context) error{s.open, s.apart, s.together, s.past} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

type story struct {
	out      io.Writer
	pool     *pgxpool.Pool
	store    *automerge.Store
	note     uuid.UUID
	ada, bob *editor
	before   []automerge.Hash // heads before they went offline
}

func (s *story) open(ctx context.Context) (err error) {
	if err := automerge.Install(ctx, s.pool); err != nil {
		return err
	}
	s.note, err = s.store.Create(ctx, automerge.CreateParams{JSON: []byte(`{"title": "Trip", "place": "Rome", "text": "Take the train."}`), Whole: true})
	if err != nil {
		return err
	}
	if s.ada, err = newEditor("ada"); err != nil {
		return err
	}
	if s.bob, err = newEditor("bob"); err != nil {
		return err
	}
	fmt.Fprintln(s.out, "Two people open a note:")
	for _, e := range []*editor{s.ada, s.bob} {
		if err := s.sync(ctx, e); err != nil {
			return err
		}
	}
	s.before, err = s.store.Heads(ctx, s.note)
	return err
}

// sync brings a copy and the note together.
func (s *story) sync(ctx context.Context, e *editor) error {
	messages, err := e.sync(ctx, s.store, s.note)
	if err != nil {
		return err
	}
	text, err := e.text("text")
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "  %s, after %d messages: %s\n", e.name, messages, text)
	return nil
}

func (s *story) apart(ctx context.Context) error {
	fmt.Fprintln(s.out, "Both go offline and write on:")
	err := s.ada.edit("travels by night", func(d *engine.Doc) error {
		return errors.Join(d.Path("text").Text().Splice(9, 0, "night "), d.Path("place").Set("Florence"))
	})
	if err != nil {
		return err
	}
	err = s.bob.edit("books early", func(d *engine.Doc) error {
		return errors.Join(d.Path("text").Text().Append(" Book early."), d.Path("place").Set("Naples"))
	})
	if err != nil {
		return err
	}
	for _, e := range []*editor{s.ada, s.bob} {
		text, err := e.text("text")
		if err != nil {
			return err
		}
		fmt.Fprintf(s.out, "  %s: %s\n", e.name, text)
	}
	return nil
}

func (s *story) together(ctx context.Context) error {
	fmt.Fprintln(s.out, "They come back, one after the other, and somebody watches the note:")
	watch, stop := context.WithCancel(ctx)
	defer stop()
	since := automerge.SubscribeOptions{Since: map[uuid.UUID][]automerge.Hash{s.note: s.before}, Patches: true}
	back := []*editor{s.ada, s.bob}
	if err := s.sync(ctx, back[0]); err != nil {
		return err
	}
	for event, err := range s.store.Subscribe(watch, since, s.note) {
		if err != nil {
			return err
		}
		for _, c := range event.Changes {
			fmt.Fprintf(s.out, "  live: %s\n", c.Message)
		}
		for _, p := range event.Patches {
			json, err := p.MarshalJSON()
			if err != nil {
				return err
			}
			fmt.Fprintf(s.out, "    %s\n", json)
		}
		if back = back[1:]; len(back) == 0 {
			break
		}
		if err := s.sync(ctx, back[0]); err != nil {
			return err
		}
	}
	if err := s.sync(ctx, s.ada); err != nil {
		return err
	}
	heads, err := s.store.Heads(ctx, s.note)
	if err != nil {
		return err
	}
	for _, e := range []*editor{s.ada, s.bob} {
		if !slices.EqualFunc(e.doc.Heads(), heads, func(a engine.ChangeHash, b automerge.Hash) bool { return automerge.Hash(a) == b }) {
			return fmt.Errorf("%s has another note", e.name)
		}
	}
	fmt.Fprintln(s.out, "Nothing was lost. Where both changed one thing, both values are there, and everybody shows the same one:")
	places, err := s.store.Conflicts(ctx, s.note, automerge.Now, "place")
	if err != nil {
		return err
	}
	for _, p := range places {
		fmt.Fprintf(s.out, "  place: %s\n", p.JSON())
	}
	return nil
}

func (s *story) past(ctx context.Context) error {
	fmt.Fprintln(s.out, "To SQL the note is a row:")
	var place, text string
	if err := s.pool.QueryRow(ctx, "select data->>'place', data->>'text' from automerge.projection where doc = $1", s.note).Scan(&place, &text); err != nil {
		return err
	}
	fmt.Fprintf(s.out, "  %s: %s\n", place, text)
	fmt.Fprintln(s.out, "Its history, and what it said after each step:")
	history, err := s.store.ChangeMeta(ctx, s.note)
	if err != nil {
		return err
	}
	for _, c := range history {
		state, err := s.store.State(ctx, s.note, automerge.StateOptions{At: automerge.AsOf(c.Hash)})
		if err != nil {
			return err
		}
		then, _ := state.Get("text")
		name := c.Message
		if name == "" {
			name = "created"
		}
		fmt.Fprintf(s.out, "  %s: %s\n", name, then.JSON())
	}
	return nil
}
