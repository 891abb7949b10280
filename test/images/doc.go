// Package images builds the container images of the tests and serves them from a registry on loopback, so that no test
// needs a registry on the network. The images are made of Debian packages (downloaded with apt-get, unpacked, never
// installed) and a few small programs in progs/. There are the images that critest pulls, with the same names, and
// invalid and hostile images for the tests of bad input.
//
// It owns <cache>/images and <cache>/debs (CacheDir). A Registry can also serve images with faults: see Registry.
//
// Tests use Serve; scripts use the command in cmd/testimages. Only tests import it.
package images

import (
	"os"
	"path/filepath"
)

// CacheDir returns the directory that keeps downloads and built images between runs: $PODD_CACHE, or podd in the user's
// cache directory.
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
