package tracing

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// environment returns a getenv of NAME=value lines, whose names begin with OTEL_.
func environment(lines ...string) func(string) string {
	return func(name string) string {
		for _, line := range lines {
			if key, value, _ := strings.Cut(line, "="); "OTEL_"+key == name {
				return value
			}
		}
		return ""
	}
}

func TestWithEnvironment(t *testing.T) {
	const out = "EXPORTER_OTLP_"
	file := Config{Endpoint: "file:1", SamplingRatePerMillion: 5}
	compressed := Config{Endpoint: "file:1", SamplingRatePerMillion: 5, Compression: "gzip"}
	for name, c := range map[string]struct {
		cfg  Config
		env  []string
		want Config
		fail string
	}{
		"nothing":  {},
		"file":     {cfg: file, env: []string{out + "ENDPOINT=https://env:1"}, want: file},
		"disabled": {cfg: file, env: []string{"SDK_DISABLED=true"}},
		"https": {
			env: []string{
				out + "ENDPOINT=https://env:1/", out + "CERTIFICATE=/ca", out + "CLIENT_CERTIFICATE=/c", out + "CLIENT_KEY=/k",
				out + "HEADERS=Api-Key=a%20b,x-team=t",
			},
			want: Config{Endpoint: "env:1", CAFile: "/ca", CertFile: "/c", KeyFile: "/k",
				Headers: map[string]string{"api-key": "a b", "x-team": "t"}},
		},
		"http": {
			env:  []string{out + "ENDPOINT=http://env:1", out + "CERTIFICATE=/ca"},
			want: Config{Endpoint: "env:1", Insecure: true},
		},
		"traces first": {
			env:  []string{out + "ENDPOINT=https://env:1", out + "TRACES_ENDPOINT=env:2", out + "INSECURE=true"},
			want: Config{Endpoint: "env:2", Insecure: true},
		},
		"some of the file": {
			cfg:  Config{Endpoint: "file:1", CAFile: "/file"},
			env:  []string{out + "CERTIFICATE=/ca", out + "HEADERS=a=b"},
			want: Config{Endpoint: "file:1", CAFile: "/file", Headers: map[string]string{"a": "b"}},
		},
		"compression":             {cfg: file, env: []string{out + "COMPRESSION=gzip"}, want: compressed},
		"compression of the file": {cfg: compressed, env: []string{out + "COMPRESSION=none"}, want: compressed},
		"unknown compression": {
			cfg: file, env: []string{out + "COMPRESSION=lz4"}, fail: "OTEL_EXPORTER_OTLP_COMPRESSION: ",
		},
		"path": {
			env: []string{out + "ENDPOINT=http://env:1/v1/traces"}, fail: "OTEL_EXPORTER_OTLP_ENDPOINT: ",
		},
		"no header": {cfg: file, env: []string{out + "HEADERS=a=b,planted"}, fail: "entry 2"},
		"wrong header": {
			cfg: file, env: []string{out + "HEADERS=a b=planted"}, fail: "is not the name of a header",
		},
		"relative":       {cfg: file, env: []string{out + "CERTIFICATE=ca"}, fail: "not an absolute path"},
		"key is missing": {cfg: file, env: []string{out + "CLIENT_CERTIFICATE=/c"}, fail: "needs key_file"},
	} {
		got, err := c.cfg.WithEnvironment(environment(c.env...))
		if c.fail != "" {
			if err == nil || !strings.Contains(err.Error(), c.fail) || strings.Contains(err.Error(), "planted") {
				t.Errorf("%s: error %v, want %q without values", name, err, c.fail)
			}
			continue
		}
		if d := cmp.Diff(c.want, got, cmpopts.EquateEmpty()); err != nil || d != "" {
			t.Errorf("%s: %v, -want +got:\n%s", name, err, d)
		}
	}
}

func TestResourceAttributes(t *testing.T) {
	standard := map[string]string{"service.name": "podd", "service.version": "v1", "host.name": "node"}
	got, err := resourceAttributes(environment(), "v1", "node")
	if d := cmp.Diff(standard, got); err != nil || d != "" {
		t.Errorf("resourceAttributes() = %v, -want +got:\n%s", err, d)
	}
	got, err = resourceAttributes(
		environment("RESOURCE_ATTRIBUTES=deployment.Name=a%2Cb, host.name=other", "SERVICE_NAME=pods"), "v1", "node")
	want := map[string]string{
		"service.name": "pods", "service.version": "v1", "host.name": "other", "deployment.Name": "a,b",
	}
	if d := cmp.Diff(want, got); err != nil || d != "" {
		t.Errorf("resourceAttributes() = %v, -want +got:\n%s", err, d)
	}
	if _, err := resourceAttributes(environment("RESOURCE_ATTRIBUTES=x"), "v1", "node"); err == nil {
		t.Error("resourceAttributes() of a wrong variable = nil, want an error")
	}
}
