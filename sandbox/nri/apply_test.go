package nri

import (
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/containerd/nri/pkg/api"
	"github.com/google/go-cmp/cmp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
)

// TestAdjustments lets a real plugin adjust each field, and compares config.json with what it should be.
func TestAdjustments(t *testing.T) {
	for _, tt := range adjustments() {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, nil, nil)
			n.connect(t, &testPlugin{create: adjusting(tt.adjust)})
			c := newCreation("c1")
			a, err := n.Create(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			want := baseSpec()
			tt.want(want)
			if diff := cmp.Diff(want, c.Spec); diff != "" {
				t.Errorf("config.json differs (-want +got):\n%s", diff)
			}
			if got := strings.Join(a.Fields["10-test"], " "); got != tt.owned {
				t.Errorf("changed fields = %q, want %q", got, tt.owned)
			}
		})
	}
}

// adjusting returns what a plugin does that makes one adjustment.
func adjusting(adjust func(*api.ContainerAdjustment)) func(*api.PodSandbox, *api.Container) (
	*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	return func(*api.PodSandbox, *api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
		a := &api.ContainerAdjustment{}
		adjust(a)
		return a, nil, nil
	}
}

type adjustment struct {
	name   string
	adjust func(*api.ContainerAdjustment)
	want   func(*specs.Spec)
	owned  string
}

func adjustments() []adjustment {
	return append(append(processAdjustments(), kernelAdjustments()...), resourceAdjustments()...)
}

func processAdjustments() []adjustment {
	return []adjustment{
		{"nothing", func(*api.ContainerAdjustment) {}, func(*specs.Spec) {}, ""},
		{"annotations", func(a *api.ContainerAdjustment) { a.AddAnnotation("a", "x"); a.RemoveAnnotation("b") },
			func(s *specs.Spec) { s.Annotations = map[string]string{"a": "x"} }, "Annotations"},
		{"env", func(a *api.ContainerAdjustment) {
			a.AddEnv("PATH", "/sbin")
			a.AddEnv("NEW", "a=b")
			a.RemoveEnv("KEEP")
		},
			func(s *specs.Spec) { s.Process.Env = []string{"PATH=/sbin", "NEW=a=b"} }, "Env"},
		{"args", func(a *api.ContainerAdjustment) { a.SetArgs([]string{"/bin/true", "x"}) },
			func(s *specs.Spec) { s.Process.Args = []string{"/bin/true", "x"} }, "Args"},
		{"rlimits", func(a *api.ContainerAdjustment) {
			a.AddRlimit("RLIMIT_NOFILE", 65536, 2048)
			a.AddRlimit("RLIMIT_CORE", 1, 0)
		}, func(s *specs.Spec) {
			s.Process.Rlimits = []specs.POSIXRlimit{
				{Type: "RLIMIT_NOFILE", Soft: 2048, Hard: 65536}, {Type: "RLIMIT_CORE", Hard: 1},
			}
		}, "Rlimits"},
		{"mounts", func(a *api.ContainerAdjustment) {
			a.RemoveMount("/proc")
			a.AddMount(&api.Mount{
				Destination: "/data", Type: "bind", Source: "/srv/other", Options: []string{"rbind", "rslave"},
			})
			a.AddMount(&api.Mount{Destination: "/a/b/c", Type: "tmpfs", Source: "tmpfs"})
			a.AddMount(&api.Mount{Destination: "/a", Type: "tmpfs", Source: "tmpfs"})
		}, func(s *specs.Spec) {
			s.Linux.RootfsPropagation = "rslave"
			s.Mounts = []specs.Mount{
				{Destination: "/data", Type: "bind", Source: "/srv/other", Options: []string{"rbind", "rslave"}},
				{Destination: "/a", Type: "tmpfs", Source: "tmpfs"},
				{Destination: "/a/b/c", Type: "tmpfs", Source: "tmpfs"},
			}
		}, "Mounts"},
		{"hooks", func(a *api.ContainerAdjustment) {
			h := func(path string) []*api.Hook { return []*api.Hook{{Path: path, Args: []string{path, "x"}}} }
			a.AddHooks(&api.Hooks{
				Prestart: h("/p"), CreateRuntime: h("/cr"), CreateContainer: h("/cc"), StartContainer: h("/sc"),
				Poststart: h("/ps"), Poststop: h("/pp"),
			})
		}, func(s *specs.Spec) {
			h := func(path string) []specs.Hook {
				return []specs.Hook{{Path: path, Args: []string{path, "x"}}}
			}
			s.Hooks = &specs.Hooks{
				//lint:ignore SA1019 plugins for old runtimes have it
				Prestart: h("/p"), CreateRuntime: h("/cr"), CreateContainer: h("/cc"), StartContainer: h("/sc"),
				Poststart: h("/ps"), Poststop: h("/pp"),
			}
		}, "OciHooks"},
		{"CDI", func(a *api.ContainerAdjustment) { a.AddCDIDevice(&api.CDIDevice{Name: "vendor.com/gpu=0"}) },
			func(s *specs.Spec) { s.Process.Env = append(s.Process.Env, "CDI=vendor.com/gpu=0") }, "CdiDevices"},
		{"oom score", func(a *api.ContainerAdjustment) { a.SetLinuxOomScoreAdj(new(-500)) },
			func(s *specs.Spec) { s.Process.OOMScoreAdj = new(-500) }, "OomScoreAdj"},
		{"io priority", func(a *api.ContainerAdjustment) {
			a.SetLinuxIOPriority(&api.LinuxIOPriority{Class: api.IOPrioClass_IOPRIO_CLASS_BE, Priority: 6})
		}, func(s *specs.Spec) {
			s.Process.IOPriority = &specs.LinuxIOPriority{Class: specs.IOPRIO_CLASS_BE, Priority: 6}
		},
			"IoPriority"},
		{"scheduler", func(a *api.ContainerAdjustment) {
			a.SetLinuxScheduler(&api.LinuxScheduler{Policy: api.LinuxSchedulerPolicy_SCHED_BATCH, Nice: 5})
		}, func(s *specs.Spec) { s.Process.Scheduler = &specs.Scheduler{Policy: specs.SchedBatch, Nice: 5} }, "LinuxSched"},
	}
}

func kernelAdjustments() []adjustment {
	return []adjustment{
		{"devices", func(a *api.ContainerAdjustment) {
			a.AddDevice(&api.LinuxDevice{Path: "/dev/nri", Type: "c", Major: 1, Minor: 3})
		}, func(s *specs.Spec) {
			s.Linux.Devices = append(s.Linux.Devices, specs.LinuxDevice{Path: "/dev/nri", Type: "c", Major: 1, Minor: 3})
			s.Linux.Resources.Devices = []specs.LinuxDeviceCgroup{
				{Allow: true, Type: "c", Major: new(int64(1)), Minor: new(int64(3)), Access: "rw"},
			}
		}, "Devices"},
		{"removed device", func(a *api.ContainerAdjustment) { a.RemoveDevice("/dev/old") },
			func(s *specs.Spec) { s.Linux.Devices = []specs.LinuxDevice{} }, ""},
		{"net devices", func(a *api.ContainerAdjustment) { a.AddLinuxNetDevice("eth9", &api.LinuxNetDevice{Name: "in0"}) },
			func(s *specs.Spec) { s.Linux.NetDevices = map[string]specs.LinuxNetDevice{"eth9": {Name: "in0"}} },
			"LinuxNetDevices"},
		{"namespaces", func(a *api.ContainerAdjustment) {
			a.AddOrReplaceNamespace(&api.LinuxNamespace{Type: "ipc", Path: "/proc/1/ns/ipc"})
			a.RemoveNamespace(&api.LinuxNamespace{Type: "pid"})
		}, func(s *specs.Spec) {
			s.Linux.Namespaces = []specs.LinuxNamespace{
				{Type: specs.MountNamespace}, {Type: "ipc", Path: "/proc/1/ns/ipc"},
			}
		}, "Namespace"},
		{"sysctl", func(a *api.ContainerAdjustment) {
			a.SetLinuxSysctl("net.core.somaxconn", "4096")
			a.Linux.Sysctl[api.MarkForRemoval("kernel.shm_rmid_forced")] = ""
		}, func(s *specs.Spec) { s.Linux.Sysctl = map[string]string{"net.core.somaxconn": "4096"} }, "Sysctl"},
		{"seccomp", func(a *api.ContainerAdjustment) {
			a.SetLinuxSeccompPolicy(&api.LinuxSeccomp{
				DefaultAction: "SCMP_ACT_ERRNO", DefaultErrno: &api.OptionalUInt32{Value: 38},
				Architectures: []string{"SCMP_ARCH_X86_64"},
				Syscalls:      []*api.LinuxSyscall{{Names: []string{"read"}, Action: "SCMP_ACT_ALLOW"}},
			})
		}, func(s *specs.Spec) {
			s.Linux.Seccomp = &specs.LinuxSeccomp{
				DefaultAction: specs.ActErrno, DefaultErrnoRet: new(uint(38)), Architectures: []specs.Arch{specs.ArchX86_64},
				Syscalls: []specs.LinuxSyscall{{
					Names: []string{"read"}, Action: specs.ActAllow, Args: []specs.LinuxSeccompArg{},
				}},
			}
		}, "SeccompPolicy"},
		{"memory policy", func(a *api.ContainerAdjustment) {
			a.SetLinuxMemoryPolicy(api.MpolMode_MPOL_BIND, "0", api.MpolFlag_MPOL_F_STATIC_NODES)
		}, func(s *specs.Spec) {
			s.Linux.MemoryPolicy = &specs.LinuxMemoryPolicy{
				Mode: specs.MpolBind, Nodes: "0", Flags: []specs.MemoryPolicyFlagType{specs.MpolFStaticNodes},
			}
		}, "MemoryPolicy"},
		{"RDT", func(a *api.ContainerAdjustment) {
			a.SetLinuxRDTClosID("gold")
			a.SetLinuxRDTSchemata([]string{"MB:0=50"})
			a.SetLinuxRDTEnableMonitoring(true)
		}, func(s *specs.Spec) {
			s.Linux.IntelRdt = &specs.LinuxIntelRdt{ClosID: "gold", Schemata: []string{"MB:0=50"}, EnableMonitoring: true}
		}, "RdtClosID RdtEnableMonitoring RdtSchemata"},
	}
}

func resourceAdjustments() []adjustment {
	return []adjustment{
		{"limits of the CRI", func(a *api.ContainerAdjustment) {
			a.SetLinuxCPUShares(100)
			a.SetLinuxCPUQuota(20000)
			a.SetLinuxCPUPeriod(100000)
			a.SetLinuxCPUSetCPUs("0-1")
			a.SetLinuxCPUSetMems("0")
			a.SetLinuxMemoryLimit(128 << 20)
			a.AddLinuxHugepageLimit("2MB", 4<<20)
			a.AddLinuxUnified("memory.high", "1000000")
		}, func(s *specs.Spec) {
			r := s.Linux.Resources
			r.CPU = &specs.LinuxCPU{
				Shares: new(uint64(100)), Quota: new(int64(20000)), Period: new(uint64(100000)), Cpus: "0-1", Mems: "0",
			}
			r.Memory = &specs.LinuxMemory{Limit: new(int64(128 << 20)), Swap: new(int64(128 << 20))}
			r.HugepageLimits = []specs.LinuxHugepageLimit{{Pagesize: "2MB", Limit: 4 << 20}}
			r.Unified = map[string]string{"memory.high": "1000000", "memory.swap.max": "0"}
		}, "CPUPeriod CPUQuota CPUSetCPUs CPUSetMems CPUShares CgroupsUnified HugepageLimits MemLimit"},
		{"other limits", func(a *api.ContainerAdjustment) {
			a.SetLinuxPidLimits(77)
			a.SetLinuxMemoryReservation(1 << 20)
			a.SetLinuxMemorySwappiness(10)
			a.SetLinuxCPURealtimeRuntime(1000)
			a.SetLinuxCPURealtimePeriod(2000)
			a.SetLinuxBlockIOClass("slow")
		}, func(s *specs.Spec) {
			r := s.Linux.Resources
			r.Pids = &specs.LinuxPids{Limit: new(int64(77))}
			r.CPU.RealtimeRuntime, r.CPU.RealtimePeriod = new(int64(1000)), new(uint64(2000))
			r.Memory = &specs.LinuxMemory{Reservation: new(int64(1 << 20)), Swappiness: new(uint64(10))}
			r.BlockIO = &specs.LinuxBlockIO{Weight: new(uint16(20))}
		}, "BlockioClass CPURealtimePeriod CPURealtimeRuntime MemReservation MemSwappiness PidsLimit"},
	}
}

// TestNoClassOfBlockIO: a class without a name removes the limits that the container has.
func TestNoClassOfBlockIO(t *testing.T) {
	c, a := newCreation("c1"), &api.ContainerAdjustment{}
	c.Spec.Linux.Resources.BlockIO = &specs.LinuxBlockIO{Weight: new(uint16(20))}
	a.SetLinuxBlockIOClass("")
	if _, err := apply(c, a); err != nil || c.Spec.Linux.Resources.BlockIO != nil {
		t.Errorf("apply = %v, limits %+v, want none", err, c.Spec.Linux.Resources.BlockIO)
	}
}

// TestStatusHasAdjustedLimits: what the status of the container will say.
func TestStatusHasAdjustedLimits(t *testing.T) {
	n := newNode(t, nil, nil)
	n.connect(t, &testPlugin{create: adjusting(func(a *api.ContainerAdjustment) {
		a.SetLinuxCPUShares(100)
		a.SetLinuxOomScoreAdj(new(7))
	})})
	a, err := n.Create(t.Context(), newCreation("c1"))
	if err != nil {
		t.Fatal(err)
	}
	r := a.Resources
	if r.GetCpuShares() != 100 || r.GetMemoryLimitInBytes() != 64<<20 || r.GetOomScoreAdj() != 7 {
		t.Errorf("resources = %v, want 100 shares, the limit of memory of the request, and score 7", r)
	}
}

// TestRefusedAdjustments: the error names the field, and is the plugin's or the configuration's fault.
func TestRefusedAdjustments(t *testing.T) {
	for _, tt := range []struct {
		name   string
		adjust func(*api.ContainerAdjustment)
		want   string
	}{
		{"reserved annotation", func(a *api.ContainerAdjustment) { a.AddAnnotation("io.podd.kind", "x") }, "annotations"},
		{"cgroup", func(a *api.ContainerAdjustment) { a.SetLinuxCgroupsPath("/x") }, "linux.cgroups_path"},
		{"NUL in a variable", func(a *api.ContainerAdjustment) { a.AddEnv("A", "x\x00y") }, "env"},
		{"unknown limit", func(a *api.ContainerAdjustment) { a.AddRlimit("RLIMIT_X", 1, 1) }, "rlimits"},
		{"soft above hard", func(a *api.ContainerAdjustment) { a.AddRlimit("RLIMIT_CORE", 1, 2) }, "rlimits"},
		{"mount over the root", func(a *api.ContainerAdjustment) { a.AddMount(&api.Mount{Destination: "/"}) }, "mounts"},
		{"relative mount", func(a *api.ContainerAdjustment) { a.AddMount(&api.Mount{Destination: "a"}) }, "mounts"},
		{"climbing mount", func(a *api.ContainerAdjustment) { a.AddMount(&api.Mount{Destination: "/a/../../b"}) }, "mounts"},
		{"relative source", func(a *api.ContainerAdjustment) {
			a.AddMount(&api.Mount{Destination: "/a", Type: "bind", Source: "b"})
		}, "mounts"},
		{"relative hook", func(a *api.ContainerAdjustment) {
			a.AddHooks(&api.Hooks{Poststop: []*api.Hook{{Path: "x"}}})
		}, "hooks"},
		{"device type", func(a *api.ContainerAdjustment) {
			a.AddDevice(&api.LinuxDevice{Path: "/dev/x", Type: "z"})
		}, "linux.devices"},
		{"user namespace", func(a *api.ContainerAdjustment) {
			a.AddOrReplaceNamespace(&api.LinuxNamespace{Type: "user"})
		}, "linux.namespaces"},
		{"no command", func(a *api.ContainerAdjustment) { a.UpdateArgs([]string{""}) }, "args"},
		{"NUL in an argument", func(a *api.ContainerAdjustment) { a.SetArgs([]string{"/bin/true", "a\x00b"}) }, "args"},
		{"removed variable without a name", func(a *api.ContainerAdjustment) { a.RemoveEnv("") }, "env"},
		{"limit above podd's", func(a *api.ContainerAdjustment) { a.AddRlimit("RLIMIT_RTPRIO", 11, 1) }, "rlimits"},
		{"NUL in a mount", func(a *api.ContainerAdjustment) {
			a.AddMount(&api.Mount{Destination: "/x", Type: "bind", Source: "/a\x00", Options: []string{"bind"}})
		}, "mounts"},
		{"relative device", func(a *api.ContainerAdjustment) {
			a.AddDevice(&api.LinuxDevice{Path: "dev/x", Type: "c"})
		}, "linux.devices"},
		{"high score", func(a *api.ContainerAdjustment) { a.SetLinuxOomScoreAdj(new(1001)) }, "linux.oom_score_adj"},
		{"low score", func(a *api.ContainerAdjustment) { a.SetLinuxOomScoreAdj(new(-1000)) }, "linux.oom_score_adj"},
		{"class of block I/O", func(a *api.ContainerAdjustment) { a.SetLinuxBlockIOClass("x") }, "no class x"},
		{"class of RDT", func(a *api.ContainerAdjustment) { a.SetLinuxRDTClass("x") }, "linux.resources.rdt_class"},
		{"bad cpuset", func(a *api.ContainerAdjustment) { a.SetLinuxCPUSetCPUs("a-b") }, "linux.resources"},
		{"absent CDI device", func(a *api.ContainerAdjustment) {
			a.AddCDIDevice(&api.CDIDevice{Name: "vendor.com/gpu=absent"})
		}, "CDI_devices"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, nil, nil)
			n.connect(t, &testPlugin{create: adjusting(tt.adjust)})
			_, err := n.Create(t.Context(), newCreation("c1"))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Create = %v, want an error that names %s", err, tt.want)
			}
		})
	}
}

// TestHighScoreOfPodd: a podd that may not lower its own oom_score_adj, as below a user's systemd, refuses a lower one
// of a plugin, not an adjustment without one.
func TestHighScoreOfPodd(t *testing.T) {
	n := newNode(t, nil, nil)
	n.connect(t, &testPlugin{create: adjusting(func(a *api.ContainerAdjustment) { a.AddEnv("A", "1") })})
	c := newCreation("c1")
	c.Facts.OOMScoreAdjMin = 200
	if _, err := n.Create(t.Context(), c); err != nil {
		t.Errorf("Create = %v, want no error", err)
	}
}

// TestOwnKernelRefusesFields: a runtime with a kernel of its own would ignore them.
func TestOwnKernelRefusesFields(t *testing.T) {
	ignored := map[string]string{
		"hooks": "hooks", "CDI": "CDI_devices", "oom score": "linux.oom_score_adj", "io priority": "linux.io_priority",
		"scheduler": "linux.scheduler", "devices": "linux.devices", "removed device": "linux.devices",
		"net devices": "linux.net_devices",
		"namespaces":  "linux.namespaces", "sysctl": "linux.sysctl", "seccomp": "linux.seccomp_policy",
		"memory policy": "linux.memory_policy", "RDT": "linux.rdt", "limits of the CRI": "linux.resources",
		"other limits": "linux.resources",
	}
	for _, tt := range adjustments() {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, nil, nil)
			n.connect(t, &testPlugin{create: adjusting(tt.adjust)})
			c := newCreation("c1")
			c.Handler.OwnKernel = true
			_, err := n.Create(t.Context(), c)
			field := ignored[tt.name]
			switch {
			case field == "" && err != nil:
				t.Errorf("Create = %v, want none", err)
			case field != "" && (!errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), field)):
				t.Errorf("Create = %v, want a failed precondition that names %s", err, field)
			}
		})
	}
}

// TestRestoredContainerRefusesFields: what a checkpoint has cannot be adjusted, limits and annotations can.
func TestRestoredContainerRefusesFields(t *testing.T) {
	holds := []string{"nothing", "annotations", "hooks", "RDT", "limits of the CRI", "other limits"}
	for _, tt := range adjustments() {
		c := newCreation("c1")
		c.Container.Restored = true
		a := &api.ContainerAdjustment{}
		tt.adjust(a)
		_, err := apply(c, a)
		if slices.Contains(holds, tt.name) {
			if err != nil {
				t.Errorf("%s: apply = %v, want none", tt.name, err)
			}
			continue
		}
		if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "checkpoint") {
			t.Errorf("%s: apply = %v, want a refusal because of the checkpoint", tt.name, err)
		}
	}
}

// TestOldRuntimeRefusesFields: a runtime would not know them.
func TestOldRuntimeRefusesFields(t *testing.T) {
	newer := map[string]string{
		"io priority": "linux.io_priority", "scheduler": "linux.scheduler", "net devices": "linux.net_devices",
		"memory policy": "linux.memory_policy", "RDT": "linux.rdt.schemata",
		"RDT monitoring": "linux.rdt.enable_monitoring",
	}
	monitoring := adjustment{name: "RDT monitoring", adjust: func(a *api.ContainerAdjustment) {
		a.SetLinuxRDTEnableMonitoring(true)
	}}
	for _, tt := range append(adjustments(), monitoring) {
		c := newCreation("c1")
		c.Spec.Version = "1.0.2"
		a := &api.ContainerAdjustment{}
		tt.adjust(a)
		_, err := apply(c, a)
		if field := newer[tt.name]; field == "" && err != nil || field != "" &&
			(err == nil || !strings.Contains(err.Error(), field)) {
			t.Errorf("%s: apply = %v, want an error that names %q", tt.name, err, field)
		}
	}
}
