package pgserver

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

//go:embed guard.sh
var guardScript string

// A guard is a small shell that starts a program and ends it, and removes its folder, once this process closes the
// guard's stdin or dies. A process cannot clean up after its own SIGKILL; the guard can.
type guard struct {
	cmd   *exec.Cmd
	words io.WriteCloser

	mu      sync.Mutex // held from a word to its answer
	answers *bufio.Reader
}

// newGuard prepares a guard for a program; nothing runs until the word "start". Ending sends it the named signal.
func newGuard(who account, f *folder, signal string, program ...string) (*guard, error) {
	cmd := exec.Command("/bin/sh", append([]string{"-c", guardScript, "guard", f.path, f.log(), signal}, program...)...)
	cmd.Dir = f.path
	cmd.Env = who.environ()
	cmd.SysProcAttr = who.process()
	// The guard and the program inherit the folder's lock, so that the folder counts as in use for as long as one
	// of them lives. They must not inherit stdout or stderr: go test waits until those are closed.
	cmd.ExtraFiles = []*os.File{f.lock}
	words, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	answers, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("pgserver: start /bin/sh: %w", err)
	}
	f.lock.Close()
	return &guard{cmd: cmd, words: words, answers: bufio.NewReader(answers)}, nil
}

// ask sends a word and returns the answer. When ctx ends first the guard is still busy with the word; the next ask
// waits its turn.
func (g *guard) ask(ctx context.Context, word string) (string, error) {
	type reply struct {
		line string
		err  error
	}
	done := make(chan reply, 1)
	go func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if _, err := fmt.Fprintln(g.words, word); err != nil {
			done <- reply{err: err}
			return
		}
		line, err := g.answers.ReadString('\n')
		done <- reply{strings.TrimSpace(line), err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return "", fmt.Errorf("pgserver: the guard of the server ended: %w", r.err)
		}
		return r.line, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// endPatience is far more than a guard needs, unless an orphan of a postmaster that somebody else killed computes on.
const endPatience = 30 * time.Second

// end lets the guard end the program and remove the folder, and waits for both.
func (g *guard) end() error {
	g.words.Close()
	done := make(chan error, 1)
	go func() { done <- g.cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("pgserver: the guard of the server: %w", err)
		}
		return nil
	case <-time.After(endPatience):
		return fmt.Errorf("pgserver: the server's processes do not end; process %d removes its data when they do", g.cmd.Process.Pid)
	}
}
