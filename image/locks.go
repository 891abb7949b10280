package image

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// storageLocks are the lock files that containers/storage makes in its root (store.go, GetStore). It makes them
// readable by all, and everyone can search the root. A read lock needs no more than that, and stops every pull and the
// next start.
var storageLocks = [...]string{"storage.lock", "userns.lock"}

// makeLocks makes the lock files, before the library does, so that only root can open them.
func makeLocks(root string) error {
	for _, name := range storageLocks {
		f, err := os.OpenFile(filepath.Join(root, name), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			return fmt.Errorf("make lock file: %w", err)
		}
	}
	return nil
}
