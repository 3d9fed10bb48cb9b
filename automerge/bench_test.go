//go:build cgo

package automerge_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	engine "github.com/automerge/automerge-go"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/automerge"
	"github.com/annals-db/annals/internal/amformat"
	"github.com/annals-db/annals/internal/bench"
)

var text3mbRatio = flag.Bool("automerge.text3mb", false, "whether benchmarks of text3mb report ratio: each load by automerge-go takes 20 seconds and 3 GB")

// benched is a document of the benchmarks on a server that survives crashes: kept by a store, which projects its path status, and
// as a whole in a row of a table beside it, which is loaded with automerge-go for all that is done to it.
type benched struct {
	b      *testing.B
	pool   *pgxpool.Pool
	store  *automerge.Store
	save   []byte
	id     uuid.UUID
	whole  bool // whether the row is used
	writer *writer
	given  [][]byte // changes that were applied to id
	copies int      // rows of the table
}

// onDocuments runs a benchmark on each document. Under -short the one that is made is shorter, and the longest are left out.
func onDocuments(b *testing.B, names []string, do func(b *testing.B, d *benched)) {
	b.Helper()
	server := bench.Server(b, bench.Durable)
	for _, name := range names {
		if testing.Short() && name != "items2k" && name != "text300k" {
			continue
		}
		b.Run(name, func(b *testing.B) {
			ctx := b.Context()
			pool := must[*pgxpool.Pool](b)(pgxpool.New(ctx, bench.Database(b, server)))
			defer pool.Close()
			ok(b, automerge.Install(ctx, pool))
			d := &benched{b: b, pool: pool, store: automerge.New(pool), whole: name != "text3mb" || *text3mbRatio}
			if name == "text300k" {
				d.save = longText(b, d.store)
			} else {
				d.save = fixture(b, name+".am")
			}
			d.id = must[uuid.UUID](b)(d.store.Create(ctx, automerge.CreateParams{Content: d.save, Paths: []string{"status"}}))
			run(b, pool, "create table whole (id int primary key, doc bytea not null)")
			d.row(d.save)
			d.writer = newWriter(b, d.save)
			run(b, pool, "vacuum analyze", "checkpoint")
			do(b, d)
		})
	}
}

var allDocuments = []string{"typed5k", "items2k", "items20k", "text300k", "text3mb"}

// longText is a save with a text that was written in one change, as text3mb is.
func longText(b *testing.B, store *automerge.Store) []byte {
	n := 300_000
	if testing.Short() {
		n = 30_000
	}
	const letters = "abcdefghijklmnopqrstuvwxyz "
	content := must[[]byte](b)(json.Marshal(map[string]string{"status": "new", "text": strings.Repeat(letters, n/len(letters)+1)[:n]}))
	id := must[uuid.UUID](b)(store.Create(b.Context(), automerge.CreateParams{JSON: content}))
	_ = must[int](b)(store.Fold(b.Context(), id))
	save := must[[]byte](b)(store.Save(b.Context(), id))
	_ = must[int64](b)(store.Delete(b.Context(), id))
	return save
}

// row adds a row to the table and returns its id.
func (d *benched) row(save []byte) int {
	d.copies++
	_ = must[pgconn.CommandTag](d.b)(d.pool.Exec(d.b.Context(), "insert into whole values ($1, $2)", d.copies, save))
	return d.copies
}

// fork makes a document with a projection like that of id.
func (d *benched) fork() uuid.UUID {
	return must[uuid.UUID](d.b)(d.store.Fork(d.b.Context(), d.id, automerge.Now, automerge.CreateParams{Paths: []string{"status"}}))
}

func (d *benched) drop(ids ...uuid.UUID) { _ = must[int64](d.b)(d.store.Delete(d.b.Context(), ids...)) }

// loaded reads a row and loads it.
func (d *benched) loaded(db automerge.DB, id int) *engine.Doc {
	d.b.Helper()
	var save []byte
	ok(d.b, db.QueryRow(d.b.Context(), "select doc from whole where id = $1", id).Scan(&save))
	return must[*engine.Doc](d.b)(engine.Load(save))
}

// update does something to a row: it loads the document and writes all of it again.
func (d *benched) update(id int, do func(tx pgx.Tx, doc *engine.Doc)) {
	d.b.Helper()
	ctx := d.b.Context()
	ok(d.b, pgx.BeginFunc(ctx, d.pool, func(tx pgx.Tx) error {
		var save []byte
		if err := tx.QueryRow(ctx, "select doc from whole where id = $1 for update", id).Scan(&save); err != nil {
			return err
		}
		doc, err := engine.Load(save)
		if err != nil {
			return err
		}
		do(tx, doc)
		_, err = tx.Exec(ctx, "update whole set doc = $2 where id = $1", id, doc.Save())
		return err
	}))
}

// A writer makes changes of a document without loading it, each of which sets status and adds a key, as the changes of the fixtures do.
type writer struct {
	b      testing.TB
	actors []amformat.ActorID
	draft  amformat.Draft
	status amformat.OpID
	n      int
}

func newWriter(b testing.TB, save []byte) *writer {
	b.Helper()
	doc := must[*amformat.Document](b)(amformat.ParseDocument(save, amformat.Limits{}))
	w := &writer{b: b, actors: append(slices.Clone(doc.Actors), ""), draft: amformat.Draft{Deps: doc.Heads}}
	for rows := doc.Rows(); rows.Next(); {
		if op := rows.Op(); op.Obj.IsZero() && op.Key == "status" && len(op.Succ) == 0 {
			w.status = op.ID
		}
	}
	for _, m := range doc.Metas {
		w.draft.StartOp = max(w.draft.StartOp, m.MaxOp+1)
	}
	w.as(0)
	return w
}

// as lets another actor write, from here.
func (w *writer) as(actor int) {
	fork := *w
	fork.actors = slices.Clone(w.actors)
	fork.actors = append(fork.actors[:len(fork.actors)-1], amformat.ActorID(fmt.Sprintf("writer %09d", actor)))
	fork.draft.Actor, fork.draft.Seq, fork.n = fork.actors[len(fork.actors)-1], 0, actor*1000
	*w = fork
}

// next is the next change. It depends on the last one.
func (w *writer) next() []byte {
	w.b.Helper()
	w.n++
	d := &w.draft
	own := uint32(len(w.actors) - 1)
	d.Seq++
	d.Actors = w.actors
	set := amformat.Op{Key: "status", Action: amformat.ActionSet, Value: amformat.Value{Type: amformat.ValueString, Raw: fmt.Appendf(nil, "edit %d", w.n)}}
	if !w.status.IsZero() {
		set.Pred = []amformat.OpID{w.status}
	}
	d.Ops = []amformat.Op{set, {Key: fmt.Sprint("k", w.n), Action: amformat.ActionSet, Value: amformat.Value{Type: amformat.ValueInt, Raw: []byte{byte(w.n & 63)}}}}
	change, err := d.Write(amformat.Limits{})
	ok(w.b, err)
	w.status = amformat.OpID{Counter: d.StartOp, Actor: own}
	d.StartOp += 2
	d.Deps = []amformat.Hash{change.Hash}
	return change.Bytes
}

// turns is how often ours is measured for each time that the whole document is.
const turns = 5

// A side is one way of doing the work. Only do is measured.
type side struct{ before, do, after func() }

// compare lets both sides take turns, and reports the median time of one operation of ours, and what part of theirs that is. Where cpu is asked
// for, what this process takes on its processors is reported as well.
func (d *benched) compare(ours, theirs side, cpu bool) {
	d.b.Helper()
	var mine, others, cpus []time.Duration
	for d.b.Loop() {
		n := turns
		if testing.Short() {
			n = 2
		}
		for range n {
			cpus = append(cpus, ours.measure(&mine))
		}
		if d.whole {
			theirs.measure(&others)
		}
	}
	ms := median(mine)
	d.b.ReportMetric(ms, "ms")
	if cpu {
		d.b.ReportMetric(median(cpus), "cpu-ms")
	}
	if d.whole {
		d.b.ReportMetric(ms/median(others), "ratio")
	}
	d.b.ReportMetric(0, "ns/op")
}

func (s side) measure(times *[]time.Duration) (cpu time.Duration) {
	if s.before != nil {
		s.before()
	}
	busy, began := cpuTime(), time.Now()
	s.do()
	*times = append(*times, time.Since(began))
	cpu = cpuTime() - busy
	if s.after != nil {
		s.after()
	}
	return cpu
}

// cpuTime is what this process has taken on all processors.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // it never fails with these arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// median is the middle of times, in milliseconds.
func median(times []time.Duration) float64 {
	slices.Sort(times)
	return times[len(times)/2].Seconds() * 1000
}

// agree checks that a document of the store is what the engine has, or at least that it has so many changes more than the save it began with, the last of
// which it shows.
func (d *benched) agree(id uuid.UUID, doc func() *engine.Doc, more int, status string) {
	d.b.Helper()
	ctx := d.b.Context()
	wellKept(d.b, d.pool)
	if got := must[string](d.b)(automerge.Get[string](ctx, d.store, id, "status")); status != "" && got != status {
		d.b.Fatalf("the status is %q, want %q", got, status)
	}
	base := must[*amformat.Document](d.b)(amformat.ParseDocument(d.save, amformat.Limits{}))
	if info := must[automerge.Document](d.b)(d.store.Document(ctx, id)); info.Changes != int64(len(base.Metas)+more) {
		d.b.Fatalf("%d changes, want %d and %d", info.Changes, len(base.Metas), more)
	}
	if !d.whole {
		return
	}
	other := doc()
	if got := must[[]automerge.Hash](d.b)(d.store.Heads(ctx, id)); !slices.Equal(got, headsOf(d.b, other)) {
		d.b.Fatalf("heads %v, want %v", got, headsOf(d.b, other))
	}
	d.sameJSON(must[json.RawMessage](d.b)(d.store.JSON(ctx, id, automerge.Now)), other)
}

// sameJSON compares a document with what the engine has.
func (d *benched) sameJSON(got []byte, doc *engine.Doc) {
	d.b.Helper()
	if want := wholeJSON(d.b, doc); text(d.b, d.pool, "select $1::jsonb = $2::jsonb", string(got), string(want)) != "(t)" {
		d.b.Fatalf("%.300s, want %.300s", got, want)
	}
}

func wholeJSON(b testing.TB, doc *engine.Doc) []byte {
	return must[[]byte](b)(json.Marshal(doc.Root().Interface()))
}

// with returns a store on connections with another setting.
func (d *benched) with(setting, value string) (*automerge.Store, func()) {
	config := must[*pgxpool.Config](d.b)(pgxpool.ParseConfig(d.pool.Config().ConnString()))
	config.ConnConfig.RuntimeParams[setting] = value
	pool := must[*pgxpool.Pool](d.b)(pgxpool.NewWithConfig(context.WithoutCancel(d.b.Context()), config))
	return automerge.New(pool), pool.Close
}

func join(chunks [][]byte) []byte { return bytes.Join(chunks, nil) }
