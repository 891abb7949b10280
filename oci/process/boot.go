package process

import (
	"os"
	"strings"
)

// BootID returns the kernel's random id of this boot, "" if it cannot be read.
func BootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}
