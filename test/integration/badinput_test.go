package integration

import (
	"crypto/md5"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestBadInput: bad input is refused with an error that names it. Every subtest ends with a leak check.
func TestBadInput(t *testing.T) {
	t.Parallel()
	k := start(t)
	for _, c := range []struct {
		name string
		test func(*kubelet)
	}{
		{"pods", badPods},
		{"containers", badContainers},
		{"commands", badCommands},
		{"images", badImages},
		{"image volumes", badImageVolumes},
		{"ids", badIDs},
		{"environment", badEnvironment},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(k.sub(t)) })
	}
}

func badPods(k *kubelet) {
	invalid := []codes.Code{codes.InvalidArgument}
	for _, c := range []struct {
		name, handler, words string
		codes                []codes.Code
		mod                  func(*cri.PodSandboxConfig)
	}{
		{"unknown handler", "nosuch", "nosuch", []codes.Code{codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition},
			nil},
		{"no metadata", "", "metadata", invalid, func(c *cri.PodSandboxConfig) { c.Metadata = nil }},
		{"no name", "", "name", invalid, func(c *cri.PodSandboxConfig) { c.Metadata.Name = "" }},
		{"sysctl that does not exist", "", "net.ipv4.no_such", []codes.Code{codes.InvalidArgument, codes.Unknown,
			codes.NotFound},
			func(c *cri.PodSandboxConfig) { c.Linux.Sysctls = map[string]string{"net.ipv4.no_such": "1"} }},
		{"sysctl without a namespace", "", "vm.swappiness", invalid,
			func(c *cri.PodSandboxConfig) { c.Linux.Sysctls = map[string]string{"vm.swappiness": "1"} }},
		{"sysctl with a bad value", "", "somaxconn", []codes.Code{codes.InvalidArgument, codes.Unknown},
			func(c *cri.PodSandboxConfig) { c.Linux.Sysctls = map[string]string{"net.core.somaxconn": "many"} }},
		{"sysctl with ..", "", "sysctl", invalid,
			func(c *cri.PodSandboxConfig) { c.Linux.Sysctls = map[string]string{"net/../vm/swappiness": "1"} }},
		{"network sysctl on the host's network", "", "net.core.somaxconn", invalid, func(c *cri.PodSandboxConfig) {
			c.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_NODE
			c.Linux.Sysctls = map[string]string{"net.core.somaxconn": "1"}
		}},
		{"two pods on one host port", "", "", []codes.Code{codes.InvalidArgument, codes.AlreadyExists},
			func(c *cri.PodSandboxConfig) {
				c.PortMappings = []*cri.PortMapping{{HostPort: 30001, ContainerPort: 1}, {HostPort: 30001, ContainerPort: 2}}
			}},
		{"port out of range", "", "port", invalid, func(c *cri.PodSandboxConfig) {
			c.PortMappings = []*cri.PortMapping{{HostPort: 70000, ContainerPort: 1}}
		}},
		{"malformed host IP", "", "", invalid, func(c *cri.PodSandboxConfig) {
			c.PortMappings = []*cri.PortMapping{{HostPort: 30001, ContainerPort: 1, HostIp: "not an address"}}
		}},
		{"hostname too long", "", "hostname", invalid,
			func(c *cri.PodSandboxConfig) { c.Hostname = strings.Repeat("h", 65) }},
		{"hostname with a new line", "", "hostname", invalid, func(c *cri.PodSandboxConfig) { c.Hostname = "a\nb" }},
		{"DNS server with a new line", "", "dns", invalid, func(c *cri.PodSandboxConfig) {
			c.DnsConfig = &cri.DNSConfig{Servers: []string{"192.0.2.1\nnameserver 192.0.2.2"}}
		}},
		{"cgroup parent with ..", "", "cgroup", invalid,
			func(c *cri.PodSandboxConfig) { c.Linux.CgroupParent = "/../../escape" }},
		{"relative log directory", "", "log", invalid, func(c *cri.PodSandboxConfig) { c.LogDirectory = "logs" }},
		{"TARGET as the pod's pid mode", "", "", invalid, podPid(cri.NamespaceMode_TARGET)},
		{"overlapping id mappings", "", "", invalid, func(c *cri.PodSandboxConfig) {
			m := []*cri.IDMapping{{HostId: 100000, Length: 10}, {HostId: 200000, ContainerId: 5, Length: 10}}
			c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: m,
				Gids: m}
		}},
		{"id mapping of length 0", "", "", invalid, func(c *cri.PodSandboxConfig) {
			m := []*cri.IDMapping{{HostId: 100000}}
			c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = &cri.UserNamespace{Mode: cri.NamespaceMode_POD, Uids: m,
				Gids: m}
		}},
	} {
		cfg := k.podConfig()
		if c.mod != nil {
			c.mod(cfg)
		}
		_, err := k.Runtime.RunPodSandbox(k.ctx(), &cri.RunPodSandboxRequest{Config: cfg, RuntimeHandler: c.handler})
		k.refused(c.name, err, c.words, c.codes...)
	}
	_, err := k.Runtime.RunPodSandbox(k.ctx(), &cri.RunPodSandboxRequest{})
	k.refused("an empty request", err, "", codes.InvalidArgument)
	if pods := k.pods(nil); len(pods) > 0 {
		k.Errorf("pods after refused requests = %v, want none", pods)
	}
}

func badContainers(k *kubelet) {
	pod, podCfg := k.pod()
	secure := func(f func(*cri.LinuxContainerSecurityContext)) func(*cri.ContainerConfig) {
		return func(c *cri.ContainerConfig) { f(c.Linux.SecurityContext) }
	}
	mount := func(m *cri.Mount) func(*cri.ContainerConfig) {
		return func(c *cri.ContainerConfig) { c.Mounts = []*cri.Mount{m} }
	}
	profile := k.Path("bad-profile.json")
	k.ok("write a bad seccomp profile", os.WriteFile(profile, []byte(`{"defaultAction": "SCMP_ACT_NOSUCH"}`), 0o644))
	notFound := []codes.Code{codes.NotFound, codes.InvalidArgument, codes.FailedPrecondition}
	invalid := []codes.Code{codes.InvalidArgument}
	for _, c := range []struct {
		name, words string
		codes       []codes.Code
		mod         func(*cri.ContainerConfig)
	}{
		{"image that does not exist", "no/such", []codes.Code{codes.NotFound},
			func(c *cri.ContainerConfig) { c.Image.Image = "registry.k8s.io/no/such:image" }},
		{"malformed image", "", invalid, func(c *cri.ContainerConfig) { c.Image.Image = "A B" }},
		{"no image", "image", invalid, func(c *cri.ContainerConfig) { c.Image = nil }},
		{"no metadata", "metadata", invalid, func(c *cri.ContainerConfig) { c.Metadata = nil }},
		{"host path below a file", "not a directory", append(notFound, codes.Unknown),
			mount(&cri.Mount{HostPath: "/etc/passwd/x", ContainerPath: "/x"})},
		{"mount on /", "", invalid, mount(&cri.Mount{HostPath: k.Dir, ContainerPath: "/"})},
		{"mount without container_path", "container_path", invalid, mount(&cri.Mount{HostPath: k.Dir})},
		{"recursive read-only but writable", "", append(invalid, codes.Unknown),
			mount(&cri.Mount{HostPath: k.Dir, ContainerPath: "/x", RecursiveReadOnly: true})},
		{"mount with an unknown option", "nosuchoption", append(invalid, codes.Unknown),
			mount(&cri.Mount{HostPath: k.Dir, ContainerPath: "/x", MountOptions: []string{"nosuchoption"}})},
		{"device that does not exist", "/dev/nosuch", notFound, func(c *cri.ContainerConfig) {
			c.Devices = []*cri.Device{{HostPath: "/dev/nosuch", ContainerPath: "/dev/x", Permissions: "rwm"}}
		}},
		{"device with unknown permissions", "", invalid, func(c *cri.ContainerConfig) {
			c.Devices = []*cri.Device{{HostPath: "/dev/null", ContainerPath: "/dev/x", Permissions: "xyz"}}
		}},
		{"seccomp profile that does not exist", "nosuch.json", notFound, secure(func(s *cri.LinuxContainerSecurityContext) {
			s.Seccomp = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: k.Path("nosuch.json")}
		})},
		{"seccomp profile with an unknown action", "SCMP_ACT_NOSUCH", append(invalid, codes.Unknown),
			secure(func(s *cri.LinuxContainerSecurityContext) {
				s.Seccomp = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: profile}
			})},
		{"AppArmor profile that is not loaded", "apparmor", append(notFound, codes.Unknown),
			secure(func(s *cri.LinuxContainerSecurityContext) {
				s.Apparmor = &cri.SecurityProfile{ProfileType: cri.SecurityProfile_Localhost, LocalhostRef: "nosuch"}
			})},
		{"unknown capability", "NOSUCH", invalid, secure(func(s *cri.LinuxContainerSecurityContext) {
			s.Capabilities = &cri.Capability{AddCapabilities: []string{"NOSUCH"}}
		})},
		{"group without a user", "", invalid,
			secure(func(s *cri.LinuxContainerSecurityContext) { s.RunAsGroup = &cri.Int64Value{Value: 1} })},
		{"negative user", "", invalid,
			secure(func(s *cri.LinuxContainerSecurityContext) { s.RunAsUser = &cri.Int64Value{Value: -1} })},
		{"user of 33 bits", "", invalid,
			secure(func(s *cri.LinuxContainerSecurityContext) { s.RunAsUser = &cri.Int64Value{Value: 1 << 32} })},
		{"user name that does not exist", "nosuchuser", notFound,
			secure(func(s *cri.LinuxContainerSecurityContext) { s.RunAsUsername = "nosuchuser" })},
		{"CDI device that does not exist", "vendor.test", notFound, func(c *cri.ContainerConfig) {
			c.CDIDevices = []*cri.CDIDevice{{Name: "vendor.test/device=none"}}
		}},
		{"negative memory limit", "", append(invalid, codes.Unknown),
			func(c *cri.ContainerConfig) { c.Linux.Resources.MemoryLimitInBytes = -5 }},
		{"cpuset with absent CPUs", "", append(invalid, codes.Unknown),
			func(c *cri.ContainerConfig) { c.Linux.Resources.CpusetCpus = "4000-4001" }},
	} {
		cfg := k.containerConfig([]string{"true"})
		c.mod(cfg)
		id, err := k.tryCreate(pod, cfg, podCfg)
		if err == nil { // some of it only the kernel refuses, at the start
			_, err = k.Runtime.StartContainer(k.ctx(), &cri.StartContainerRequest{ContainerId: id})
			k.removeContainer(id)
		}
		k.refused(c.name, err, c.words, c.codes...)
		if left := k.containers(nil); len(left) > 0 {
			k.Errorf("%s: containers after a refused request = %v, want none", c.name, left)
		}
	}
	_, err := k.tryCreate("feedfeedfeed", k.containerConfig([]string{"true"}), podCfg)
	k.refused("a pod that does not exist", err, "feedfeed", codes.NotFound)
	k.stopPod(pod)
	_, err = k.tryCreate(pod, k.containerConfig([]string{"true"}), podCfg)
	k.refused("a stopped pod", err, pod[:12], codes.FailedPrecondition)
}

// badCommands: a command that cannot be run is an error of StartContainer, or of CreateContainer if the runtime checks
// it there. After StartContainer the container's status has the error.
func badCommands(k *kubelet) {
	pod, podCfg := k.pod()
	for _, c := range []struct {
		name    string
		command []string
		words   string
		exit    int32
	}{
		{"not found", []string{"no-such-command"}, "no-such-command", 128},
		{"not a path", []string{"/no/such/command"}, "no such file", 128},
		{"not executable", []string{"/etc/passwd"}, "permission denied", 128},
		{"a directory", []string{"/etc"}, "", 128},
	} {
		cfg := k.containerConfig(c.command)
		id, err := k.tryCreate(pod, cfg, podCfg)
		if err != nil {
			k.refused("create: "+c.name, err, c.words, codes.InvalidArgument, codes.Unknown, codes.FailedPrecondition,
				codes.NotFound, codes.PermissionDenied)
			continue
		}
		_, err = k.Runtime.StartContainer(k.ctx(), &cri.StartContainerRequest{ContainerId: id})
		k.refused("start: "+c.name, err, c.words, codes.InvalidArgument, codes.Unknown, codes.FailedPrecondition,
			codes.NotFound, codes.PermissionDenied)
		st := k.container(id)
		if st.State != cri.ContainerState_CONTAINER_EXITED || st.ExitCode != c.exit || st.Reason != "StartError" ||
			!strings.Contains(strings.ToLower(st.Message), c.words) || st.FinishedAt == 0 {
			k.Errorf("%s: status = %v, want EXITED, exit code %d, reason StartError, message with %q, finished_at set",
				c.name, st, c.exit, c.words)
		}
		k.removeContainer(id)
	}
}

// badImages pulls and runs hostile images, and checks that none of them affects the host.
func badImages(k *kubelet) {
	outside := "/tmp/podd-escape"
	pod, podCfg := k.pod()
	for _, c := range []struct{ image, words string }{
		{"no-command", "command"}, {"unknown-user", "nosuchuser"}, {"unknown-group", "nosuchgroup"},
		{"big-uid", "4294967296"},
		{"negative-uid", ""}, {"passwd-huge", ""}, {"passwd-fifo", ""}, {"passwd-device", ""}, {"passwd-link", "passwd"},
		{"volumes", ""}, {"relative-workdir", ""}, {"workdir-link", ""}, {"env", ""}, {"stopsignal", ""}, {"labels", ""},
		{"dotdot", ""}, {"through-link", ""}, {"hardlink", ""},
	} {
		image := "docker.io/hostile/" + c.image + ":latest"
		begin := time.Now()
		_, err := k.tryPull(image, nil)
		if err == nil {
			_, err = k.hostileContainer(pod, podCfg, image)
		}
		if took := time.Since(begin); took > 30*time.Second {
			k.Errorf("%s took %v, want at most 30s", c.image, took)
		}
		if c.words != "" {
			k.refused(c.image, err, c.words, codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.Unknown)
		}
		for _, path := range []string{outside, "/tmp/made-by-workdir", "/escape", "/etc/shadow.podd"} {
			if _, err := os.Lstat(path); err == nil {
				k.Errorf("%s created %s on the host, want nothing created", c.image, path)
				k.ok("remove it", os.RemoveAll(path))
			}
		}
		k.removeImage(image)
	}
	for _, image := range []string{"passwd-fifo", "passwd-device", "passwd-huge", "passwd-link"} {
		if got := k.image("docker.io/hostile/" + image + ":latest"); got != nil {
			k.Errorf("ImageStatus(%s) after removal = %v, want none", image, got)
		}
	}
}

// hostileContainer creates, starts and removes a container with the image's defaults.
func (k *kubelet) hostileContainer(pod string, podCfg *cri.PodSandboxConfig, image string) (string, error) {
	cfg := k.containerConfig(nil, func(c *cri.ContainerConfig) { c.Image = &cri.ImageSpec{Image: image} })
	id, err := k.tryCreate(pod, cfg, podCfg)
	if err != nil {
		return "", err
	}
	_, err = k.Runtime.StartContainer(k.ctx(), &cri.StartContainerRequest{ContainerId: id})
	k.stopContainer(id, 0)
	k.removeContainer(id)
	return id, err
}

func badImageVolumes(k *kubelet) {
	const image = "docker.io/podd/data:latest"
	k.have(image)
	pod, podCfg := k.pod()
	for _, sub := range []string{"../../etc", "data/up", "data/up/etc", "data/etc", "data/etc/passwd", "no/such",
		"/etc/../../.."} {
		cfg := k.containerConfig([]string{"cat", "/v/shadow"}, func(c *cri.ContainerConfig) {
			c.Mounts = []*cri.Mount{{ContainerPath: "/v", Image: &cri.ImageSpec{Image: image}, ImageSubPath: sub,
				Readonly: true}}
		})
		id, err := k.tryCreate(pod, cfg, podCfg)
		if err == nil {
			// a symlink may be followed inside the image, never to the host
			k.startContainer(id)
			if st := k.exited(id); st.ExitCode == 0 {
				k.Errorf("sub path %q: cat /v/shadow: exit code = 0, want another: %s", sub, k.logText(podCfg, cfg))
			}
			k.removeContainer(id)
		}
	}
	_, err := k.tryCreate(pod, k.containerConfig([]string{"true"}, func(c *cri.ContainerConfig) {
		c.Mounts = []*cri.Mount{{ContainerPath: "/v", Image: &cri.ImageSpec{Image: "registry.k8s.io/no/such:image"},
			Readonly: true}}
	}), podCfg)
	k.refused("an image volume of an image that does not exist", err, "no/such", codes.NotFound, codes.Unknown)
	_, err = k.tryCreate(pod, k.containerConfig([]string{"true"}, func(c *cri.ContainerConfig) {
		c.Mounts = []*cri.Mount{{ContainerPath: "/v", HostPath: k.Dir, Image: &cri.ImageSpec{Image: image}, Readonly: true}}
	}), podCfg)
	k.refused("a mount of an image and a path", err, "host_path", codes.InvalidArgument)
	_, err = k.tryCreate(pod, k.containerConfig([]string{"true"}, func(c *cri.ContainerConfig) {
		c.Mounts = []*cri.Mount{{ContainerPath: "/v", Image: &cri.ImageSpec{Image: image}}}
	}), podCfg)
	k.refused("a writable mount of an image", err, "readonly", codes.InvalidArgument)
}

// badIDs calls every RPC with an absent id and with malformed ids.
func badIDs(k *kubelet) {
	ctx := k.ctx()
	const absent = "feedfeedfeedfeed"
	idempotent := map[string]func(string) error{
		"StopPodSandbox": func(id string) error {
			_, err := k.Runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
			return err
		},
		"RemovePodSandbox": func(id string) error {
			_, err := k.Runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
			return err
		},
		"StopContainer": func(id string) error {
			_, err := k.Runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: id})
			return err
		},
		"RemoveContainer": func(id string) error {
			_, err := k.Runtime.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: id})
			return err
		},
	}
	others := map[string]func(string) error{
		"PodSandboxStatus": func(id string) error {
			_, err := k.Runtime.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id})
			return err
		},
		"ContainerStatus": func(id string) error {
			_, err := k.Runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id})
			return err
		},
		"StartContainer": func(id string) error {
			_, err := k.Runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: id})
			return err
		},
		"ExecSync": func(id string) error {
			_, err := k.Runtime.ExecSync(ctx, &cri.ExecSyncRequest{ContainerId: id, Cmd: []string{"true"}})
			return err
		},
		"ReopenContainerLog": func(id string) error {
			_, err := k.Runtime.ReopenContainerLog(ctx, &cri.ReopenContainerLogRequest{ContainerId: id})
			return err
		},
		"UpdateContainerResources": func(id string) error {
			_, err := k.Runtime.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{ContainerId: id,
				Linux: &cri.LinuxContainerResources{CpuShares: 2}})
			return err
		},
	}
	for name, call := range idempotent {
		if err := call(absent); err != nil {
			k.Errorf("%s of an absent id: error = %v, want nil", name, err)
		}
		k.refused(name+" without an id", call(""), "", codes.InvalidArgument)
	}
	for name, call := range others {
		k.refused(name+" of an absent id", call(absent), absent, codes.NotFound)
		k.refused(name+" without an id", call(""), "", codes.InvalidArgument)
		for _, odd := range []string{"../../etc", "a/b", "*", "%s%n", strings.Repeat("f", 5000), "\x01"} {
			k.refused(name+" of "+odd[:min(len(odd), 10)], call(odd), "", codes.NotFound, codes.InvalidArgument)
		}
	}
	_, podA := k.sleeper()
	_, err := k.Runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: podA[:6]})
	k.ok("status by a prefix of the id", err)
}

func badEnvironment(k *kubelet) {
	pod, podCfg := k.pod()
	env := func(key, value string) func(*cri.ContainerConfig) {
		return func(c *cri.ContainerConfig) { c.Envs = []*cri.KeyValue{{Key: key, Value: []byte(value)}} }
	}
	for _, c := range []struct{ name, key, value string }{
		{"no name", "", "x"}, {"name with =", "A=B", "x"}, {"name with NUL", "A\x00B", "x"},
		{"value with NUL", "A", "x\x00y"},
	} {
		_, err := k.tryCreate(pod, k.containerConfig([]string{"true"}, env(c.key, c.value)), podCfg)
		k.refused("environment: "+c.name, err, "env", codes.InvalidArgument)
	}
	// since CRI v0.37 the value is bytes, but the runtime reads it from JSON, which can represent only UTF-8
	if out, _ := k.outputIn(pod, podCfg, `printf %s "$LATIN"`, env("LATIN", "caf\xe9")); out != "caf\uFFFD" {
		k.Errorf("value that is not UTF-8 = %q, want a U+FFFD", out)
	}
	for _, value := range []string{"line one\nline two", strings.Repeat("long ", 10000), " = ", "", "ü"} {
		out, _ := k.outputIn(pod, podCfg, `printf %s "$VALUE" | md5sum | cut -c1-32`, env("VALUE", value))
		if want := fmt.Sprintf("%x\n", md5.Sum([]byte(value))); out != want {
			k.Errorf("md5 of a value of %d bytes = %q, want %q", len(value), out, want)
		}
	}
}

// TestBadNetwork: when CNI ADD fails or hangs, RunPodSandbox fails after a bounded time and leaves nothing behind.
func TestBadNetwork(t *testing.T) {
	t.Parallel()
	k := start(t, `network.add_timeout="2s"`, `network.del_timeout="2s"`)
	install := func(script string) {
		bin := k.Path("plugins")
		k.ok("make a plugin directory", os.MkdirAll(bin, 0o755))
		k.ok("write a plugin", os.WriteFile(filepath.Join(bin, "trouble"), []byte("#!/bin/sh\n"+script), 0o755))
	}
	conf := k.Path("net.d", "00-trouble.conflist")
	k.ok("write a conf list", os.WriteFile(conf,
		[]byte(`{"cniVersion": "1.0.0", "name": "trouble", "plugins": [{"type": "trouble"}]}`), 0o644))
	real, err := os.ReadFile(k.Path("podd.toml"))
	k.ok("read podd.toml", err)
	changed := strings.Replace(string(real), `bin_dirs = [`, `bin_dirs = ["`+k.Path("plugins")+`", `, 1)
	k.ok("write podd.toml", os.WriteFile(k.Path("podd.toml"), []byte(changed), 0o644))
	install("exit 1")
	k.ok("restart", k.Restart(k.ctx(), k.Stop))

	answer := `cat >/dev/null; case $CNI_COMMAND in ADD) `
	for _, c := range []struct{ name, script, words string }{
		{"fails", answer + `echo '{"cniVersion":"1.0.0","code":11,"msg":"no address is left"}'; exit 1;; esac`,
			"no address is left"},
		{"fails without a word", answer + `exit 3;; esac`, "trouble"},
		{"answers nonsense", answer + `echo 'this is not JSON';; esac`, ""},
		{"answers without end", answer + `yes;; esac`, ""},
		{"gives no address", answer + `echo '{"cniVersion":"1.0.0","interfaces":[],"ips":[]}';; esac`, ""},
		{"gives a bad address", answer + `echo '{"cniVersion":"1.0.0","ips":[{"address":"300.1.2.3/24"}]}';; esac`, ""},
		{"hangs", answer + `sleep 1000;; esac`, ""},
		{"hangs with a child that holds its output", answer + `sleep 1000 & sleep 1000;; esac`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := k.sub(t)
			install(c.script)
			begin := time.Now()
			_, err := k.Runtime.RunPodSandbox(k.ctx(), &cri.RunPodSandboxRequest{Config: k.podConfig()})
			if took := time.Since(begin); took > 20*time.Second {
				t.Errorf("RunPodSandbox took %v, want at most 20s", took)
			}
			k.refused(c.name, err, c.words, codes.Unknown, codes.DeadlineExceeded, codes.Unavailable, codes.Internal,
				codes.FailedPrecondition,
				codes.ResourceExhausted, codes.InvalidArgument)
			if pods := k.pods(nil); len(pods) > 0 {
				t.Errorf("pods after a failed RunPodSandbox = %v, want none", pods)
			}
		})
	}
	t.Run("a pod on the host's network needs none", func(t *testing.T) {
		k := k.sub(t)
		k.pod(func(c *cri.PodSandboxConfig) {
			c.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_NODE
		})
	})
	// The real plugins may need longer.
	k.ok("remove the timeouts", os.Remove(k.Path("podd.toml.d", "50-test.toml")))
	k.ok("remove the conf list", os.Remove(conf))
	k.ok("restart", k.Restart(k.ctx(), k.Stop))
	t.Run("and then it works again", func(t *testing.T) {
		k := k.sub(t)
		k.eventually("RunPodSandbox succeeds", func() bool {
			_, err := k.Runtime.RunPodSandbox(k.ctx(), &cri.RunPodSandboxRequest{Config: k.podConfig()})
			return err == nil
		})
	})
	k.have(busybox)
}
