//go:build unix

package amformat

import (
	"syscall"
	"time"
)

// cpu is the CPU time that the process has used: unlike the clock it is the same on a machine that is busy.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
