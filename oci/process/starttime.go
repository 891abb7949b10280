package process

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTicks is USER_HZ, the unit of start times in /proc: 100 per second on every architecture that Go runs on.
const clockTicks = 100

// StartTime returns the wall-clock start time of the process, time.Now() if it is unknown.
func (p Process) StartTime() time.Time {
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
