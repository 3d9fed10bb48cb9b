package pgserver

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// childrenOf lists the processes that the process started itself.
func childrenOf(pid int) ([]int, error) {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		return childrenByPs(pid)
	}
	var children []int
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // gone meanwhile
		}
		// 12 (a name (with anything)) S 11 ...
		var child, parent int
		var state string
		fmt.Sscan(string(stat), &child)
		fmt.Sscan(string(stat[bytes.LastIndexByte(stat, ')')+1:]), &state, &parent)
		if parent == pid {
			children = append(children, child)
		}
	}
	return children, nil
}

// childrenByPs is for systems without /proc.
func childrenByPs(pid int) ([]int, error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("pgserver: list processes: %w", err)
	}
	var children []int
	for line := range strings.Lines(string(out)) {
		var child, parent int
		fmt.Sscan(line, &child, &parent)
		if parent == pid {
			children = append(children, child)
		}
	}
	return children, nil
}
