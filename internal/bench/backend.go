package bench

import (
	"bytes"
	"strconv"
)

// Usage is what a backend has used since it was started.
type Usage struct {
	CPU      float64 // seconds, user and system
	Switches int64   // context switches, voluntary or not
}

// BackendUsage reads what the backend pid, connected to database, has used. It is not ok when the server isn't on this machine, or where there is no /proc.
func BackendUsage(pid int32, database string) (u Usage, ok bool) {
	if !procfs.isBackend(pid, database) {
		return u, false
	}
	if u.CPU, ok = procfs.cpuTime(pid); !ok {
		return u, false
	}
	u.Switches, ok = procfs.switches(pid)
	return u, ok
}

// switches returns how often the scheduler took the CPU from process pid or was given it.
func (p proc) switches(pid int32) (n int64, ok bool) {
	content, err := p.read(pid, "status")
	if err != nil {
		return 0, false
	}
	found := 0
	for line := range bytes.Lines(content) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch string(name) {
		case "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches":
			k, err := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
			if err != nil {
				return 0, false
			}
			n += k
			found++
		}
	}
	return n, found == 2
}
