package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestExamples: the help of each command has an example of it.
func TestExamples(t *testing.T) {
	eachCommand(newRootCommand(), func(c *cobra.Command) {
		if !c.HasAvailableSubCommands() && !strings.Contains(c.Example, c.CommandPath()) {
			t.Errorf("the help of %s has no example: %q", c.CommandPath(), c.Example)
		}
	})
}

// TestHabits: output as YAML, ids only, and words that the shell completes, from the answers of a daemon.
func TestHabits(t *testing.T) {
	run, err := os.MkdirTemp("", "podd-") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(run) })
	l, err := net.Listen("unix", filepath.Join(run, "admin.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	mux := http.NewServeMux()
	for path, answer := range map[string]string{
		"status": `{"version":"v1","host":"n","pods":[{"id":"abc","name":"shop/web","state":"ready","containers":[]}]}`,
		"disk":   `{"images":{"items":[{"id":"def","names":["busybox:1"]},{"id":"012"}]},"containers":{"items":[]}}`,
	} {
		mux.HandleFunc("GET /v1/"+path, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, answer) })
	}
	go func() { _ = http.Serve(l, mux) }() // until l is closed
	for args, want := range map[string]string{
		"status -o yaml":            "  id: abc\n  name: shop/web\n  state: ready\n",
		"status shop/web -o json":   `"name": "shop/web"`,
		"__complete top --sort c":   "cpu\nmemory\nread\nwrite\nname\n:4\n",
		"image list -q":             "def\n012\n",
		"__complete status s":       "shop/web\n:4\n",
		"__complete history s":      "shop/web\n:4\n",
		"__complete image export b": "busybox:1\n:4\n",
		"__complete status -o y":    "text\njson\nyaml\n:4\n",
	} {
		var out, errs strings.Builder
		words := append(strings.Fields(args), "--run", run)
		if strings.HasPrefix(args, "__complete") { // the word that is completed is the last
			words = append([]string{words[0], "--run", run}, words[1:len(words)-2]...)
		}
		if code := execute(words, &out, &errs); code != 0 || !strings.Contains(out.String(), want) {
			t.Errorf("podd %s = %d, %q, output:\n%s\nwant:\n%s", args, code, errs.String(), out.String(), want)
		}
	}
}

// TestCheckWritesNothing: podd check on a machine that never ran podd finds nothing, and does not make it a node.
func TestCheckWritesNothing(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{
		{"check"}, {"check", "--repair"}, {"check", "--images"}, {"history"}, {"config", "check"}, {"config", "dump"},
	} {
		var out, errs strings.Builder
		args = append(args, "--root", filepath.Join(dir, "root"), "--run", filepath.Join(dir, "run"))
		if code := execute(args, &out, &errs); code != 0 || out.Len() == 0 || errs.Len() > 0 {
			t.Errorf("podd %v = %d, output %q, %q, want 0 and a line", args, code, out.String(), errs.String())
		}
	}
	if made, err := os.ReadDir(dir); err != nil || len(made) > 0 {
		t.Errorf("made are %v, %v, want nothing", made, err)
	}
}

// TestNumbersInFlags: a number in a flag is one of TOML.
func TestNumbersInFlags(t *testing.T) {
	for set, want := range map[string]string{
		"runtime.pids_limit=-1": "pids_limit = -1 ", "image.max_image_bytes=1_000_000_000": "max_image_bytes = 1000000000 ",
	} {
		var out, errs strings.Builder
		if code := execute([]string{"config", "dump", "--set", set}, &out, &errs); code != 0 ||
			!strings.Contains(out.String(), want) {
			t.Errorf("--set %s = %d, %q, want %s", set, code, errs.String(), want)
		}
	}
}

// TestSizes: bytes may have a unit, in a file and in a flag.
func TestSizes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "podd.toml")
	for text, want := range map[string]string{
		"1GiB": "1073741824", "512Mi": "536870912", "1GB": "1000000000", "300000000": "300000000",
		"1.5GiB": "1610612736", "1GiBs": "", "-1GiB": "", "0.5": "", "": "", "0.3KiB": "", "99999999999GiB": "",
	} {
		if err := os.WriteFile(file, []byte("image.pull_memory = \""+text+"\""), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"--config", file}, {"--set", "image.pull_memory=" + text}} {
			var out, errs strings.Builder
			code := execute(append([]string{"config", "dump"}, args...), &out, &errs)
			if want == "" && (code != exitConfig || !strings.Contains(errs.String(), `a size such as "512MiB"`)) {
				t.Errorf("%q = %d, %q, want an error that says what a size is", text, code, errs.String())
			}
			if want != "" && !strings.Contains(out.String(), "pull_memory = "+want+" ") {
				t.Errorf("%q = %d, %q, want %s", text, code, errs.String(), want)
			}
		}
	}
}
