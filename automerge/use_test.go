//go:build cgo

package automerge_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/automerge"
	"github.com/annals-db/annals/internal/pgserver"
	"github.com/annals-db/annals/internal/pgtx/pgtxtest"
)

// Users join, filter and index documents like rows of theirs.
func TestProjectionIsATable(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx := t.Context()
	run(t, pool, "alter table automerge.projection add column status text generated always as (data->>'status') stored", "create index on automerge.projection (status)",
		"create index on automerge.projection using gin (data jsonb_path_ops)", "create table task (id int primary key, doc uuid references automerge.document)")
	for i := range 5 {
		id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{JSON: []byte(`{"status": "open", "tags": ["x", "y"]}`), Whole: true}))
		_, err := pool.Exec(ctx, "insert into task values ($1, $2)", i, id)
		ok(t, err)
		if i == 3 {
			_ = must[automerge.Applied](t)(store.Edit(ctx, id, func(doc *automerge.EngineDoc) error { return doc.Path("status").Set("done") }))
		}
	}
	for sql, want := range map[string]string{
		"select id from task join automerge.projection using (doc) where status = 'done'":                  "(3)",
		"select count(*) from automerge.projection where data @> '{\"status\": \"open\"}'":                 "(4)",
		"select count(*) from automerge.projection p where p.data->'tags' ? 'x' and data->>'status' <> ''": "(5)",
	} {
		if got := text(t, pool, sql); got != want {
			t.Errorf("%s: %s", sql, got)
		}
	}
	// What an index of the user's can't take is refused with a type.
	var long strings.Builder
	for range 2000 {
		long.WriteString(rand.Text())
	}
	_, err := store.Create(ctx, automerge.CreateParams{JSON: []byte(`{"status": "` + long.String() + `"}`), Whole: true})
	refuses(t, err, automerge.ErrLimit)
	if _, err := store.Delete(ctx, column[uuid.UUID](t, pool, "select doc from task where id = 1")[0]); sqlState(err) != "23503" {
		t.Errorf("a document that a row refers to was deleted: %v", err)
	}
}

// Everything works in the mode that goes through transaction poolers.
func TestExecMode(t *testing.T) {
	t.Parallel()
	_, pool := installed(t)
	ctx := t.Context()
	config := pool.Config().Copy()
	config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	execs := must[*pgxpool.Pool](t)(pgxpool.NewWithConfig(ctx, config))
	t.Cleanup(execs.Close)
	store := automerge.New(execs)
	d := written(t, random(t), 2, 2)
	chunks := changesOf(t, d)
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: d.Save(), Whole: true}))
	part := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: chunks[0], Paths: []string{"status"}}))
	_ = must[automerge.Applied](t)(store.ApplyOrPark(ctx, part, chunks[len(chunks)-1]))
	_ = must[automerge.Applied](t)(store.Apply(ctx, part, chunks...))
	_ = must[automerge.Applied](t)(store.MergeSave(ctx, part, d.Save()))
	_ = must[[]automerge.Applied](t)(store.ApplyEach(ctx, []automerge.Delivery{{ID: part, Data: bytes.Join(chunks, nil)}}))
	_ = must[int](t)(store.Fold(ctx, part))
	_ = must[json.RawMessage](t)(store.JSON(ctx, part, automerge.AsOf(headsOf(t, d)...)))
	_ = must[any](t)(automerge.Get[any](ctx, store, id, "meta"))
	_ = must[[]automerge.Change](t)(store.Changes(ctx, part, headsOf(t, d)...))
	_ = must[uuid.UUID](t)(store.Fork(ctx, part, automerge.Now, automerge.CreateParams{Whole: true}))
	_ = must[[]byte](t)(store.Sync(ctx, id, "peer", nil))
	_ = must[automerge.Applied](t)(store.Edit(ctx, id, func(doc *automerge.EngineDoc) error { return doc.Path("x").Set(1) }))
	_ = must[int](t)(store.WorkQueue(ctx))
	limited, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for e, err := range store.Subscribe(limited, automerge.SubscribeOptions{Since: map[uuid.UUID][]automerge.Hash{id: headsOf(t, d)}}, id) {
		ok(t, err)
		if len(e.Changes) != 1 {
			t.Errorf("got %+v", e)
		}
		break
	}
	_ = must[int64](t)(store.Delete(ctx, id, part))
}

// A context that ends ends long work, and waiting for others.
func TestCancel(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx := t.Context()
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: fixture(t, "items20k.am")}))
	soon, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
	defer cancel()
	_, err := store.Create(soon, automerge.CreateParams{Content: fixture(t, "text3mb.am")})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Create: %v", err)
	}
	tx := must[pgx.Tx](t)(pool.Begin(ctx))
	_, err = tx.Exec(ctx, "select from automerge.document for update")
	ok(t, err)
	waiting, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := store.Apply(waiting, id, fixture(t, "items20k.c1")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Apply: %v", err)
	}
	ok(t, tx.Rollback(ctx))
	applied := must[automerge.Applied](t)(store.Apply(ctx, id, fixture(t, "items20k.c1")))
	if applied.Added != 1 {
		t.Errorf("got %+v", applied)
	}
}

// A dump has all there is to a document.
func TestDumpAndRestore(t *testing.T) {
	t.Parallel()
	store, pool := installed(t)
	ctx := t.Context()
	d := written(t, random(t), 2, 3)
	chunks := changesOf(t, d)
	id := must[uuid.UUID](t)(store.Create(ctx, automerge.CreateParams{Content: bytes.Join(chunks[:3], nil), Whole: true}))
	_ = must[int](t)(store.Fold(ctx, id))
	_ = must[automerge.Applied](t)(store.Apply(ctx, id, chunks...))
	target := must[*pgxpool.Pool](t)(pgxpool.New(ctx, pgserver.Database(t)))
	t.Cleanup(target.Close)
	ok(t, automerge.Install(ctx, target))
	for _, table := range []string{"document", "snapshot", "change", "projection"} {
		var data bytes.Buffer
		from, to := must[*pgxpool.Conn](t)(pool.Acquire(ctx)), must[*pgxpool.Conn](t)(target.Acquire(ctx))
		_, err := from.Conn().PgConn().CopyTo(ctx, &data, "copy automerge."+table+" to stdout")
		ok(t, err)
		_, err = to.Conn().PgConn().CopyFrom(ctx, &data, "copy automerge."+table+" from stdin")
		ok(t, err)
		from.Release()
		to.Release()
	}
	restored := automerge.New(target)
	if !slices.Equal(must[[]automerge.Hash](t)(restored.Heads(ctx, id)), headsOf(t, d)) {
		t.Error("other heads")
	}
	sameChanges(t, restored, id, d)
	if applied := must[automerge.Applied](t)(restored.Apply(ctx, id, chunks...)); applied.Added != 0 {
		t.Errorf("got %+v", applied)
	}
	wellKept(t, target)
}

// No call leaves anything behind in the session, in a transaction or not, whether it fails or not; and a failed one leaves the transaction usable.
func TestNothingIsLeftInTheSession(t *testing.T) {
	t.Parallel()
	_, pool := installed(t)
	ctx := t.Context()
	d := written(t, random(t), 2, 2)
	chunks := changesOf(t, d)
	conn := connectAs(t, pool.Config().ConnString(), "")
	calls := func(db automerge.DB) {
		s := automerge.New(db)
		id := must[uuid.UUID](t)(s.Create(ctx, automerge.CreateParams{Content: chunks[0], Whole: true}))
		for name, call := range map[string]func(id uuid.UUID) error{
			"Apply":       func(id uuid.UUID) error { _, err := s.Apply(ctx, id, chunks...); return err },
			"ApplyOrPark": func(id uuid.UUID) error { _, err := s.ApplyOrPark(ctx, id, chunks[1:]...); return err },
			"ApplyEach": func(id uuid.UUID) error {
				_, err := s.ApplyEach(ctx, []automerge.Delivery{{ID: id, Data: chunks[0]}})
				return err
			},
			"MergeSave": func(id uuid.UUID) error { _, err := s.MergeSave(ctx, id, d.Save()); return err },
			"Fold":      func(id uuid.UUID) error { _, err := s.Fold(ctx, id); return err },
			"Fork": func(id uuid.UUID) error {
				_, err := s.Fork(ctx, id, automerge.Now, automerge.CreateParams{})
				return err
			},
			"JSON":          func(id uuid.UUID) error { _, err := s.JSON(ctx, id, automerge.AsOf()); return err },
			"Get":           func(id uuid.UUID) error { _, err := automerge.Get[any](ctx, s, id); return err },
			"Changes":       func(id uuid.UUID) error { _, err := s.Changes(ctx, id); return err },
			"Sync":          func(id uuid.UUID) error { _, err := s.Sync(ctx, id, "peer", nil); return err },
			"SetProjection": func(id uuid.UUID) error { return s.SetProjection(ctx, id, true) },
			"Edit": func(id uuid.UUID) error {
				_, err := s.Edit(ctx, id, func(doc *automerge.EngineDoc) error { return doc.Path("x").Set(rand.Text()) })
				return err
			},
		} {
			if err := call(id); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := call(uuid.New()); !errors.Is(err, automerge.ErrNotFound) {
				t.Errorf("%s of no document: %v", name, err)
			}
		}
		_ = must[int](t)(s.WorkQueue(ctx))
	}
	pgtxtest.AssertSessionUnchanged(t, conn, func() { calls(conn) })
	tx := must[pgx.Tx](t)(conn.Begin(ctx))
	pgtxtest.AssertSessionUnchanged(t, conn, func() { calls(tx) })
	ok(t, tx.Rollback(ctx))
}
