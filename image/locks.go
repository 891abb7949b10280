package image

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/podd-project/podd/checkpoint"
)

// storageLocks are the lock files that containers/storage makes in its root (store.go, GetStore). It makes them
// readable by all, and everyone can search the root. A read lock needs no more than that, and stops every pull and the
// next start.
var storageLocks = [...]string{"storage.lock", "userns.lock"}

// closeLocks makes the lock files, before the library does, and such that only root can open them. A file that others
// could open, as an older podd left it, is replaced: somebody may hold a lock on it.
func closeLocks(root string) error {
	for _, name := range storageLocks {
		path := filepath.Join(root, name)
		info, err := os.Lstat(path)
		if err == nil && info.Mode() == 0o600 {
			continue
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := checkpoint.WriteFile(path, nil, 0o600); err != nil {
			return fmt.Errorf("close %s to other users: %w", name, err)
		}
	}
	return nil
}
