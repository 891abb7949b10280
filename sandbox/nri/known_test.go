package nri

import (
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/podd-project/podd/sandbox/record"
)

// addUnknown sets field 999 of a message, as a plugin of a newer protocol might.
func addUnknown(m proto.Message) {
	m.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1))
}

// TestNewerPlugin: what podd does not know is refused, not lost.
func TestNewerPlugin(t *testing.T) {
	adjust := func(a *api.ContainerAdjustment) {
		a.SetLinuxCPUShares(100)
		addUnknown(a.Linux.Resources)
	}
	n := newNode(t, nil, nil)
	p := n.connect(t, &testPlugin{create: adjusting(adjust)})
	_, err := n.Create(t.Context(), newCreation("c1"))
	if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "10-test") ||
		!strings.Contains(err.Error(), "field 999") || !strings.Contains(err.Error(), "adjust.linux.resources") {
		t.Errorf("Create = %v, want a failed precondition that names the plugin and the field", err)
	}
	u := setShares("c0", 2)
	addUnknown(u.Linux)
	failed, err := p.stub.UpdateContainers([]*api.ContainerUpdate{u})
	if err != nil || len(failed) != 1 || len(n.engine.updated()) > 0 {
		t.Errorf("UpdateContainers = %v, %v, updates %q, want it to fail", failed, err, n.engine.updated())
	}
}

// TestFieldsOfTheProtocol: a new version of the library has no field that apply, splitResources or the descriptions of
// pods and containers do not know. Podd leaves cgroups_path of pods empty.
func TestFieldsOfTheProtocol(t *testing.T) {
	for m, want := range map[protoreflect.ProtoMessage]string{
		&api.ContainerAdjustment{}: "CDI_devices annotations args env hooks linux mounts rlimits",
		&api.LinuxContainerAdjustment{}: "cgroups_path devices io_priority memory_policy namespaces net_devices " +
			"oom_score_adj rdt resources scheduler seccomp_policy sysctl",
		&api.LinuxResources{}: "blockio_class cpu devices hugepage_limits memory pids rdt_class unified",
		&api.LinuxCPU{}:       "cpus mems period quota realtime_period realtime_runtime shares",
		&api.LinuxMemory{}:    "disable_oom_killer kernel kernel_tcp limit reservation swap swappiness use_hierarchy",
		&api.LinuxRdt{}:       "clos_id enable_monitoring remove schemata",
		&api.Container{}: "CDI_devices annotations args created_at env exit_code finished_at hooks id image labels linux " +
			"mounts name pid pod_sandbox_id rlimits started_at state status_message status_reason user",
		&api.LinuxContainer{}: "cgroups_path devices io_priority namespaces net_devices oom_score_adj rdt resources " +
			"scheduler seccomp_policy seccomp_profile sysctl",
		&api.PodSandbox{}:           "annotations id ips labels linux name namespace pid runtime_handler uid",
		&api.LinuxPodSandbox{}:      "cgroup_parent cgroups_path namespaces pod_overhead pod_resources resources",
		&api.ContainerUpdate{}:      "container_id ignore_failure linux",
		&api.LinuxContainerUpdate{}: "resources",
	} {
		var names []string
		fields := m.ProtoReflect().Descriptor().Fields()
		for i := range fields.Len() {
			names = append(names, string(fields.Get(i).Name()))
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("fields of %s:\n%s, want\n%s", m.ProtoReflect().Descriptor().Name(), got, want)
		}
	}
}

// TestCopiesKeepAllFields: a copy with another status or other limits has every other field of the message, including
// one that a later version of the protocol adds.
func TestCopiesKeepAllFields(t *testing.T) {
	t.Parallel()
	full := &api.Container{}
	fill(full.ProtoReflect(), 3)
	addUnknown(full)
	addUnknown(full.Linux)
	for name, c := range map[string]struct {
		got    *api.Container
		change func(want *api.Container)
	}{
		"status": {
			withStatus(full, record.ContainerStatus{State: record.ContainerRunning, Reason: "why"}), func(*api.Container) {},
		},
		"limits": {withResources(full, &api.LinuxResources{RdtClass: api.String("new")}), func(want *api.Container) {
			old := want.Linux.Resources
			want.Linux.Resources = &api.LinuxResources{RdtClass: api.String("new"), Devices: old.Devices, Pids: old.Pids}
		}},
	} {
		want := proto.CloneOf(full)
		c.change(want)
		want.State, want.Pid, want.StartedAt, want.FinishedAt = c.got.State, 0, 0, 0
		want.ExitCode, want.StatusReason, want.StatusMessage = 0, c.got.StatusReason, ""
		if !proto.Equal(c.got, want) {
			t.Errorf("%s: copy = %v, want %v", name, c.got, want)
		}
	}
	if full.Linux.Resources.GetRdtClass().GetValue() == "new" || full.GetStatusReason() == "why" {
		t.Error("the original was changed")
	}
}

// fill sets every field of a message, and of those in it down to a depth.
func fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsMap():
			value := m.NewField(f)
			value.Map().Set(protoreflect.ValueOfString("key").MapKey(), scalar(f.MapValue(), value.Map().NewValue()))
			m.Set(f, value)
		case f.IsList() && f.Message() != nil:
			list := m.NewField(f)
			if element := list.List().NewElement(); depth > 0 {
				fill(element.Message(), depth-1)
				list.List().Append(element)
				m.Set(f, list)
			}
		case f.IsList():
			list := m.NewField(f)
			list.List().Append(scalar(f, list.List().NewElement()))
			m.Set(f, list)
		case f.Message() != nil && depth > 0:
			value := m.NewField(f)
			fill(value.Message(), depth-1)
			m.Set(f, value)
		case f.Message() == nil:
			m.Set(f, scalar(f, m.NewField(f)))
		}
	}
}

// scalar returns a value that is not the default zero.
func scalar(f protoreflect.FieldDescriptor, zero protoreflect.Value) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString("text")
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(7)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(7)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(7)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(7)
	}
	return zero
}
