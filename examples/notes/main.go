// Command notes keeps a note that two people edit, online and offline, on copies of their own: what they do is merged in the database, where the
// note can be queried, followed while it changes, and read as it was.
//
//	go run ./examples/notes
//
// tells that as a story. To take part in it,
//
//	go run ./examples/notes -serve
//
// serves a page in which a browser edits the note with Automerge's library for JavaScript; open it in two windows, and cut one of them off for a while.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-db/annals/internal/pgserver"
)

func main() {
	var (
		serving = flag.Bool("serve", false, "serve the note to browsers")
		address = flag.String("address", "localhost:8080", "where to listen")
		library = flag.String("automerge", "", "folder of the npm package @automerge/automerge to serve, instead of loading it from esm.sh")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := pgserver.WithPool(ctx, func(pool *pgxpool.Pool) error {
		if !*serving {
			return run(ctx, os.Stdout, pool)
		}
		return listen(ctx, pool, *address, *library)
	})
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "notes:", err)
		os.Exit(1)
	}
}

func listen(ctx context.Context, pool *pgxpool.Pool, address, library string) error {
	s, err := newServer(ctx, pool, library)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	fmt.Printf("The note is at http://%s/\n", listener.Addr())
	server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 2)
	go func() { failed <- server.Serve(listener) }()
	go func() { failed <- s.follow(ctx) }()
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	return errOr(err, server.Close())
}

func errOr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
