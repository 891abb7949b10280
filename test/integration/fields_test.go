package integration

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/podd-project/podd/test/sample"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestRuntimeFields looks inside containers of real runtimes for fields whose effect is the runtime's.
func TestRuntimeFields(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	k := start(t, `runtime.cdi_spec_dirs=["`+dir+`"]`)
	for _, handler := range sample.Some(t, "runc", "crun") {
		t.Run(handler, func(t *testing.T) {
			for _, c := range []struct {
				name string
				test func(*kubelet, string)
			}{
				{"mount options", mountOptions},
				{"ambient capabilities", ambientCapabilities},
				{"CDI device", func(k *kubelet, handler string) { cdiDevice(k, handler, dir) }},
			} {
				t.Run(c.name, func(t *testing.T) { c.test(k.sub(t), handler) })
			}
		})
	}
}

// TestUpdateInGVisor: the limits of a container have no effect in the sandbox of its pod, whose limits hold, but the
// status shows those of an update.
func TestUpdateInGVisor(t *testing.T) {
	t.Parallel()
	k := start(t)
	for _, handler := range sample.Some(t, "gvisor", "gvisor-shim") {
		t.Run(handler, func(t *testing.T) {
			k := k.sub(t)
			podCfg := k.podConfig()
			id, _ := k.runIn(k.runPod(podCfg, handler), podCfg, []string{"sleep", "10000"},
				func(c *cri.ContainerConfig) { c.Linux.Resources.MemoryLimitInBytes = 128 << 20 })
			_, err := k.Runtime.UpdateContainerResources(k.ctx(), &cri.UpdateContainerResourcesRequest{ContainerId: id,
				Linux: &cri.LinuxContainerResources{MemoryLimitInBytes: 64 << 20}})
			k.ok("UpdateContainerResources", err)
			if got := k.container(id).GetResources().GetLinux().GetMemoryLimitInBytes(); got != 64<<20 {
				k.Errorf("memory limit in the status = %d, want %d, by which the scheduler counts", got, 64<<20)
			}
		})
	}
}

// mountOptions: programs on a volume with noexec are not run, and those on the same volume without it are.
func mountOptions(k *kubelet, handler string) {
	dir := k.Path("programs-" + handler)
	k.ok("make the volume", os.MkdirAll(dir, 0o755))
	k.ok("make the program", os.WriteFile(filepath.Join(dir, "run"), []byte("#!/bin/sh\necho ran\n"), 0o755))
	podCfg := k.podConfig()
	pod := k.runPod(podCfg, handler)
	const command = "/free/run; /volume/run 2>&1 | grep -o 'Permission denied'; " +
		"grep -c ' /volume .*nosuid,nodev,noexec' /proc/self/mountinfo"
	got, exit := k.outputIn(pod, podCfg, command, func(c *cri.ContainerConfig) {
		c.Mounts = []*cri.Mount{
			{HostPath: dir, ContainerPath: "/volume", MountOptions: []string{"noexec", "nosuid", "nodev"}},
			{HostPath: dir, ContainerPath: "/free"},
		}
	})
	if want := "ran\nPermission denied\n1\n"; exit != 0 || got != want {
		k.Errorf("output = %q, exit code %d, want %q", got, exit, want)
	}
}

// ambientCapabilities: a process of a user without privileges has them in force.
func ambientCapabilities(k *kubelet, handler string) {
	podCfg := k.podConfig()
	pod := k.runPod(podCfg, handler)
	got, exit := k.outputIn(pod, podCfg, "grep -E '^Cap(Inh|Eff|Amb)' /proc/self/status", func(c *cri.ContainerConfig) {
		c.Linux.SecurityContext.RunAsUser = &cri.Int64Value{Value: 1000}
		c.Linux.SecurityContext.Capabilities = &cri.Capability{AddAmbientCapabilities: []string{"NET_BIND_SERVICE"}}
	})
	const bit = "0000000000000400"
	if want := "CapInh:\t" + bit + "\nCapEff:\t" + bit + "\nCapAmb:\t" + bit + "\n"; exit != 0 || got != want {
		k.Errorf("capabilities = %q, exit code %d, want %q", got, exit, want)
	}
}

// cdiDevice: a device of a CDI specification brings a variable, a node, a mount and a hook.
func cdiDevice(k *kubelet, handler, dir string) {
	text := `{"cdiVersion": "0.6.0", "kind": "podd.test/` + handler + `", "devices": [{"name": "one", "containerEdits": {
		"env": ["CDI=` + handler + `"],
		"deviceNodes": [{"path": "/dev/cdi", "hostPath": "/dev/zero", "permissions": "r"}],
		"mounts": [{"hostPath": "` + dir + `", "containerPath": "/cdi", "options": ["ro", "bind"]}],
		"hooks": [{"hookName": "createRuntime", "path": "/bin/sh",
			"args": ["sh", "-c", "cat >` + dir + `/hook-` + handler + `"]}]}}]}`
	k.ok("write the specification", os.WriteFile(filepath.Join(dir, handler+".json"), []byte(text), 0o644))
	podCfg := k.podConfig()
	pod := k.runPod(podCfg, handler)
	got, exit := k.outputIn(pod, podCfg, "echo $CDI; head -c 1 /dev/cdi | wc -c; ls /cdi/"+handler+".json; ls /cdi/hook-"+
		handler, func(c *cri.ContainerConfig) {
		c.CDIDevices = []*cri.CDIDevice{{Name: "podd.test/" + handler + "=one"}}
	})
	want := handler + "\n1\n/cdi/" + handler + ".json\n/cdi/hook-" + handler + "\n"
	if exit != 0 || got != want {
		k.Errorf("output = %q, exit code %d, want %q", got, exit, want)
	}
}
