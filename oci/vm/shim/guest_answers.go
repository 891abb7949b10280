package shim

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

const (
	// statsType is the message of the statistics of a guest: its cgroups are of version 2.
	statsType = "io.containerd.cgroups.v2.Metrics"
	// statsLimit is the size of the largest, in bytes.
	statsLimit = 64 << 10
)

// checkStats returns the statistics of a guest if they have the type and size of such.
func checkStats(in *task.StatsResponse) (*task.StatsResponse, error) {
	s := in.GetStats()
	if s.GetTypeUrl() != statsType || len(s.GetValue()) > statsLimit {
		return nil, invalid("the guest's statistics are %d bytes of type %.80q, want at most %d of %s", len(s.GetValue()),
			s.GetTypeUrl(), statsLimit, statsType)
	}
	return &task.StatsResponse{Stats: &anypb.Any{TypeUrl: statsType, Value: s.GetValue()}}, nil
}

// errorLimit is how much of the text of a guest's error is kept, in bytes.
const errorLimit = 4 << 10

// fromGuest is an error of a call to the guest, as one of containerd's kinds, with printable text.
func fromGuest(err error) error {
	native := errgrpc.ToNative(err)
	text := printable(native.Error())
	if text == native.Error() {
		return native
	}
	kind := errdefs.Resolve(native)
	if len(native.Error()) > errorLimit {
		text += "..."
	}
	return fmt.Errorf("%s: %w", strings.TrimSuffix(text, ": "+kind.Error()), kind)
}

// printable is at most errorLimit bytes of a text of the guest, in which nothing can control a terminal.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) && c != '\n' && c != '\t' {
			return '?'
		}
		return c
	}, strings.ToValidUTF8(text[:min(len(text), errorLimit)], "?"))
}

// endGrace is how long a machine whose line is broken may take to be seen as ended.
const endGrace = 2 * time.Second

// endedSoon reports whether a call has failed because the machine has ended.
func (p *pod) endedSoon(error) bool {
	if p.session != nil && !p.session.IsClosed() {
		return p.machine.HasEnded()
	}
	select {
	case <-p.machine.Ended():
		return true
	case <-time.After(endGrace):
		return false
	}
}

func unmarshal(data []byte, m proto.Message) error { return proto.Unmarshal(data, m) }

func newReader(data []byte) io.Reader { return bytes.NewReader(data) }
