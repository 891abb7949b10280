package shim

import (
	"testing"
	"time"

	v1 "github.com/containerd/cgroups/v3/cgroup1/stats"
	v2 "github.com/containerd/cgroups/v3/cgroup2/stats"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

func packed(t *testing.T, url string, m proto.Message) *anypb.Any {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return &anypb.Any{TypeUrl: url, Value: b}
}

func TestParseUsage(t *testing.T) {
	one := &v1.Metrics{
		CPU:    &v1.CPUStat{Usage: &v1.CPUUsage{Total: 3e9, User: 2e9, Kernel: 1e9}},
		Memory: &v1.MemoryStat{Usage: &v1.MemoryEntry{Usage: 1000}, Cache: 300, TotalInactiveFile: 100},
		Pids:   &v1.PidsStat{Current: 7},
	}
	two := &v2.Metrics{
		CPU:    &v2.CPUStat{UsageUsec: 3e6, UserUsec: 2e6, SystemUsec: 1e6},
		Memory: &v2.MemoryStat{Usage: 1000, File: 300, InactiveFile: 100},
		Pids:   &v2.PidsStat{Current: 7},
	}
	for url, m := range map[string]proto.Message{
		"io.containerd.cgroups.v1.Metrics": one, "types.containerd.io/io.containerd.cgroups.v2.Metrics": two,
	} {
		u, err := parseUsage(packed(t, url, m))
		if err != nil {
			t.Fatal(err)
		}
		if u.CPU.Total != 3*time.Second || u.CPU.User != 2*time.Second || u.CPU.System != time.Second ||
			u.Pids.Current != 7 || u.Memory.Usage != 1000 || u.Memory.WorkingSet != 900 ||
			u.Memory.RSS != 700 || u.Memory.Cache != 300 {
			t.Errorf("%s: usage = %+v, %+v, %+v, want the values of the metrics", url, u.CPU, u.Memory, u.Pids)
		}
	}
	// More files than memory, as gVisor may report: nothing goes below zero.
	u, err := parseUsage(packed(t, "io.containerd.cgroups.v2.Metrics",
		&v2.Metrics{Memory: &v2.MemoryStat{Usage: 10, File: 20, InactiveFile: 30}}))
	if err != nil || u.Memory.WorkingSet != 0 || u.Memory.RSS != 0 {
		t.Errorf("memory = %+v, %v, want working set and RSS 0", u.Memory, err)
	}
	for _, bad := range []*anypb.Any{
		nil, {}, {TypeUrl: "other"}, {TypeUrl: "io.containerd.cgroups.v1.Metrics", Value: []byte{0xff}},
		{TypeUrl: "io.containerd.cgroups.v2.Metrics", Value: []byte{1}},
	} {
		if u, err := parseUsage(bad); err == nil {
			t.Errorf("parseUsage(%v) = %+v, want an error", bad, u)
		}
	}
	if _, err := parseUsage(nil); !errdefs.IsNotImplemented(err) {
		t.Errorf("parseUsage(nil) = %v, want not implemented", err)
	}
}
