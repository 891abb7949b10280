package convert

import (
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestStopSignal(t *testing.T) {
	for _, c := range []struct {
		config cri.Signal
		image  string
		name   string
		number syscall.Signal
	}{
		{0, "", "SIGTERM", unix.SIGTERM},
		{0, "SIGQUIT", "SIGQUIT", unix.SIGQUIT},
		{0, "quit", "SIGQUIT", unix.SIGQUIT},
		{0, "9", "SIGKILL", unix.SIGKILL},
		{0, "37", "SIGRTMIN+3", 37},
		{0, "64", "SIGRTMIN+30", 64},
		{0, "SIGRTMIN", "SIGRTMIN", 34},
		{0, "SIGRTMIN+0", "SIGRTMIN+0", 34},
		{0, "rtmin+3", "SIGRTMIN+3", 37},
		{0, "SIGRTMIN+20", "SIGRTMIN+20", 54},
		{0, "SIGRTMAX-20", "SIGRTMAX-20", 44},
		{0, "SIGRTMAX", "SIGRTMAX", 64},
		{cri.Signal_SIGNAL_SIGUSR1, "SIGQUIT", "SIGUSR1", unix.SIGUSR1},
		{cri.Signal_SIGNAL_SIGCLD, "", "SIGCLD", unix.SIGCHLD},
		{cri.Signal_SIGNAL_SIGPOLL, "", "SIGPOLL", unix.SIGIO},
		{cri.Signal_SIGNAL_SIGIOT, "", "SIGIOT", unix.SIGABRT},
		{cri.Signal_SIGNAL_SIGRTMINPLUS15, "", "SIGRTMIN+15", 49},
		{cri.Signal_SIGNAL_SIGRTMAXMINUS14, "", "SIGRTMAX-14", 50},
	} {
		name, err := StopSignal(c.config, c.image)
		if err != nil || name != c.name || SignalNumber(name) != c.number {
			t.Errorf("StopSignal(%v, %q) = %q (%d), %v, want %q (%d)",
				c.config, c.image, name, SignalNumber(name), err, c.name, c.number)
		}
	}
	for _, image := range []string{
		"0", "-1", "33", "65", "x", "SIG", "SIGRTMIN+31", "SIGRTMIN+", "SIGRTMAX-31", "SIGSIGTERM",
	} {
		if name, err := StopSignal(0, image); err == nil {
			t.Errorf("StopSignal of image signal %q = %q, want an error", image, name)
		}
	}
}

// TestEverySignal: every signal of the CRI that the kernel has is accepted, with the kernel's number.
func TestEverySignal(t *testing.T) {
	for value, name := range cri.Signal_name {
		got, err := StopSignal(cri.Signal(value), "")
		if err != nil {
			t.Errorf("StopSignal(%s): %v", name, err)
			continue
		}
		if back := CRISignal(got); back != cri.Signal(value) && value != 0 {
			t.Errorf("CRISignal(%q) = %v, want %s", got, back, name)
		}
		if want := unix.SignalNum(got); want != 0 && SignalNumber(got) != want {
			t.Errorf("SignalNumber(%q) = %d, want %d", got, SignalNumber(got), want)
		}
	}
}
