//go:build !cgo

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"
)

// automergeStory needs cgo, because it edits documents. All else of the package is pure Go.
func automergeStory(_ context.Context, out io.Writer, _ *pgxpool.Pool) error {
	fmt.Fprintln(out, "automerge: this program was built without cgo, which editing documents takes")
	return nil
}
