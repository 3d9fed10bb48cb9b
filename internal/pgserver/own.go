package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// own is a server of ours: where it is, how it is started, stopped and killed.
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
	for !o.acceptsConnections() {
		status, err := o.guard.ask(patient, "status")
		if err == nil {
			err = pause(patient)
		}
		if err == nil && status == "ended" {
			o.pid = 0
			err = errors.New("it ended")
		}
		if err != nil {
			return fmt.Errorf("pgserver: start PostgreSQL: %w; %s", err, o.folder.logEnd())
		}
	}
	return nil
}

// startPatience is enough to recover from a crash with much to replay.
const startPatience = 2 * time.Minute

// Lines of postmaster.pid, counted from 0.
const (
	sharedMemoryLine = 6 // key and id of the shared memory that guards the data folder
	statusLine       = 7
)

func (o *own) pidFileLine(line int) string {
	content, err := os.ReadFile(filepath.Join(o.folder.data(), "postmaster.pid"))
	if err != nil {
		return ""
	}
	lines := strings.Split(string(content), "\n")
	if len(lines) <= line {
		return ""
	}
	return strings.TrimSpace(lines[line])
}

func (o *own) acceptsConnections() bool {
	status := o.pidFileLine(statusLine)
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
	// The next start would remove it, but there may be none, and a machine has room for 4096.
	if segment := strings.Fields(o.pidFileLine(sharedMemoryLine)); len(segment) == 2 {
		exec.CommandContext(ctx, "ipcrm", "-m", segment[1]).Run() // without ipcrm it stays
	}
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
