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

// TestFieldsOfTheProtocol: a new version of the library has no field that apply and splitResources do not know.
func TestFieldsOfTheProtocol(t *testing.T) {
	for m, want := range map[protoreflect.ProtoMessage]string{
		&api.ContainerAdjustment{}: "CDI_devices annotations args env hooks linux mounts rlimits",
		&api.LinuxContainerAdjustment{}: "cgroups_path devices io_priority memory_policy namespaces net_devices " +
			"oom_score_adj rdt resources scheduler seccomp_policy sysctl",
		&api.LinuxResources{}:       "blockio_class cpu devices hugepage_limits memory pids rdt_class unified",
		&api.LinuxCPU{}:             "cpus mems period quota realtime_period realtime_runtime shares",
		&api.LinuxMemory{}:          "disable_oom_killer kernel kernel_tcp limit reservation swap swappiness use_hierarchy",
		&api.LinuxRdt{}:             "clos_id enable_monitoring remove schemata",
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
