package images

import (
	"fmt"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// addon is the image of a cluster's add-on, with the name, paths and user of the published image.
type addon struct {
	name   string
	config v1.Config
	// files maps the path of a program in the image to its name in the directory of programs.
	files map[string]string
	// overBusybox is set for programs that need the C library or /etc/passwd.
	overBusybox bool
}

const multus = "usr/src/multus-cni/bin/"

var addons = map[string]addon{
	"coredns": {
		name:   "coredns/coredns:podd", // the tag that test/k8s/cluster has kubeadm use
		config: v1.Config{Entrypoint: []string{"/coredns"}, User: "65532:65532", WorkingDir: "/"},
		files:  map[string]string{"coredns": "coredns"},
	},
	"multus": {
		name:   "k8snetworkplumbingwg/multus-cni:snapshot-thick",
		config: v1.Config{Entrypoint: []string{"/" + multus + "multus-daemon"}, WorkingDir: "/"},
		files: map[string]string{
			multus + "multus-daemon": "multus-daemon", multus + "multus-shim": "multus-shim",
			multus + "install_multus": "install_multus", multus + "passthru": "passthru-cni",
		},
		overBusybox: true,
	},
	"kube-state-metrics": {
		name: "kube-state-metrics/kube-state-metrics:v2.20.0",
		config: v1.Config{User: "65534",
			Entrypoint: []string{"/kube-state-metrics", "--port=8080", "--telemetry-port=8081"}},
		files: map[string]string{"kube-state-metrics": "kube-state-metrics"},
	},
	"metrics-server": {
		name:   "metrics-server/metrics-server:v0.9.0",
		config: v1.Config{User: "65534", Entrypoint: []string{"/metrics-server"}},
		files:  map[string]string{"metrics-server": "metrics-server"},
	},
	"node-exporter": {
		name:   "prom/node-exporter:v1.12.1",
		config: v1.Config{User: "nobody", Entrypoint: []string{"/bin/node_exporter"}},
		files:  map[string]string{"bin/node_exporter": "node_exporter"}, overBusybox: true,
	},
	"local-path-provisioner": {
		name:   "rancher/local-path-provisioner:v0.0.30",
		config: v1.Config{Cmd: []string{"local-path-provisioner"}},
		files:  map[string]string{"usr/bin/local-path-provisioner": "local-path-provisioner"}, overBusybox: true,
	},
	"prometheus": {
		name: "prom/prometheus:debian",
		config: v1.Config{User: "65534", WorkingDir: "/prometheus", Entrypoint: []string{"/bin/prometheus"},
			Cmd: []string{"--config.file=/etc/prometheus/prometheus.yml", "--storage.tsdb.path=/prometheus"}},
		files:       map[string]string{"bin/prometheus": "prometheus"},
		overBusybox: true,
	},
}

// AddAddon adds the image of an add-on that only test/k8s needs. dir has its programs, path busybox.
func (r *Registry) AddAddon(path layout.Path, which, dir string) error {
	a, ok := addons[which]
	if !ok {
		return fmt.Errorf("add-on %q: %w", which, os.ErrNotExist)
	}
	t := tree{}
	for file, program := range a.files {
		data, err := os.ReadFile(filepath.Join(dir, program))
		if err != nil {
			return err
		}
		t.file(file, 0o755, data)
	}
	if a.overBusybox {
		t.symlink("var/run", "/run") // as in Debian, on which the published images are based
	}
	l, err := t.layer()
	if err != nil {
		return err
	}
	layers := []v1.Layer{l}
	if a.overBusybox {
		base, err := imageOf(path, e2e+"busybox:1.36.1-1")
		if err != nil {
			return err
		}
		below, err := base.Layers()
		if err != nil {
			return err
		}
		layers = append(below, l)
	}
	img, err := image(a.config, layers...)
	if err != nil {
		return err
	}
	return r.push(img, a.name)
}
