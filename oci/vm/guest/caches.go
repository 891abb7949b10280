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

// knownFiles returns how many files of the host the kernel knows, 0 if it does not say. Their inodes have a slab cache of
// their name; the total would have those of tmpfs, and ten thousand of sysfs and tracefs.
func knownFiles() (files int) {
	data, _ := os.ReadFile("/proc/slabinfo")
	for line := range bytes.Lines(data) {
		if count, ok := bytes.CutPrefix(line, []byte("fuse_inode ")); ok {
			_, _ = fmt.Sscan(string(count), &files)
		}
	}
	return files
}

// dropCaches has the kernel forget the files that nothing uses, so that the host can remove or unmount them.
func dropCaches() { _ = os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0) }
