package ibench

import (
	"syscall"
	"time"
)

// processCPU returns the seconds of CPU, user and system, that this process has used.
func processCPU() float64 {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}
