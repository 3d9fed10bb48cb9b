package pgserver

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func archive(t *testing.T, entries ...tar.Header) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	files := tar.NewWriter(zipped)
	for _, e := range entries {
		content := []byte("content")
		if e.Typeflag == tar.TypeReg {
			e.Size = int64(len(content))
		}
		if err := files.WriteHeader(&e); err != nil {
			t.Fatal(err)
		}
		if e.Typeflag == tar.TypeReg {
			if _, err := files.Write(content); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(files.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	return &out
}

func TestUnpackWritesTheNativePart(t *testing.T) {
	folder := t.TempDir()
	err := unpack(archive(t,
		tar.Header{Typeflag: tar.TypeReg, Name: "package/native/bin/postgres", Mode: 0o755},
		tar.Header{Typeflag: tar.TypeReg, Name: "package/dist/index.js", Mode: 0o644},
	), folder)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(folder, "native", "bin", "postgres")
	content, err := os.ReadFile(program)
	if err != nil || string(content) != "content" {
		t.Errorf("%q %v", content, err)
	}
	info, err := os.Stat(program)
	if err != nil || info.Mode().Perm()&0o100 == 0 {
		t.Errorf("not executable: %v %v", info.Mode(), err)
	}
	if entries, err := os.ReadDir(folder); err != nil || len(entries) != 1 {
		t.Errorf("more than the native part was written: %v %v", entries, err)
	}
}

func TestUnpackRefusesHostileArchives(t *testing.T) {
	outside := t.TempDir()
	for name, entries := range map[string][]tar.Header{
		"absolute path": {{Typeflag: tar.TypeReg, Name: filepath.Join(outside, "a")}},
		"parent folder": {{Typeflag: tar.TypeReg, Name: "package/native/../../../a"}},
		"symbolic link": {{Typeflag: tar.TypeSymlink, Name: "package/native/l", Linkname: outside}},
		"hard link":     {{Typeflag: tar.TypeLink, Name: "package/native/l", Linkname: "/etc/passwd"}},
		"device":        {{Typeflag: tar.TypeChar, Name: "package/native/null"}},
		"fifo":          {{Typeflag: tar.TypeFifo, Name: "package/native/fifo"}},
		"through a link": {
			{Typeflag: tar.TypeSymlink, Name: "package/native/l", Linkname: outside},
			{Typeflag: tar.TypeReg, Name: "package/native/l/a"},
		},
	} {
		folder := t.TempDir()
		if err := unpack(archive(t, entries...), folder); !errors.Is(err, errUnsafe) {
			t.Errorf("%s: %v", name, err)
		}
		for _, place := range []string{outside, folder, filepath.Dir(folder)} {
			if exists(filepath.Join(place, "a")) {
				t.Errorf("%s: written to %s", name, place)
			}
		}
	}
}

func TestUnpackRefusesTheSameFileTwice(t *testing.T) {
	file := tar.Header{Typeflag: tar.TypeReg, Name: "package/native/bin/postgres", Mode: 0o755}
	if err := unpack(archive(t, file, file), t.TempDir()); !errors.Is(err, os.ErrExist) {
		t.Errorf("got %v", err)
	}
}

func TestUnpackRefusesATruncatedArchive(t *testing.T) {
	whole := archive(t, tar.Header{Typeflag: tar.TypeReg, Name: "package/native/bin/postgres"}).Bytes()
	if err := unpack(bytes.NewReader(whole[:len(whole)-10]), t.TempDir()); err == nil {
		t.Error("accepted")
	}
}

func TestLinksAreRelativeAndStayInside(t *testing.T) {
	folder := t.TempDir()
	lib := filepath.Join(folder, "native", "lib")
	if err := os.MkdirAll(lib, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(lib, "libpq.so.5.18"), []byte("library"), 0o600); err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(folder, "native", "pg-symlinks.json")
	write := func(text string) {
		if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`[{"source": "native/lib/libpq.so.5.18", "target": "native/lib/libpq.so.5"}]`)
	if err := link(folder); err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(t.TempDir(), "moved") // as the cache does
	if err := os.Rename(folder, moved); err != nil {
		t.Fatal(err)
	}
	if content, err := os.ReadFile(filepath.Join(moved, "native", "lib", "libpq.so.5")); err != nil || string(content) != "library" {
		t.Errorf("%q %v", content, err)
	}
	if err := os.Rename(moved, folder); err != nil {
		t.Fatal(err)
	}
	for _, hostile := range []string{
		`[{"source": "/etc/passwd", "target": "native/lib/x"}]`,
		`[{"source": "../../etc/passwd", "target": "native/lib/x"}]`,
		`[{"source": "native/lib/libpq.so.5.18", "target": "../x"}]`,
		`[{"source": "native/lib/libpq.so.5.18", "target": "/annals-hostile"}]`,
	} {
		write(hostile)
		if err := link(folder); !errors.Is(err, errUnsafe) {
			t.Errorf("%s: %v", hostile, err)
		}
	}
}
