package convert

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/moby/sys/signal"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The kernel's real-time signals as C programs number them: the first two belong to the thread library.
const (
	sigRTMin = 34
	sigRTMax = 64
)

// StopSignal returns the name of the signal that stops a container: the config's, else the image's, else SIGTERM.
// Names are the kernel's ("SIGTERM") or "SIGRTMIN+n" and "SIGRTMAX-n".
func StopSignal(config cri.Signal, image string) (string, error) {
	if config != cri.Signal_SIGNAL_RUNTIME_DEFAULT {
		name := strings.TrimPrefix(config.String(), "SIGNAL_")
		name = strings.NewReplacer("PLUS", "+", "MINUS", "-").Replace(name)
		if SignalNumber(name) == 0 {
			return "", fmt.Errorf("%w: stop_signal %s is not a signal of this machine", errdefs.ErrInvalidArgument, config)
		}
		return name, nil
	}
	if image == "" {
		return "SIGTERM", nil
	}
	name := imageSignal(image)
	if SignalNumber(name) == 0 {
		return "", fmt.Errorf("%w: the image's stop signal %q is not a signal of this machine",
			errdefs.ErrInvalidArgument, image)
	}
	return name, nil
}

// CRISignal returns the CRI's value for a name of StopSignal, 0 if the CRI has none. The CRI names each real-time
// signal once, by the nearer end of the range.
func CRISignal(name string) cri.Signal {
	if value, ok := cri.Signal_value["SIGNAL_"+name]; ok {
		return cri.Signal(value)
	}
	number := SignalNumber(name)
	switch n := int(number); {
	case n == 0:
		return 0
	case n == sigRTMin:
		name = "SIGRTMIN"
	case n == sigRTMax:
		name = "SIGRTMAX"
	case n > sigRTMin && n <= sigRTMin+15:
		name = fmt.Sprintf("SIGRTMINPLUS%d", n-sigRTMin)
	case n > sigRTMin:
		name = fmt.Sprintf("SIGRTMAXMINUS%d", sigRTMax-n)
	default:
		name = unix.SignalName(number)
	}
	return cri.Signal(cri.Signal_value["SIGNAL_"+name])
}

// imageSignal normalises a Dockerfile's STOPSIGNAL: a number, or a name with or without SIG.
func imageSignal(s string) string {
	if n, err := strconv.Atoi(s); err == nil {
		if n >= sigRTMin && n <= sigRTMax {
			return fmt.Sprintf("SIGRTMIN+%d", n-sigRTMin)
		}
		return unix.SignalName(syscall.Signal(n))
	}
	return "SIG" + strings.TrimPrefix(strings.ToUpper(s), "SIG")
}

// SignalNumber returns 0 for an unknown name.
func SignalNumber(name string) syscall.Signal {
	if !strings.HasPrefix(name, "SIG") {
		return 0
	}
	if n, err := signal.ParseSignal(name); err == nil {
		return n
	}
	// The library names each real-time signal once, by the nearer end of the range.
	if n := realTimeOffset(name, "SIGRTMIN+"); n >= 0 {
		return syscall.Signal(sigRTMin + n)
	}
	if n := realTimeOffset(name, "SIGRTMAX-"); n >= 0 {
		return syscall.Signal(sigRTMax - n)
	}
	return 0
}

// realTimeOffset returns -1 unless name is prefix and a number in the range of the real-time signals.
func realTimeOffset(name, prefix string) int {
	text, ok := strings.CutPrefix(name, prefix)
	n, err := strconv.Atoi(text)
	if !ok || err != nil || n < 0 || n > sigRTMax-sigRTMin {
		return -1
	}
	return n
}
