package amstate

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/annals-db/annals/internal/amformat"
)

// FuzzRead reads whatever amformat accepts, which has to end without a panic: documents, and changes without the documents that they were made on.
func FuzzRead(f *testing.F) {
	files, _ := filepath.Glob(filepath.Join(os.Getenv("ANNALS_TESTDATA"), "automerge", "*"))
	for _, name := range files {
		if data, err := os.ReadFile(name); err == nil && len(data) < 20_000 {
			f.Add(data)
		}
	}
	limits := amformat.Limits{Bytes: 1 << 20, Ops: 100_000}
	f.Fuzz(func(t *testing.T, data []byte) {
		chunks, err := amformat.SplitChunks(data)
		if err != nil {
			return
		}
		var changes []*amformat.Change
		for _, c := range chunks {
			if c.Kind != amformat.KindDocument {
				if change, err := amformat.ParseChange(c.Bytes, limits); err == nil {
					changes = append(changes, change)
				}
				continue
			}
			doc, err := amformat.ParseDocument(c.Bytes, limits)
			if err != nil {
				continue
			}
			s, err := Read(t.Context(), doc.Rows(), Options{Conflicts: true})
			if err == nil {
				ok(t, s.WriteJSON(io.Discard))
				s.AllConflicts()
			}
			if _, err := Diff(t.Context(), doc.Rows(), Clock{}, nil); err != nil {
				wrong(t, err)
			}
		}
		if len(changes) > 0 {
			if err := everything(t, changes, Clock{}); err != nil {
				wrong(t, err)
			}
		}
	})
}

func wrong(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, amformat.ErrMalformed) && !errors.Is(err, amformat.ErrLimit) {
		t.Errorf("an error of another kind: %v", err)
	}
}
