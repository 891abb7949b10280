package shim

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeoptions "github.com/containerd/containerd/api/types/runtimeoptions/v1"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

func TestDecodeOptions(t *testing.T) {
	for name, c := range map[string]struct {
		text, want string
		size       int
	}{
		"none":           {"", "", defaultMemory + defaultPodMemory},
		"all":            {"driver = 'uml'\nimages = '/i'\nmemory = '100'\npod_memory = '50'", "", 150},
		"unknown key":    {"vcpus = '1'", "vcpus", 0},
		"unknown driver": {"driver = 'xen'", `driver = "xen"`, 0},
		"unknown kernel": {"kernel = 'mine'", `kernel = "mine"`, 0},
		"relative path":  {"images = 'i'", "absolute", 0},
		"memory":         {"memory = '0'", `memory = "0"`, 0},
		"pod memory":     {"pod_memory = 'much'", `pod_memory = "much"`, 0},
		"not TOML":       {"driver", "options:", 0},
	} {
		o, err := decodeOptions([]byte(c.text))
		if c.want != "" {
			if !errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want an invalid argument with %q", name, err, c.want)
			}
			continue
		}
		if err != nil || o.size(0) != c.size {
			t.Errorf("%s: %+v of %d MiB, %v, want %d MiB", name, o, o.size(0), err, c.size)
		}
	}
}

func TestSize(t *testing.T) {
	o := Options{Memory: "100", PodMemory: "50"}
	for limit, want := range map[int64]int{0: 150, 1: 101, 64 << 20: 164, 64<<20 + 1: 165, 1 << 62: 100 + maxMemory} {
		if got := o.size(limit); got != want {
			t.Errorf("size of a limit of %d bytes = %d MiB, want %d", limit, got, want)
		}
	}
}

// TestParseOptions: podd and containerd send the options by path, by text, or both.
func TestParseOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "options.toml")
	if err := os.WriteFile(file, []byte("driver = 'uml'"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, from := range map[string]*runtimeoptions.Options{
		"path": {ConfigPath: file},
		"text": {ConfigPath: "/not/there", ConfigBody: []byte("driver = 'uml'")},
	} {
		data, err := proto.Marshal(from)
		if err != nil {
			t.Fatal(err)
		}
		bare := string(from.ProtoReflect().Descriptor().FullName())
		for _, url := range []string{bare, "type.googleapis.com/" + bare} {
			if o, err := parseOptions(&anypb.Any{TypeUrl: url, Value: data}); err != nil || o.Driver != "uml" {
				t.Errorf("%s, %s: %+v, %v, want driver uml", name, url, o, err)
			}
		}
	}
	if _, err := parseOptions(&anypb.Any{TypeUrl: "other"}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("options of another type: %v, want an invalid argument", err)
	}
}
