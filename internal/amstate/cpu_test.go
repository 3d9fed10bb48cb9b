//go:build unix

package amstate

import (
	"syscall"
	"testing"
	"time"
)

// cpuTime is what the process has used, which other processes don't change.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	ok(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
