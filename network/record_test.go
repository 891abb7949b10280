package network

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podd-project/podd/checkpoint"
)

func TestRecordReadsBack(t *testing.T) {
	c := newFakeCNI(t, testConfig(t), nil)
	want := testRecord(t, "pod1")
	want.Result = json.RawMessage(`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24"}]}`)
	if err := c.writeRecord(want); err != nil {
		t.Fatal(err)
	}
	got, err := c.readRecord("pod1")
	if err != nil {
		t.Fatal(err)
	}
	sameJSON := cmp.Transformer("JSON", func(m json.RawMessage) string {
		var b bytes.Buffer
		if err := json.Compact(&b, m); err != nil {
			return err.Error()
		}
		return b.String()
	})
	viaJSON := cmp.Transformer("Map", func(m map[string]any) (plain any) {
		data, err := json.Marshal(m)
		if err == nil {
			err = json.Unmarshal(data, &plain)
		}
		if err != nil {
			return err.Error()
		}
		return plain
	})
	if diff := cmp.Diff(want, got, sameJSON, cmp.FilterPath(isCapabilities, viaJSON),
		cmpopts.IgnoreUnexported(record{})); diff != "" {
		t.Error(diff)
	}
	if got.list.Name != "net" || len(got.list.Plugins) != 1 {
		t.Errorf("list = %+v, want network net with 1 plugin", got.list)
	}
}

func isCapabilities(p cmp.Path) bool { return p.Last().String() == ".Capabilities" }

func TestBadRecordsAreNamedAndKept(t *testing.T) {
	hostile := map[string]func(r *record){
		"another pod":     func(r *record) { r.PodID = "pod2" },
		"relative netns":  func(r *record) { r.Netns = "x" },
		"no netns":        func(r *record) { r.Netns = "" },
		"argument":        func(r *record) { r.Args = append(r.Args, [2]string{"A", "1;B=2"}) },
		"result":          func(r *record) { r.Result = json.RawMessage(`{"ips":[null]}`) },
		"no conf":         func(r *record) { r.Conf = json.RawMessage(`null`) },
		"plugin is path":  func(r *record) { r.Conf = json.RawMessage(`{"name":"x","plugins":[{"type":"../../bin/sh"}]}`) },
		"network is path": func(r *record) { r.Conf = json.RawMessage(fakeConf("1.0.0", "../x")) },
	}
	files := map[string]func(c *CNI, path string) error{
		"empty":     func(_ *CNI, path string) error { return os.WriteFile(path, nil, 0o600) },
		"rubbish":   func(_ *CNI, path string) error { return os.WriteFile(path, []byte("\x00\xff{"), 0o600) },
		"directory": func(_ *CNI, path string) error { return os.Mkdir(path, 0o700) },
		"newer": func(_ *CNI, path string) error {
			return checkpoint.Write(path, recordVersion+1,
				testRecord(t, "pod1"))
		},
	}
	for name, spoil := range hostile {
		files[name] = func(c *CNI, path string) error {
			r := testRecord(t, "pod1")
			spoil(r)
			return checkpoint.Write(path, recordVersion, r)
		}
	}
	for name, make := range files {
		t.Run(name, func(t *testing.T) {
			c := newFakeCNI(t, testConfig(t), func(context.Context, string, []byte) ([]byte, error) {
				t.Error("a plugin was run")
				return nil, nil
			})
			path := filepath.Join(c.stateDir, "pod1.json")
			if err := make(c, path); err != nil {
				t.Fatal(err)
			}
			if err := c.Teardown(t.Context(), "pod1"); err == nil || !strings.Contains(err.Error(), path) {
				t.Errorf("Teardown = %v, want an error that names the file", err)
			}
			if _, err := c.Dial(t.Context(), "pod1", 80); err == nil {
				t.Error("Dial succeeded")
			}
			if _, err := os.Lstat(path); err != nil {
				t.Errorf("Lstat of the record = %v, want it to exist", err)
			}
		})
	}
}

// TestTeardownIsRepeatable: while DEL fails the record stays; afterwards it is gone, and so is libcni's cache.
func TestTeardownIsRepeatable(t *testing.T) {
	boom := errors.New("boom")
	fail := true
	c := newFakeCNI(t, testConfig(t), func(_ context.Context, command string, _ []byte) ([]byte, error) {
		if command == "DEL" && fail {
			return nil, boom
		}
		return []byte(`{"ips":[{"address":"10.0.0.2/24"}]}`), nil
	})
	if _, err := c.add(t.Context(), testRecord(t, "pod1")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Teardown(t.Context(), "pod1"); !errors.Is(err, boom) {
			t.Errorf("Teardown = %v, want %v", err, boom)
		}
	}
	if ids, _ := c.Attachments(); len(ids) != 1 {
		t.Errorf("Attachments while DEL fails = %v, want 1", ids)
	}
	fail = false
	for range 2 {
		if err := c.Teardown(t.Context(), "pod1"); err != nil {
			t.Error(err)
		}
	}
	err := filepath.WalkDir(c.stateDir, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("file left over: %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// FuzzRecord: reading a record either fails or returns something that DEL can be run with.
func FuzzRecord(f *testing.F) {
	good, err := json.Marshal(testRecord(f, "pod1"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	for _, s := range []string{`{}`, `null`, `{"podID":"pod1","netns":"/x","conf":{"name":"n","plugins":[{"type":"a"}]}}`,
		`{"podID":"pod1","netns":"/x","conf":{"name":"n","type":"a"},"args":[["a","b"],["c"]],"result":null}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r := &record{}
		if json.Unmarshal(body, r) != nil || r.check("pod1") != nil {
			return
		}
		list, err := r.listForDel()
		if err != nil {
			t.Fatalf("writing %s: %v", body, err)
		}
		for _, p := range list.Plugins {
			if checkPluginName(p.Network.Type) != nil {
				t.Errorf("plugin type = %q, want a valid one", p.Network.Type)
			}
		}
	})
}
