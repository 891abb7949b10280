package suite

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"
)

// A pod in a virtual machine of its own is used as any other: probes, exec, logs, an address, and a service that a pod
// of runc reaches, as it reaches services itself. The overhead of podd's RuntimeClass is enough when it uses all
// the memory that it may.
func TestVirtualMachine(t *testing.T) {
	k := parallel(t)
	if _, ok := k.handlers()["vm"]; !ok {
		t.Fatal("podd has no handler vm here: make vm builds its shim and image")
	}
	k.class("vm", fmt.Sprintf("overhead: {podFixed: {cpu: 100m, memory: %s}}", k.machineOverhead()))
	p := k.run("machine", "runtimeClassName: "+k.ns+`-class
containers:
- name: c
  image: BUSYBOX
  command: [sh, -c, "mkdir /www; uname -r >/www/kernel; cat /www/kernel; httpd -p 80 -h /www; sleep 10000"]
  resources: {limits: {cpu: 500m, memory: 128Mi}}
  livenessProbe: {exec: {command: [pidof, httpd]}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 3}
  readinessProbe: {httpGet: {path: /kernel, port: 80}, periodSeconds: 1, timeoutSeconds: 30}
`, labelled("machine"))
	k.run("client", `containers: [{name: c, image: BUSYBOX, command: [sleep, "10000"]}]`)
	k.service("web", "machine") // not its pod's name, which the pod knows as its own

	kernel := k.sh("machine", "uname -r")
	if host := k.sh("client", "uname -r"); kernel == host {
		t.Errorf("kernel of the virtual machine = %s, that of the node", kernel)
	}
	k.same("log", strings.TrimSpace(k.kubectl("logs", "machine")), kernel)
	k.wget("client", "http://web:8080/kernel", kernel)
	k.wget("machine", "http://web:8080/kernel", kernel)
	k.sh("machine", "dd if=/dev/zero of=/tmp/x bs=1M count=400 && dd if=/tmp/x of=/dev/null bs=1M && rm /tmp/x")
	k.sh("machine", "dd if=/dev/zero of=/dev/null bs=100M count=1") // into a buffer of that size
	t.Logf("most memory of the pod's cgroup: %s bytes",
		k.cgroupFile(p, "memory/memory.max_usage_in_bytes", "memory.peak"))
	k.same("restarts", container(k.get("machine"), "c").RestartCount, int32(0))
}

// machineOverhead is the memory that podd's RuntimeClass vm has for User-Mode Linux: all but the 128 MiB that QEMU
// without KVM needs in addition (oci/vm/README.md).
func (k *scene) machineOverhead() string {
	k.Helper()
	data, err := os.ReadFile(manifests + "runtimeclasses.yaml")
	k.ok("read the RuntimeClasses", err)
	for doc := range strings.SplitSeq(string(data), "\n---\n") {
		var class nodev1.RuntimeClass
		k.ok("parse a RuntimeClass", yaml.UnmarshalStrict([]byte(doc), &class))
		if class.Name == "vm" && class.Overhead != nil {
			memory := class.Overhead.PodFixed[corev1.ResourceMemory]
			memory.Sub(resource.MustParse("128Mi"))
			return memory.String()
		}
	}
	k.Fatal("runtimeclasses.yaml has no class vm with an overhead")
	return ""
}
