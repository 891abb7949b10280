package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podd-project/podd/sandbox/snapshot"
)

// madeCheckpoint is a checkpoint that the node with this root has made.
func madeCheckpoint(t *testing.T, root string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "checkpoint")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	w, err := snapshot.Create(dir, snapshot.KindGVisor, "")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, name := range []string{"checkpoint.img", "pages.img", "pages_meta.img"} {
		if err := os.WriteFile(filepath.Join(w.ImagePath(), name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	m := snapshot.Manifest{
		PodID: "pod\x1b[31m", Runtime: "runsc 1", Arch: "amd64", Pod: []byte(`{}`),
		Containers: []snapshot.Container{{Name: "app", ImageID: "1234", Config: []byte(`{"envs":"secret"}`)}},
	}
	if err := w.Commit(t.Context(), m, &snapshot.Key{Path: filepath.Join(root, "snapshot.key")}); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestCheckpointCommand(t *testing.T) {
	root, run := t.TempDir(), t.TempDir()
	dir := madeCheckpoint(t, root)
	podd := func(verb, root string) (string, int) {
		var out, errs bytes.Buffer
		code := execute([]string{"checkpoint", verb, dir, "--root", root, "--run", run}, &out, &errs)
		return out.String() + errs.String(), code
	}
	text, code := podd("inspect", root)
	for _, want := range []string{`"app"`, `"1234"`, `"runsc 1"`, `"pages.img", 9 bytes`, `"pod\x1b[31m"`} {
		if code != 0 || !strings.Contains(text, want) {
			t.Errorf("inspect = %d, %s, want %s", code, text, want)
		}
	}
	if strings.Contains(text, "secret") {
		t.Errorf("inspect = %s, want no config", text)
	}
	if text, code := podd("verify", root); code != 0 || !strings.Contains(text, "complete") {
		t.Errorf("verify = %d, %s, want success", code, text)
	}
	if text, code := podd("verify", t.TempDir()); code == 0 || !strings.Contains(text, "seal") {
		t.Errorf("verify on another node = %d, %s, want an error about the seal", code, text)
	}
	if err := os.WriteFile(filepath.Join(dir, "gvisor", "pages.img"), []byte("PAGES.IMG"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, code := podd("verify", root); code == 0 || !strings.Contains(text, "differs from the manifest") {
		t.Errorf("verify of a changed image = %d, %s, want an error", code, text)
	}
}
