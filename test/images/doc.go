// Package images builds the container images of the tests and serves them from a registry on loopback, so that no
// test needs one on the network. The images are made of Debian's packages (downloaded with apt-get, unpacked, never
// installed) and a few small programs below progs/: the images that critest pulls under the names it uses, and the
// nasty ones that the tests of bad input want.
//
// It owns <cache>/images and <cache>/debs (CacheDir). A Registry also misbehaves on request: see Registry.
//
// Tests use Serve; scripts use the command in cmd/testimages. It is imported by tests only.
package images

import (
	"os"
	"path/filepath"
)

// CacheDir is where downloads and built images are kept between runs: $PODD_CACHE, or podd below the user's cache.
func CacheDir() (string, error) {
	if dir := os.Getenv("PODD_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "podd"), nil
}
