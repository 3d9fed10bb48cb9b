package amstate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/annals-db/annals/internal/amformat"
)

// testdata reads a file of the folder of data that ANNALS_TESTDATA names.
func testdata(t testing.TB, name ...string) []byte {
	t.Helper()
	dir := os.Getenv("ANNALS_TESTDATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	data, err := os.ReadFile(filepath.Join(append([]string{dir}, name...)...))
	if os.IsNotExist(err) {
		t.Skip("no test data: set ANNALS_TESTDATA")
	}
	ok(t, err)
	return data
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		ok(t, err)
		return v
	}
}

func document(t testing.TB, save []byte) *amformat.Document {
	t.Helper()
	return must(amformat.ParseDocument(save, amformat.Limits{}))(t)
}

func stateOf(t testing.TB, changes []*amformat.Change, o Options) *State {
	t.Helper()
	rows := must(amformat.Merge(nil, changes))(t)
	return must(Read(t.Context(), rows, o))(t)
}

func nodes(changes []*amformat.Change) iter.Seq[Node] {
	return func(yield func(Node) bool) {
		for _, c := range changes {
			if !yield(Node{Hash: c.Hash, Deps: c.Deps, Actor: c.Actor, MaxOp: c.MaxOp()}) {
				return
			}
		}
	}
}

// jsonValue reads JSON without losing digits.
func jsonValue(t testing.TB, data []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %.300s", err, data)
	}
	if d.More() {
		t.Fatalf("more than one value in %.300s", data)
	}
	return v
}

// mapped turns what JavaScript sees into what the documented mapping makes of it.
func mapped(v any) any {
	switch v := v.(type) {
	case string:
		return strings.ReplaceAll(v, "\x00", "\ufffd")
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = mapped(v[i])
		}
		return out
	case map[string]any:
		if len(v) == 1 {
			if s, is := v["$bigint"].(string); is {
				return json.Number(s)
			}
			if s, is := v["$bytes"].(string); is {
				return s
			}
			if _, is := v["$float"]; is {
				return nil
			}
		}
		out := map[string]any{}
		for k, x := range v {
			out[strings.ReplaceAll(k, "\x00", "\ufffd")] = mapped(x)
		}
		return out
	}
	return v
}

func equal(t testing.TB, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s:\n got %s\nwant %s", what, short(got), short(want))
	}
}

func short(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	if len(b) > 3000 {
		b = append(b[:3000], "..."...)
	}
	return string(b)
}
