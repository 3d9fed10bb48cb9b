package amformat

import "testing"

func TestParseChangeOfFixtures(t *testing.T) {
	for _, name := range []string{"author.chunk", "bomb.chunk", "items20k.c1", "items20k.c2", "text3mb.c1", "text3mb.c2", "typed5k.c1", "typed5k.c2"} {
		t.Run(name, func(t *testing.T) {
			c := must(ParseChange(fixture(t, name), Limits{}))(t)
			var n int64
			for op := range c.Ops() {
				if n++; n < 4 {
					t.Logf("%+v", *op)
				}
			}
			if n != c.NumOps {
				t.Errorf("%d operations of %d", n, c.NumOps)
			}
		})
	}
}
