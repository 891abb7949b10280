package daemon

import (
	"context"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/sandbox/record"
	"github.com/podd-project/podd/sandbox/usage"
)

// Usage measures the pods that are ready.
func (a adminNode) Usage(ctx context.Context) []admin.PodUsage {
	var ids []string
	for _, p := range a.n.Engine.Pods() {
		if p.Status().State == record.PodReady {
			ids = append(ids, p.ID)
		}
	}
	used := a.n.Engine.PodUsage(ctx, ids, usage.Want{Details: true, Fresh: true})
	out := []admin.PodUsage{}
	for _, id := range ids {
		p, err := a.n.Engine.Pod(id)
		u, ok := used[id]
		if err != nil || !ok {
			continue // it was stopped since
		}
		one := admin.PodUsage{ID: id, Name: podName(p), Resources: resources(u.Sample), Containers: []admin.ContainerUsage{}}
		for _, c := range a.n.Engine.ContainersOf(p) {
			if used, ok := u.Containers[c.ID]; ok {
				one.Containers = append(one.Containers, admin.ContainerUsage{
					ID: c.ID, Name: c.Config.GetMetadata().GetName(), Resources: resources(used.Sample),
				})
			}
		}
		out = append(out, one)
	}
	return out
}

// resources converts a sample.
func resources(s usage.Sample) admin.Resources {
	r := admin.Resources{CPU: s.NanoCores}
	if s.Usage != nil && s.Usage.Memory != nil {
		r.Memory = new(s.Usage.Memory.WorkingSet)
	}
	if s.Details != nil && len(s.Details.IO) > 0 {
		r.IO = &admin.IO{At: s.Details.Details.At.UTC()}
		for _, device := range s.Details.IO {
			r.IO.ReadBytes += device.ReadBytes
			r.IO.WriteBytes += device.WriteBytes
		}
	}
	return r
}
