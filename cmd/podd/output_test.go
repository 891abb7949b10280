package main

import (
	"io"
	"strings"
	"testing"

	"github.com/podd-project/podd/cmd/podd/admin"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/operation"
)

// TestOutputIsPrintable: what an image, the guest of a virtual machine or a plugin has put into an error is
// printed without escape sequences for the terminal.
func TestOutputIsPrintable(t *testing.T) {
	const hostile = "ä \x1b]0;title\x07 \x1b[2J \r \u009b31m \xff \x7f end"
	failed := []operation.Operation{{Verb: "RunPodSandbox", Pod: "p", Error: hostile, Outcome: operation.OutcomeError}}
	for name, print := range map[string]func(io.Writer) error{
		"history": func(w io.Writer) error { return printHistory(w, admin.NewHistory(failed, nil), false) },
		"status": func(w io.Writer) error {
			return nodeStatus{admin.Status{Pods: []admin.Pod{{ID: "p", Operations: failed}}}}.printPods(w)
		},
		"check": func(w io.Writer) error {
			return findings{Found: []sandbox.Finding{{Problem: "leaked", What: hostile}}}.print(w, outputText)
		},
		"disk": func(w io.Writer) error {
			images := admin.List[admin.DiskImage]{Items: []admin.DiskImage{{Names: []string{hostile}}}}
			return printDisk(w, admin.Disk{DiskImages: admin.DiskImages{Images: images}})
		},
		"error of a command": func(w io.Writer) error {
			execute([]string{"config", "dump", "--config", hostile}, io.Discard, w)
			return nil
		},
	} {
		var out strings.Builder
		if err := print(&out); err != nil {
			t.Fatal(err)
		}
		got := out.String()
		isControl := func(c rune) bool { return c < ' ' && c != '\n' || c >= 0x7f && c < 0xa0 }
		if strings.ContainsFunc(got, isControl) || !strings.Contains(got, "ä ?]0;title? ?[2J ? ?31m") {
			t.Errorf("%s = %q, want the text without control characters", name, got)
		}
	}
}
