package spec

import (
	"encoding/json"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// BenchmarkContainer is a container as the kubelet sends them: the default seccomp profile, five volumes, limits.
func BenchmarkContainer(b *testing.B) {
	in := typical()
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Container(in); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkConfigJSON adds what it takes to write it.
func BenchmarkConfigJSON(b *testing.B) {
	in := typical()
	b.ReportAllocs()
	for b.Loop() {
		s, _, err := Container(in)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := json.Marshal(s); err != nil {
			b.Fatal(err)
		}
	}
}

func typical() Input {
	in := base()
	in.Config = &cri.ContainerConfig{
		Command: []string{"/bin/server"}, Args: []string{"--port", "8080"},
		Linux: &cri.LinuxContainerConfig{
			Resources: &cri.LinuxContainerResources{
				CpuShares: 512, CpuQuota: 50000, CpuPeriod: 100000, MemoryLimitInBytes: 1 << 28, OomScoreAdj: 900,
			},
			SecurityContext: &cri.LinuxContainerSecurityContext{
				Seccomp:      &cri.SecurityProfile{ProfileType: cri.SecurityProfile_RuntimeDefault},
				Capabilities: &cri.Capability{DropCapabilities: []string{"ALL"}, AddCapabilities: []string{"NET_BIND_SERVICE"}},
			},
		},
	}
	for _, to := range []string{"/etc/hosts", "/dev/termination-log", "/var/run/secrets/token", "/data", "/cache"} {
		in.Config.Mounts = append(in.Config.Mounts, &cri.Mount{ContainerPath: to, HostPath: "/var/lib/kubelet/x" + to})
	}
	for range 30 { // a namespace with some services
		in.Config.Envs = append(
			in.Config.Envs, &cri.KeyValue{Key: "SERVICE_PORT_" + string(rune('A'+len(in.Config.Envs))), Value: []byte("8080")},
		)
	}
	in.Mounts = resolved(in.Config)
	return in
}
