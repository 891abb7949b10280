package guest

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/podd-project/podd/oci/vm/guest/env"
)

// cachedPause is how often the files that the kernel knows are counted.
const cachedPause = 200 * time.Millisecond

// boundCaches has the kernel forget files when it knows more than env.Files.
func boundCaches() {
	most, err := strconv.Atoi(os.Getenv(env.Files))
	if err != nil {
		return
	}
	for range time.Tick(cachedPause) {
		data, err := os.ReadFile("/proc/sys/fs/inode-nr")
		if err != nil {
			return
		}
		var files int
		if _, err := fmt.Sscan(string(data), &files); err == nil && files > most {
			dropCaches()
		}
	}
}

// dropCaches has the kernel forget the files that nothing uses, so that the host can remove or unmount them.
func dropCaches() { _ = os.WriteFile("/proc/sys/vm/drop_caches", []byte("2"), 0) }
