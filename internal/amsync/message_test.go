package amsync_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/annals-db/annals/internal/amformat"
	"github.com/annals-db/annals/internal/amsync"
)

func randomHash(r *rand.Rand) (h amformat.Hash) {
	for i := range h {
		h[i] = byte(r.Uint32())
	}
	return h
}

func randomHashes(r *rand.Rand, n int) (list []amformat.Hash) {
	for range n {
		list = append(list, randomHash(r))
	}
	return amformat.SortHashes(list)
}

func randomMessage(r *rand.Rand) *amsync.Message {
	m := &amsync.Message{Version: 1 + r.IntN(2), Heads: randomHashes(r, r.IntN(4)), Need: randomHashes(r, r.IntN(4))}
	for range r.IntN(3) {
		m.Have = append(m.Have, amsync.Have{Last: randomHashes(r, r.IntN(3)), Filter: amsync.NewFilter(randomHashes(r, r.IntN(50)))})
	}
	for range r.IntN(4) {
		m.Changes = append(m.Changes, bytes.Repeat([]byte{byte(r.Uint32())}, 10+r.IntN(500)))
	}
	if r.IntN(3) > 0 {
		m.Can = amsync.Abilities{Said: true, Version2: r.IntN(2) == 0, ReadOnly: r.IntN(2) == 0, Restart: r.IntN(2) == 0, KnowsRestart: r.IntN(2) == 0}
	}
	return m
}

func TestMessagesAreReadAsWritten(t *testing.T) {
	r := random(t)
	for range 50 {
		written := randomMessage(r).Bytes()
		m := must[*amsync.Message](t)(amsync.ParseMessage(written, 1<<20))
		if !bytes.Equal(m.Bytes(), written) {
			t.Fatalf("%x is read and written as %x", written, m.Bytes())
		}
		// Every part of it is refused, but for the one without abilities.
		for cut := range len(written) {
			_, err := amsync.ParseMessage(written[:cut], 1<<20)
			if err == nil {
				rest := *m
				rest.Can = amsync.Abilities{}
				if !bytes.Equal(rest.Bytes(), written[:cut]) {
					t.Fatalf("%d bytes of %x are read", cut, written)
				}
			} else if !errors.Is(err, amformat.ErrMalformed) && !errors.Is(err, amformat.ErrTruncated) {
				t.Fatal(err)
			}
		}
	}
}

func TestMessagesThatAreRefused(t *testing.T) {
	zeros := func(n int) string { return string(bytes.Repeat([]byte("0"), 2*n)) }
	for name, c := range map[string]struct {
		text string
		want error
	}{
		"nothing":                     {"", amformat.ErrMalformed},
		"another kind":                {"44000000", amformat.ErrMalformed},
		"more heads than bytes":       {"4205" + zeros(32), amformat.ErrTruncated},
		"more heads than any":         {"42ffffffff0f" + zeros(32), amformat.ErrLimit},
		"a number that has no end":    {"42ffffffffffffffffffff01", amformat.ErrMalformed},
		"a number with zeros":         {"428000000000", amformat.ErrMalformed},
		"more filters than any":       {"420000ff01" + zeros(500), amformat.ErrLimit},
		"a filter longer than it is":  {"4200000100" + "05" + "010a0700", amformat.ErrTruncated},
		"a filter of too few bits":    {"4200000100" + "04" + "010a0700" + "00", amformat.ErrMalformed},
		"a filter of too many bits":   {"4200000100" + "06" + "010a07000000" + "00", amformat.ErrMalformed},
		"a filter without bits":       {"4200000100" + "03" + "010007" + "00", amformat.ErrMalformed},
		"a filter that takes forever": {"4200000100" + "08" + "010affffff0f0000" + "00", amformat.ErrMalformed},
		"a filter of 2^62 bits":       {"4200000100" + "0c" + "ffffffff07ffffffff0707" + "0000", amformat.ErrMalformed},
		"more changes than bytes":     {"42000000" + "ff01" + zeros(100), amformat.ErrTruncated},
		"a change longer than it is":  {"42000000" + "01" + "7f" + zeros(20), amformat.ErrTruncated},
		"abilities that end early":    {"42000000" + "00" + "0282", amformat.ErrTruncated},
	} {
		data := must[[]byte](t)(hex.DecodeString(c.text))
		if _, err := amsync.ParseMessage(data, 1<<20); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var limit *amformat.LimitError
	if _, err := amsync.ParseMessage(make([]byte, 11), 10); !errors.As(err, &limit) || limit.What != "bytes" {
		t.Errorf("a long message: %v", err)
	}
}

func TestFilters(t *testing.T) {
	r := random(t)
	for _, n := range []int{0, 1, 2, 7, 100, 5000} {
		in, out := randomHashes(r, n), randomHashes(r, 5000)
		f := amsync.NewFilter(in)
		for _, h := range in {
			if !f.Has(h) {
				t.Fatal("a filter misses what was put into it")
			}
		}
		wrong := 0
		for _, h := range out {
			if f.Has(h) {
				wrong++
			}
		}
		if wrong > 400 || n == 0 && wrong > 0 {
			t.Errorf("%d of 5000 are wrongly in a filter of %d", wrong, n)
		}
	}
}

func TestStatesThatAreRefused(t *testing.T) {
	o := newOurs(t)
	o.edit(t, "a")
	talk(t, o, newOurs(t))
	for _, data := range [][]byte{nil, {0x42}, {0x43, 1}, append(o.state.Save(), 0), o.state.Suspend()} {
		if _, err := amsync.LoadState(data); err == nil {
			t.Errorf("%x is loaded", data)
		}
	}
	whole := o.state.Suspend()
	for _, data := range [][]byte{nil, {1}, whole[:len(whole)-1], append(slices.Clone(whole), 0), o.state.Save()} {
		if _, err := amsync.ResumeState(data); err == nil {
			t.Errorf("%x is resumed", data)
		}
	}
}

// Whatever a peer sends, it is refused or answered.
func FuzzMessages(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		f.Add(randomMessage(r).Bytes())
	}
	for _, text := range []string{"42000001000000020284", "430001b0f7ad8c333a26b62dbde63825b7d660213907718832f70c643586b2ec23819501000000020284",
		"4201b0f7ad8c333a26b62dbde63825b7d660213907718832f70c643586b2ec23819500010006020a074c730500020284"} {
		data, err := hex.DecodeString(text)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	base := newOurs(f)
	for range 5 {
		base.edit(f, "a")
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := amsync.ParseMessage(data, 1<<20)
		if err != nil {
			if !errors.Is(err, amformat.ErrMalformed) && !errors.Is(err, amformat.ErrTruncated) && !errors.Is(err, amformat.ErrLimit) {
				t.Fatal(err)
			}
			return
		}
		if len(m.Bytes()) > len(data)+1 {
			t.Fatalf("%x is written as %x", data, m.Bytes())
		}
		s := &amsync.State{}
		for range 2 {
			ok(t, s.Receive(t.Context(), base, m))
			reply := must[*amsync.Message](t)(s.Generate(t.Context(), base))
			if reply != nil {
				_ = must[*amsync.Message](t)(amsync.ParseMessage(reply.Bytes(), 1<<20))
			}
			s = must[*amsync.State](t)(amsync.ResumeState(s.Suspend()))
		}
	})
}
