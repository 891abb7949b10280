package suite

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// token returns the user that a token authenticates.
func (k *scene) token(token string) string {
	k.Helper()
	r, err := c.Client.AuthenticationV1().TokenReviews().Create(k.Context(), &authv1.TokenReview{
		Spec: authv1.TokenReviewSpec{Token: token, Audiences: []string{"tests"}}}, metav1.CreateOptions{})
	k.ok("review the token", err)
	return r.Status.User.Username
}

// fetch gets a page from an address of the cluster.
func (k *scene) fetch(url string) string {
	k.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	var page string
	k.eventually("fetch "+url, func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		res, err := client.Do(req)
		if err != nil {
			return err
		}
		defer res.Body.Close()
		data, err := io.ReadAll(res.Body)
		page = string(data)
		return err
	})
	return page
}

// A pod is reached at its own address and at a port of its host; a pod in the host's network has the host's address.
func TestNetwork(t *testing.T) {
	k := parallel(t)
	p := k.run("own", `
hostname: given
subdomain: below
hostAliases: [{ip: 10.9.8.7, hostnames: [alias.test]}]
dnsConfig: {searches: [more.test], options: [{name: ndots, value: "3"}]}
containers: [{name: c, image: NGINX, ports: [{containerPort: 80, hostPort: 8123}]}]
`)
	k.contains("the pod's page", k.fetch("http://"+p.Status.PodIP+"/"), "nginx")
	k.contains("the page at the host's port", k.fetch("http://"+c.Node(k.node).Addr+":8123/"), "nginx")
	k.same("hostname", k.sh("own", "hostname"), "given")
	k.contains("hosts", k.sh("own", "cat /etc/hosts"), "10.9.8.7\talias.test", p.Status.PodIP)
	k.contains("resolv.conf", k.sh("own", "cat /etc/resolv.conf"), "more.test", "ndots:3", k.ns+".svc.cluster.local")

	host := k.run("host", "hostNetwork: true\ndnsPolicy: Default\ncontainers: [{name: c, image: BUSYBOX, command: "+
		"[sleep, '10000']}]")
	k.same("the address of a pod in the host's network", host.Status.PodIP, c.Node(k.node).Addr)
	k.contains("network of that pod", k.sh("host", "ip -o addr; wget -q -O - http://"+p.Status.PodIP), c.Node(k.node).Addr,
		"cni0", "nginx")
}

// A process has what its security context says.
func TestSecurityContext(t *testing.T) {
	k := parallel(t)
	k.run("p", `
securityContext: {runAsUser: 1001, runAsGroup: 2002, supplementalGroups: [3003],
  seccompProfile: {type: RuntimeDefault}, sysctls: [{name: net.ipv4.ip_unprivileged_port_start, value: "80"}]}
containers:
- name: plain
  image: BUSYBOX
  command: [sleep, "10000"]
  securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
- {name: root, image: BUSYBOX, command: [sleep, "10000"],
   securityContext: {runAsUser: 0, capabilities: {add: [NET_ADMIN], drop: [CHOWN]}}}
- {name: privileged, image: BUSYBOX, command: [sleep, "10000"], securityContext: {runAsUser: 0, privileged: true}}
`)
	k.same("ids", k.sh("p", "id -u; id -g; id -G"), "1001\n2002\n2002 3003")
	status := k.sh("p", "cat /proc/self/status")
	k.contains("status", status, "CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2")
	k.contains("writing to the root", k.sh("p", "touch /x 2>&1 || true"), "Read-only file system")
	k.same("sysctl", k.sh("p", "cat /proc/sys/net/ipv4/ip_unprivileged_port_start"), "80")
	in := func(name, line string) string {
		return strings.TrimSpace(k.kubectl("exec", "p", "-c", name, "--", "sh", "-c", line))
	}
	k.same("added capability", in("root", "ip link set lo mtu 60000 && cat /sys/class/net/lo/mtu"), "60000")
	k.contains("dropped capability", in("root", "touch /f; chown 1 /f 2>&1 || true"), "Operation not permitted")
	k.same("devices of a privileged container", in("privileged", "mkdir -p /m && mount -t tmpfs none /m && echo ok"), "ok")
	k.contains("a privileged container's status", in("privileged", "cat /proc/self/status"), "Seccomp:\t0")
	p := k.get("p")
	if u := container(p, "plain").User; u == nil || u.Linux == nil || u.Linux.UID != 1001 || u.Linux.GID != 2002 {
		t.Errorf("user in the status = %+v, want uid 1001, gid 2002", u)
	}
}

// RuntimeClasses select the handler. For an unknown handler the pod gets an event and stays pending.
func TestRuntimeClass(t *testing.T) {
	for _, handler := range []string{"runc", "crun"} {
		t.Run(handler, func(t *testing.T) {
			k := parallel(t)
			k.class(handler, "overhead: {podFixed: {cpu: 10m, memory: 24Mi}}")
			p := k.run("p", "runtimeClassName: "+k.ns+`-class
containers: [{name: c, image: BUSYBOX, command: [sleep, "10000"], resources: {limits: {cpu: 100m, memory: 32Mi}}}]`)
			k.same("memory with the overhead", k.cgroupFile(p, "memory/memory.limit_in_bytes", "memory.max"), "58720256")
			out, err := c.Node(k.node).Crictl("pods", "--namespace", "^"+k.ns+"$")
			k.ok("crictl pods", err)
			k.contains("podd", out, handler)
			k.same("exec", k.sh("p", "echo works"), "works")
		})
	}
	t.Run("gvisor", func(t *testing.T) {
		k := parallel(t)
		if _, ok := k.handlers()["gvisor"]; !ok {
			t.Skip("podd has no gVisor here: contrib/tools/gvisor builds it")
		}
		k.class("gvisor", "")
		k.run("p", "runtimeClassName: "+k.ns+"-class\ncontainers: [{name: c, image: NGINX}]")
		k.contains("the kernel's messages", k.sh("p", "dmesg"), "gVisor")
		k.contains("its page", k.fetch("http://"+k.get("p").Status.PodIP+"/"), "nginx")
	})
	t.Run("manifests", func(t *testing.T) {
		k := parallel(t)
		k.kubectl("apply", "-f", manifests+"runtimeclasses.yaml")
		k.Cleanup(func() { k.kubectl("delete", "-f", manifests+"runtimeclasses.yaml") })
		there := k.handlers()
		for _, class := range []string{"runc", "crun", "gvisor", "vm"} {
			own := class == "gvisor" || class == "vm" // a kernel of its own
			if _, ok := there[class]; !ok && own {
				continue // it is not built
			}
			k.pod(class, "runtimeClassName: "+class+"\ncontainers: [{name: c, image: BUSYBOX, command: [sleep, '10000']}]")
			p := k.ready(class)
			k.same("overhead of "+class, len(p.Spec.Overhead) > 0, own)
		}
	})
	t.Run("node status", func(t *testing.T) {
		k := parallel(t)
		for _, name := range []string{"", "runc", "crun"} {
			f := k.handlers()[name]
			if f == nil || f.RecursiveReadOnlyMounts == nil || !*f.RecursiveReadOnlyMounts || f.UserNamespaces == nil {
				t.Errorf("features of handler %q in the node's status = %+v, want recursive read-only mounts, and whether "+
					"it has user namespaces", name, f)
			} else if !*f.UserNamespaces && name != "crun" { // Debian 12's crun cannot map the volumes of such a pod
				t.Errorf("handler %q has no user namespaces, want them", name)
			}
		}
	})
	t.Run("unknown", func(t *testing.T) {
		k := parallel(t)
		k.class("does-not-exist", "")
		k.pod("p", "runtimeClassName: "+k.ns+"-class\ncontainers: [{name: c, image: BUSYBOX}]")
		k.event("p", "FailedCreatePodSandBox", "does-not-exist")
		k.same("phase", k.get("p").Status.Phase, corev1.PodPending)
	})
}

// handlers returns the handlers in the node's status, with their features.
func (k *scene) handlers() map[string]*corev1.NodeRuntimeHandlerFeatures {
	k.Helper()
	n, err := c.Client.CoreV1().Nodes().Get(k.Context(), k.node, metav1.GetOptions{})
	k.ok("get the node", err)
	features := map[string]*corev1.NodeRuntimeHandlerFeatures{}
	for _, h := range n.Status.RuntimeHandlers {
		features[h.Name] = h.Features
	}
	return features
}

// class creates a RuntimeClass, named by the scenario's namespace, because RuntimeClasses are not in namespaces.
func (k *scene) class(handler, more string) {
	k.Helper()
	k.create(fmt.Sprintf("apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: %s-class}\nhandler: %s\n%s\n",
		k.ns, handler, more))
}

func TestImages(t *testing.T) {
	waiting := func(reason string) func(*corev1.Pod) bool {
		return func(p *corev1.Pod) bool {
			s := container(p, "c")
			return s != nil && s.State.Waiting != nil && s.State.Waiting.Reason == reason
		}
	}
	t.Run("never pulled", func(t *testing.T) {
		k := parallel(t)
		k.pod("p", "containers: [{name: c, image: 'registry.k8s.io/podd/workdir:latest', imagePullPolicy: Never}]")
		k.until("p", "has no image", waiting("ErrImageNeverPull"))
	})
	t.Run("always pulled", func(t *testing.T) {
		k := parallel(t)
		p := k.run("p", "containers: [{name: c, image: BUSYBOX, imagePullPolicy: Always, command: [sleep, '10000']}]")
		k.event("p", "Pulled", "Successfully pulled")
		k.contains("the image in the status", container(p, "c").ImageID, "sha256:")
		k.same("the image's name in the status", container(p, "c").Image, busybox)
	})
	t.Run("wrong name", func(t *testing.T) {
		k := parallel(t)
		k.pod("p", "containers: [{name: c, image: 'registry.k8s.io/no-such/image:1'}]")
		k.until("p", "backs off", waiting("ImagePullBackOff"))
		k.event("p", "Failed", "no-such/image")
	})
	t.Run("pull secret", func(t *testing.T) {
		k := parallel(t)
		k.pod("without", "containers: [{name: c, image: 'AUTH/podd/config:latest', command: [sleep, '10000']}]")
		k.event("without", "Failed", "credentials")
		k.until("without", "backs off", waiting("ImagePullBackOff"))
		k.kubectl("create", "secret", "docker-registry", "pull", "--docker-server="+c.AuthRegistry, "--docker-username=podd",
			"--docker-password=open sesame")
		k.run("with", "imagePullSecrets: [{name: pull}]\ncontainers: [{name: c, image: 'AUTH/podd/config:latest', "+
			"command: [sleep, '10000']}]")
		k.same("environment of the image", k.sh("with", "echo $GREETING"), "hello")
	})
}

// The kubelet's statistics of a node, its pods and their containers are plausible.
func TestStats(t *testing.T) {
	k := parallel(t)
	k.checkStats(false)
}

// checkStats runs a pod that uses 20 MiB of memory and some CPU, and checks the kubelet's statistics of it. Without the
// gate PodAndContainerStatsFromCRI the kubelet takes the pods' network and processes and its page of metrics from
// cAdvisor, which only knows the containers of containerd and CRI-O.
func (k *scene) checkStats(fromCRI bool) {
	k.Helper()
	k.run("p", `
volumes: [{name: m, emptyDir: {medium: Memory}}]
containers:
- name: c
  image: BUSYBOX
  command: [sh, -c, "dd if=/dev/zero of=/m/f bs=1M count=20; dd if=/dev/zero of=/big bs=1M count=5;
    while true; do :; done"]
  volumeMounts: [{name: m, mountPath: /m}]
  resources: {limits: {cpu: 200m}}
`)
	k.eventually("the summary has the pod", func(ctx context.Context) error {
		var s summary
		if err := k.fromKubelet(ctx, "stats/summary", &s); err != nil {
			return err
		}
		for _, p := range s.Pods {
			if p.PodRef.Namespace == k.ns && len(p.Containers) == 1 {
				return p.check(fromCRI)
			}
		}
		return fmt.Errorf("the pod is not among the %d pods of the summary", len(s.Pods))
	})
	pages := []string{"metrics/resource"}
	if fromCRI {
		pages = append(pages, "metrics/cadvisor")
	}
	for _, path := range pages {
		k.eventually(path+" has the container", func(ctx context.Context) error {
			var text string
			if err := k.fromKubelet(ctx, path, &text); err != nil {
				return err
			}
			for line := range strings.Lines(text) {
				if strings.HasPrefix(line, "container_cpu_usage_seconds_total{") &&
					strings.Contains(line, `namespace="`+k.ns+`"`) && strings.Contains(line, `container="c"`) {
					return nil
				}
			}
			return fmt.Errorf("no container_cpu_usage_seconds_total of the container")
		})
	}
}
