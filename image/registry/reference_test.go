package registry

import (
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"go.podman.io/image/v5/docker/reference"
)

const zeros = "0000000000000000000000000000000000000000000000000000000000000000"

func TestParseReference(t *testing.T) {
	for in, want := range map[string]string{
		"app":                             "docker.io/library/app:latest",
		"app:v1":                          "docker.io/library/app:v1",
		"team/app":                        "docker.io/team/app:latest",
		"localhost/app":                   "localhost/app:latest",
		"quay.io/a/b/c:v":                 "quay.io/a/b/c:v",
		"host:5000/app":                   "host:5000/app:latest",
		"index.docker.io/app":             "docker.io/library/app:latest",
		"app@sha256:" + zeros:             "docker.io/library/app@sha256:" + zeros,
		"h.test/app:v1@sha256:" + zeros:   "h.test/app@sha256:" + zeros,
		"app:" + strings.Repeat("v", 128): "docker.io/library/app:" + strings.Repeat("v", 128),
	} {
		got, _, err := ParseReference(in)
		if err != nil || got.String() != want {
			t.Errorf("%q: %v %v, want %s", in, got, err, want)
		}
	}
	for _, in := range []string{
		"", ":", "@", "app:", "app@", "App", "a b", "-app", "app:-x", "http://h.test/app", "app@sha256:0", "app@md5:0",
		"../app", "a//b", "app:" + strings.Repeat("v", 129), strings.Repeat("a", 2000), zeros, "app\n", "app\x00", "é",
	} {
		if got, _, err := ParseReference(in); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: %v %v, want invalid argument", in, got, err)
		}
	}
}

func TestIsShort(t *testing.T) {
	for in, want := range map[string]bool{
		"app": true, "app:v1": true, "team/app": true, "app@sha256:" + zeros: true, "a/b/c": true,
		"localhost/app": false, "h.test/app": false, "h:5000/app": false, "docker.io/app": false,
	} {
		if got := isShort(in); got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
}

func TestIDPrefix(t *testing.T) {
	for in, want := range map[string]struct {
		hex      string
		full, ok bool
	}{
		zeros:             {zeros, true, true},
		"sha256:" + zeros: {zeros, true, true},
		"abcd":            {"abcd", false, true},
		"sha256:abcd":     {"abcd", false, true},
		"abc":             {},
		"abcx":            {},
		"ABCD":            {},
		"":                {},
		"sha256:":         {},
		zeros + "0":       {},
		"sha512:" + zeros: {},
		"app:v1":          {},
	} {
		hex, full, ok := IDPrefix(in)
		if hex != want.hex || full != want.full || ok != want.ok {
			t.Errorf("%q: %q %v %v, want %+v", in, hex, full, ok, want)
		}
	}
}

func FuzzReference(f *testing.F) {
	for _, s := range []string{"app", "app:v1", "h:5000/a/b@sha256:" + zeros, "a:b@sha256:" + zeros, zeros,
		"sha256:" + zeros, "", "a b", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if hex, full, ok := IDPrefix(s); ok && (len(hex) < minPrefix || full != (len(hex) == 64) ||
			strings.Trim(hex, "0123456789abcdef") != "") {
			t.Errorf("idPrefix(%q) = %q, %v, want no id", s, hex, full)
		}
		ref, _, err := ParseReference(s)
		if err != nil {
			if !errdefs.IsInvalidArgument(err) {
				t.Errorf("ParseReference(%q) = %v, want an invalid argument", s, err)
			}
			return
		}
		_, tagged := ref.(reference.Tagged)
		_, digested := ref.(reference.Digested)
		if tagged == digested {
			t.Errorf("ParseReference(%q) = %s with tag: %v, digest: %v, want one of them", s, ref, tagged, digested)
		}
		again, short, err := ParseReference(ref.String())
		if err != nil || again.String() != ref.String() || short {
			t.Errorf("%q parsed is %s, parsed again %v (short: %v), %v, want no change", s, ref, again, short, err)
		}
		if got := Repository(ref.String()); got != ref.Name() {
			t.Errorf("repository of %s is %s, want %s", ref, got, ref.Name())
		}
		renamed, err := rename(ref, "other.test/repo")
		if err != nil || !strings.HasSuffix(renamed[0].String(), strings.TrimPrefix(ref.String(), ref.Name())) {
			t.Errorf("rename of %s = %v, %v, want the same tag or digest", ref, renamed, err)
		}
	})
}
