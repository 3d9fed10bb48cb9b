//go:build !cgo

package main

import (
	"context"
	"io"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/automerge"
)

// run needs editors, which are Automerge's own code.
func run(context.Context, io.Writer, *pgxpool.Pool) error { return automerge.ErrNoEngine }
