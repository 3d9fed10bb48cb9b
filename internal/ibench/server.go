package ibench

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Server is where sides are. Databases are made there, and dropped after the run.
type Server struct {
	Name string // how the report calls it, by default the version
	Conn string // of somebody who may create databases
}

// Facts of a server, without which figures mean nothing.
type Facts struct {
	Server    string   `json:"server"`
	Version   string   `json:"version"`
	Number    int      `json:"number"`    // such as 150018
	Build     []string `json:"build"`     // CFLAGS and CONFIGURE; empty where the role may not know
	Checksums bool     `json:"checksums"` // of data pages
	Settings  []string `json:"settings"`  // those that are not PostgreSQL's defaults
}

//go:embed sql/facts.sql
var factsSQL string

// facts reads them.
func (s *Server) facts(ctx context.Context) (f Facts, err error) {
	conn, err := pgx.Connect(ctx, s.Conn)
	if err != nil {
		return f, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := conn.QueryRow(ctx, factsSQL).Scan(&f.Version, &f.Number, &f.Checksums, &f.Settings); err != nil {
		return f, err
	}
	// For superusers, unless somebody else was granted it.
	rows, err := conn.Query(ctx, "select name || ' = ' || setting from pg_catalog.pg_config() where name in ('CONFIGURE', 'CFLAGS') order by name")
	if err == nil {
		if f.Build, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
			f.Build = nil
		}
	}
	if s.Name == "" {
		s.Name = fmt.Sprintf("PostgreSQL %d", f.Number/10000)
	}
	f.Server = s.Name
	return f, nil
}

// ErrBuilds is returned where servers that were built differently are to be compared.
var ErrBuilds = errors.New("ibench: the servers were not built alike, so what differs may be the compiler's work")

var (
	optimisation = regexp.MustCompile(`-O\w*`)
	assertions   = regexp.MustCompile(`--enable-cassert`)
)

// built tells how a server was optimised, as far as that is known.
func (f Facts) built() string {
	if len(f.Build) == 0 {
		return "unknown"
	}
	text := strings.Join(f.Build, " ")
	levels := optimisation.FindAllString(text, -1)
	level := "-O0"
	if len(levels) > 0 {
		level = levels[len(levels)-1] // the last one counts
	}
	return strings.TrimSpace(level + " " + assertions.FindString(text))
}

// alike returns [ErrBuilds] unless all servers were optimised the same way.
func alike(all []Facts) error {
	for _, f := range all[1:] {
		if f.built() != all[0].built() {
			return fmt.Errorf("%w: %s %s, %s %s", ErrBuilds, all[0].Server, all[0].built(), f.Server, f.built())
		}
	}
	return nil
}

// createDatabase makes a database and returns the configuration to connect to it, and what drops it.
func (s *Server) createDatabase(ctx context.Context) (*pgx.ConnConfig, func() error, error) {
	config, err := pgx.ParseConfig(s.Conn)
	if err != nil {
		return nil, nil, err
	}
	name := "ibench_" + strings.ToLower(rand.Text()[:12])
	if err := s.execute(ctx, "create database "+name+" template template0"); err != nil {
		return nil, nil, err
	}
	config.Database = name
	return config, func() error {
		return s.execute(context.WithoutCancel(ctx), "drop database "+name+" with (force)")
	}, nil
}

func (s *Server) execute(ctx context.Context, sql string) error {
	conn, err := pgx.Connect(ctx, s.Conn)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql)
	return err
}

// Settings of servers that are started for the benchmark. Vacuum and checkpoints come as they do in production, and pages are logged in full; without
// durable nothing waits for a disk.
func Settings(durable bool) map[string]string {
	flush := "off"
	if durable {
		flush = "on"
	}
	return map[string]string{
		"fsync":              flush,
		"synchronous_commit": flush,
		"full_page_writes":   "on",
		"shared_buffers":     "256MB",
		"max_wal_size":       "4GB",
		"jit":                "off",
		// Workers come and go, so their CPU could not be counted.
		"max_parallel_workers_per_gather":  "0",
		"max_parallel_maintenance_workers": "0",
	}
}
