package sandbox

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The kernel's real-time signals as C programs number them: the first two are the thread library's.
const (
	sigRTMin = 34
	sigRTMax = 64
)

// stopSignal returns the name of the signal that stops a container: the config's, else the image's, else SIGTERM.
// Names are the kernel's ("SIGTERM") or "SIGRTMIN+n" and "SIGRTMAX-n".
func stopSignal(config cri.Signal, image string) (string, error) {
	if config != cri.Signal_SIGNAL_RUNTIME_DEFAULT {
		name := strings.TrimPrefix(config.String(), "SIGNAL_")
		name = strings.Replace(name, "PLUS", "+", 1)
		name = strings.Replace(name, "MINUS", "-", 1)
		if signalNumber(name) == 0 {
			return "", fmt.Errorf("%w: stop_signal %s is not a signal of this machine", errdefs.ErrInvalidArgument, config)
		}
		return name, nil
	}
	if image == "" {
		return "SIGTERM", nil
	}
	name := imageSignal(image)
	if signalNumber(name) == 0 {
		return "", fmt.Errorf("%w: the image's stop signal %q is not a signal of this machine", errdefs.ErrInvalidArgument, image)
	}
	return name, nil
}

// imageSignal normalises a Dockerfile's STOPSIGNAL: a number, or a name with or without SIG.
func imageSignal(s string) string {
	if n, err := strconv.Atoi(s); err == nil {
		return signalName(n)
	}
	s = strings.ToUpper(s)
	if !strings.HasPrefix(s, "SIG") {
		s = "SIG" + s
	}
	return s
}

func signalName(n int) string {
	if n >= sigRTMin && n <= sigRTMax {
		return fmt.Sprintf("SIGRTMIN+%d", n-sigRTMin)
	}
	return unix.SignalName(syscall.Signal(n))
}

// oldSignalNames are names of the CRI that the kernel's tables do not have.
var oldSignalNames = map[string]syscall.Signal{"SIGCLD": unix.SIGCHLD, "SIGPOLL": unix.SIGIO, "SIGIOT": unix.SIGABRT}

// signalNumber returns 0 for an unknown name.
func signalNumber(name string) syscall.Signal {
	switch {
	case name == "SIGRTMIN":
		return sigRTMin
	case name == "SIGRTMAX":
		return sigRTMax
	case strings.HasPrefix(name, "SIGRTMIN+"):
		return realTime(sigRTMin, strings.TrimPrefix(name, "SIGRTMIN+"), 1)
	case strings.HasPrefix(name, "SIGRTMAX-"):
		return realTime(sigRTMax, strings.TrimPrefix(name, "SIGRTMAX-"), -1)
	}
	if n, ok := oldSignalNames[name]; ok {
		return n
	}
	return unix.SignalNum(name)
}

func realTime(base int, offset string, sign int) syscall.Signal {
	n, err := strconv.Atoi(offset)
	if err != nil || n < 0 || n > sigRTMax-sigRTMin {
		return 0
	}
	return syscall.Signal(base + sign*n)
}
