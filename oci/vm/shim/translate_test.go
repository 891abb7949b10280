package shim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/podd-project/podd/oci/vm/jail"
)

func hostSpec() *specs.Spec {
	return &specs.Spec{
		Version: "1.2.0", Hostname: "web-0", Annotations: map[string]string{"a": "b"},
		Process: &specs.Process{Args: []string{"sh"}, ApparmorProfile: "p", SelinuxLabel: "l"},
		Root:    &specs.Root{Path: "/var/lib/rootfs", Readonly: true},
		Mounts: []specs.Mount{
			{Destination: "/proc", Type: "proc", Source: "proc"},
			{Destination: "/dev/shm", Type: "bind", Source: "/run/pod/shm", Options: []string{"rbind"}},
			{Destination: "/data", Type: "bind", Source: "/host/data", Options: []string{"rbind", "rprivate", "ro"}},
			{Destination: "/all", Source: "/host/all", Options: []string{"rbind", "rro"}},
		},
		Hooks: &specs.Hooks{},
		Linux: &specs.Linux{
			CgroupsPath: "/kubepods/pod1/c", MountLabel: "m", Sysctl: map[string]string{"net.x": "1"},
			Namespaces: []specs.LinuxNamespace{
				{Type: specs.PIDNamespace}, {Type: specs.NetworkNamespace, Path: "/n"}, {Type: specs.IPCNamespace, Path: "/i"},
				{Type: specs.UTSNamespace, Path: "/u"}, {Type: specs.MountNamespace}, // no cgroup namespace: a host with cgroup v1
			},
			Resources: &specs.LinuxResources{
				CPU:            &specs.LinuxCPU{Cpus: "0-1", Mems: "0", Quota: new(int64(50000))},
				HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "2MB"}},
				BlockIO:        &specs.LinuxBlockIO{Weight: new(uint16(20))},
			},
		},
	}
}

// TestTranslateProcess: a command gets none of the host's CPUs.
func TestTranslateProcess(t *testing.T) {
	data := []byte(`{"args": ["a"], "apparmorProfile": "profile", "execCPUAffinity": {"final": "6"}}`)
	got, err := translateProcess(&anypb.Any{Value: data})
	text := string(got.GetValue())
	if err != nil || strings.Contains(text, "profile") || strings.Contains(text, "Affinity") {
		t.Errorf("translateProcess = %s, %v, want neither profile nor CPUs", text, err)
	}
}

func TestTranslate(t *testing.T) {
	host := hostSpec()
	got, err := translate("c", host, infraPids{guest: 7, host: 70})
	if err != nil {
		t.Fatal(err)
	}
	s := got.spec
	if s.Hostname != "" || s.Hooks != nil || s.Linux.Sysctl != nil || s.Linux.MountLabel != "" ||
		s.Process.ApparmorProfile != "" || s.Process.SelinuxLabel != "" || s.Annotations != nil {
		t.Errorf("the guest's specification has what belongs to the host: %+v", s)
	}
	wantNamespaces := []specs.LinuxNamespace{
		{Type: specs.PIDNamespace}, {Type: specs.MountNamespace}, {Type: specs.CgroupNamespace},
	}
	if !slices.Equal(s.Linux.Namespaces, wantNamespaces) {
		t.Errorf("namespaces = %v, want %v", s.Linux.Namespaces, wantNamespaces)
	}
	if r := s.Linux.Resources; r.CPU.Cpus != "" || r.CPU.Mems != "" || *r.CPU.Quota != 50000 || r.HugepageLimits != nil ||
		r.BlockIO != nil {
		t.Errorf("resources = %+v, %+v, want the quota only", r, r.CPU)
	}
	wantSources := []jail.Source{
		{Path: "/var/lib/rootfs"}, {Path: "/host/data", ReadOnly: true}, {Path: "/host/all", RecursiveReadOnly: true},
	}
	var sources []jail.Source
	for i, w := range got.wanted {
		sources = append(sources, w.source)
		got.place(w, jail.Given{Path: fmt.Sprint("/shared/", i), AsAsked: i == 2})
	}
	if !slices.Equal(sources, wantSources) {
		t.Errorf("sources = %+v, want %+v", sources, wantSources)
	}
	for i, want := range []string{"proc []", "/dev/shm [rbind]", "/shared/1 [rbind rprivate ro]", "/shared/2 [rbind]"} {
		if m := s.Mounts[i]; fmt.Sprint(m.Source, " ", m.Options) != want {
			t.Errorf("mount %s = %s %v, want %s", m.Destination, m.Source, m.Options, want)
		}
	}
	if s.Linux.CgroupsPath != "/pod/c" || s.Root.Path != "/shared/0" || !s.Root.Readonly {
		t.Errorf("cgroup %q, root %+v, want /pod/c and /shared/0, read-only", s.Linux.CgroupsPath, s.Root)
	}
	if host.Linux.CgroupsPath == s.Linux.CgroupsPath || host.Mounts[2].Source != "/host/data" ||
		host.Linux.Resources.CPU.Cpus == "" {
		t.Error("translate has changed the host's specification")
	}
}

// TestTranslateJoinsTheInfraContainer: a container without a PID namespace, as podd asks, and one with the namespace of
// the pid that the shim reports, as containerd asks, are in that of the infra container.
func TestTranslateJoinsTheInfraContainer(t *testing.T) {
	want := specs.LinuxNamespace{Type: specs.PIDNamespace, Path: "/proc/7/ns/pid"}
	for name, change := range map[string]func(*specs.Linux){
		"none": func(l *specs.Linux) {
			l.Namespaces = slices.DeleteFunc(l.Namespaces,
				func(n specs.LinuxNamespace) bool { return n.Type == specs.PIDNamespace })
		},
		"by pid": func(l *specs.Linux) { l.Namespaces[0].Path = "/proc/70/ns/pid" },
	} {
		host := hostSpec()
		change(host.Linux)
		got, err := translate("c", host, infraPids{guest: 7, host: 70})
		if err != nil {
			t.Fatal(err)
		}
		if first := got.spec.Linux.Namespaces[0]; first != want {
			t.Errorf("%s: PID namespace = %+v, want %+v", name, first, want)
		}
	}
}

// TestTranslateOfPrivileged: a container that may use all devices has those of the guest, and only such a container.
func TestTranslateOfPrivileged(t *testing.T) {
	minor := int64(229)
	for name, c := range map[string]struct {
		rule specs.LinuxDeviceCgroup
		want []string
	}{
		"all":      {specs.LinuxDeviceCgroup{Allow: true, Access: "rwm"}, []string{"/dev/fuse", "/dev/kmsg", "/dev/net/tun"}},
		"type a":   {specs.LinuxDeviceCgroup{Allow: true, Type: "a"}, []string{"/dev/fuse", "/dev/kmsg", "/dev/net/tun"}},
		"none":     {specs.LinuxDeviceCgroup{Access: "rwm"}, nil},
		"one":      {specs.LinuxDeviceCgroup{Allow: true, Type: "c", Major: new(int64(10)), Minor: &minor}, nil},
		"a number": {specs.LinuxDeviceCgroup{Allow: true, Minor: &minor}, nil},
	} {
		host := hostSpec()
		host.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{c.rule}
		got, err := translate("c", host, infraPids{})
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, d := range got.spec.Linux.Devices {
			paths = append(paths, d.Path)
		}
		if !slices.Equal(paths, c.want) || host.Linux.Devices != nil {
			t.Errorf("%s: devices = %v, want %v; of the host's specification %v", name, paths, c.want, host.Linux.Devices)
		}
	}
}

// TestTranslateRefuses: what no virtual machine can give is refused, and the error names it.
func TestTranslateRefuses(t *testing.T) {
	for want, change := range map[string]func(*specs.Spec){
		"device /dev/sda": func(s *specs.Spec) { s.Linux.Devices = []specs.LinuxDevice{{Path: "/dev/sda"}} },
		"/proc/9/ns/pid":  func(s *specs.Spec) { s.Linux.Namespaces[0].Path = "/proc/9/ns/pid" },
		"user namespace":  func(s *specs.Spec) { s.Linux.UIDMappings = []specs.LinuxIDMapping{{Size: 1}} },
		"mount /data: Bidirectional": func(s *specs.Spec) {
			s.Mounts[2].Options = []string{"rbind", "rshared"}
		},
		"mount /data: id mappings": func(s *specs.Spec) { s.Mounts[2].UIDMappings = []specs.LinuxIDMapping{{Size: 1}} },
	} {
		s := hostSpec()
		change(s)
		_, err := translate("c", s, infraPids{host: 70})
		if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), want) {
			t.Errorf("translate = %v, want an invalid argument with %q", err, want)
		}
	}
}
