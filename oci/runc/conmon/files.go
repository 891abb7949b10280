package conmon

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// MonitorPidFile is where conmon's pid is written.
func MonitorPidFile(bundle string) string { return filepath.Join(bundle, "conmon.pid") }

// MonitorPid reads the pid of the bundle's monitor; fs.ErrNotExist if none was started. The pid may have been reused:
// see Watches.
func MonitorPid(bundle string) (int, error) {
	pid, err := readInt(MonitorPidFile(bundle))
	if err != nil {
		return 0, fmt.Errorf("pid of conmon: %w", err)
	}
	return int(pid), nil
}

// InitPid reads the pid of the container's first process; fs.ErrNotExist if the runtime has not created it. It may have
// been reused.
func InitPid(bundle string) (int, error) {
	pid, err := readInt(initPidFile(bundle))
	return int(pid), err
}

func initPidFile(bundle string) string { return filepath.Join(bundle, "pidfile") }

// Watches reports whether the process is a monitor of the bundle, by its command line.
func Watches(pid int, bundle string) bool { return bundle != "" && BundleOf(pid) == bundle }

// BundleOf returns the bundle of a monitor's process, "" if it is none. Any process can have the command line of a
// monitor, and can make this call hang: the caller must know whose process it is.
func BundleOf(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil {
		return ""
	}
	args := bytes.Split(b, []byte{0})
	for i, a := range args[:len(args)-1] {
		if string(a) == "--bundle" {
			return string(args[i+1])
		}
	}
	return ""
}

// ReadExit reads the exit status that the monitor wrote, and when; fs.ErrNotExist if there is none. A negative status
// means that it is unknown to conmon.
func ReadExit(bundle string) (status int32, at time.Time, err error) {
	path := filepath.Join(bundle, "exit")
	info, err := os.Stat(path)
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("exit file: %w", err)
	}
	n, err := readInt(path)
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("exit file: %w", err)
	}
	return n, info.ModTime(), nil
}

// OOM reports whether the monitor saw an out-of-memory event of the container.
func OOM(bundle string) bool {
	_, err := os.Stat(filepath.Join(bundle, "oom"))
	return err == nil
}

func readInt(path string) (int32, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 32)
	if errors.Is(err, strconv.ErrSyntax) && len(b) == 0 {
		// Never seen: conmon renames a complete file into place.
		return 0, fmt.Errorf("%s is empty: %w", path, fs.ErrNotExist)
	}
	return int32(n), err
}
