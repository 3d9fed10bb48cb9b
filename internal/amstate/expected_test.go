package amstate

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"

	"github.com/annals-db/annals/internal/amformat"
)

type expected struct {
	Heads   []string        `json:"heads"`
	Changes int             `json:"changes"`
	JSON    json.RawMessage `json:"json"`
	Length  int             `json:"json_length"`
	SHA256  string          `json:"json_sha256"`
	Spans   json.RawMessage `json:"spans_rich"`
}

func (e *expected) check(t *testing.T, s *State) {
	t.Helper()
	got := s.JSON()
	var written bytes.Buffer
	ok(t, s.WriteJSON(&written))
	if !bytes.Equal(got, written.Bytes()) {
		t.Fatal("JSON in pieces is other JSON")
	}
	if e.JSON != nil {
		equal(t, "JSON", jsonValue(t, got), mapped(jsonValue(t, e.JSON)))
	} else if sum := sha256.Sum256(got); hex.EncodeToString(sum[:]) != e.SHA256 {
		t.Fatalf("%d bytes with the sum %x, want %s: %.200s", len(got), sum, e.SHA256, got)
	}
	if e.Spans != nil {
		rich, there := s.Get("rich")
		if !there {
			t.Fatal("no text rich")
		}
		spans := must(json.Marshal(must(rich.Spans())(t)))(t)
		equal(t, "spans", jsonValue(t, spans), mapped(jsonValue(t, e.Spans)))
	}
}

// What JavaScript sees in every fixture is what is read from its save, from its changes alone, and from part of its changes merged into a document of the
// others.
func TestFixtures(t *testing.T) {
	for _, name := range []string{"author", "items20k", "items2k", "ks_blocks", "ks_conf", "ks_marks", "text3mb", "typed5k"} {
		t.Run(name, func(t *testing.T) {
			var want expected
			ok(t, json.Unmarshal(testdata(t, "automerge", name+".am.expected.json"), &want))
			doc := document(t, testdata(t, "automerge", name+".am"))
			want.check(t, must(Read(t.Context(), doc.Rows(), Options{}))(t))
			want.check(t, must(Read(t.Context(), doc.Rows(), Options{Conflicts: true}))(t))
			if name == "text3mb" && testing.Short() {
				return
			}
			changes := must(doc.Changes(t.Context()))(t)
			if len(changes) != want.Changes {
				t.Fatalf("%d changes, want %d", len(changes), want.Changes)
			}
			want.check(t, stateOf(t, changes, Options{}))
			for _, n := range []int{1, len(changes) / 2, len(changes) - 1} {
				if n == 0 || n == len(changes) {
					continue
				}
				part := document(t, must(amformat.WriteDocument(t.Context(), nil, nil, changes[:n], amformat.Limits{}))(t))
				rows := must(amformat.Merge(part, changes[n:]))(t)
				want.check(t, must(Read(t.Context(), rows, Options{}))(t))
				// As of the heads of the first part, all of it says what the first part says.
				clock := must(ClockOf(nodes(changes), part.Heads))(t)
				then := must(Read(t.Context(), doc.Rows(), Options{At: clock}))(t)
				alone := must(Read(t.Context(), part.Rows(), Options{}))(t)
				if !bytes.Equal(then.JSON(), alone.JSON()) {
					t.Fatalf("as of change %d: %.500s, want %.500s", n, then.JSON(), alone.JSON())
				}
			}
		})
	}
}
