package suite

import (
	"context"
	"encoding/json"
	"fmt"
)

// summary is the part of the kubelet's /stats/summary that the test reads.
type summary struct {
	Pods []podStats `json:"pods"`
}

type podStats struct {
	PodRef    struct{ Name, Namespace string }
	CPU       *struct{ UsageCoreNanoSeconds *uint64 }
	Memory    *struct{ WorkingSetBytes *uint64 }
	Network   *struct{ RxBytes *uint64 }
	Processes *struct {
		ProcessCount *uint64 `json:"process_count"`
	} `json:"process_stats"`
	Containers []struct {
		Name   string
		CPU    *struct{ UsageNanoCores, UsageCoreNanoSeconds *uint64 }
		Memory *struct{ WorkingSetBytes *uint64 }
		Rootfs *struct{ UsedBytes *uint64 }
	}
}

// check returns an error that names the first value that is missing or not plausible for the pod of checkStats.
func (p podStats) check(fromCRI bool) error {
	s := p.Containers[0]
	at := func(v *uint64) uint64 {
		if v == nil {
			return 0
		}
		return *v
	}
	switch {
	case s.CPU == nil || at(s.CPU.UsageCoreNanoSeconds) == 0 || at(s.CPU.UsageNanoCores) < 50e6 ||
		at(s.CPU.UsageNanoCores) > 400e6:
		return fmt.Errorf("CPU of the container = %s, want about 0.2", text(s.CPU))
	case s.Memory == nil || at(s.Memory.WorkingSetBytes) < 20<<20 || at(s.Memory.WorkingSetBytes) > 60<<20:
		return fmt.Errorf("memory of the container = %s, want about 20 MiB", text(s.Memory))
	case s.Rootfs == nil || at(s.Rootfs.UsedBytes) < 5<<20:
		return fmt.Errorf("root filesystem of the container = %s, want at least 5 MiB", text(s.Rootfs))
	case fromCRI && (p.Network == nil || p.Network.RxBytes == nil):
		return fmt.Errorf("network of the pod = %s, want bytes received", text(p.Network))
	case p.CPU == nil || at(p.CPU.UsageCoreNanoSeconds) < at(s.CPU.UsageCoreNanoSeconds)/2:
		return fmt.Errorf("CPU of the pod = %s, want at least half of the container's, %s", text(p.CPU), text(s.CPU))
	case p.Memory == nil || at(p.Memory.WorkingSetBytes) < 20<<20:
		return fmt.Errorf("memory of the pod = %s, want at least 20 MiB", text(p.Memory))
	case fromCRI && (p.Processes == nil || at(p.Processes.ProcessCount) == 0):
		return fmt.Errorf("processes of the pod = %s, want some", text(p.Processes))
	}
	return nil
}

func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

// fromKubelet gets a page of the node's kubelet, through the API server: JSON into v, or text into a *string.
func (k *scene) fromKubelet(ctx context.Context, path string, v any) error {
	data, err := c.Client.CoreV1().RESTClient().Get().AbsPath("/api/v1/nodes/" + k.node + "/proxy/" + path).DoRaw(ctx)
	if err != nil {
		return err
	}
	if s, ok := v.(*string); ok {
		*s = string(data)
		return nil
	}
	return json.Unmarshal(data, v)
}
