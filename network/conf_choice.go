package network

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
)

// settling is how long an installer may take to write a configuration file in place, or to replace one by removing it
// first.
const settling = 5 * time.Second

// errIncomplete is the error of a file that is being written, or of which an earlier version was in use. Pods would get
// into another network if the next file were used.
var errIncomplete = fmt.Errorf("%w: CNI configuration is being changed", errdefs.ErrUnavailable)

// choice remembers the configuration file in use of each directory.
type choice struct {
	mu    sync.Mutex
	files map[string]string
}

// load is loadConf, but fails with errIncomplete instead of using a file in the place of the one in use, or of an
// earlier one that was written a moment ago, while that is not valid.
func (c *choice) load(dir string) (*libcni.NetworkConfigList, []brokenConf, error) {
	list, path, broken, err := loadConf(dir)
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.files[dir]
	for _, b := range broken {
		if b.path == last || b.isNew() {
			return nil, broken, fmt.Errorf("%w: %s: %w", errIncomplete, b.path, b.err)
		}
	}
	if err != nil {
		return nil, broken, err
	}
	if last != "" && last != path && wasRemoved(last) {
		return nil, broken, fmt.Errorf("%w: %s was removed less than %v ago", errIncomplete, last, settling)
	}
	if c.files == nil {
		c.files = map[string]string{}
	}
	c.files[dir] = path
	return list, broken, nil
}

// isNew reports whether the file may be written at this moment: it is not JSON, or has no plugins yet.
func (b brokenConf) isNew() bool {
	var syntax *json.SyntaxError
	if !errors.As(b.err, &syntax) && !errors.Is(b.err, errNoPlugins) {
		return false
	}
	info, err := os.Stat(b.path)
	return err == nil && time.Since(info.ModTime()) < settling
}

// wasRemoved reports whether a file does not exist, in a directory that was changed a moment ago.
func wasRemoved(path string) bool {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	info, err := os.Stat(filepath.Dir(path))
	return err == nil && time.Since(info.ModTime()) < settling
}
