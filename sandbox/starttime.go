package sandbox

import (
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/podd-project/podd/oci"
)

// clockTicks is USER_HZ, the unit of start times in /proc: 100 per second on every architecture that Go runs on.
const clockTicks = 100

// startTime returns the wall-clock start time of a process, time.Now() if it is unknown.
func startTime(p oci.Process) time.Time {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return time.Now()
	}
	for line := range strings.Lines(string(stat)) {
		text, ok := strings.CutPrefix(line, "btime ")
		if !ok {
			continue
		}
		if boot, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64); err == nil {
			return time.Unix(boot, 0).Add(time.Duration(p.Start) * time.Second / clockTicks)
		}
	}
	return time.Now()
}
