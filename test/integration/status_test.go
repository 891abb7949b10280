package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestStatus(t *testing.T) {
	t.Parallel()
	k := start(t)
	t.Run("version", func(t *testing.T) {
		v, err := k.Runtime.Version(t.Context(), &cri.VersionRequest{})
		k.ok("Version", err)
		if v.RuntimeName != "podd" || v.RuntimeApiVersion != "v1" || v.RuntimeVersion == "" || v.Version == "" {
			t.Errorf("Version() = %v, want podd, v1, and versions", v)
		}
	})
	t.Run("status", func(t *testing.T) {
		var s *cri.StatusResponse
		k.eventually("runtime and network are ready", func() bool {
			var err error
			s, err = k.Runtime.Status(t.Context(), &cri.StatusRequest{Verbose: true})
			k.ok("Status", err)
			for _, c := range s.Status.Conditions {
				if !c.Status {
					return false
				}
			}
			return len(s.Status.Conditions) >= 2
		})
		names := map[string]*cri.RuntimeHandlerFeatures{}
		for _, h := range s.RuntimeHandlers {
			names[h.Name] = h.Features
		}
		for _, want := range []string{"", "runc", "crun"} {
			if names[want] == nil {
				t.Errorf("handlers = %v, want %q among them", s.RuntimeHandlers, want)
			}
		}
		if !names["runc"].GetRecursiveReadOnlyMounts() || !names["runc"].GetUserNamespaces() {
			t.Errorf("features of runc = %v, want recursive read-only mounts and user namespaces", names["runc"])
		}
		if !s.Features.GetSupplementalGroupsPolicy() {
			t.Errorf("features = %v, want supplemental groups policy", s.Features)
		}
		for section, text := range s.Info {
			if !json.Valid([]byte(text)) {
				t.Errorf("info %s = %s, want JSON", section, text)
			}
		}
		if len(s.Info) == 0 {
			t.Error("info of a verbose Status is empty, want some")
		}
	})
	t.Run("cgroup driver", func(t *testing.T) {
		c, err := k.Runtime.RuntimeConfig(t.Context(), &cri.RuntimeConfigRequest{})
		k.ok("RuntimeConfig", err)
		want := cri.CgroupDriver_CGROUPFS
		if _, err := os.Stat("/run/systemd/system"); err == nil {
			want = cri.CgroupDriver_SYSTEMD
		}
		if c.GetLinux().GetCgroupDriver() != want {
			t.Errorf("cgroup driver = %v, want %v", c.GetLinux().GetCgroupDriver(), want)
		}
	})
	t.Run("pod CIDR without a template", func(t *testing.T) {
		_, err := k.Runtime.UpdateRuntimeConfig(t.Context(), &cri.UpdateRuntimeConfigRequest{
			RuntimeConfig: &cri.RuntimeConfig{NetworkConfig: &cri.NetworkConfig{PodCidr: "10.250.0.0/24"}}})
		k.ok("UpdateRuntimeConfig", err)
	})
	t.Run("health", func(t *testing.T) {
		conn, err := grpc.NewClient("unix://"+k.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
		k.ok("connect", err)
		defer conn.Close()
		for _, service := range []string{"", "runtime.v1.RuntimeService", "runtime.v1.ImageService"} {
			r, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
			if err != nil || r.Status != healthpb.HealthCheckResponse_SERVING {
				t.Errorf("health of %q = %v, %v, want SERVING", service, r, err)
			}
		}
	})
	t.Run("socket and directories", func(t *testing.T) {
		for path, want := range map[string]os.FileMode{k.Socket: 0o660, k.Path("root", "pods"): 0o700,
			k.Path("root", "network"): 0o700} {
			info, err := os.Stat(path)
			k.ok("stat "+path, err)
			if got := info.Mode().Perm(); got != want {
				t.Errorf("mode of %s = %o, want %o", path, got, want)
			}
		}
	})
	t.Run("a second daemon", func(t *testing.T) {
		out, err := exec.Command(poddBinary, "--config", k.Path("podd.toml")).CombinedOutput()
		if err == nil || !strings.Contains(string(out), itoa(k.Pid())) {
			t.Errorf("a second podd on the same directories: %v, want a failure that names process %d:\n%s", err, k.Pid(), out)
		}
		if _, err := k.Runtime.Version(t.Context(), &cri.VersionRequest{}); err != nil {
			t.Errorf("Version() of the first podd: %v, want an answer", err)
		}
	})
}

func TestPodCIDR(t *testing.T) {
	t.Parallel()
	k := start(t)
	template := fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "podd", "plugins": [
		{"type": "bridge", "bridge": %q, "isGateway": true,
		 "ipam": {"type": "host-local", "dataDir": %q, "subnet": "{{.PodCIDR}}"}}]}`, k.Bridge, k.Path("ips"))
	k.ok("write a template", os.WriteFile(k.Path("template"), []byte(template), 0o644))
	k.ok("remove the conf list", os.Remove(k.Path("net.d", "10-test.conflist")))
	k.ok("make a drop-in directory", os.MkdirAll(k.Path("podd.toml.d"), 0o755))
	k.ok("write a drop-in", os.WriteFile(k.Path("podd.toml.d", "90.toml"),
		[]byte(`network.conf_template = "`+k.Path("template")+`"`+"\n"), 0o644))
	k.ok("restart", k.Restart(k.ctx(), k.Stop))
	ready := func() *cri.RuntimeCondition {
		s, err := k.Runtime.Status(k.ctx(), &cri.StatusRequest{})
		k.ok("Status", err)
		for _, c := range s.Status.Conditions {
			if c.Type == "NetworkReady" {
				return c
			}
		}
		return nil
	}
	if c := ready(); c.GetStatus() || c.GetMessage() == "" {
		t.Errorf("NetworkReady without a CNI configuration = %v, want false with a message", c)
	}
	_, err := k.Runtime.UpdateRuntimeConfig(t.Context(), &cri.UpdateRuntimeConfigRequest{
		RuntimeConfig: &cri.RuntimeConfig{NetworkConfig: &cri.NetworkConfig{PodCidr: "10.251.7.0/24"}}})
	k.ok("UpdateRuntimeConfig", err)
	k.eventually("the network is ready", func() bool { return ready().GetStatus() })
	begin := time.Now()
	pod, _ := k.pod()
	if ip := k.podStatus(pod).Network.GetIp(); !strings.HasPrefix(ip, "10.251.7.") {
		t.Errorf("pod IP = %s after %v, want one in 10.251.7.0/24", ip, time.Since(begin))
	}
}
