package nri

import (
	"strings"
	"time"

	"github.com/containerd/nri/pkg/api"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/sandbox/record"
)

// podMessage describes a pod to plugins.
func podMessage(p record.PodView) *api.PodSandbox {
	m, linux := p.Config.GetMetadata(), p.Linux()
	msg := &api.PodSandbox{
		Id: p.ID, Name: m.GetName(), Uid: m.GetUid(), Namespace: m.GetNamespace(),
		Labels: p.Config.GetLabels(), Annotations: p.Config.GetAnnotations(), RuntimeHandler: p.Handler,
		Ips: p.Status.IPs, Pid: uint32(p.Status.Infra.Pid),
		Linux: &api.LinuxPodSandbox{
			CgroupParent: linux.GetCgroupParent(),
			PodOverhead:  resourcesMessage(linux.GetOverhead()), PodResources: resourcesMessage(linux.GetResources()),
		},
	}
	if p.Netns != "" {
		msg.Linux.Namespaces = []*api.LinuxNamespace{{Type: string(specs.NetworkNamespace), Path: p.Netns}}
	}
	return msg
}

// containerMessage describes a container to plugins by its records and s, its config.json. Without s only the fields
// are set that follow from the records: for a container whose bundle is gone.
func containerMessage(c record.ContainerView, s *specs.Spec) *api.Container {
	msg := &api.Container{
		Id: c.ID, PodSandboxId: c.PodID, Name: c.Config.GetMetadata().GetName(),
		Labels: c.Config.GetLabels(), Annotations: c.Config.GetAnnotations(),
		CreatedAt: nanoseconds(c.CreatedAt), Image: imageMessage(c.Container),
		Linux: &api.LinuxContainer{
			Resources: resourcesMessage(c.Config.GetLinux().GetResources()), SeccompProfile: seccompMessage(c.Config),
		},
	}
	for _, d := range c.Config.GetCDIDevices() {
		msg.CDIDevices = append(msg.CDIDevices, &api.CDIDevice{Name: d.GetName()})
	}
	if s != nil {
		addSpec(msg, s)
	}
	return withStatus(msg, c.Status)
}

func addSpec(msg *api.Container, s *specs.Spec) {
	msg.Mounts, msg.Hooks = api.FromOCIMounts(s.Mounts), api.FromOCIHooks(s.Hooks)
	if p := s.Process; p != nil {
		msg.Args, msg.Env = p.Args, p.Env
		msg.User = &api.User{Uid: p.User.UID, Gid: p.User.GID, AdditionalGids: p.User.AdditionalGids}
		for _, l := range p.Rlimits {
			msg.Rlimits = append(msg.Rlimits, &api.POSIXRlimit{Type: l.Type, Hard: l.Hard, Soft: l.Soft})
		}
		msg.Linux.OomScoreAdj = api.Int(p.OOMScoreAdj)
		msg.Linux.IoPriority = api.FromOCILinuxIOPriority(p.IOPriority)
		msg.Linux.Scheduler = api.FromOCILinuxScheduler(p.Scheduler)
	}
	if l := s.Linux; l != nil {
		msg.Linux.Namespaces = api.FromOCILinuxNamespaces(l.Namespaces)
		msg.Linux.Devices = api.FromOCILinuxDevices(l.Devices)
		msg.Linux.Resources = api.FromOCILinuxResources(l.Resources, nil)
		msg.Linux.CgroupsPath, msg.Linux.Sysctl = l.CgroupsPath, l.Sysctl
		if l.Seccomp != nil { // the library's function needs one
			msg.Linux.SeccompPolicy = api.FromOCILinuxSeccomp(l.Seccomp)
		}
		msg.Linux.NetDevices = api.FromOCILinuxNetDevices(l.NetDevices)
		if r := l.IntelRdt; r != nil {
			msg.Linux.Rdt = &api.LinuxRdt{
				ClosId: api.String(r.ClosID), Schemata: api.RepeatedString(r.Schemata),
				EnableMonitoring: api.Bool(r.EnableMonitoring),
			}
		}
	}
}

// withStatus returns a copy of msg with the fields that change while a container exists.
func withStatus(msg *api.Container, s record.ContainerStatus) *api.Container {
	states := map[record.ContainerState]api.ContainerState{
		record.ContainerCreating: api.ContainerState_CONTAINER_CREATED, // as NRI calls it from CreateContainer on
		record.ContainerCreated:  api.ContainerState_CONTAINER_CREATED,
		record.ContainerRunning:  api.ContainerState_CONTAINER_RUNNING,
		record.ContainerExited:   api.ContainerState_CONTAINER_STOPPED,
	}
	out := shallowCopy(msg)
	out.State, out.Pid, out.ExitCode = states[s.State], uint32(s.Process.Pid), s.ExitCode
	out.StartedAt, out.FinishedAt, out.StatusReason = nanoseconds(s.StartedAt), nanoseconds(s.FinishedAt), s.Reason
	out.StatusMessage = strings.ToValidUTF8(s.Message, "?") // as protobuf requires; a runtime's message need not be
	return out
}

// shallowCopy returns a copy of m, which may be nil, that shares the values of its fields. It includes the fields that
// podd does not know.
func shallowCopy[M proto.Message](m M) M {
	from := m.ProtoReflect()
	to := from.New()
	from.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		to.Set(field, value)
		return true
	})
	to.SetUnknown(from.GetUnknown())
	return to.Interface().(M)
}

// nanoseconds returns the time since 1970, 0 for none.
func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func imageMessage(c *record.Container) *api.Image {
	name := c.Config.GetImage().GetUserSpecifiedImage()
	if name == "" {
		name = c.Config.GetImage().GetImage()
	}
	return &api.Image{Name: name, ConfigDigest: "sha256:" + c.ImageID}
}

func seccompMessage(c *cri.ContainerConfig) *api.SecurityProfile {
	p := c.GetLinux().GetSecurityContext().GetSeccomp()
	if p == nil {
		return nil
	}
	types := map[cri.SecurityProfile_ProfileType]api.SecurityProfile_ProfileType{
		cri.SecurityProfile_RuntimeDefault: api.SecurityProfile_RUNTIME_DEFAULT,
		cri.SecurityProfile_Unconfined:     api.SecurityProfile_UNCONFINED,
		cri.SecurityProfile_Localhost:      api.SecurityProfile_LOCALHOST,
	}
	return &api.SecurityProfile{ProfileType: types[p.GetProfileType()], LocalhostRef: p.GetLocalhostRef()}
}
