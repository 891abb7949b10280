package runc

import (
	"fmt"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/runc/starter"
)

// startedBy returns a handler with a starter, and a runtime of that version.
func startedBy(version string) *Runtime {
	r := ofVersion(version)
	r.cfg.Starter = "/libexec/starter"
	return r
}

func TestStartWay(t *testing.T) {
	for version, want := range map[string]starter.Way{
		"runc version 1.1.0":         starter.Read,
		"runc version 1.1.5+ds1":     starter.Read,
		"runc version 1.5.2":         starter.Read,
		"runc version 1.0.3":         "",
		"runc version 2.0.0-rc.1":    "",
		"runc version unknown":       "",
		"crun version 1.8":           starter.Write,
		"crun version 1.28":          starter.Write,
		"crun version 1.7.2":         "",
		"crun version 2.0":           "",
		"crun version UNKNOWN":       "",
		"runsc version release-1.28": "",
		"youki version 1.8.0":        "",
		"":                           "",
	} {
		if got := startedBy(version).startWay(oci.CreateRequest{Spec: &specs.Spec{}}); got != want {
			t.Errorf("%q: startWay = %q, want %q", version, got, want)
		}
	}
	r := startedBy("runc version 1.5.2")
	hook := []specs.Hook{{Path: "/bin/true"}}
	for i, tt := range []struct {
		req  oci.CreateRequest
		want starter.Way
	}{
		{oci.CreateRequest{}, starter.Read},
		{oci.CreateRequest{Spec: &specs.Spec{Hooks: &specs.Hooks{Poststart: hook}}}, ""},
		{oci.CreateRequest{Spec: &specs.Spec{Hooks: &specs.Hooks{StartContainer: hook, Poststop: hook}}}, starter.Read},
		{oci.CreateRequest{Image: "/images"}, ""},
	} {
		if got := r.startWay(tt.req); got != tt.want {
			t.Errorf("%d: startWay = %q, want %q", i, got, tt.want)
		}
	}
	r.cfg.Starter = ""
	if got := r.startWay(oci.CreateRequest{}); got != "" {
		t.Errorf("without a starter: startWay = %q, want none", got)
	}
}

// TestRecordOfEarlierPodd: a record that does not say how the container is started leaves that to the runtime.
func TestRecordOfEarlierPodd(t *testing.T) {
	r := startedBy("runc version 1.5.2")
	b, err := r.bundle("c")
	if err != nil {
		t.Fatal(err)
	}
	for rec, want := range map[*record]error{{}: starter.ErrNoFIFO, {Start: starter.Read}: starter.ErrNoFIFO} {
		if waits, err := r.waits(b, *rec); waits || fmt.Sprint(err) != fmt.Sprint(want) {
			t.Errorf("waits = %v, %v, want false, %v", waits, err, want)
		}
	}
}
