package network

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// watchInterval is the time between two looks at the configuration directory.
const watchInterval = time.Second

// watchConf calls changed when a configuration in dir is not as in last, a confState, any longer, until ctx ends. It
// compares names, sizes and times: the directory has a few files. It may not exist yet, be behind a symbolic link, and
// be replaced.
func watchConf(ctx context.Context, dir, last string, changed func()) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if now := confState(dir); now != last {
			last = now
			changed()
		}
	}
}

// confState returns a text that changes when a configuration in dir does.
func confState(dir string) string {
	var b strings.Builder
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if !confName(e.Name()) {
			continue
		}
		if info, err := os.Stat(filepath.Join(dir, e.Name())); err == nil {
			inode := info.Sys().(*syscall.Stat_t).Ino
			fmt.Fprintln(&b, e.Name(), inode, info.Size(), info.ModTime().UnixNano())
		}
	}
	return fmt.Sprint(b.String(), err)
}
