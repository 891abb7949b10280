package tools

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	tetragoncri "github.com/cilium/tetragon/pkg/cri"
	"github.com/hashicorp/go-hclog"
	criclient "github.com/inspektor-gadget/inspektor-gadget/pkg/container-utils/cri"
	ociannotations "github.com/inspektor-gadget/inspektor-gadget/pkg/container-utils/oci-annotations"
	"github.com/inspektor-gadget/inspektor-gadget/pkg/types"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/spiffe/spire/pkg/common/containerinfo"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/podd-project/podd/test/daemon"
	"github.com/podd-project/podd/test/images"
)

const busybox = "registry.k8s.io/e2e-test-images/busybox:1.29-2"

// running is a container that podd runs, with the names that a tool must find.
type running struct {
	id, name, pod, namespace, uid, sandbox string
	pid                                    int
}

func TestMain(m *testing.M) {
	if err := os.Chdir("../.."); err != nil { // package daemon looks for podd's repository
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestTools runs a podd with two pods, one of which has an infra container, and has each tool find their containers.
func TestTools(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("podd needs root")
	}
	d := start(t)
	containers := []running{
		run(t, d, "plain", cri.NamespaceMode_CONTAINER), run(t, d, "shared", cri.NamespaceMode_POD),
	}
	for name, find := range map[string]func(*testing.T, *daemon.Daemon, running){
		"Inspektor Gadget by CRI": gadgetByCRI, "Inspektor Gadget by config.json": gadgetByAnnotations,
		"Inspektor Gadget by conmon": gadgetByConmon, "Falco": falcoByCgroup, "SPIRE": spireByProcess,
		"Tetragon": tetragonByCRI,
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range containers {
				find(t, d, c)
			}
		})
	}
}

func start(t *testing.T) *daemon.Daemon {
	t.Helper()
	d, err := daemon.New(daemon.Options{Registry: images.Serve(t)})
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	must(t, d.Start(t.Context()))
	_, err = d.Images.PullImage(t.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: busybox}})
	must(t, err)
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// run runs a pod with one container, labelled as the kubelet does.
func run(t *testing.T, d *daemon.Daemon, name string, mode cri.NamespaceMode) running {
	t.Helper()
	r := running{name: "main", pod: name, namespace: "tools", uid: "uid-of-" + name}
	labels := map[string]string{
		"io.kubernetes.pod.name": r.pod, "io.kubernetes.pod.namespace": r.namespace, "io.kubernetes.pod.uid": r.uid,
	}
	options := &cri.NamespaceOption{Pid: mode}
	pod := &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: r.pod, Namespace: r.namespace, Uid: r.uid},
		LogDirectory: d.Path("logs", name), Labels: labels,
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    d.CgroupParent,
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: options},
		},
	}
	must(t, os.MkdirAll(pod.LogDirectory, 0o755))
	p, err := d.Runtime.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: pod})
	must(t, err)
	all := map[string]string{"io.kubernetes.container.name": r.name}
	for k, v := range labels {
		all[k] = v
	}
	container := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: r.name}, Labels: all, LogPath: "0.log",
		Image:   &cri.ImageSpec{Image: busybox, UserSpecifiedImage: busybox},
		Command: []string{"sleep", "1000"},
		Linux:   &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: options}},
	}
	c, err := d.Runtime.CreateContainer(t.Context(),
		&cri.CreateContainerRequest{PodSandboxId: p.PodSandboxId, Config: container, SandboxConfig: pod})
	must(t, err)
	_, err = d.Runtime.StartContainer(t.Context(), &cri.StartContainerRequest{ContainerId: c.ContainerId})
	must(t, err)
	r.id, r.sandbox = c.ContainerId, p.PodSandboxId
	status, err := d.Runtime.ContainerStatus(t.Context(), &cri.ContainerStatusRequest{ContainerId: r.id, Verbose: true})
	must(t, err)
	var info struct{ Pid int }
	must(t, json.Unmarshal([]byte(status.Info["info"]), &info))
	r.pid = info.Pid
	return r
}

// gadgetByCRI: Inspektor Gadget's client finds the container, its pod, its pid and its cgroup.
func gadgetByCRI(t *testing.T, d *daemon.Daemon, c running) {
	client, err := criclient.NewCRIClient(types.RuntimeNameCrio, d.Socket, 10*time.Second)
	must(t, err)
	defer client.Close()
	got, err := client.GetContainerDetails(c.id)
	must(t, err)
	k := got.K8s
	if k.PodName != c.pod || k.Namespace != c.namespace || k.PodUID != c.uid || k.ContainerName != c.name {
		t.Errorf("Inspektor Gadget finds %+v, want %+v", k, c)
	}
	if got.Pid != c.pid || !strings.Contains(got.CgroupsPath, c.id) {
		t.Errorf("Inspektor Gadget finds pid %d and cgroup %q, want %d and one with %s",
			got.Pid, got.CgroupsPath, c.pid, c.id)
	}
}

// gadgetByAnnotations: Inspektor Gadget takes the names from config.json of a container that it sees start.
func gadgetByAnnotations(t *testing.T, d *daemon.Daemon, c running) {
	data, err := os.ReadFile(d.Path("run", "containers", c.id, "config.json"))
	must(t, err)
	var spec specs.Spec
	must(t, json.Unmarshal(data, &spec))
	r, err := ociannotations.NewResolverFromAnnotations(spec.Annotations)
	must(t, err)
	for what, pair := range map[string][2]string{
		"container": {r.ContainerName(spec.Annotations), c.name}, "type": {r.ContainerType(spec.Annotations), "container"},
		"pod": {r.PodName(spec.Annotations), c.pod}, "namespace": {r.PodNamespace(spec.Annotations), c.namespace},
		"uid": {r.PodUID(spec.Annotations), c.uid}, "image": {r.ContainerImageName(spec.Annotations), busybox},
		"sandbox": {r.PodSandboxId(spec.Annotations), c.sandbox},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s = %q, want %q", what, pair[0], pair[1])
		}
	}
}

// gadgetByConmon: a conmon that Inspektor Gadget takes for one of a container has these flags, each with a value. The
// table has facts of its tracer, whose function is not exported.
func gadgetByConmon(t *testing.T, _ *daemon.Daemon, c running) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	for _, path := range lines {
		data, _ := os.ReadFile(path) // a process that has ended has none
		args := strings.Split(string(data), "\x00")
		if filepath.Base(args[0]) != "conmon" || !strings.Contains(string(data), "\x00"+c.id+"\x00") {
			continue
		}
		values := map[string]string{}
		for i, arg := range args[:len(args)-1] {
			values[arg] = args[i+1]
		}
		if values["--cid"] != c.id {
			continue // of the command, not of the container
		}
		if values["--name"] != c.name || values["--bundle"] == "" || values["--container-pidfile"] == "" {
			t.Errorf("conmon's arguments = %q, want --name %s, --bundle and --container-pidfile", args, c.name)
		}
		return
	}
	t.Errorf("no conmon of container %s", c.id)
}

// falcoLayouts are the starts and ends of the cgroup paths that Falco's container plugin takes for containers of a CRI
// runtime, with a 64-digit id between them. They are facts of its C++ source, which has no Go package.
var falcoLayouts = [][2]string{
	{"/", ""}, {"/crio-", ""}, {"/cri-containerd-", ".scope"}, {"/crio-", ".scope"}, {":cri-containerd:", ""},
	{"/docker-", ".scope"}, {"/nerdctl-", ".scope"},
}

// falcoID returns the id that Falco shows for a cgroup, "host" for none.
func falcoID(cgroup string) string {
	for _, l := range falcoLayouts {
		pattern := regexp.MustCompile(regexp.QuoteMeta(l[0]) + "([0-9a-fA-F]{64})" + regexp.QuoteMeta(l[1]) + "$")
		if m := pattern.FindStringSubmatch(cgroup); m != nil {
			return m[1][:12]
		}
	}
	return "host"
}

// falcoByCgroup: the cgroup of a container's process has a layout that Falco knows.
func falcoByCgroup(t *testing.T, _ *daemon.Daemon, c running) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", c.pid))
	must(t, err)
	found := false
	for line := range strings.Lines(string(data)) {
		path := line[strings.LastIndex(line, ":")+1:]
		found = found || falcoID(strings.TrimSpace(path)) == c.id[:12]
	}
	if !found {
		t.Errorf("Falco knows none of the cgroups of container %s:\n%s", c.id, data)
	}
	for prefix, want := range map[string]string{"podd-": "host", "crio-": c.id[:12]} {
		for _, suffix := range []string{"", ".scope"} {
			if got := falcoID("/kubepods.slice/kubepods-pod1.slice/" + prefix + c.id + suffix); got != want {
				t.Errorf("Falco's id of %s<id>%s = %s, want %s", prefix, suffix, got, want)
			}
		}
	}
}

// spireByProcess: SPIRE's workload attestor finds the container of a process. It takes the uid of the pod
// from the cgroup above, which a kubelet makes.
func spireByProcess(t *testing.T, _ *daemon.Daemon, c running) {
	id, err := (&containerinfo.Extractor{RootDir: "/"}).GetContainerID(int32(c.pid), hclog.NewNullLogger())
	must(t, err)
	if id != c.id {
		t.Errorf("SPIRE finds container %q, want %s", id, c.id)
	}
}

// tetragonByCRI: Tetragon finds the cgroup of the container, by which it recognises processes of the container.
func tetragonByCRI(t *testing.T, d *daemon.Daemon, c running) {
	client, err := tetragoncri.NewClient(t.Context(), "unix://"+d.Socket)
	must(t, err)
	path, err := tetragoncri.CgroupPath(t.Context(), client, c.id)
	must(t, err)
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", c.pid))
	must(t, err)
	if !strings.Contains(string(data), ":"+path+"\n") {
		t.Errorf("Tetragon finds cgroup %q, want one of\n%s", path, data)
	}
}
