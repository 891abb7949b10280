package spec

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// FuzzContainer gives Container what a CRI client or an image may send, and checks what must hold for every answer.
func FuzzContainer(f *testing.F) {
	for _, in := range goldens(f) {
		config, err1 := proto.Marshal(in.Config)
		image, err2 := json.Marshal(in.Image)
		if err1 != nil || err2 != nil {
			f.Fatal(err1, err2)
		}
		f.Add(config, image, uint8(len(config)))
	}
	f.Fuzz(func(t *testing.T, config, image []byte, facts uint8) {
		in := base()
		if proto.Unmarshal(config, in.Config) != nil || json.Unmarshal(image, &in.Image) != nil {
			return
		}
		in.Mounts = resolved(in.Config)
		in.Pod.Linux = &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{Privileged: true}}
		in.Host.CgroupV2, in.Host.Seccomp, in.Host.AppArmor = facts&1 != 0, facts&2 != 0, facts&4 != 0
		if facts&8 != 0 {
			in.Host.Capabilities, in.Host.OOMScoreAdjMin = in.Host.Capabilities[:5], 0
		}
		in.Image.Labels = map[string]string{"label-of-the-image": "label-of-the-image"}
		checkContainer(t, in)
	})
}

func checkContainer(t *testing.T, in Input) {
	s, _, err := Container(in)
	if err != nil {
		if s != nil {
			t.Errorf("Container returned a spec along with error %v", err)
		}
		return
	}
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatalf("config.json cannot be written: %v", err)
	}
	if strings.Contains(string(data), "label-of-the-image") {
		t.Error("a label of the image is in config.json (CVE-2026-53488)")
	}
	for _, list := range [][]string{s.Process.Args, s.Process.Env} {
		for _, text := range list {
			if strings.ContainsRune(text, 0) {
				t.Errorf("%q contains a NUL byte", text)
			}
		}
	}
	for _, set := range [][]string{s.Process.Capabilities.Bounding, s.Process.Capabilities.Ambient} {
		for _, c := range set {
			if !slices.Contains(in.Host.Capabilities, c) {
				t.Errorf("capability %q is in the spec, want only those that podd holds", c)
			}
		}
	}
	if !strings.HasPrefix(s.Process.Cwd, "/") || processPath(s.Process.Cwd) ||
		*s.Process.OOMScoreAdj < in.Host.OOMScoreAdjMin {
		t.Errorf("cwd %q, oom_score_adj %d, want an absolute path outside of /proc, at least %d",
			s.Process.Cwd, *s.Process.OOMScoreAdj, in.Host.OOMScoreAdjMin)
	}
	if _, err := ExecProcess(s.Process, []string{"sh"}, true, ""); err != nil {
		t.Errorf("ExecProcess: %v", err)
	}
}

func FuzzCgroupsPath(f *testing.F) {
	f.Add(true, "/kubepods.slice/kubepods-pod1.slice", "c1")
	f.Add(false, "/a/../b", "c1")
	f.Add(true, "a:b.slice", "..")
	f.Fuzz(func(t *testing.T, systemd bool, parent, id string) {
		got, err := CgroupsPath(systemd, parent, "podd", id)
		switch {
		case err != nil:
		case systemd && strings.Count(got, ":") != 2:
			t.Errorf("CgroupsPath = %q, want three parts", got)
		case !systemd && !strings.HasSuffix(got, "/podd-"+id):
			t.Errorf("CgroupsPath = %q, want the id %q at its end", got, id)
		case !systemd && slices.Contains(strings.Split(got, "/"), ".."):
			t.Errorf("CgroupsPath = %q, want no \"..\"", got)
		}
	})
}
