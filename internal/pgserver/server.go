package pgserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
)

// Options chooses a server. The zero value is right for tests and examples.
type Options struct {
	// Version is the major version wanted, 15 to 18. 0 means the one in ANNALS_PG if that is set, else whatever is
	// found first.
	Version int

	// Fetched asks for the build that npm has, also where this machine has programs of the version. Those builds are alike, so that
	// versions can be compared. It asks for a server of one's own, too.
	Fetched bool

	// Settings are server settings in addition to, or instead of, those that [Start] documents.
	Settings map[string]string

	// Own asks for a server of one's own even when DATABASE_URL or PGHOST names one. A Version or Settings ask for
	// that too, since somebody else's server has what it has.
	Own bool
}

// Server is a running PostgreSQL. Its methods may be called from several goroutines at once.
type Server struct {
	version  int
	external *external // somebody else's server; nil for one of ours
	own      *own      // what only a server of ours has; nil for another

	mu      sync.Mutex
	created map[string]bool // databases that CreateDatabase made
}

var (
	// ErrNotOwned is returned by what would start, stop or read the files of a server that is not ours.
	ErrNotOwned = errors.New("pgserver: not possible with the server of DATABASE_URL or PGHOST: it was not started here")

	// ErrStopped is returned for a server after Stop, which removes its data.
	ErrStopped = errors.New("pgserver: the server was stopped and its data removed: start another")
)

// settings are those of our servers, and differ from PostgreSQL's defaults only where it matters here.
var settings = map[string]string{
	"listen_addresses": "", // a socket in a private folder is enough

	// The data has to outlive PostgreSQL's processes, not the machine.
	"fsync":            "off",
	"full_page_writes": "off",

	// To compile the short queries of tests takes longer than to execute them.
	"jit": "off",

	// A file in the data folder goes with the folder, even after SIGKILL, and containers have little /dev/shm.
	"dynamic_shared_memory_type": "mmap",

	// A query that has gone wild fails instead of filling the disk, or the memory that the data may be in.
	"temp_file_limit": "2GB",

	"max_connections":           "200",
	"max_prepared_transactions": "10",
	"log_timezone":              "UTC",
	"timezone":                  "UTC",
}

// Start returns a server: that of DATABASE_URL, PGHOST or PGSERVICE if one of them is set; otherwise it starts one of
// its own, with PostgreSQL programs found on this machine or fetched through npm. The error wraps [ErrUnavailable]
// if there are none. The server of one's own lives until Stop or until this process ends in whatever way. Its
// superuser is postgres; fsync=off, full_page_writes=off, jit=off, max_connections=200, max_prepared_transactions=10, timezone=UTC,
// dynamic_shared_memory_type=mmap and temp_file_limit=2GB are set, and it has no network address. The context bounds
// the start, not the server's life.
func Start(ctx context.Context, o Options) (*Server, error) {
	s, err := start(ctx, o)
	if err != nil && ctx.Err() != nil {
		// A program that was killed for the context says nothing about this machine.
		return nil, fmt.Errorf("pgserver: %w: %v", ctx.Err(), err)
	}
	return s, err
}

func start(ctx context.Context, o Options) (*Server, error) {
	version := o.Version
	if text := os.Getenv("ANNALS_PG"); version == 0 && text != "" {
		var err error
		if version, err = strconv.Atoi(text); err != nil {
			return nil, fmt.Errorf("pgserver: ANNALS_PG=%s is not a major version such as %d", text, newestFetched)
		}
	}
	if !o.Own && !o.Fetched && o.Version == 0 && len(o.Settings) == 0 {
		if e := externalFromEnvironment(); e != nil {
			return e.server(ctx, version)
		}
	}
	if version != 0 && version < OldestVersion {
		return nil, fmt.Errorf("pgserver: PostgreSQL %d is too old: %d is the oldest that works", version, OldestVersion)
	}
	c, err := openCache()
	if err != nil {
		return nil, err
	}
	var local []string
	if !o.Fetched {
		local = localFolders()
	}
	b, err := findBinaries(ctx, c, version, local)
	if err != nil {
		return nil, err
	}
	data, err := template(ctx, c, b)
	if err != nil {
		return nil, err
	}
	all := maps.Clone(settings)
	maps.Copy(all, o.Settings)
	runs := c
	if all["fsync"] == "off" {
		if runs, err = c.inMemory(); err != nil {
			return nil, err
		}
	}
	f, err := runs.newFolder()
	if err != nil {
		return nil, err
	}
	if err := copyTree(c.who, data, f.data(), nil); err != nil {
		f.discard()
		return nil, err
	}
	return launch(ctx, &own{cache: runs, binaries: b, settings: all, folder: f})
}

// launch starts a server on the data folder that is in place.
func launch(ctx context.Context, o *own) (*Server, error) {
	command := []string{o.binaries.program("postgres"), "-D", o.folder.data(), "-k", o.folder.path, "-p", strconv.Itoa(port)}
	for _, name := range slices.Sorted(maps.Keys(o.settings)) {
		command = append(command, "-c", name+"="+o.settings[name])
	}
	g, err := newGuard(o.cache.who, o.folder, "QUIT", command...)
	if err != nil {
		o.folder.discard()
		return nil, err
	}
	o.guard = g
	s := &Server{version: o.binaries.major, own: o, created: map[string]bool{}}
	if err := o.start(ctx); err != nil {
		return nil, errors.Join(err, g.end())
	}
	return s, nil
}

// port is part of a socket's name. Each server has a folder of its own for it, so the number can be the same.
const port = 5432

// ConnString returns a connection string of the database, for the superuser or for the user of DATABASE_URL. It is
// in keyword/value form, so that more can be appended: s.ConnString(db) + " user=somebody application_name=test".
func (s *Server) ConnString(database string) string {
	if s.external != nil {
		return s.external.connString(database)
	}
	return fmt.Sprintf("host=%s port=%d user=%s sslmode=disable dbname=%s",
		quote(s.own.folder.path), port, superuser, quote(database))
}

// Version returns the major version.
func (s *Server) Version() int { return s.version }

// Owned tells whether the server was started here. Kill, Restart, Standby and Promote return [ErrNotOwned] if not.
func (s *Server) Owned() bool { return s.own != nil }

// Pid returns the process id of the postmaster, 0 if it doesn't run or isn't ours.
func (s *Server) Pid() int {
	if s.own == nil {
		return 0
	}
	s.own.mu.Lock()
	defer s.own.mu.Unlock()
	return s.own.pid
}

// DataDir returns the data folder, "" if the server isn't ours.
func (s *Server) DataDir() string {
	if s.own == nil {
		return ""
	}
	return s.own.folder.data()
}

// LogFile returns the file with the server's log, "" if the server isn't ours.
func (s *Server) LogFile() string {
	if s.own == nil {
		return ""
	}
	return s.own.folder.log()
}

// Stop shuts the server down, breaking its connections, and removes its data. A server that isn't ours goes on
// without the databases that CreateDatabase made. Stopping twice is harmless.
func (s *Server) Stop() error {
	if s.own == nil {
		return s.dropAll(context.Background())
	}
	return s.own.stop()
}

// Kill sends SIGKILL to the postmaster and all its processes, as close to a power cut as a test can come, and waits
// until all of them are gone. [Server.Restart] brings the server back.
func (s *Server) Kill(ctx context.Context) error {
	if s.own == nil {
		return ErrNotOwned
	}
	return s.own.kill(ctx)
}

// Restart starts the server again after Kill, which makes it recover, with the same data, settings and connection
// string. A running server is shut down in good order first.
func (s *Server) Restart(ctx context.Context) error {
	if s.own == nil {
		return ErrNotOwned
	}
	return s.own.restart(ctx)
}
