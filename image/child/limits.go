package child

import (
	"errors"
	"fmt"
	"os"
	"runtime/metrics"
	"time"
)

// MemoryText is the message of a process that exceeds its memory.
const MemoryText = "the pull needs more memory than it may"

// Fail ends this process with an error.
func Fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// PreferKilling makes this process one of the first that the kernel kills when memory is short: the daemon's unit
// protects the daemon, its children are worth less.
func PreferKilling() error {
	return os.WriteFile("/proc/self/oom_score_adj", []byte("500"), 0)
}

// WatchMemory ends this process with a clear message if it has more memory than most, in bytes; zero: never. The limit
// of the kernel is higher: it ends the process too, but with a dump of all goroutines.
func WatchMemory(most uint64) {
	const interval = 20 * time.Millisecond
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	for range time.Tick(interval) {
		metrics.Read(samples)
		used := samples[0].Value.Uint64() - samples[1].Value.Uint64() - samples[2].Value.Uint64()
		if most > 0 && used > most {
			Fail(errors.New(MemoryText))
		}
	}
}

// HardMemory returns the kernel's limit for a soft one, 0 for none: the Go runtime maps memory in pieces of 64 MiB.
func HardMemory(soft uint64) uint64 {
	if raceDetector || soft == 0 {
		return 0
	}
	return soft + 256<<20
}
