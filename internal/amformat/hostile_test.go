package amformat

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"

	"github.com/annals-db/annals/internal/amjs"
)

// judge reads bytes by every way that bytes come in, as far as they get.
func judge(ctx context.Context, data []byte, limits Limits) error {
	chunks, err := SplitChunks(data)
	if err != nil {
		return err
	}
	for _, c := range chunks {
		if c.Kind == KindDocument {
			d, err := ParseDocument(c.Bytes, limits)
			if err != nil {
				return err
			}
			rows := d.Rows()
			for rows.Next() {
			}
			_, proven := d.Changes(ctx)
			if err := rows.Err(); err != nil {
				if proven == nil {
					return fmt.Errorf("%w, and yet proven", err)
				}
				return err
			}
			if proven != nil {
				return proven
			}
			continue
		}
		if _, err := ParseHeader(c.Bytes, limits); err != nil {
			return err
		}
		if _, err := ParseChange(c.Bytes, limits); err != nil {
			return err
		}
	}
	return nil
}

// typed tells whether an error is one that this package promises.
func typed(err error) bool {
	for _, kind := range []error{ErrMalformed, ErrChecksum, ErrTruncated, ErrUnsupported, ErrHash, ErrMissing, ErrLimit} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// repaired is the chunk with the checksum that its content has.
func repaired(chunk []byte) []byte {
	chunk = slices.Clone(chunk)
	if len(chunk) < frameMin || Kind(chunk[8]) == KindCompressed {
		return chunk
	}
	sum := sha256.Sum256(chunk[8:])
	copy(chunk[4:8], sum[:4])
	return chunk
}

func TestCrashesAndBombs(t *testing.T) {
	for _, test := range []struct {
		name   string
		limits Limits
		err    error
	}{
		{"crash-load-0.bin", Limits{}, nil}, {"crash-load-1.bin", Limits{}, nil}, {"crash-load-2.bin", Limits{}, nil},
		{"crash-inc-0.bin", Limits{}, nil}, {"crash-inc-1.bin", Limits{}, nil}, {"crash-inc-2.bin", Limits{}, nil},
		{"bundle.am", Limits{}, ErrUnsupported},
		{"deep.am", Limits{}, ErrLimit},
		{"bomb.am", Limits{Ops: 50_000}, ErrLimit}, {"bomb.chunk", Limits{Ops: 50_000}, ErrLimit},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := judge(t.Context(), fixture(t, test.name), test.limits)
			t.Log(err)
			if !typed(err) || test.err != nil && !errors.Is(err, test.err) {
				t.Fatalf("%v, and not %v", err, test.err)
			}
		})
	}
}

// The budget of hostile inputs, and what judging one may allocate under it.
var (
	tight           = Limits{Bytes: 1 << 18, Ops: 20_000, Changes: 10_000, Actors: 1_000, Depth: 100}
	tightAllocation = uint64(32 << 20)
)

func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// TestHostile tampers with chunks. Every one is refused with an error that is promised, or it is right: what is written of a change that
// is accepted loads elsewhere, with the same heads.
func TestHostile(t *testing.T) {
	all := seeds(t)
	base := mixed(t)
	var e *engine
	if runEngine != nil {
		e = goEngine(t)
	}
	accepted, saved, loaded := 0, 0, 0
	var js *amjs.Process
	if *longTests {
		js = amjs.Start(t)
	}
	for n := range *hostileInputs {
		r := rand.New(rand.NewPCG(uint64(n), 4))
		data := mutated(r, all)
		if r.IntN(4) == 0 {
			data = redrafted(r, base[r.IntN(len(base))])
		}
		before := allocated()
		err := judge(t.Context(), data, tight)
		if used := allocated() - before; used > tightAllocation {
			t.Fatalf("input %d allocates %d bytes: %x", n, used, data)
		}
		if err != nil {
			if !typed(err) {
				t.Fatalf("input %d: %v: %x", n, err, data)
			}
			continue
		}
		accepted++
		// What the changes of the input make of the document that they may belong to.
		changes := base
		for _, c := range must(SplitChunks(data))(t) {
			if c.Kind == KindDocument {
				changes = must(must(ParseDocument(c.Bytes, tight))(t).Changes(t.Context()))(t)
			} else {
				changes = rebase(t, base, must(ParseChange(c.Bytes, tight))(t))
			}
		}
		out, err := WriteDocument(t.Context(), nil, nil, changes, tight)
		if err != nil {
			if !typed(err) {
				t.Fatalf("input %d: %v: %x", n, err, data)
			}
			continue
		}
		saved++
		if e == nil {
			continue
		}
		heads := must(ParseDocument(out, tight))(t).Heads
		if s := e.load(out); s.died || s.err != "" || s.heads != headsText(heads) {
			t.Fatalf("input %d: automerge-go has %+v, and not %s: %x", n, s, headsText(heads), out)
		}
		loaded++
		if js != nil {
			if s, complaint := js.TryLoad(t, out); complaint != "" || strings.Join(s.Heads, " ") != headsText(heads) {
				t.Errorf("input %d: JavaScript has %+v (%s), and not %s: %x", n, s, complaint, headsText(heads), out)
			}
		}
	}
	t.Logf("%d accepted, %d saved, %d loaded by automerge-go", accepted, saved, loaded)
}
