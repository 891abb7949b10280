package spec

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"google.golang.org/protobuf/encoding/protojson"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

var update = flag.Bool("update", false, "write testdata/*.oci.json anew")

// golden is one testdata/<case>.cri.json: what differs from base.
type golden struct {
	// Config and Pod are protojson of the CRI's messages.
	Config, Pod json.RawMessage
	// Input holds the other fields of Input.
	Input json.RawMessage
	// Pause makes an infra container of Pod, with the sysctls of Pod.
	Pause bool
}

// result is a testdata/<case>.oci.json.
type result struct {
	Warnings []string    `json:"warnings,omitempty"`
	Spec     *specs.Spec `json:"spec"`
}

// TestGolden holds config.json to testdata: one case per field of the CRI.
func TestGolden(t *testing.T) {
	for name, in := range goldens(t) {
		t.Run(name, func(t *testing.T) {
			s, warnings, err := in.make()
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(result{warnings, s}, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".oci.json")
			if *update {
				if err := os.WriteFile(file, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(bytes.TrimSpace(want)), string(got)); diff != "" {
				t.Errorf("%s (run with -update if this is meant):\n%s", file, diff)
			}
		})
	}
}

// TestGoldenFiles finds answers whose question was removed.
func TestGoldenFiles(t *testing.T) {
	answers, _ := filepath.Glob("testdata/*.oci.json")
	for _, a := range answers {
		if _, err := os.Stat(strings.TrimSuffix(a, ".oci.json") + ".cri.json"); err != nil {
			t.Errorf("%s has no case", a)
		}
	}
}

// goldenInput is a case, read.
type goldenInput struct {
	Input
	pause bool
}

func (in goldenInput) make() (*specs.Spec, []string, error) {
	if !in.pause {
		return Container(in.Input)
	}
	return Pause(PauseInput{
		ID: in.ID, Pod: in.Pod, Rootfs: in.Rootfs, Seccomp: in.Seccomp, Labels: in.Labels, Namespaces: in.Namespaces,
		CgroupsPath: in.CgroupsPath, Shm: in.Files.Shm, Sysctls: in.Pod.GetLinux().GetSysctls(),
		Annotations: in.Annotations, Handler: in.Handler, Host: in.Host,
	})
}

func goldens(t testing.TB) map[string]goldenInput {
	t.Helper()
	files, err := filepath.Glob("testdata/*.cri.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	out := map[string]goldenInput{}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		in, err := read(data)
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		out[strings.TrimSuffix(filepath.Base(f), ".cri.json")] = in
	}
	return out
}

func read(data []byte) (goldenInput, error) {
	var g golden
	if err := strict(data, &g); err != nil {
		return goldenInput{}, err
	}
	in := base()
	if g.Input != nil {
		if err := strict(g.Input, &in); err != nil {
			return goldenInput{}, err
		}
	}
	if g.Config != nil {
		in.Config = &cri.ContainerConfig{}
		if err := protojson.Unmarshal(g.Config, in.Config); err != nil {
			return goldenInput{}, err
		}
	}
	if g.Pod != nil {
		in.Pod = &cri.PodSandboxConfig{}
		if err := protojson.Unmarshal(g.Pod, in.Pod); err != nil {
			return goldenInput{}, err
		}
	}
	in.Mounts = resolved(in.Config)
	return goldenInput{in, g.Pause}, nil
}

func strict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

// resolved stands in for host.Mounts.
func resolved(c *cri.ContainerConfig) []Mount {
	var out []Mount
	for _, m := range c.GetMounts() {
		r := Mount{Config: m, Source: m.GetHostPath(), IsDir: true}
		if m.GetImage() != nil {
			r.Source = "/images/" + m.GetImage().GetImage() + "/" + m.GetImageSubPath()
		}
		out = append(out, r)
	}
	return out
}

// base is a plain container on a machine that can do everything but SELinux and AppArmor.
func base() Input {
	return Input{
		ID: "c1",
		Pod: &cri.PodSandboxConfig{
			Metadata: &cri.PodSandboxMetadata{Name: "web", Namespace: "shop", Uid: "u-1"}, Hostname: "web-0",
		},
		Config: &cri.ContainerConfig{},
		Image:  v1.ImageConfig{Entrypoint: []string{"/app"}, Cmd: []string{"--default"}},
		Rootfs: "/rootfs",
		User:   User{Groups: []uint32{0}, Home: "/root"},
		Namespaces: Namespaces{
			Net: "/run/podd/netns/p", IPC: "/run/podd/pods/p/ipc", UTS: "/run/podd/pods/p/uts",
		},
		Files: PodFiles{
			ResolvConf: "/run/podd/pods/p/resolv.conf", Hostname: "/run/podd/pods/p/hostname",
			Hosts: "/run/podd/pods/p/hosts", Shm: "/run/podd/pods/p/shm",
		},
		CgroupsPath: "/kubepods/pod1/podd-c1",
		Defaults:    Defaults{Capabilities: DefaultCapabilities()},
		Handler:     Handler{OCIVersion: "1.2.1", RecursiveReadOnly: true, UserNamespaces: true},
		Host: Facts{
			Capabilities: knownCapabilities(), OOMScoreAdjMin: -1000, CgroupV2: true, Hugetlb: true, Swap: true,
			HugepageSizes: []string{"2MB", "1GB"}, Seccomp: true, Arch: "amd64", Kernel: KernelVersion{6, 18},
		},
	}
}
