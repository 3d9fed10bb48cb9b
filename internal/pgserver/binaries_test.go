package pgserver

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestVersionsThatCannotBe(t *testing.T) {
	withoutEnvironment(t)
	t.Setenv("ANNALS_PG", "sixteen")
	if _, err := Start(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "ANNALS_PG=sixteen") {
		t.Errorf("ANNALS_PG that is no number: %v", err)
	}
	t.Setenv("ANNALS_PG", strconv.Itoa(OldestVersion-1))
	if _, err := Start(t.Context(), Options{}); err == nil || !strings.Contains(err.Error(), "too old") {
		t.Errorf("ANNALS_PG that is too old: %v", err)
	}
	_, err := Start(t.Context(), Options{Version: 99})
	if !errors.Is(err, ErrUnavailable) {
		t.Fatalf("a version that does not exist: %v", err)
	}
	for _, way := range []string{"DATABASE_URL", "install PostgreSQL", "npm", "99"} {
		if !strings.Contains(err.Error(), way) {
			t.Errorf("the error does not name %s: %v", way, err)
		}
	}
}

// The newest pinned version that isn't installed here can only come from npm or from what npm brought earlier.
func TestFetchedVersion(t *testing.T) {
	c, err := openCache()
	if err != nil {
		t.Fatal(err)
	}
	installed := map[int]bool{}
	for _, folder := range localFolders() {
		if b, err := inspect(t.Context(), c.who, folder); err == nil {
			installed[b.major] = true
		}
	}
	version := newestFetched
	for installed[version] {
		version--
	}
	if pinned[version] == "" {
		t.Skip("every version that could be fetched is installed")
	}
	s := New(t, Options{Version: version})
	if !strings.HasPrefix(s.own.binaries.folder, c.path) {
		t.Errorf("PostgreSQL %d came from %s", version, s.own.binaries.folder)
	}
	conn := connect(t, s.ConnString("postgres"))
	if got := value[int](t, conn, "SELECT current_setting('server_version_num')::int / 10000"); got != version {
		t.Errorf("asked for PostgreSQL %d, got %d", version, got)
	}
	want, _, _ := strings.Cut(pinned[version], "-") // 18.4.0: PostgreSQL 18.4
	if got := value[string](t, conn, "SHOW server_version"); got+".0" != want {
		t.Errorf("pinned to %s, got %s", want, got)
	}
}

func TestInstalledVersionIsChosen(t *testing.T) {
	withoutEnvironment(t)
	c, err := openCache()
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range localFolders() {
		b, err := inspect(t.Context(), c.who, folder)
		if err != nil || b.major < OldestVersion {
			continue
		}
		for _, version := range []int{0, b.major} {
			found, err := findBinaries(t.Context(), c, version, localFolders())
			if err != nil || found.folder != folder {
				t.Errorf("for version %d: %s rather than %s: %v", version, found.folder, folder, err)
			}
		}
		return // the first is what version 0 means
	}
	t.Skip("no PostgreSQL is installed")
}

// Any version will do when none is asked for, but only that version when one is.
func TestVersionIsExact(t *testing.T) {
	withoutEnvironment(t)
	c, err := openCache()
	if err != nil {
		t.Fatal(err)
	}
	f, err := c.newFolder() // where the account can run programs
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.discard)
	for _, name := range []string{"postgres", "initdb"} {
		script := "#!/bin/sh\necho 'postgres (PostgreSQL) 98.6 (made up)'\n"
		if err := os.WriteFile(filepath.Join(f.path, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.who.own(f.path); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", f.path+string(filepath.ListSeparator)+os.Getenv("PATH"))
	for _, version := range []int{0, 98} {
		if b, err := findBinaries(t.Context(), c, version, localFolders()); err != nil || b.major != 98 || b.folder != f.path {
			t.Errorf("asked for %d: %+v %v", version, b, err)
		}
	}
	for _, version := range []int{97, 99} {
		if b, err := findBinaries(t.Context(), c, version, localFolders()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("asked for %d: %+v %v", version, b, err)
		}
	}
}
