package amformat

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/annals-db/annals/internal/amjs"
)

func TestJSDocuments(t *testing.T) {
	js := amjs.Start(t)
	e := goEngine(t)
	for seed := range max(1, *randomDocs/4) { // JavaScript is the slow part
		r := rand.New(rand.NewPCG(uint64(seed), 2))
		made := js.Make(t, seed+1, 1+r.IntN(4), 5+r.IntN(60))
		var heads []Hash
		for _, h := range made.Heads {
			heads = append(heads, must(ParseHash(h))(t))
		}
		saved := holds(t, r, made.Changes, heads)
		// Rows of what JavaScript saves and of what is saved here are the same, and so is what JavaScript makes of either.
		theirs := must(ParseDocument(made.Save, Limits{}))(t)
		ours := must(ParseDocument(saved, Limits{}))(t)
		same(t, "saved", listed(t, ours.Rows(), nil), listed(t, theirs.Rows(), nil))
		must(theirs.Changes(t.Context()))(t)
		// What JavaScript shows after merging isn't always what it shows after loading what it then saved: the latter counts.
		want := js.Load(t, made.Save)
		if got := js.Load(t, saved); strings.Join(got.Heads, " ") != strings.Join(made.Heads, " ") || got.JSON != want.JSON {
			t.Fatalf("document %d:\n got %s %s\nwant %s %s", seed, got.Heads, got.JSON, made.Heads, want.JSON)
		}
		if got := e.load(saved); got.heads != headsText(heads) || got.err != "" {
			t.Fatalf("document %d: automerge-go has %+v, and not %s", seed, got, headsText(heads))
		}
	}
}

func TestSavesOfFixturesLoadInJS(t *testing.T) {
	js := amjs.Start(t)
	for _, name := range documents {
		if name == "text3mb" && !*longTests {
			continue // it takes JavaScript seconds
		}
		t.Run(name, func(t *testing.T) {
			data := fixture(t, name+".am")
			want := js.Load(t, data)
			d := must(ParseDocument(data, Limits{}))(t)
			saved := must(WriteDocument(t.Context(), d, nil, tailOf(t, name), Limits{}))(t)
			if len(tailOf(t, name)) > 0 {
				want = js.Load(t, append([][]byte{data}, tailBytes(t, name)...)...)
			}
			if got := js.Load(t, saved); got.JSON != want.JSON || strings.Join(got.Heads, " ") != strings.Join(want.Heads, " ") {
				t.Errorf("got %.1000s\nwant %.1000s", got.JSON, want.JSON)
			}
		})
	}
}
