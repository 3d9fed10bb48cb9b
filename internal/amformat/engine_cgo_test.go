//go:build cgo

package amformat

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"

	automerge "github.com/automerge/automerge-go"
)

func init() { runEngine = serveEngine }

// serveEngine answers on standard output what it is asked to load on standard input.
func serveEngine() {
	in, out := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	read := func() []byte {
		var n uint32
		if binary.Read(in, binary.LittleEndian, &n) != nil {
			os.Exit(0)
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(in, b); err != nil {
			os.Exit(0)
		}
		return b
	}
	for {
		var n uint32
		if binary.Read(in, binary.LittleEndian, &n) != nil {
			os.Exit(0)
		}
		chunks := make([][]byte, n)
		for i := range chunks {
			chunks[i] = read()
		}
		heads, json, err := loadEngine(chunks)
		text := ""
		if err != nil {
			text = err.Error()
		}
		for _, s := range []string{heads, json, text} {
			_ = binary.Write(out, binary.LittleEndian, uint32(len(s)))
			_, _ = out.WriteString(s)
		}
		_ = out.Flush()
	}
}

func loadEngine(chunks [][]byte) (heads, json string, err error) {
	d := automerge.New()
	for i, c := range chunks {
		if i == 0 {
			d, err = automerge.Load(c)
		} else {
			err = d.LoadIncremental(c)
		}
		if err != nil {
			return "", "", err
		}
	}
	var hs []Hash
	for _, h := range d.Heads() {
		hs = append(hs, Hash(h))
	}
	slices.SortFunc(hs, Hash.Compare)
	return headsText(hs), fmt.Sprint(d.Root().Interface()), nil
}

// edited is a document on which actors have worked apart and together, as automerge-go's changes.
func edited(r randomSource, actors, steps int) (chunks [][]byte, heads []Hash, err error) {
	first := automerge.New()
	if err := first.SetActorID(fmt.Sprintf("%032x", r.IntN(1<<30))); err != nil {
		return nil, nil, err
	}
	for _, v := range []struct {
		key   string
		value any
	}{{"text", automerge.NewText("abc")}, {"n", automerge.NewCounter(1)}, {"list", []any{1, "two", nil}}, {"map", map[string]any{"deep": map[string]any{}}}} {
		if err := first.Path(v.key).Set(v.value); err != nil {
			return nil, nil, err
		}
	}
	if _, err := first.Commit("first"); err != nil {
		return nil, nil, err
	}
	docs := []*automerge.Doc{first}
	for len(docs) < actors {
		d, err := first.Fork()
		if err != nil {
			return nil, nil, err
		}
		if err := d.SetActorID(fmt.Sprintf("%032x", r.IntN(1<<30))); err != nil {
			return nil, nil, err
		}
		docs = append(docs, d)
	}
	for range steps {
		d := docs[r.IntN(len(docs))]
		if r.IntN(5) == 0 {
			if other := docs[r.IntN(len(docs))]; other != d {
				if _, err := d.Merge(other); err != nil {
					return nil, nil, err
				}
			}
			continue
		}
		for range 1 + r.IntN(4) {
			if err := editOnce(r, d); err != nil {
				return nil, nil, err
			}
		}
		if _, err := d.Commit("", automerge.CommitOptions{AllowEmpty: true}); err != nil {
			return nil, nil, err
		}
	}
	for _, d := range docs[1:] {
		if _, err := first.Merge(d); err != nil {
			return nil, nil, err
		}
	}
	all, err := first.Changes()
	if err != nil {
		return nil, nil, err
	}
	for _, c := range all {
		chunks = append(chunks, c.Save())
	}
	for _, h := range first.Heads() {
		heads = append(heads, Hash(h))
	}
	slices.SortFunc(heads, Hash.Compare)
	return chunks, heads, nil
}

func init() { randomEdits = edited }

func editOnce(r randomSource, d *automerge.Doc) error {
	at := func(path ...any) *automerge.Value {
		v, err := d.Path(path...).Get()
		if err != nil {
			panic(err)
		}
		return v
	}
	key := string(rune('a' + r.IntN(4)))
	values := []any{r.IntN(1000), -r.IntN(1000), "é" + key, true, nil, 1.5, []byte{1, 2}, automerge.NewCounter(3), automerge.NewText("x"), []any{1, 2}, map[string]any{"k": 1}}
	value := values[r.IntN(len(values))]
	switch r.IntN(9) {
	case 0, 1:
		return d.Path("map", key).Set(value)
	case 2:
		return at("map").Map().Delete(key)
	case 3:
		return d.Path("map", "deep", key).Set(value)
	case 4:
		return d.Path("n").Counter().Inc(int64(r.IntN(10)) - 5)
	case 5:
		l := at("list").List()
		return l.Insert(r.IntN(l.Len()+1), value)
	case 6:
		l := at("list").List()
		if l.Len() == 0 {
			return nil
		}
		if r.IntN(2) == 0 {
			return l.Delete(r.IntN(l.Len()))
		}
		return l.Set(r.IntN(l.Len()), value)
	default:
		t := at("text").Text()
		from := r.IntN(t.Len() + 1)
		return t.Splice(from, r.IntN(min(3, t.Len()-from)+1), []string{"", "x", "hello", "😀é"}[r.IntN(4)])
	}
}
