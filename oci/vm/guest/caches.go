package guest

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/podd-project/podd/oci/vm/guest/env"
)

const (
	// cachedPause is how often the files that the kernel knows are counted.
	cachedPause = 200 * time.Millisecond
	// patientPause is the pause after dropping the caches did not help: the files are open.
	patientPause = 10 * time.Second
)

// boundCaches has the kernel forget files when it knows more than env.Files.
func boundCaches() {
	most, err := strconv.Atoi(os.Getenv(env.Files))
	if err != nil {
		return
	}
	for {
		time.Sleep(cachedPause)
		if knownFiles() <= most {
			continue
		}
		dropCaches()
		if knownFiles() > most {
			time.Sleep(patientPause)
		}
	}
}

// knownFiles returns how many files of FUSE the kernel knows, 0 if it does not say. Their inodes have a slab cache with
// their name. The total has those of tmpfs too, and ten thousand of sysfs and tracefs: it is for a kernel without
// slabinfo.
func knownFiles() (files int) {
	data, err := os.ReadFile("/proc/slabinfo")
	if err != nil {
		data, _ = os.ReadFile("/proc/sys/fs/inode-nr")
		_, _ = fmt.Sscan(string(data), &files)
		return files
	}
	for line := range bytes.Lines(data) {
		if count, ok := bytes.CutPrefix(line, []byte("fuse_inode ")); ok {
			_, _ = fmt.Sscan(string(count), &files)
		}
	}
	return files
}

// dropCaches has the kernel forget the files that nothing uses, so that the host can remove or unmount them.
func dropCaches() { _ = os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0) }
