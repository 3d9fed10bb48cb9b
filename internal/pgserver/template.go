package pgserver

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// superuser is the role that owns a server of ours.
const superuser = "postgres"

// initdbArguments make the same cluster everywhere: the locale C exists on every system, and sorts by code point.
var initdbArguments = []string{"-A", "trust", "-U", superuser, "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"}

// template returns a stopped data folder fresh from initdb, made once per build of PostgreSQL: to copy it takes a
// tenth of the time of initdb.
func template(ctx context.Context, c cache, b binaries) (string, error) {
	key := sha256.Sum256(fmt.Append(nil, b.folder, b.full, initdbArguments))
	return c.provide(fmt.Sprintf("template-%d-%x", b.major, key[:6]), func(folder string) error {
		initdb := exec.CommandContext(ctx, b.program("initdb"), append(initdbArguments, "-D", folder)...)
		initdb.Dir = c.path
		initdb.Env = c.who.environ()
		initdb.SysProcAttr = c.who.process()
		if out, err := initdb.CombinedOutput(); err != nil {
			return fmt.Errorf("pgserver: %s: %w %s", initdb, err, out)
		}
		return nil
	})
}

// copyTree copies the folders and regular files below from, except those that skip names, into the new folder to,
// owned by the account. Files that vanish meanwhile are left out: a running server removes some.
func copyTree(who account, from, to string, skip func(name string) bool) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != from {
			return nil
		}
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, name)
		if skip != nil && skip(name) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		switch {
		case entry.IsDir():
			err = os.Mkdir(target, 0o700)
		case entry.Type().IsRegular():
			err = copyFile(path, target)
		default:
			err = fmt.Errorf("pgserver: cannot copy %s: neither a folder nor a file", path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return errors.Join(err, who.ownOne(target))
	})
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
