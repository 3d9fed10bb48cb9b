//go:build cgo

package automerge

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	engine "github.com/automerge/automerge-go"
	"github.com/google/uuid"

	"github.com/annals-db/annals/internal/pgtx"
)

// EngineDoc is a document in Automerge's own code.
type EngineDoc = engine.Doc

// editAttempts is how often an edit is made anew.
const editAttempts = 3

// Edit loads a document into Automerge's own code, lets fn edit it there, and adds what it did as a change, which it need not commit. What others write
// meanwhile is merged and not overwritten. fn may be called again where a connection broke at the wrong moment, so it must do nothing
// else. Where it fails nothing is added, and its error is returned.
//
// A document stays loaded for the next edit ([EditOptions]); to load it takes long where it is large, and much more memory than its save (a text of 3 MB 22
// seconds and 2.7 GB). Edits of one document take turns in a store and are made by one actor of the document, so make one store for a program and not one for a
// request ([Store.In] gives the same one on another handle). In the caller's transaction a document is loaded anew and edited by a new actor. ctx is not looked at while Automerge's code is at work.
func (s *Store) Edit(ctx context.Context, id uuid.UUID, fn func(doc *EngineDoc) error) (applied Applied, err error) {
	if pgtx.InTx(s.db) {
		d, err := s.loadEngine(ctx, id, newActor())
		if err != nil {
			return Applied{}, err
		}
		return s.editWith(ctx, id, d, fn)
	}
	defer s.engines.take(id)()
	for range editAttempts {
		d := s.engines.get(id)
		if d == nil {
			d, err = s.loadEngine(ctx, id, s.engines.actorOf(id))
		} else {
			err = s.refreshEngine(ctx, id, d)
		}
		if err == nil {
			applied, err = s.editWith(ctx, id, d, fn)
		}
		if err == nil {
			s.engines.put(id, d)
			return applied, nil
		}
		// It has what the database does not have.
		s.engines.drop(id)
		if !errors.Is(err, ErrReused) {
			return Applied{}, err
		}
	}
	return Applied{}, err
}

// engineDoc is a document that is loaded.
type engineDoc struct {
	doc   *engine.Doc
	heads []Hash // it has these, and all that they depend on
	bytes int64
	used  time.Time
}

// loading measures one document at a time.
var loading sync.Mutex

func (s *Store) loadEngine(ctx context.Context, id uuid.UUID, actor string) (*engineDoc, error) {
	save, err := s.Save(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	loading.Lock()
	defer loading.Unlock()
	before := nativeBytes()
	doc := engine.New()
	if len(save) > 0 {
		if doc, err = engine.Load(save); err != nil {
			return nil, fmt.Errorf("automerge: loading document %s: %w", id, err)
		}
	}
	if err := doc.SetActorID(actor); err != nil {
		return nil, err
	}
	return &engineDoc{doc: doc, heads: engineHeads(doc), bytes: max(nativeBytes()-before, int64(len(save))*8)}, nil
}

func engineHeads(doc *engine.Doc) []Hash {
	var heads []Hash
	for _, h := range doc.Heads() {
		heads = append(heads, Hash(h))
	}
	return heads
}

// refreshEngine loads what others have written.
func (s *Store) refreshEngine(ctx context.Context, id uuid.UUID, d *engineDoc) error {
	heads, err := s.Heads(ctx, id)
	if err != nil {
		return err
	}
	if slices.Equal(heads, d.heads) {
		return nil
	}
	chunks, err := s.SaveSince(ctx, id, d.heads...)
	if err != nil {
		return err
	}
	if err := d.doc.LoadIncremental(chunks); err != nil {
		return fmt.Errorf("automerge: loading changes of document %s: %w", id, err)
	}
	d.heads = engineHeads(d.doc)
	return nil
}

func (s *Store) editWith(ctx context.Context, id uuid.UUID, d *engineDoc, fn func(doc *EngineDoc) error) (Applied, error) {
	if err := fn(d.doc); err != nil {
		return Applied{}, err
	}
	// The library writes milliseconds where Automerge has seconds.
	now := time.UnixMilli(time.Now().Unix())
	_, _ = d.doc.Commit("", engine.CommitOptions{Time: &now}) // that there is nothing to commit is no error here
	since := make([]engine.ChangeHash, len(d.heads))
	for i, h := range d.heads {
		since[i] = engine.ChangeHash(h)
	}
	changes, err := d.doc.Changes(since...)
	if err != nil {
		return Applied{}, err
	}
	var data []byte
	for _, c := range changes {
		data = append(data, c.Save()...)
	}
	applied, err := s.Apply(ctx, id, data)
	if err != nil {
		return Applied{}, err
	}
	d.heads = engineHeads(d.doc)
	return applied, nil
}

// engineCache holds documents that are loaded, and lets edits of one document take turns.
//
// Its actor is who edits: documents name few actors then. No other cache has the same, since two that don't take turns would make changes of
// one number, and where these are equal one of them would be lost.
type engineCache struct {
	actor string
	most  int64

	mu    sync.Mutex
	docs  map[uuid.UUID]*engineDoc
	turns map[uuid.UUID]*turn
	bytes int64
	freed int64 // since the garbage collector was last asked, which is what frees them
}

type turn struct {
	mu      sync.Mutex
	waiting int
}

func newEngineCache(o EditOptions) *engineCache {
	if o.CacheBytes == 0 {
		o.CacheBytes = 256 << 20
	}
	return &engineCache{actor: newActor(), most: o.CacheBytes, docs: map[uuid.UUID]*engineDoc{}, turns: map[uuid.UUID]*turn{}}
}

// actorOf is who edits a document: in each another, since a document and its fork are to be merged again.
func (c *engineCache) actorOf(id uuid.UUID) string {
	sum := sha256.Sum256([]byte(c.actor + id.String()))
	return hex.EncodeToString(sum[:16])
}

// take waits until it is one's turn, and returns what ends that.
func (c *engineCache) take(id uuid.UUID) (end func()) {
	c.mu.Lock()
	t := c.turns[id]
	if t == nil {
		t = &turn{}
		c.turns[id] = t
	}
	t.waiting++
	c.mu.Unlock()
	t.mu.Lock()
	return func() {
		t.mu.Unlock()
		c.mu.Lock()
		defer c.mu.Unlock()
		if t.waiting--; t.waiting == 0 {
			delete(c.turns, id)
		}
	}
}

// get takes a document out of the cache.
func (c *engineCache) get(id uuid.UUID) *engineDoc {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.docs[id]
	if d != nil {
		delete(c.docs, id)
		c.bytes -= d.bytes
	}
	return d
}

// put keeps a document for the next edit, and forgets those that have not been edited for longest where there are too many.
func (c *engineCache) put(id uuid.UUID, d *engineDoc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d.used = time.Now()
	c.docs[id] = d
	c.bytes += d.bytes
	for c.bytes > c.most && len(c.docs) > 0 {
		var oldest uuid.UUID
		for id, d := range c.docs {
			if o := c.docs[oldest]; o == nil || d.used.Before(o.used) {
				oldest = id
			}
		}
		c.free(oldest)
	}
}

// free forgets a document. The Go garbage collector, which frees its memory, does not see how large that is.
func (c *engineCache) free(id uuid.UUID) {
	d := c.docs[id]
	if d == nil {
		return
	}
	delete(c.docs, id)
	c.bytes -= d.bytes
	if c.freed += d.bytes; c.freed > 64<<20 {
		c.freed = 0
		go runtime.GC()
	}
}

func (c *engineCache) drop(id uuid.UUID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free(id)
}
