package amformat

import (
	"os"
	"path/filepath"
	"testing"
)

// fixture reads a file of the folder of data that ANNALS_TESTDATA names.
func fixture(t testing.TB, name string) []byte {
	t.Helper()
	dir := os.Getenv("ANNALS_TESTDATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "data")
	}
	data, err := os.ReadFile(filepath.Join(dir, "automerge", name))
	if os.IsNotExist(err) {
		t.Skip("no test data: set ANNALS_TESTDATA")
	}
	if err != nil {
		t.Fatal(err)
	}
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
