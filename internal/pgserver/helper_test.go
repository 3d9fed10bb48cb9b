package pgserver

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// helperVariable makes the test binary a program that starts a server, says where it is, and stays.
const helperVariable = "ANNALS_PGSERVER_HELPER"

func helper() {
	s, err := Start(context.Background(), Options{Own: true})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	if err := s.admin(context.Background(), "SELECT 1"); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println(s.Pid(), s.own.folder.path)
	time.Sleep(time.Hour)
}

// startHelper returns the helper's process and the pid and folder of the server that it started.
func startHelper(t *testing.T, cmd *exec.Cmd) (pid int, folder string) {
	t.Helper()
	cmd.Env = append(cmd.Environ(), helperVariable+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(line, &pid, &folder); err != nil {
		t.Fatalf("the helper said: %s", line)
	}
	return pid, folder
}

// alive tells whether the process exists and is no zombie, which a container without an init process would keep.
func alive(pid int) bool {
	if err := syscall.Kill(pid, 0); err == syscall.ESRCH {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

func TestServerEndsWithItsProcess(t *testing.T) {
	New(t, Options{}) // skips without PostgreSQL
	for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			cmd := exec.Command(os.Args[0])
			pid, folder := startHelper(t, cmd)
			if !alive(pid) || !exists(folder) {
				t.Fatalf("process %d or folder %s is not there", pid, folder)
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the folder is removed", func() bool { return !exists(folder) })
			if alive(pid) {
				t.Errorf("postmaster %d outlived its folder", pid)
			}
		})
	}
}

// Root's tests run PostgreSQL as another user; this one is that user from the start.
func TestOrdinaryUserCanStart(t *testing.T) {
	s := New(t, Options{})
	who := s.own.cache.who
	if !who.lent {
		t.Skip("every test here already runs as an ordinary user")
	}
	// Root and the user share a cache. The program needs a place that the user can reach: go test's own and t.TempDir
	// are root's.
	c, err := openCache()
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.newFolder()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.discard)
	program := filepath.Join(f.path, "pgserver.test")
	if err := copyFile(os.Args[0], program); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(program, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := who.own(program); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Dir = f.path
	cmd.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(c.path))
	cmd.SysProcAttr = who.process()
	pid, folder := startHelper(t, cmd)
	if filepath.Dir(folder) != c.path || !alive(pid) {
		t.Errorf("server %d is in %s, not in %s", pid, folder, c.path)
	}
	cmd.Process.Kill()
	eventually(t, "the folder is removed", func() bool { return !exists(folder) })
}
