package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podd-project/podd/test/k8s/cluster"
)

// alpha are the gates of Kubernetes 1.37 that are off by default and change what a kubelet asks of a runtime. The
// others of TestGates are on.
var alpha = []string{"CRIListStreaming", "ContainerStopSignals", "ImageVolumeWithDigest",
	"UserNamespacesHostNetworkSupport", "VolumeBindMountOptions"}

// TestGates plays each feature gate of Kubernetes 1.37 that concerns the CRI, most of which need cgroup v2.
func TestGates(t *testing.T) {
	join, _ := steps(t)
	tests := conformance(t)
	l := start(t, cluster.Options{Gates: alpha}, filepath.Join(tests, "test-driver"))
	l.prepare()
	l.follow(join)
	l.t("ready", lab.ready)
	l.enable()
	for _, g := range []struct {
		name string
		play func(lab)
	}{
		{"CRIListStreaming", lab.listStreaming},
		{"MemoryQoS", lab.memoryQoS},
		{"NodeSwap", lab.swap},
		{"InPlacePodLevelResourcesVerticalScaling", lab.resizePod},
		{"ProcMountType", lab.procMount},
		{"UserNamespacesHostNetworkSupport", lab.userNamespaceOnHostNetwork},
		{"VolumeBindMountOptions", lab.bindMountOptions},
		{"ImageVolumeWithDigest", lab.imageVolumeDigest},
		{"KubeletEnsureSecretPulledImages", lab.secretPulledImages},
		{"ContainerRestartRules", lab.restartRules},
		{"RestartAllContainersOnContainerExits", lab.restartAll},
		{"ContainerStopSignals", lab.stopSignal},
		{"DynamicResourceAllocation", lab.dynamicResources},
	} {
		l.Run(g.name, func(t *testing.T) {
			began := time.Now()
			g.play(lab{t, l.c, l.m})
			t.Logf("played in %v", time.Since(began).Round(time.Second))
		})
	}
}

// conformance returns the directory of Kubernetes' own tests, which it builds.
func conformance(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("../conformance/build.sh").Output()
	if err != nil {
		t.Fatalf("build Kubernetes' tests: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// settings are added to the kubelet's configuration: the gates, and what MemoryQoS and NodeSwap need beside them.
const settings = `failSwapOn: false
memorySwap: {swapBehavior: LimitedSwap}
memoryThrottlingFactor: 0.5
memoryReservationPolicy: TieredReservation
featureGates: {%s: true}
`

// enable gives the machine swap, and configures the kubelet for the gates. podd's metrics get an address that the
// machine's tools can read.
func (l lab) enable() {
	l.Helper()
	config := fmt.Sprintf(settings, strings.Join(alpha, ": true, "))
	l.run(5*time.Minute, `set -e
dd if=/dev/zero of=/swap bs=1M count=256 status=none
chmod 600 /swap
mkswap -q /swap
swapon /swap
cat >>/var/lib/kubelet/config.yaml <<END
`+config+`END
printf '[metrics]\naddress = "127.0.0.1:9478"\n' >/etc/podd/podd.toml.d/60-metrics.toml
systemctl stop kubelet
systemctl restart podd
systemctl start kubelet`)
	l.eventually(3*time.Minute, func() string {
		out, err := l.try("get", "--raw", "/api/v1/nodes/"+node+"/proxy/configz")
		if err != nil || !strings.Contains(out, `"memorySwap":{"swapBehavior":"LimitedSwap"}`) {
			return fmt.Sprintf("the kubelet's configuration is %s, %v", out, err)
		}
		return ""
	})
	l.ready()
}

// apply creates what a manifest says. IMAGE is busybox.
func (l lab) apply(manifest string) {
	l.Helper()
	file := filepath.Join(l.c.Dir, "manifest.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(manifest, "IMAGE", image)), 0o600); err != nil {
		l.Fatal(err)
	}
	l.kubectl("apply", "-f", file)
}

// create creates a pod from its name and the lines of its spec, and removes it at the end of the test.
func (l lab) create(name, spec string) {
	l.Helper()
	l.serviceAccount()
	l.Cleanup(func() {
		if l.Failed() {
			out, err := l.try("describe", "pod", name)
			l.Logf("%s, %v", out, err)
		}
		l.kubectl("delete", "pod", name, "--ignore-not-found", "--timeout=3m")
	})
	l.apply("apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec:\n  terminationGracePeriodSeconds: 1\n" +
		"  " + strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  ") + "\n")
}

// play creates a pod and waits until it is ready.
func (l lab) play(name, spec string) {
	l.Helper()
	l.create(name, spec)
	l.kubectl("wait", "--for=condition=Ready", "pod/"+name, "--timeout=5m")
}

// in runs a command of the shell in a pod.
func (l lab) in(pod, command string) string {
	l.Helper()
	return strings.TrimSpace(l.kubectl("exec", pod, "--", "sh", "-c", command))
}

// field returns a field of an object.
func (l lab) field(object, path string) string {
	l.Helper()
	return l.kubectl("get", object, "-o", "jsonpath={"+path+"}")
}

// same fails the test when got is not want, but goes on.
func (l lab) same(what, got, want string) {
	l.Helper()
	if got != want {
		l.Errorf("%s = %q, want %q", what, got, want)
	}
}

// listStreaming: the kubelet lists by the streaming calls only, without which it falls back to the others.
func (l lab) listStreaming() {
	calls := regexp.MustCompile(`podd_rpc_duration_seconds_count\{.*method="(\w+)".*\} (\d+)`)
	l.eventually(2*time.Minute, func() string {
		seen := map[string]string{}
		for _, m := range calls.FindAllStringSubmatch(l.run(time.Minute, "busybox wget -qO- http://127.0.0.1:9478/metrics"),
			-1) {
			seen[m[1]] = m[2]
		}
		for _, method := range []string{"StreamPodSandboxes", "StreamContainers", "StreamImages"} {
			if seen[method] == "" {
				return fmt.Sprintf("no calls of %s: %v", method, seen)
			}
		}
		for _, method := range []string{"ListPodSandbox", "ListContainers"} {
			if seen[method] != "" {
				l.Errorf("%s calls of %s, want none: %v", seen[method], method, seen)
			}
		}
		return ""
	})
}

// resourced is a container with requests and limits. With a smaller limit of CPU time an emulated machine is too slow
// to start it.
const resourced = `containers:
- name: c
  image: IMAGE
  command: [sleep, '10000']
  resources: {requests: {cpu: %s, memory: %s}, limits: {cpu: 500m, memory: 64Mi}}`

// memoryQoS: the reservation and the throttling of a container are in the kernel.
func (l lab) memoryQoS() {
	const files = "cd /sys/fs/cgroup; echo $(cat memory.min memory.low memory.high memory.max)"
	l.play("burstable", fmt.Sprintf(resourced, "100m", "32Mi"))
	l.same("min, low, high and max of a burstable container", l.in("burstable", files), "0 33554432 50331648 67108864")
	l.play("guaranteed", fmt.Sprintf(resourced, "500m", "64Mi"))
	l.same("min, low, high and max of a guaranteed container", l.in("guaranteed", files), "67108864 0 max 67108864")
}

// swap: a burstable container may use its part of the machine's swap, a guaranteed one none.
func (l lab) swap() {
	const file = "cat /sys/fs/cgroup/memory.swap.max"
	n, err := l.c.Client.CoreV1().Nodes().Get(l.Context(), node, metav1.GetOptions{})
	if err != nil {
		l.Fatal(err)
	}
	if n.Status.NodeInfo.Swap == nil || n.Status.NodeInfo.Swap.Capacity == nil {
		l.Fatalf("the node reports no swap: %+v", n.Status.NodeInfo)
	}
	l.play("burstable", fmt.Sprintf(resourced, "100m", "32Mi"))
	want := *n.Status.NodeInfo.Swap.Capacity * (32 << 20) / n.Status.Capacity.Memory().Value()
	got, err := strconv.ParseInt(l.in("burstable", file), 10, 64)
	if err != nil || got < want-8192 || got > want+8192 {
		l.Errorf("swap of a burstable container = %d, %v, want %d", got, err, want)
	}
	l.play("guaranteed", fmt.Sprintf(resourced, "500m", "64Mi"))
	l.same("swap of a guaranteed container", l.in("guaranteed", file), "0")
}

// resizePod: the limits of a pod, not of its container, change while it runs.
func (l lab) resizePod() {
	l.play("sized", `resources: {requests: {cpu: 10m, memory: 32Mi}, limits: {cpu: 800m, memory: 64Mi}}
containers:
- {name: c, image: IMAGE, command: [sleep, '10000']}`)
	files := "cd /sys/fs/cgroup/kubepods.slice/*/*" + strings.ReplaceAll(l.field("pod/sized", ".metadata.uid"), "-", "_") +
		".slice && echo $(cat cpu.max memory.max)"
	l.same("limits of the pod", l.run(time.Minute, files), "80000 100000 67108864")
	for _, size := range []struct{ cpu, memory, kernel string }{
		{"900m", "96Mi", "90000 100000 100663296"}, {"500m", "80Mi", "50000 100000 83886080"},
	} {
		l.kubectl("patch", "pod", "sized", "--subresource=resize", "--patch",
			fmt.Sprintf(`{"spec": {"resources": {"limits": {"cpu": %q, "memory": %q}}}}`, size.cpu, size.memory))
		l.eventually(2*time.Minute, func() string {
			if got := l.run(time.Minute, files); got != size.kernel {
				return fmt.Sprintf("limits of the pod = %q, want %q", got, size.kernel)
			}
			return ""
		})
	}
	l.eventually(2*time.Minute, func() string {
		if got := l.field("pod/sized", ".status.resources.limits.memory"); got != "80Mi" {
			return fmt.Sprintf("limit in the status = %q, want 80Mi", got)
		}
		return ""
	})
	l.same("restarts", l.field("pod/sized", ".status.containerStatuses[0].restartCount"), "0")
}

// procMount: Unmasked has no mounts below /proc, the default has.
func (l lab) procMount() {
	const mounts = `awk '$5 ~ "^/proc/" {print $5}' /proc/self/mountinfo; sed 's/  */ /g' /proc/self/uid_map`
	l.play("unmasked", `hostUsers: false
containers:
- {name: c, image: IMAGE, command: [sleep, '10000'], securityContext: {procMount: Unmasked}}`)
	if got := l.in("unmasked", mounts); strings.Contains(got, "/proc/") || strings.HasPrefix(got, "0 0 ") {
		l.Errorf("mounts below /proc and user ids = %q, want no mounts in a user namespace", got)
	}
	l.play("masked", "containers:\n- {name: c, image: IMAGE, command: [sleep, '10000']}")
	if got := l.in("masked", mounts); !strings.Contains(got, "/proc/kcore") {
		l.Errorf("mounts below /proc = %q, want /proc/kcore", got)
	}
}

// userNamespaceOnHostNetwork: a pod has a user namespace and the node's network.
func (l lab) userNamespaceOnHostNetwork() {
	l.play("mapped", `hostNetwork: true
hostUsers: false
containers:
- {name: c, image: IMAGE, command: [sleep, '10000']}`)
	ids := strings.Fields(l.in("mapped", "cat /proc/self/uid_map"))
	if len(ids) != 3 || ids[0] != "0" || ids[1] == "0" {
		l.Errorf("user ids = %v, want 0 to be another one on the node", ids)
	}
	l.same("network namespace of the pod", l.in("mapped", "cat /proc/net/dev | awk -F: '/:/ {print $1}' | sort | xargs"),
		l.run(time.Minute, "awk -F: '/:/ {print $1}' /proc/net/dev | sort | xargs"))
	l.same("address of the pod", l.field("pod/mapped", ".status.podIP"), l.m.Addr)
}

// bindMountOptions: the options of a volume's mount are in force.
func (l lab) bindMountOptions() {
	l.play("options", `volumes: [{name: v, emptyDir: {}}]
containers:
- name: c
  image: IMAGE
  command: [sleep, '10000']
  volumeMounts:
  - {name: v, mountPath: /restricted, bindMountOptions: [noexec, nosuid, nodev]}
  - {name: v, mountPath: /free}`)
	got := l.in("options", `printf '#!/bin/sh\necho ran\n' >/free/run; chmod +x /free/run; /free/run
/restricted/run 2>/dev/null || echo refused; awk '$5 == "/restricted" {print $6}' /proc/self/mountinfo`)
	ran, mount, _ := strings.Cut(got, "\nrefused\n")
	if ran != "ran" || !strings.Contains(mount, "noexec") || !strings.Contains(mount, "nosuid") ||
		!strings.Contains(mount, "nodev") {
		l.Errorf("a program on the volume, without and with the options, and the options = %q", got)
	}
}

// imageVolumeDigest: podd tells the digest of the image that is mounted as a volume. The kubelet of 1.37.2 does not put
// it into the pod's status: it looks for a mount with the volume's name, and the mounts of a container's CRI status
// have none (kubelet_pods.go, convertToAPIContainerStatuses, and kuberuntime_container.go, toKubeContainerStatus).
func (l lab) imageVolumeDigest() {
	const volume = "registry.k8s.io/e2e-test-images/nonewprivs"
	l.play("digest", `volumes: [{name: v, image: {reference: '`+volume+`:1.3'}}]
containers:
- {name: c, image: IMAGE, command: [sleep, '10000'], volumeMounts: [{name: v, mountPath: /v}]}`)
	if got := l.in("digest", "ls /v"); got == "" {
		l.Errorf("the volume is empty")
	}
	l.same("mounts of the image", l.run(time.Minute, "crictl inspect $(crictl ps -q --name c --label "+
		`io.kubernetes.pod.name=digest) | grep -c '"imageRef": "`+volume+"@sha256:'"), "1")
	l.Logf("the kubelet says %q",
		l.field("pod/digest", ".status.containerStatuses[0].volumeMounts[?(@.name=='v')].volumeStatus.image.imageRef"))
}

// secretPulledImages: an image that was pulled with a secret is on the node, and only pods with the secret may use it.
func (l lab) secretPulledImages() {
	private := l.c.AuthRegistry + "/podd/config:latest"
	spec := "containers:\n- {name: c, image: '" + private +
		"', imagePullPolicy: IfNotPresent, command: [sleep, '10000']}\n"
	l.kubectl("create", "secret", "docker-registry", "pull", "--docker-server="+l.c.AuthRegistry, "--docker-username=podd",
		"--docker-password=open sesame")
	l.play("first", spec+"imagePullSecrets: [{name: pull}]")
	l.create("stranger", spec)
	l.eventually(2*time.Minute, func() string {
		const waiting = ".status.containerStatuses[0].state.waiting.reason"
		if got := l.field("pod/stranger", waiting); got != "ErrImagePull" && got != "ImagePullBackOff" {
			return fmt.Sprintf("a pod without the secret waits for %q, want ErrImagePull", got)
		}
		return ""
	})
	l.play("second", spec+"imagePullSecrets: [{name: pull}]")
}

// restartRules: a container of a pod that is not restarted is, after the exit code that its rule names. It runs for ten
// seconds: when it ended in its first one, the kubelet of 1.37.2 stopped the pod's sandbox, and the pod stayed Running.
func (l lab) restartRules() {
	l.create("rules", `restartPolicy: Never
volumes: [{name: v, emptyDir: {}}]
containers:
- name: c
  image: IMAGE
  restartPolicy: Never
  restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]
  command: [sh, -c, 'sleep 10; test -e /v/again && exit 7; touch /v/again; exit 42']
  volumeMounts: [{name: v, mountPath: /v}]`)
	l.kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/rules", "--timeout=4m")
	const status = ".status.containerStatuses[0]"
	l.same("restarts", l.field("pod/rules", status+".restartCount"), "1")
	l.same("exit code", l.field("pod/rules", status+".state.terminated.exitCode"), "7")
}

// restartAll: after the exit code that a rule names all containers of the pod start again, in the same pod.
func (l lab) restartAll() {
	l.create("all", `restartPolicy: Never
volumes: [{name: v, emptyDir: {}}]
initContainers:
- {name: i, image: IMAGE, command: [sh, -c, 'echo i >>/v/starts'], volumeMounts: [{name: v, mountPath: /v}]}
containers:
- name: other
  image: IMAGE
  command: [sh, -c, 'echo o >>/v/starts; sleep 10000']
  volumeMounts: [{name: v, mountPath: /v}]
- name: c
  image: IMAGE
  restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [43]}}]
  restartPolicy: Never
  command:
  - sh
  - -c
  - until grep -q o /v/starts; do sleep 1; done; test -e /v/again && exec sleep 10000; touch /v/again; exit 43
  volumeMounts: [{name: v, mountPath: /v}]`)
	l.eventually(4*time.Minute, func() string {
		out, err := l.try("exec", "all", "-c", "other", "--", "sh", "-c", "sort /v/starts | xargs")
		if err != nil || strings.TrimSpace(out) != "i i o o" {
			return fmt.Sprintf("starts of the init container and the other one = %q, %v, want two of each", out, err)
		}
		return ""
	})
	l.kubectl("wait", "--for=condition=Ready", "pod/all", "--timeout=2m")
}

// stopSignal: a container is stopped by the signal of its lifecycle, which its status names.
func (l lab) stopSignal() {
	l.play("signal", `os: {name: linux}
terminationGracePeriodSeconds: 30
volumes: [{name: v, hostPath: {path: /run/signal, type: DirectoryOrCreate}}]
containers:
- name: c
  image: IMAGE
  lifecycle: {stopSignal: SIGUSR1}
  command: [sh, -c, 'trap "echo USR1 >/v/got; exit" USR1; touch /v/up; while :; do sleep 0.2; done']
  readinessProbe: {exec: {command: [test, -e, /v/up]}, periodSeconds: 1, timeoutSeconds: 20}
  volumeMounts: [{name: v, mountPath: /v}]`)
	l.same("stop signal in the status", l.field("pod/signal", ".status.containerStatuses[0].stopSignal"), "SIGUSR1")
	l.kubectl("delete", "pod", "signal", "--timeout=3m")
	l.same("signal that the process got", l.run(time.Minute, "cat /run/signal/got"), "USR1")
}

// claim is a device of Kubernetes' test driver, and the parameter that the driver passes on in the environment.
const claim = `apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: fake}
spec: {selectors: [{cel: {expression: device.driver == "test-driver.cdi.k8s.io"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: fake}
spec:
  spec:
    devices:
      requests: [{name: device, exactly: {deviceClassName: fake}}]
      config: [{opaque: {driver: test-driver.cdi.k8s.io, parameters: {greeting: hello}}}]
`

// dynamicResources: a pod gets a device that a driver allocates, as a CDI device.
func (l lab) dynamicResources() {
	l.run(time.Minute, "mkdir -p /var/lib/kubelet/plugins/test-driver.cdi.k8s.io && systemd-run --quiet "+
		"--unit=test-driver --setenv=KUBECONFIG=/etc/kubernetes/kubelet.conf "+
		"/payload/bin/test-driver kubelet-plugin --node-name="+node)
	l.apply(claim)
	l.play("device", `resourceClaims: [{name: d, resourceClaimTemplateName: fake}]
containers:
- {name: c, image: IMAGE, command: [sleep, '10000'], resources: {claims: [{name: d}]}}`)
	if got := l.in("device", "env"); !strings.Contains(got, "user_greeting=hello") {
		l.Errorf("environment = %q, want the device's user_greeting=hello", got)
	}
	l.kubectl("delete", "pod", "device", "--timeout=3m")
	l.same("CDI files that are left", l.run(time.Minute, "ls /var/run/cdi"), "")
}
