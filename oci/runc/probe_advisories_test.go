package runc

import (
	"slices"
	"testing"

	"github.com/podd-project/podd/oci/runc/advisory"
)

// TestAdvisoriesAreShown: an operator sees them, with the day of the list, and the handler can be used.
func TestAdvisoriesAreShown(t *testing.T) {
	dir := t.TempDir()
	for version, want := range map[string]string{
		"runc version 1.1.11": "CVE-2024-21626", "crun version 1.8.1": "CVE-2026-47766",
	} {
		r := New(Config{
			Name: "old", Path: program(t, dir, "rt", version),
			Conmon: program(t, dir, "conmon", "conmon version 2.1.7"), Root: dir, RunDir: dir,
		})
		if err := r.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		f := r.Features()
		if !slices.Contains(f.Advisories, want) || f.AdvisoriesDate != advisory.Runtimes().Date {
			t.Errorf("advisories of %q = %q of %q, want %s among them and the day of the list", version, f.Advisories,
				f.AdvisoriesDate, want)
		}
	}
}
