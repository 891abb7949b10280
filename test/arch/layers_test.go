// Package arch has the rules of the architecture, as tests that read the source: which package may import which, that
// every package has a comment, how long a function may be. The failure of a rule says why the rule exists.
package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/podd-project/podd/"

// layer is what a package and its subpackages may import from the module, and why.
type layer struct {
	path    string
	imports []string
	why     string
}

// Callers import what they call, never the reverse. The first layer whose path matches a package applies.
var layers = []layer{
	{"checkpoint", nil, "records must be readable without the packages of pods; it also writes files " +
		"atomically for all"},
	{"oci/vm/wire", nil, "what the host and a guest say to each other, whoever runs there"},
	{"oci/vm/guest/env", nil, "names by which the host and the agent agree"},
	{"oci/vm/guest", []string{"oci/vm/guest/env", "oci/vm/wire"}, "the agent of a guest knows nothing of the host"},
	{"oci/vm/kernel", nil, "it checks files, whatever boots them"},
	{"oci/vm/image", nil, "it builds files, whatever boots them"},
	{"oci/vm/jail", nil, "a view of the host, whatever runs in it"},
	{"oci/vm/vmm", []string{"oci/vm/guest/env"}, "it starts a machine, without containers, networks and files"},
	{"oci/vm/shim",
		[]string{"oci/vm/guest/env", "oci/vm/image", "oci/vm/jail", "oci/vm/kernel", "oci/vm/vmm", "oci/vm/wire"},
		"the shim of a pod's machine; it is called by containerd's protocol, so it imports nothing of podd"},
	{"oci/vm/cmd", []string{"oci/vm/guest", "oci/vm/image", "oci/vm/jail", "oci/vm/shim", "oci/vm/vmm"}, "wiring"},
	{"oci/cgroups", []string{"oci/process"},
		"cgroups are read, limited, killed and removed by path or process, whatever runs in them"},
	// The ground floor: it belongs to no mechanism, and each mechanism may import it.
	{"oci/process", nil, "a process is identified by pid and start time, whatever it runs"},
	{"oci/subprocess", []string{"oci/thread"}, "programs are started, killed and reaped, whatever they do"},
	{"oci/lock", nil, "one at a time, whatever is done"},
	{"oci/thread", nil, "functions run on threads of their own, whatever they do"},
	{"oci/space", nil, "how much of a disk may be filled, whatever is written"},
	{"oci/openat", nil, "files are opened below a directory, whatever they are"},
	{"oci/logfile", []string{"oci/openat"}, "logs are opened by podd and by the small programs that write them"},
	{"oci/driver/socket", nil, "a Unix socket by a path of any length, for the drivers and their small programs"},
	{"oci/runc/conmon", []string{"oci/driver/socket", "oci/subprocess"},
		"the monitor's protocol is a mechanism of its own, tested against the real conmon alone"},
	{"oci/spec/host", []string{"oci/spec", "oci/cgroups", "oci/openat", "oci/subprocess"},
		"it reads from the machine what oci/spec takes as input, because oci/spec is pure"},
	{"oci/program", []string{"checkpoint"}, "it writes an embedded program to the path that the owner passes"},
	{"oci/pause", []string{"oci/program"}, "an embedded program and where it goes"},
	{"oci/runc/initproxy", []string{"oci/program"}, "an embedded program and where it goes"},
	{"oci/runc/thaw", []string{"oci/process", "oci/subprocess", "oci/program"},
		"an embedded program, where it goes and how it is called"},
	{"oci/runc/starter", []string{"oci/process", "oci/program"}, "an embedded program, where it goes, what it waits for"},
	{"oci/runc/criu", nil, "images are read and compared with config.json, whoever restores them"},
	{"oci/runc/obstacle", []string{"oci/process", "oci/thread"}, "what processes have open, whoever asks"},
	{"oci/spec", nil, "config.json is a pure function of the request, the image and the host's facts, which golden " +
		"tests rely on"},
	{"oci/driver", []string{"oci", "oci/process", "oci/subprocess", "checkpoint"},
		"what drivers share; it keeps no container and depends on no runtime"},
	{"oci/runc", []string{"oci", "oci/process", "oci/cgroups", "oci/driver", "oci/driver/socket", "oci/runc/conmon",
		"oci/runc/criu", "oci/runc/obstacle", "oci/runc/starter", "oci/runc/thaw", "oci/logfile",
		"oci/space", "oci/thread", "oci/subprocess", "oci/lock"},
		"the driver of OCI runtimes: by container id and bundle, without pods, images, networks or other drivers"},
	{"oci/shim/stdio", []string{"oci/shim/fifo", "oci/driver/socket", "oci/logfile"},
		"the process that holds one container's output: small, because each container has one"},
	{"oci/shim/fifo", nil, "named pipes, whatever they carry"},
	{"oci/shim", []string{"oci", "oci/process", "oci/cgroups", "oci/driver", "oci/driver/socket", "oci/program",
		"oci/runc/conmon", "oci/shim/stdio", "oci/shim/fifo", "oci/logfile", "oci/subprocess", "oci/lock", "checkpoint"},
		"the driver of containerd shims: of other drivers only conmon's protocol, by which clients attach to containers"},
	{"oci/ocitest", []string{"oci", "oci/logfile", "oci/process", "oci/runc", "oci/runc/initproxy", "oci/runc/starter",
		"oci/runc/thaw", "test/sample"},
		"the runtimes' test suite uses the contract like the engine and sets up the OCI runtimes"},
	{"oci", []string{"oci/process", "oci/logfile"},
		"the contract: requests, answers and errors; it does nothing itself"},
	{"image/child", []string{"oci/subprocess"},
		"a copy of podd gets a job and sends messages, whatever the job is; nothing else of image is needed"},
	{"image/registry", []string{"image/child", "image/layers"},
		"names, credentials, policies and errors of registries are the same in every process, and need no store"},
	{"image/worker", []string{"image/child", "image/confine", "image/layers", "image/registry"},
		"it runs in the process of a pull, where no Store is: it never imports image"},
	{"image/rootfs", []string{"image/layers"},
		"overlays are mounted, measured and deleted by container id, from directories of layers: it needs no store"},
	{"image/integrity", []string{"image/layers", "checkpoint"},
		"corrupt layers are found, recorded and replaced, whatever images have them"},
	{"image/lazy", []string{"image/child", "image/layers", "image/rootfs"},
		"an additional layer store is asked about layers, whatever image has them: it needs neither index nor storage"},
	{"image/layers", []string{"oci/openat"},
		"layers are unpacked below a directory, and stored side by side in whatever store the caller has opened"},
	{"image/confine", nil, "a process restricts itself, whatever it does then"},
	{"image", []string{"image", "checkpoint"},
		"images are pulled and mounted by name and container id, for the engine and for the CRI server alike"},
	{"network/reference", nil,
		"knowledge of other people's plugins; network runs them"},
	{"network", []string{"network", "oci/thread", "oci/subprocess", "oci/lock", "checkpoint"},
		"attachments are made and undone by pod id, even if no other record of the pod exists"},
	{"streaming", []string{"streaming"},
		"it serves streams for a Backend that it declares itself"},
	{"sandbox/namespaces", []string{"oci/thread"},
		"namespaces are pinned by path; the engine decides which pod they belong to"},
	{"sandbox/convert", []string{"oci/cgroups", "oci/spec", "network"},
		"CRI messages are converted by pure functions, which are tested without an engine"},
	{"sandbox/budget", nil,
		"what users may cost podd is counted, whatever it is; mechanisms declare the functions that they need"},
	{"sandbox/dial", []string{"sandbox/budget"}, "connections are made in turn, whatever listens"},
	{"sandbox/operation", nil, "metrics, tracing and the server read operations without importing the engine"},
	{"sandbox/record", []string{"oci", "oci/logfile", "oci/spec", "checkpoint"},
		"records are read and written by the engine; what is on disk does not depend on how pods are run"},
	{"sandbox/usage", []string{"oci/cgroups", "sandbox/namespaces", "image"},
		"usage is measured for targets that the engine passes in; the server converts the results"},
	{"sandbox/handler", []string{"oci", "oci/spec", "oci/spec/host", "sandbox/convert", "sandbox/record"},
		"which handler runs a pod, and what the pod may ask of it, follows from its record and the configuration"},
	{"sandbox/files", []string{"sandbox/convert", "sandbox/record", "oci/spec"},
		"a pod's files are made from its config, whatever runs in the pod"},
	{"sandbox/snapshot", []string{"oci", "oci/openat", "oci/space", "checkpoint", "sandbox/archive", "sandbox/convert"},
		"the directory of a checkpoint is written and verified whatever runs in the pod"},
	{"sandbox/archive", []string{"oci", "oci/space"},
		"the archive of a container is written from what a runtime has saved, whatever runs"},
	{"sandbox/garbage", []string{"sandbox/files", "sandbox/handler", "sandbox/lifecycle", "sandbox/record",
		"sandbox/namespaces", "network", "checkpoint", "oci/cgroups", "oci/spec", "oci/spec/host"},
		"what is left on the machine is freed by its id alone; the engine knows what has a record"},
	{"sandbox/lifecycle", []string{"sandbox/operation"},
		"pods and containers are created, found and ended in the same way, whatever they are"},
	{"sandbox/nri", []string{"oci/process", "oci/subprocess", "oci/spec", "sandbox/convert", "sandbox/lifecycle",
		"sandbox/record"},
		"plugins are told of values that the engine passes in; it is called back through an interface of its own"},
	{"sandbox/sandboxtest", []string{"image", "image/imagetest", "network/networktest", "oci/ocitest", "sandbox/files",
		"sandbox/namespaces/namespacestest"},
		"a node of fakes, whatever drives them: the engine's tests are in the engine's package"},
	{"sandbox", []string{"sandbox/archive", "sandbox/budget", "sandbox/convert", "sandbox/dial", "sandbox/files",
		"sandbox/garbage", "sandbox/handler",
		"sandbox/lifecycle", "sandbox/namespaces", "sandbox/nri", "sandbox/operation",
		"sandbox/record", "sandbox/snapshot", "sandbox/usage", "oci", "oci/logfile", "oci/spec", "oci/spec/host",
		"oci/cgroups", "image", "network", "checkpoint"},
		"the engine calls the mechanisms; no package below imports it"},
	{"server", []string{"sandbox", "sandbox/budget", "sandbox/convert", "sandbox/lifecycle", "sandbox/operation",
		"sandbox/record", "sandbox/usage", "image", "oci", "oci/spec", "oci/cgroups", "streaming"},
		"validate, call, convert: the only package that serves CRI"},
	{"cmd/podd/tomlconfig", nil, "files are merged and printed, whatever their keys are"},
	{"cmd/podd/bundle", nil, "files are collected and scrubbed, whatever they are"},
	{"cmd/podd/ui", nil, "a page shows the answers of the daemon that the command passes"},
	{"cmd/podd/cadvisor", nil, "containers are described to cAdvisor, whatever runs them"},
	{"cmd/podd/preflight", []string{"oci/spec"}, "findings about a machine are reported, whatever looks for them"},
	{"cmd/podd/history", []string{"checkpoint", "sandbox/operation"}, "operations are kept, whatever they were about"},
	{"cmd/podd/tracing", []string{"sandbox/operation"}, "operations become spans, whatever they are about"},
	{"cmd/podd/metrics", []string{"cmd/podd/admin", "sandbox", "sandbox/budget", "sandbox/garbage", "sandbox/nri",
		"sandbox/operation", "sandbox/record", "server", "streaming"}, "figures of a node that the daemon passes"},
	{"cmd/podd/admin", []string{"cmd/podd/history", "image", "oci/process", "sandbox", "sandbox/budget", "sandbox/nri",
		"sandbox/operation", "streaming"}, "a protocol about a node that the daemon passes"},
	{"cmd/podd/state", []string{"checkpoint", "oci/spec/host"}, "directories and sockets, whatever is in or behind them"},
	{"cmd/podd/settings", []string{"cmd/podd/admin", "cmd/podd/cadvisor", "cmd/podd/metrics", "cmd/podd/tomlconfig",
		"cmd/podd/tracing", "image", "network", "oci/runc", "oci/shim", "oci/spec/host", "sandbox", "sandbox/handler",
		"sandbox/nri", "sandbox/record", "streaming"},
		"the configuration is read and checked whether or not a daemon runs"},
	{"cmd/podd/daemon", []string{"cmd/podd/admin", "cmd/podd/cadvisor", "cmd/podd/history", "cmd/podd/metrics",
		"cmd/podd/preflight", "cmd/podd/settings", "cmd/podd/state", "cmd/podd/tracing", "image", "image/registry",
		"network", "oci", "oci/cgroups", "oci/pause", "oci/process", "oci/program", "oci/runc", "oci/runc/initproxy",
		"oci/runc/starter", "oci/runc/thaw", "oci/shim", "oci/spec", "oci/spec/host", "oci/subprocess", "sandbox",
		"sandbox/budget", "sandbox/files", "sandbox/garbage", "sandbox/handler", "sandbox/namespaces", "sandbox/nri",
		"sandbox/operation", "sandbox/record", "sandbox/usage", "server", "streaming"},
		"wiring; it parses no command line"},
	{"cmd", []string{"cmd", "image", "image/registry", "oci/cgroups", "oci/spec", "oci/spec/host", "oci/subprocess",
		"sandbox", "sandbox/operation", "sandbox/record", "sandbox/snapshot"}, "the command line; nothing imports it"},
	{"test", []string{"test"}, "tests of the whole use it from outside, as a kubelet does"},
}

// restricted are packages of other modules that only some of ours may import.
var restricted = []struct {
	prefix string
	users  []string
	why    string
}{
	{"google.golang.org/grpc", []string{"server", "cmd", "sandbox/nri"}, "gRPC is how podd is called, not how it " +
		"works: the engine has its own errors and types; errors of NRI plugins are gRPC's"},
	{"github.com/containerd/nri/", []string{"sandbox/nri"}, "NRI stays behind the package that talks to plugins"},
	{"k8s.io/cri-api", []string{"server", "sandbox", "oci/spec", "streaming", "cmd"},
		"mechanisms do not depend on CRI, so that they can be used and tested without it"},
	{"go.podman.io/common/", []string{"oci/spec/host"}, "hook directories change a config.json, no more"},
	{"go.podman.io/image/", []string{"image"}, "as with storage"},
	{"go.podman.io/storage/", []string{"image", "cmd"}, "the image library's types stay behind the image " +
		"package; main only lets it re-execute podd to unpack layers"},
	{"github.com/containernetworking/", []string{"network"}, "CNI stays behind the network package"},
	{"github.com/spf13/cobra", []string{"cmd"}, "only commands parse a command line"},
	{"github.com/prometheus/", []string{"cmd/podd/metrics"}, "metrics are optional: the engine and the " +
		"server report operations by their own types"},
	{"go.opentelemetry.io/", []string{"cmd/podd/tracing"}, "as with metrics"},
}

// pkg is one package in the output of `go list`.
type pkg struct {
	ImportPath, Name, Dir, Doc string
	Imports                    []string
	GoFiles                    []string
}

// modules are the directories of the modules that hold code of the product.
var modules = []string{".", "oci/vm"}

// packages lists the packages of the modules, without those that have only tests.
func packages(t *testing.T) []pkg {
	t.Helper()
	return slices.DeleteFunc(directories(t), func(p pkg) bool { return len(p.GoFiles) == 0 })
}

// directories lists all packages of the modules.
func directories(t *testing.T) (list []pkg) {
	t.Helper()
	for _, dir := range modules {
		list = append(list, packagesOf(t, dir)...)
	}
	return list
}

func packagesOf(t *testing.T, dir string) (list []pkg) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Name,Dir,Doc,Imports,GoFiles", "-tags",
		"containers_image_openpgp,nri_no_wasm,grpcnotrace", "./...")
	cmd.Dir = filepath.Join("../..", dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v: %s", err, stderr.String())
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return list
		} else if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

// inside reports whether a package is path or below it.
func inside(pkg, path string) bool { return pkg == path || strings.HasPrefix(pkg, path+"/") }

func layerOf(name string) (layer, bool) {
	i := slices.IndexFunc(layers, func(l layer) bool { return inside(name, l.path) })
	if i < 0 {
		return layer{}, false
	}
	return layers[i], true
}

func TestImportsGoDown(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		l, ok := layerOf(name)
		if !ok {
			t.Errorf("%s: in no layer, want an entry in the table of test/arch with what it may import, and why", name)
			continue
		}
		for _, imp := range p.Imports {
			short, ours := strings.CutPrefix(imp, module)
			if ours && !mayImport(l, name, short) {
				t.Errorf("%s imports %s, want only what its layer may import\n\t%s may import %s: %s", name, short,
					l.path, listed(l.imports), l.why)
			}
		}
	}
}

// mayImport reports whether the layer lists imp. "image" alone does not include image/imagetest, unless the importer is
// below the same layer.
func mayImport(l layer, from, imp string) bool {
	if inside(imp, l.path) && inside(from, l.path) && from != l.path {
		return true // packages below one path may import each other
	}
	return slices.ContainsFunc(l.imports, func(allowed string) bool {
		return imp == allowed || allowed == l.path && inside(imp, allowed)
	})
}

func listed(names []string) string {
	if len(names) == 0 {
		return "no package of the module"
	}
	return strings.Join(names, ", ")
}

func TestLibrariesStayWhereTheyBelong(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if inside(name, "test") || strings.HasSuffix(name, "test") {
			continue // tests may import any library
		}
		for _, r := range restricted {
			for _, imp := range p.Imports {
				if strings.HasPrefix(imp, r.prefix) &&
					!slices.ContainsFunc(r.users, func(u string) bool { return inside(name, u) }) {
					t.Errorf("%s imports %s, want it imported by %s only: %s", name, imp, strings.Join(r.users, ", "), r.why)
				}
			}
		}
	}
}

// Package names that fit any content.
var vague = []string{"util", "utils", "common", "helpers", "types", "manager", "misc", "lib", "pkg", "base", "shared"}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if len(strings.Fields(p.Doc)) < 5 {
			t.Errorf("%s: no package comment, want one: what it owns, what it never does, which packages may call it",
				name)
		}
		if slices.Contains(vague, p.Name) {
			t.Errorf("%s: package name = %s, want a name that says what belongs into it", name, p.Name)
		}
	}
}

func TestTheTableItself(t *testing.T) {
	cases := []struct {
		from, imp string
		want      bool
	}{
		{"sandbox", "oci", true}, {"sandbox", "oci/runc/conmon", false}, {"oci", "sandbox", false},
		{"oci/runc", "oci/runc/conmon", true}, {"oci/runc", "oci/shim", false}, {"oci/shim", "oci/runc", false},
		{"oci/shim/stdio", "oci/runc", false},
		{"oci/shim", "oci/driver", true}, {"oci/runc", "oci/driver", true}, {"oci/driver", "oci/runc", false},
		{"sandbox", "oci/driver", false}, {"sandbox", "oci/runc", false}, {"oci", "oci/runc", false},
		{"oci/spec/host", "oci/spec", true}, {"oci/spec", "oci/spec/host", false}, {"sandbox", "sandbox/namespaces", true},
		{"sandbox/namespaces", "sandbox", false},
		{"sandbox/operation", "sandbox", false}, {"sandbox", "sandbox/usage", true},
		{"oci/runc", "oci/spec", false}, {"network", "checkpoint", true}, {"image", "network", false},
		{"server", "network", false},
		{"cmd/podd", "cmd/podd/daemon", true}, {"cmd/podd/daemon", "cmd/podd/settings", true},
		{"cmd/podd/settings", "cmd/podd/daemon", false}, {"cmd/podd/admin", "cmd/podd/settings", false},
		{"test/integration", "test/daemon", true},
		{"test/daemon", "sandbox", false}, {"sandbox", "cmd/podd", false}, {"oci", "cmd/podd/admin", false},
		{"image/imagetest", "image", true}, {"sandbox", "image/imagetest", false}, {"oci/ocitest", "oci", true},
	}
	for _, l := range layers {
		for _, imp := range l.imports {
			if inside(imp, "cmd") && !inside(l.path, "cmd") {
				t.Errorf("the row of %s allows %s, want cmd imported by nobody", l.path, imp)
			}
		}
	}
	for _, c := range cases {
		l, ok := layerOf(c.from)
		if !ok || mayImport(l, c.from, c.imp) != c.want {
			t.Errorf("mayImport(%s, %s) = %v, want %v", c.from, c.imp, !c.want, c.want)
		}
	}
}
