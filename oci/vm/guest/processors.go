package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// sysProcessors has a directory for each processor of the machine (sysfs).
const sysProcessors = "/sys/devices/system/cpu"

const (
	// processorTimeout is how long the kernel may take to see a processor that the machine was given.
	processorTimeout = 8 * time.Second
	processorPause   = 10 * time.Millisecond
)

// useProcessors brings every processor of the machine online, and waits until as many as wanted are: a hotplugged
// processor starts offline. dir is sysProcessors.
func useProcessors(dir string, wanted int) error {
	for end := time.Now().Add(processorTimeout); ; time.Sleep(processorPause) {
		used, err := startProcessors(dir)
		switch {
		case err != nil:
			return err
		case used >= wanted:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("the machine has %d processors, not %d", used, wanted)
		}
	}
}

// startProcessors starts the processors that do not run, and returns how many run.
func startProcessors(dir string) (running int, err error) {
	processors, err := filepath.Glob(filepath.Join(dir, "cpu[0-9]*"))
	if err != nil {
		return 0, err
	}
	for _, p := range processors {
		file := filepath.Join(p, "online")
		state, err := os.ReadFile(file) // the first processor may have none: it cannot be stopped
		if err == nil && strings.TrimSpace(string(state)) == "0" {
			if err := os.WriteFile(file, []byte("1"), 0); err != nil {
				return 0, fmt.Errorf("start processor %s: %w", filepath.Base(p), err)
			}
		}
		running++
	}
	return running, nil
}
