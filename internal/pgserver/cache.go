package pgserver

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// A cache is a private folder of the account:
//
//	pg-18.4.0-beta.17-linux-x64/  fetched binaries
//	template-<key>/               a stopped data folder fresh from initdb, copied for each server
//	setup-<random>/               either of those in the making, renamed when complete
//	run-<random>/                 one running server or pooler: data, sockets, log
//
// Several test processes use it at once. Whoever makes binaries or a template holds setup.lock. A run folder
// belongs to whoever holds its lock file, which ends with its last process however that ends.
type cache struct {
	who  account
	path string
}

// memory is where Linux keeps files in memory. Creating a database there takes a fraction of the time, since that is
// mostly creating files, and a server without fsync promises nothing to a disk.
const memory = "/dev/shm"

// enoughMemory is what has to be free in both senses for memory to be used: in /dev/shm, which in containers is often
// limited to 64 MB, and of the machine's memory, which the limit of /dev/shm may exceed.
const enoughMemory = 4 << 30

// openCache opens the cache below the system's temporary folder.
func openCache() (cache, error) {
	who, err := currentAccount()
	if err != nil {
		return cache{}, err
	}
	base := os.TempDir()
	if len(base) > longestBase || who.lent && !passable(base) {
		base = "/tmp"
	}
	return cacheIn(who, base)
}

// inMemory returns a cache for run folders in memory, or the cache itself where memory is short or TMPDIR says where
// to put things.
func (c cache) inMemory() (cache, error) {
	if os.Getenv("TMPDIR") != "" || min(freeIn(memory), freeMemory()) < enoughMemory || !passable(memory) {
		return c, nil
	}
	return cacheIn(c.who, memory)
}

// freeIn returns how many bytes the file system of the folder has room for, 0 if there is none.
func freeIn(folder string) uint64 {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(folder, &fs); err != nil {
		return 0
	}
	return uint64(fs.Bavail) * uint64(fs.Bsize)
}

// freeMemory returns how many bytes Linux could give to new programs, 0 on other systems.
func freeMemory() uint64 {
	content, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(content), "MemAvailable:")
	var kilobytes uint64
	fmt.Sscan(rest, &kilobytes) // 0 if it isn't there
	return kilobytes << 10
}

// A socket's whole path has to fit 104 bytes on macOS and 108 on Linux; what follows the base takes up to 44.
const longestBase = 56

func cacheIn(who account, base string) (cache, error) {
	path := filepath.Join(base, fmt.Sprintf("annals-pg-%d", who.uid))
	if err := os.Mkdir(path, 0o700); err == nil {
		if err := who.own(path); err != nil {
			return cache{}, err
		}
	} else if !errors.Is(err, fs.ErrExist) {
		return cache{}, err
	}
	// The name can be guessed and the base is everyone's: don't run what somebody else put there.
	info, err := os.Lstat(path)
	if err != nil {
		return cache{}, err
	}
	owner := int(info.Sys().(*syscall.Stat_t).Uid)
	if !info.IsDir() || owner != who.uid && owner != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
		return cache{}, fmt.Errorf("pgserver: %s is not a private folder of uid %d: remove it", path, who.uid)
	}
	return cache{who: who, path: path}, nil
}

// passable tells whether every user may pass through the folder.
func passable(path string) bool {
	for {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		parent := filepath.Dir(path)
		if parent == path {
			return true
		}
		path = parent
	}
}

// lock opens and locks a file, creating it when missing. Closing it unlocks it.
func (c cache) lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(c.who.own(path), flock(f, syscall.LOCK_EX)); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if err == nil {
			return nil
		}
		if err != syscall.EINTR {
			return fmt.Errorf("pgserver: lock %s: %w", f.Name(), err)
		}
	}
}

// provide returns the folder called name, which fill makes if it isn't there. Among processes that ask at once one
// fills it and the others wait; a process that dies leaves nothing that counts.
func (c cache) provide(name string, fill func(folder string) error) (string, error) {
	final := filepath.Join(c.path, name)
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	lock, err := c.lock(filepath.Join(c.path, "setup.lock"))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if _, err := os.Stat(final); err == nil {
		return final, nil
	}
	if err := c.remove("setup-*"); err != nil {
		return "", err
	}
	folder, err := os.MkdirTemp(c.path, "setup-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	if err := c.who.own(folder); err != nil {
		return "", err
	}
	if err := fill(folder); err != nil {
		return "", err
	}
	if err := c.who.own(folder); err != nil {
		return "", err
	}
	return final, os.Rename(folder, final)
}

func (c cache) remove(pattern string) error {
	paths, err := filepath.Glob(filepath.Join(c.path, pattern))
	if err != nil {
		return err
	}
	for _, path := range paths {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// A folder holds everything of one running program.
type folder struct {
	path string
	lock *os.File // handed to the guard
}

func (f *folder) data() string { return filepath.Join(f.path, "data") }
func (f *folder) log() string  { return filepath.Join(f.path, "log") }

// logEnd returns what the program said last.
func (f *folder) logEnd() string {
	log, err := os.ReadFile(f.log())
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(log[max(0, len(log)-2000):]))
}

// newFolder makes a run folder, after removing those whose processes are all gone.
func (c cache) newFolder() (*folder, error) {
	// Between the folder and its lock nobody may take it for a dead one.
	runs, err := c.lock(filepath.Join(c.path, "run.lock"))
	if err != nil {
		return nil, err
	}
	defer runs.Close()
	if err := c.sweep(); err != nil {
		return nil, err
	}
	path, err := os.MkdirTemp(c.path, "run-")
	if err != nil {
		return nil, err
	}
	if err := c.who.own(path); err != nil {
		return nil, err
	}
	lock, err := c.lock(filepath.Join(path, "lock"))
	if err != nil {
		os.RemoveAll(path)
		return nil, err
	}
	return &folder{path: path, lock: lock}, nil
}

func (c cache) sweep() error {
	paths, err := filepath.Glob(filepath.Join(c.path, "run-*"))
	if err != nil {
		return err
	}
	for _, path := range paths {
		if inUse(filepath.Join(path, "lock")) {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// inUse tells whether a process holds the lock file. A folder without one is half removed.
func inUse(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	return flock(f, syscall.LOCK_EX|syscall.LOCK_NB) != nil
}

// discard removes the folder of a program that was never started.
func (f *folder) discard() {
	f.lock.Close()
	os.RemoveAll(f.path)
}
