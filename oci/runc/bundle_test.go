package runc

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"github.com/containerd/errdefs"

	"github.com/podd-project/podd/oci/cgroups"
	"github.com/podd-project/podd/oci/driver"
	"github.com/podd-project/podd/oci/process"
)

func TestRecord(t *testing.T) {
	b := bundle{driver.Bundle(t.TempDir())}
	if _, err := b.load(); !errdefs.IsNotFound(err) {
		t.Errorf("load without a record = %v, want not found", err)
	}
	want := record{
		Init: process.Process{Pid: 10, Start: 20}, Monitor: process.Process{Pid: 11, Start: 21},
		Cgroups: cgroups.Dirs{"": "/a", "pids": "/b"},
	}
	if err := b.save(want); err != nil {
		t.Fatal(err)
	}
	got, err := b.load()
	want.Header = driver.NewHeader()
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("load = %+v, %v, want %+v", got, err, want)
	}
	entries, _ := os.ReadDir(b.Dir())
	if len(entries) != 1 {
		t.Errorf("%d files in the bundle, want 1", len(entries))
	}
	if info, err := os.Stat(b.record()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("record = %v, %v, want mode 0600", info, err)
	}
}

func TestRecordOfOthers(t *testing.T) {
	b := bundle{driver.Bundle(t.TempDir())}
	put := func(rec any) {
		data, err := json.Marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		write(t, b.record(), string(data))
	}
	put(map[string]any{
		"v": 1, "boot": "another boot", "init": process.Process{Pid: 1, Start: 2},
		"monitor": process.Process{Pid: 3, Start: 4}, "cgroups": cgroups.Dirs{"pids": "/x"}, "new": 1,
	})
	rec, err := b.load()
	if err != nil || rec.Init != (process.Process{}) || rec.Monitor != (process.Process{}) || rec.Cgroups["pids"] != "/x" {
		t.Errorf("record of another boot = %+v, %v, want its cgroups and no processes", rec, err)
	}
	put(map[string]any{"v": 99})
	if _, err := b.load(); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("load of a newer version = %v, want a failed precondition", err)
	}
	write(t, b.record(), "")
	if _, err := b.load(); err == nil || errdefs.IsNotFound(err) {
		t.Errorf("load of an empty record = %v, want an error other than not found", err)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"v":1,"boot":"","init":{"pid":-1}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b := bundle{driver.Bundle(t.TempDir())}
		if err := os.WriteFile(b.record(), data, 0o600); err != nil {
			t.Fatal(err)
		}
		if rec, err := b.load(); err == nil {
			rec.Init.Alive() // whatever pid it names, nothing breaks
		}
	})
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
