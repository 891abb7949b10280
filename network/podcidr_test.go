package network

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

const testTemplate = `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"fake",
"ipam":{"type":"host-local","subnet":"{{.PodCIDR}}",
"ranges":[{{range $i, $r := .PodCIDRRanges}}{{if $i}},{{end}}[{"subnet":"{{$r}}"}]{{end}}],
"routes":[{{range $i, $r := .Routes}}{{if $i}},{{end}}{"dst":"{{$r}}"}{{end}}]}}]}`

func templateCNI(t *testing.T, text string) *CNI {
	t.Helper()
	cfg := testConfig(t)
	cfg.ConfTemplate = filepath.Join(t.TempDir(), "cni.template")
	write(t, cfg.ConfTemplate, text)
	return newFakeCNI(t, cfg, nil)
}

func conf(t *testing.T, c *CNI) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.cfg().ConfDir, podCIDRConf))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(data)
}

func TestSetPodCIDRWritesTheTemplate(t *testing.T) {
	c := templateCNI(t, testTemplate)
	if err := os.Remove(c.cfg().ConfDir); err != nil { // it is made when it is needed
		t.Fatal(err)
	}
	if err := c.SetPodCIDR(t.Context(), " 10.1.2.3/16 , fd00:1::/64"); err != nil {
		t.Fatal(err)
	}
	got := conf(t, c)
	for _, want := range []string{`"subnet":"10.1.0.0/16"`, `[[{"subnet":"10.1.0.0/16"}],[{"subnet":"fd00:1::/64"}]]`,
		`[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]`} {
		if !strings.Contains(got, want) {
			t.Errorf("configuration = %s, want it with %s", got, want)
		}
	}
	if c.PodCIDR() != "10.1.0.0/16,fd00:1::/64" {
		t.Errorf("PodCIDR = %q, want %q", c.PodCIDR(), "10.1.0.0/16,fd00:1::/64")
	}
	// Another range replaces it; the same range again does not touch the file, nor does an empty one.
	if err := c.SetPodCIDR(t.Context(), "10.9.0.0/16"); err != nil || !strings.Contains(conf(t, c), "10.9.0.0/16") {
		t.Errorf("SetPodCIDR = %v, wrote %s, want 10.9.0.0/16", err, conf(t, c))
	}
	before, err := os.Stat(filepath.Join(c.cfg().ConfDir, podCIDRConf))
	if err != nil {
		t.Fatal(err)
	}
	for _, same := range []string{"10.9.0.0/16", ""} {
		if err := c.SetPodCIDR(t.Context(), same); err != nil {
			t.Error(err)
		}
	}
	after, err := os.Stat(filepath.Join(c.cfg().ConfDir, podCIDRConf))
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the file was replaced, want no write of equal content: %v", err)
	}
	if entries, err := os.ReadDir(c.cfg().ConfDir); err != nil || len(entries) != 1 {
		t.Errorf("directory = %v, %v, want one entry", entries, err)
	}
	if before.Mode().Perm() != 0o644 {
		t.Errorf("mode = %v, want 0644", before.Mode())
	}
}

func TestSetPodCIDRLeavesOthersAlone(t *testing.T) {
	c := templateCNI(t, testTemplate)
	write(t, filepath.Join(c.cfg().ConfDir, "05-broken.conflist"), "{") // does not count
	write(t, filepath.Join(c.cfg().ConfDir, "50-flannel.conflist"), fakeConf("1.0.0", "flannel"))
	if err := c.SetPodCIDR(t.Context(), "10.1.0.0/16"); err != nil || conf(t, c) != "" {
		t.Errorf("SetPodCIDR = %v, wrote %q, want nothing", err, conf(t, c))
	}
	if c.PodCIDR() != "10.1.0.0/16" {
		t.Errorf("PodCIDR = %q, want %q", c.PodCIDR(), "10.1.0.0/16")
	}
}

func TestSetPodCIDRWithoutATemplate(t *testing.T) {
	c := newFakeCNI(t, testConfig(t), nil)
	if err := c.SetPodCIDR(t.Context(), "10.1.0.0/16"); err != nil || c.PodCIDR() != "10.1.0.0/16" || conf(t, c) != "" {
		t.Errorf("SetPodCIDR = %v, PodCIDR = %q, wrote %q, want nil, 10.1.0.0/16, nothing", err, c.PodCIDR(), conf(t, c))
	}
}

func TestSetPodCIDRRefuses(t *testing.T) {
	c := templateCNI(t, testTemplate)
	for _, cidr := range []string{"x", "10.1.0.0", "10.1.0.0/33", ",", "10.1.0.0/16,", "10.1.0.0/16\"}",
		"fe80::1%eth0/64"} {
		if err := c.SetPodCIDR(t.Context(), cidr); !errdefs.IsInvalidArgument(err) {
			t.Errorf("SetPodCIDR(%q) = %v, want an invalid argument", cidr, err)
		}
	}
	if c.PodCIDR() != "" || conf(t, c) != "" {
		t.Errorf("PodCIDR = %q, wrote %q, want neither", c.PodCIDR(), conf(t, c))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.SetPodCIDR(ctx, "10.1.0.0/16"); !errors.Is(err, context.Canceled) {
		t.Errorf("SetPodCIDR = %v, want context.Canceled", err)
	}
	for _, text := range []string{"{{", "{{.Nothing}}", "no JSON", `{"name":"x","plugins":[{"type":"../x"}]}`,
		`{"name":"x"}`} {
		c := templateCNI(t, text)
		if err := c.SetPodCIDR(t.Context(), "10.1.0.0/16"); !errdefs.IsFailedPrecondition(err) || conf(t, c) != "" {
			t.Errorf("template %q: SetPodCIDR = %v, wrote %q, want a failed precondition and nothing", text, err, conf(t, c))
		}
	}
	c.cfg().ConfTemplate += ".absent"
	if err := c.SetPodCIDR(t.Context(), "10.1.0.0/16"); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("SetPodCIDR without the template = %v, want a failed precondition", err)
	}
}
