package worker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// numbered returns n different volumes.
func numbered(n int) map[string]struct{} {
	out := make(map[string]struct{}, n)
	for i := range n {
		out[fmt.Sprintf("/v%d", i)] = struct{}{}
	}
	return out
}

func TestCheckConfig(t *testing.T) {
	at := func(path string) map[string]struct{} { return map[string]struct{}{path: {}} }
	for name, c := range map[string]struct {
		config v1.ImageConfig
		text   string // of the error; "" for none
	}{
		"empty":        {v1.ImageConfig{}, ""},
		"longest user": {v1.ImageConfig{User: strings.Repeat("u", maxUser)}, ""},
		"long user":    {v1.ImageConfig{User: strings.Repeat("u", maxUser+1)}, "user has 257 bytes"},
		"most volumes": {v1.ImageConfig{Volumes: numbered(maxConfigEntries)}, ""},
		"volumes":      {v1.ImageConfig{Volumes: numbered(maxConfigEntries + 1)}, "1001 volumes"},
		"environment":  {v1.ImageConfig{Env: make([]string, maxConfigEntries+1)}, "1001 environment variables"},
		"arguments":    {v1.ImageConfig{Cmd: make([]string, maxConfigEntries+1)}, "1001 arguments"},
		"ports":        {v1.ImageConfig{ExposedPorts: numbered(maxConfigEntries + 1)}, "1001 ports"},
		"deep volume":  {v1.ImageConfig{Volumes: at(strings.Repeat("/d", maxPathDepth+1))}, "65 slashes"},
		"long volume":  {v1.ImageConfig{Volumes: at(strings.Repeat("v", maxPath+1))}, "4097 bytes"},
		"long directory": {
			v1.ImageConfig{WorkingDir: strings.Repeat("w", maxPath+1)}, "working directory has 4097 bytes",
		},
		"large label": {v1.ImageConfig{Labels: map[string]string{"a": strings.Repeat("l", maxConfig)}}, "at most 262144"},
	} {
		t.Run(name, func(t *testing.T) {
			err := CheckConfig(&c.config)
			if c.text == "" && err != nil {
				t.Errorf("checkConfig: %v, want no error", err)
			}
			if c.text != "" && (!errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), c.text)) {
				t.Errorf("checkConfig: %v, want an invalid argument with %q", err, c.text)
			}
		})
	}
}

func TestCheckText(t *testing.T) {
	for config, text := range map[string]string{
		``: "", `{"config":{"Env":["A=\ufffd","B=café"]}}`: "",
		`{"config":{"Env":["A=b","LATIN=caf` + "\xe9" + `"]}}`: `"LATIN"`,
		`{"config":{"Cmd":["` + "\xff" + `"]}}`:                `""`,
	} {
		err := checkText([]byte(config))
		if text == "" && err != nil {
			t.Errorf("checkText(%q) = %v, want no error", config, err)
		}
		if text != "" && (!errdefs.IsInvalidArgument(err) || !strings.Contains(err.Error(), text+" is not UTF-8")) {
			t.Errorf("checkText(%q) = %v, want an invalid argument that names %s", config, err, text)
		}
	}
}

func TestBoundedAnnotations(t *testing.T) {
	most := map[string]string{"a": strings.Repeat("b", maxAnnotations-1)}
	if got := boundedAnnotations(most); len(got) != 1 {
		t.Errorf("boundedAnnotations of %d bytes = %d entries, want 1", maxAnnotations, len(got))
	}
	most["c"] = ""
	if got := boundedAnnotations(most); got != nil {
		t.Errorf("boundedAnnotations of %d bytes = %d entries, want none", maxAnnotations+1, len(got))
	}
}
