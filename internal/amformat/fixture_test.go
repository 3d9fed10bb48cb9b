package amformat

import (
	"os"
	"path/filepath"
	"testing"
)

// fixture reads a file of the folder of data that ANNALS_TESTDATA names.
func fixture(t testing.TB, name string) []byte {
	t.Helper()
	data, there := maybeFixture(t, name)
	if !there {
		t.Skip("no test data: set ANNALS_TESTDATA")
	}
	return data
}

func maybeFixture(t testing.TB, name string) (data []byte, there bool) {
	t.Helper()
	dir := os.Getenv("ANNALS_TESTDATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	data, err := os.ReadFile(filepath.Join(dir, "automerge", name))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return data, err == nil
}

func ok(t testing.TB, err error) {
	if err != nil {
		t.Helper()
		t.Fatal(err)
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		if t != nil {
			t.Helper()
		}
		ok(t, err)
		return v
	}
}

// The fixtures that are one document chunk.
var documents = []string{"author", "items20k", "items2k", "ks_blocks", "ks_conf", "ks_marks", "text3mb", "typed5k"}

// tailBytes are the changes that follow a document of the fixtures.
func tailBytes(t testing.TB, name string) (chunks [][]byte) {
	t.Helper()
	switch name {
	case "items20k", "text3mb", "typed5k":
		return [][]byte{fixture(t, name+".c1"), fixture(t, name+".c2")}
	}
	return nil
}

func tailOf(t testing.TB, name string) (changes []*Change) {
	t.Helper()
	for _, c := range tailBytes(t, name) {
		changes = append(changes, must(ParseChange(c, Limits{}))(t))
	}
	return changes
}
