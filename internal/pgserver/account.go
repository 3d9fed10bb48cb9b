package pgserver

import (
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// An account is the operating system user that PostgreSQL runs as. PostgreSQL refuses to run as root, so root
// lends it the uid of another user.
type account struct {
	uid, gid int
	lent     bool // this process is root
}

// currentAccount returns this process's own account, or for root that of the user postgres, else nobody. Either
// has a passwd entry, which initdb asks for.
func currentAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err1 == nil && err2 == nil && uid != 0 {
			return account{uid: uid, gid: gid, lent: true}, nil
		}
	}
	return account{}, fmt.Errorf("pgserver: PostgreSQL refuses to run as root, and there is no user postgres or nobody")
}

// process makes a command run as the account, in a session of its own so that Ctrl-C at a terminal reaches only
// the Go process.
func (a account) process() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if a.lent {
		attr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return attr
}

// environ is all the environment that PostgreSQL's programs get: PGDATA, PGPORT, LANG and the like would change
// what they do.
func (a account) environ() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
}

// own gives a file or a whole folder to the account.
func (a account) own(path string) error {
	if !a.lent {
		return nil
	}
	return filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return a.ownOne(path)
	})
}

func (a account) ownOne(path string) error {
	if !a.lent {
		return nil
	}
	return os.Lchown(path, a.uid, a.gid)
}
