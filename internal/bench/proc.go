package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// proc is a directory in the format of Linux's /proc. Where there is none, nothing is found in it.
type proc string

const procfs proc = "/proc"

// clockTick is the unit of CPU time in /proc/<pid>/stat: USER_HZ, which is 100 on every architecture Go runs on.
const clockTick = time.Second / 100

func (p proc) read(pid int32, name string) ([]byte, error) {
	return os.ReadFile(filepath.Join(string(p), strconv.Itoa(int(pid)), name))
}

// isBackend reports whether pid is a backend of PostgreSQL connected to database. It tells whether the server
// is on this machine: an address can't, as it may lead into a container or through a tunnel.
func (p proc) isBackend(pid int32, database string) bool {
	title, err := p.read(pid, "cmdline")
	return err == nil &&
		bytes.HasPrefix(title, []byte("postgres:")) && bytes.Contains(title, []byte(" "+database+" "))
}

// cpuTime returns the seconds of CPU, user and system, that process pid has used.
func (p proc) cpuTime(pid int32) (seconds float64, ok bool) {
	// Nanoseconds, where the kernel keeps them (it shows 0 where it doesn't).
	if content, err := p.read(pid, "schedstat"); err == nil {
		fields := strings.Fields(string(content))
		if len(fields) == 3 {
			if ns, err := strconv.ParseUint(fields[0], 10, 64); err == nil && ns > 0 {
				return float64(ns) / 1e9, true
			}
		}
	}
	content, err := p.read(pid, "stat")
	if err != nil {
		return 0, false
	}
	// The second field is the command in parentheses and may hold anything; utime and stime are the 14th and 15th.
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	if len(fields) < 13 {
		return 0, false
	}
	user, err1 := strconv.ParseUint(fields[11], 10, 64)
	system, err2 := strconv.ParseUint(fields[12], 10, 64)
	if err1 != nil || err2 != nil {
		return 0, false
	}
	return float64(user+system) * clockTick.Seconds(), true
}
