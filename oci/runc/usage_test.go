package runc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/process"
)

// statsOutput is what runsc prints for a container that runs `sleep`, shortened.
const statsOutput = `{"type":"stats","id":"c","data":{` +
	`"cpu":{"usage":{"kernel":1000000000,"user":2000000000,"total":3000000000}},` +
	`"memory":{"cache":300,"usage":{"limit":0,"usage":1000},"swap":{}},"pids":{"current":2},"network_interfaces":[]}}`

func TestParseUsage(t *testing.T) {
	u, err := parseUsage([]byte(statsOutput))
	if err != nil {
		t.Fatal(err)
	}
	if u.CPU.Total != 3*time.Second || u.CPU.User != 2*time.Second || u.CPU.System != time.Second || u.Pids.Current != 2 ||
		u.Memory.Usage != 1000 || u.Memory.Cache != 300 || u.Memory.RSS != 700 || u.Memory.WorkingSet != 700 {
		t.Errorf("usage = %+v, %+v, %+v, want that of statsOutput", u.CPU, u.Memory, u.Pids)
	}
	if u, err := parseUsage([]byte(`{"data":{}}`)); err != nil || u.CPU.Total != 0 || u.Memory.Usage != 0 {
		t.Errorf("no data: usage = %+v, %v, want zeros", u, err)
	}
	for _, bad := range []string{
		"", "{", `{"data":{"cpu":{"usage":{"total":-1}}}}`, `{"data":{"memory":{"usage":{"usage":"much"}}}}`,
	} {
		if u, err := parseUsage([]byte(bad)); err == nil {
			t.Errorf("parseUsage(%s) = %+v, want an error", bad, u)
		}
	}
}

// usageRuntime plays a runtime with a kernel of its own: it prints the files next to it.
const usageRuntime = `#!/bin/sh
case "$*" in
*" events --stats c") cat "${0%/*}/stats" ;;
*" state c") cat "${0%/*}/state" ;;
*) exit 9 ;;
esac
`

func TestUsage(t *testing.T) {
	self, err := process.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	running := record{Init: self, Sandbox: "pod"}
	for name, tt := range map[string]struct {
		rec *record
		// marks are files in the bundle, stats and state the runtime's output, "" if it fails.
		marks        []string
		stats, state string
		want         func(error) bool
		words        string
	}{
		"running":   {rec: &running, marks: []string{"started"}, stats: statsOutput},
		"no record": {want: errdefs.IsNotFound},
		"host's kernel": {rec: &record{Init: self}, marks: []string{"started"}, stats: statsOutput,
			want: errdefs.IsNotImplemented},
		"not started": {rec: &running, stats: statsOutput, want: errdefs.IsNotFound},
		"paused":      {rec: &running, marks: []string{"started", "paused"}, stats: statsOutput, want: errdefs.IsNotFound},
		"ended": {rec: &record{Sandbox: "pod"}, marks: []string{"started"}, stats: statsOutput,
			want: errdefs.IsNotFound},
		"exits meanwhile": {rec: &running, marks: []string{"started"}, state: `{"id":"c","status":"stopped","pid":0}`,
			want: errdefs.IsNotFound},
		"no stats": {rec: &running, marks: []string{"started"}, state: `{"id":"c","status":"running","pid":1}`,
			words: "runsc"},
		"invalid stats": {rec: &running, marks: []string{"started"}, stats: "sleep", words: "parse usage"},
		"no output":     {rec: &running, marks: []string{"started"}, words: "runsc"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := New(Config{Name: "h", Path: filepath.Join(dir, "runsc"), Root: dir, RunDir: filepath.Join(dir, "run")})
			b, err := r.bundle("c")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(b.Dir(), 0o700); err != nil {
				t.Fatal(err)
			}
			if tt.rec != nil {
				if err := b.save(*tt.rec); err != nil {
					t.Fatal(err)
				}
			}
			for _, mark := range tt.marks {
				write(t, filepath.Join(b.Dir(), mark), "")
			}
			for file, text := range map[string]string{"stats": tt.stats, "state": tt.state} {
				if text != "" {
					write(t, filepath.Join(dir, file), text)
				}
			}
			write(t, r.cfg.Path, usageRuntime)
			if err := os.Chmod(r.cfg.Path, 0o755); err != nil {
				t.Fatal(err)
			}
			u, err := r.Usage(t.Context(), "c")
			switch {
			case tt.want == nil && tt.words == "":
				if err != nil || u.Memory.Usage != 1000 {
					t.Errorf("Usage = %+v, %v, want memory usage 1000", u, err)
				}
			case err == nil, tt.want != nil && !tt.want(err), !strings.Contains(err.Error(), tt.words):
				t.Errorf("Usage = %+v, %v, want an error of the wanted kind with %q", u, err, tt.words)
			}
		})
	}
	r := New(Config{Name: "h", RunDir: t.TempDir()})
	if _, err := r.Usage(t.Context(), "../c"); !errdefs.IsInvalidArgument(err) {
		t.Errorf("Usage of an invalid id = %v, want an invalid argument", err)
	}
}
