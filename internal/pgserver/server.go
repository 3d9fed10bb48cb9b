package pgserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Options chooses a server. The zero value is right for tests and examples.
type Options struct {
	// Version is the major version wanted, 15 to 18. 0 means the one in ANNALS_PG if that is set, else whatever is
	// found first.
	Version int

	// Settings are server settings in addition to, or instead of, those that [Start] documents.
	Settings map[string]string

	// Own asks for a server of one's own even when DATABASE_URL or PGHOST names one. A Version or Settings ask for
	// that too, since somebody else's server has what it has.
	Own bool
}

// Server is a running PostgreSQL. Its methods may be called from several goroutines at once.
type Server struct {
	version  int
	external *external // somebody else's server; then the fields below are unused
	own      *own

	mu      sync.Mutex
	created map[string]bool // databases that CreateDatabase made
}

// own is what only a server of ours has.
type own struct {
	cache    cache
	binaries binaries
	settings map[string]string
	folder   *folder
	guard    *guard
	primary  *Server // of a standby
	slot     string  // a standby's replication slot on its primary

	mu    sync.Mutex // one start, stop or kill at a time
	pid   int        // of the postmaster; 0 when it doesn't run
	ended bool       // by Stop
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
	"fsync": "off",

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
// superuser is postgres; fsync=off, max_connections=200, max_prepared_transactions=10, timezone=UTC,
// dynamic_shared_memory_type=mmap and temp_file_limit=2GB are set, and it has no network address. The context bounds
// the start, not the server's life.
func Start(ctx context.Context, o Options) (*Server, error) {
	version := o.Version
	if text := os.Getenv("ANNALS_PG"); version == 0 && text != "" {
		var err error
		if version, err = strconv.Atoi(text); err != nil {
			return nil, fmt.Errorf("pgserver: ANNALS_PG=%s is not a major version such as %d", text, newestFetched)
		}
	}
	if !o.Own && o.Version == 0 && len(o.Settings) == 0 {
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
	b, err := findBinaries(ctx, c, version)
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

func (o *own) start(ctx context.Context) error {
	// Nothing of an earlier run is alive, as the guard has told; a file that says otherwise is out of date.
	pidFile := filepath.Join(o.folder.data(), "postmaster.pid")
	if err := os.Remove(pidFile); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	answer, err := o.guard.ask(ctx, "start")
	if err != nil {
		return err
	}
	if o.pid, err = strconv.Atoi(answer); err != nil {
		return fmt.Errorf("pgserver: the guard answered %q to start", answer)
	}
	patient, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for !acceptsConnections(pidFile) {
		status, err := o.guard.ask(patient, "status")
		if err == nil {
			err = pause(patient)
		}
		if err == nil && status == "ended" {
			o.pid = 0
			err = errors.New("it ended at once")
		}
		if err != nil {
			return fmt.Errorf("pgserver: start PostgreSQL: %w; %s", err, o.folder.logEnd())
		}
	}
	return nil
}

// startPatience is enough to recover from a crash with much to replay.
const startPatience = 2 * time.Minute

// acceptsConnections reads the line of postmaster.pid in which the postmaster tells how far it is.
func acceptsConnections(pidFile string) bool {
	const statusLine = 8
	content, err := os.ReadFile(pidFile)
	if err != nil {
		return false
	}
	lines := strings.Split(string(content), "\n")
	if len(lines) < statusLine {
		return false
	}
	status := strings.TrimSpace(lines[statusLine-1])
	return status == "ready" || status == "standby"
}

// pause waits a moment before something is looked at again.
func pause(ctx context.Context) error {
	select {
	case <-time.After(5 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (o *own) stop() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return nil
	}
	o.ended = true
	return errors.Join(o.shutdown(context.Background()), o.leave(), o.guard.end())
}

// A fast shutdown waits for standbys that have not received everything. One that is stuck is not waited for.
const shutdownPatience = 10 * time.Second

// shutdown ends the postmaster in good order, and the hard way if it takes too long.
func (o *own) shutdown(ctx context.Context) error {
	if o.pid == 0 {
		return nil
	}
	if err := syscall.Kill(o.pid, syscall.SIGINT); err != nil && err != syscall.ESRCH {
		return err
	}
	err := o.awaitEnd(ctx)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		syscall.Kill(o.pid, syscall.SIGQUIT)
		err = o.awaitEnd(ctx)
	}
	return err
}

func (o *own) awaitEnd(ctx context.Context) error {
	patient, cancel := context.WithTimeout(ctx, shutdownPatience)
	defer cancel()
	if _, err := o.guard.ask(patient, "wait"); err != nil {
		return fmt.Errorf("pgserver: stop PostgreSQL: %w", err)
	}
	o.pid = 0
	return nil
}

func (o *own) kill(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return ErrStopped
	}
	if o.pid == 0 {
		return nil
	}
	// A stopped postmaster starts no more children. They would notice its death only when idle, and could commit
	// after it.
	if err := syscall.Kill(o.pid, syscall.SIGSTOP); err != nil {
		return fmt.Errorf("pgserver: kill PostgreSQL: %w", err)
	}
	children, listed := childrenOf(o.pid)
	for _, pid := range append(children, o.pid) {
		syscall.Kill(pid, syscall.SIGKILL) // or it has ended by itself
	}
	if _, err := o.guard.ask(ctx, "wait"); err != nil {
		return errors.Join(listed, err)
	}
	o.pid = 0
	return listed
}

func (o *own) restart(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended {
		return ErrStopped
	}
	if err := o.shutdown(ctx); err != nil {
		return err
	}
	return o.start(ctx)
}
