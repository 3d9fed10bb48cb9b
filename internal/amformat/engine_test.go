package amformat

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

const engineVariable = "ANNALS_AMFORMAT_ENGINE"

// engine is another implementation in a process of its own.
type engine struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
	err *bytes.Buffer
}

// state is what an engine has after loading.
type state struct {
	heads string // hexadecimal, separated by spaces, in order
	json  string
	err   string // what the engine complained of
	died  bool   // whether that ended its process
}

// goEngine starts automerge-go.
func goEngine(t testing.TB) *engine {
	t.Helper()
	if runEngine == nil {
		t.Skip("automerge-go needs cgo")
	}
	e := &engine{t: t}
	e.start()
	t.Cleanup(e.stop)
	return e
}

func (e *engine) start() {
	e.cmd = exec.Command(os.Args[0], "-test.run=^$")
	e.cmd.Env = append(os.Environ(), engineVariable+"=1")
	e.err = &bytes.Buffer{}
	e.cmd.Stderr = e.err
	e.in = must(e.cmd.StdinPipe())(e.t)
	e.out = bufio.NewReader(must(e.cmd.StdoutPipe())(e.t))
	ok(e.t, e.cmd.Start())
}

func (e *engine) stop() {
	_ = e.in.Close()
	done := make(chan struct{})
	go func() { _ = e.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		_ = e.cmd.Process.Kill()
		<-done
	}
}

// load loads a save, then more chunks. A process that died is replaced.
func (e *engine) load(chunks ...[]byte) state {
	e.t.Helper()
	w := bufio.NewWriter(e.in)
	_ = binary.Write(w, binary.LittleEndian, uint32(len(chunks)))
	for _, c := range chunks {
		_ = binary.Write(w, binary.LittleEndian, uint32(len(c)))
		_, _ = w.Write(c)
	}
	err := w.Flush()
	var s state
	for _, to := range []*string{&s.heads, &s.json, &s.err} {
		var n uint32
		if err == nil {
			err = binary.Read(e.out, binary.LittleEndian, &n)
		}
		if err == nil {
			b := make([]byte, n)
			_, err = io.ReadFull(e.out, b)
			*to = string(b)
		}
	}
	if err != nil {
		e.stop()
		s.died, s.err = true, e.err.String()
		e.start()
	}
	return s
}

func headsText(hs []Hash) string {
	var all []string
	for _, h := range hs {
		all = append(all, h.String())
	}
	return strings.Join(all, " ")
}
