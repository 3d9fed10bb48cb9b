package amformat

import (
	"slices"
	"testing"
)

func TestDocumentHeads(t *testing.T) {
	for _, name := range []string{"items2k.am", "ks_conf.am", "typed5k.am"} {
		save := fixture(t, name)
		d, err := ParseDocument(save, Limits{})
		if err != nil {
			t.Fatal(err)
		}
		heads, err := DocumentHeads(save)
		if err != nil || !slices.Equal(heads, d.Heads) {
			t.Errorf("%s: %v, %v", name, heads, err)
		}
		for n := range min(len(save), 150) {
			if heads, err := DocumentHeads(save[:n]); err == nil {
				t.Errorf("%s: the first %d bytes have heads %v", name, n, heads)
			}
		}
	}
}
