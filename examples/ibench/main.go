// Command ibench runs the Insert Benchmark: on plain tables, on tables that gnomon tracks and on tables that volvra covers, side by side.
//
//	go run ./examples/ibench -quick
//	go run ./examples/ibench -compare plain,plain                      # does this machine tell a difference where there is none?
//	go run ./examples/ibench -mode compatible,lean -compare plain
//	go run ./examples/ibench -pg 15,16,17,18 -compare plain            # builds from npm, which are alike
//	go run ./examples/ibench -dsn 'host=a user=u' -dsn 'host=b user=u' # anybody's servers; databases are made there and dropped
//
// It prints a report, and with -o FOLDER leaves it there as report.html, report.md and result.json. Without -dsn it starts a server, with -durable one
// that waits for the disk. go doc ./internal/ibench says what is measured.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/annals-db/annals/internal/ibench"
	"github.com/annals-db/annals/internal/pgserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "ibench:", err)
		os.Exit(1)
	}
}

// list is a flag that may be given several times.
type list []string

func (l *list) String() string { return strings.Join(*l, " ") }

func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}

func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	var dsn list
	flags := flag.NewFlagSet("ibench", flag.ContinueOnError)
	quick := flags.Bool("quick", false, "a minute a side")
	full := flags.Bool("full", false, "hours")
	short := flags.Bool("short", false, "seconds: checks that it works")
	compare := flags.String("compare", "plain,gnomon,volvra", "variants; all are compared with the first")
	mode := flags.String("mode", string(ibench.Lean), "compatible, lean or both: how statements are sent")
	clients := flags.Int("clients", 1, "clients, each with a table")
	seed := flags.Uint64("seed", 0, "of the rows; 0: any")
	versions := flags.String("pg", "", "versions of PostgreSQL to fetch and compare, such as 15,18")
	durable := flags.Bool("durable", false, "servers that are started wait for the disk at each commit")
	anyBuild := flags.Bool("any-build", false, "compare servers that were built differently")
	folder := flags.String("o", "", "folder for report.html, report.md and result.json")
	flags.Var(&dsn, "dsn", "connection string of a server, of somebody who may create databases; may be repeated")
	if err := flags.Parse(args); err != nil {
		return err
	}
	o := ibench.Options{Variants: strings.Split(*compare, ","), Clients: *clients, Seed: *seed, Size: ibench.Normal, AnyBuild: *anyBuild}
	for name, size := range map[*bool]ibench.Size{quick: ibench.Quick, full: ibench.Full, short: ibench.Short} {
		if *name {
			o.Size = size
		}
	}
	for _, m := range strings.Split(*mode, ",") {
		o.Modes = append(o.Modes, ibench.Mode(m))
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64() >> 32
	}
	for _, conn := range dsn {
		o.Servers = append(o.Servers, ibench.Server{Conn: conn})
	}
	stop, err := start(ctx, &o, *versions, *durable)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return err
	}
	o.Progress = func(p ibench.Progress) {
		fmt.Fprintf(progress, "\r\x1b[K%s %s  %.0f %%  %.0f %s  %v left", p.Step, p.Side, p.Done*100, p.Rate, p.Unit, p.Left.Round(time.Second))
	}
	result, err := ibench.Run(ctx, o)
	fmt.Fprintln(progress)
	if err != nil {
		return err
	}
	result.Command = strings.Join(append([]string{"go run ./examples/ibench"}, args...), " ")
	if err := result.WriteMarkdown(out); err != nil || *folder == "" {
		return err
	}
	return save(result, *folder)
}

// start adds servers of versions that are fetched, or one of this machine where there is none yet. What it returns stops them.
func start(ctx context.Context, o *ibench.Options, versions string, durable bool) (stop func() error, err error) {
	var servers []*pgserver.Server
	stop = func() error {
		var errs []error
		for _, s := range servers {
			errs = append(errs, s.Stop())
		}
		return errors.Join(errs...)
	}
	options := []pgserver.Options{}
	if versions != "" {
		for _, text := range strings.Split(versions, ",") {
			version, err := strconv.Atoi(text)
			if err != nil {
				return stop, fmt.Errorf("-pg %s: %q is not a version", versions, text)
			}
			options = append(options, pgserver.Options{Version: version, Fetched: true})
		}
	} else if len(o.Servers) == 0 {
		options = append(options, pgserver.Options{})
	}
	for _, p := range options {
		p.Own, p.Settings = true, ibench.Settings(durable)
		s, err := pgserver.Start(ctx, p)
		if err != nil {
			return stop, err
		}
		servers = append(servers, s)
		o.Servers = append(o.Servers, ibench.Server{Conn: s.ConnString("postgres")})
	}
	return stop, nil
}

// save writes the report in all forms.
func save(r *ibench.Result, folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, write := range map[string]func(io.Writer) error{"report.html": r.WriteHTML, "report.md": r.WriteMarkdown, "result.json": r.WriteJSON} {
		f, err := os.Create(filepath.Join(folder, name))
		if err != nil {
			return err
		}
		if err := errors.Join(write(f), f.Close()); err != nil {
			return err
		}
	}
	return nil
}
