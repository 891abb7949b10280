package runc

import (
	"strings"
	"testing"
)

func TestAdvisories(t *testing.T) {
	for version, want := range map[string]string{
		"runc version 1.0.0": "CVE-2024-21626; CVE-2025-31133, CVE-2025-52565, CVE-2025-52881",
		"runc version 0.1.1": "CVE-2019-5736; CVE-2021-30465; CVE-2024-21626; CVE-2025-31133, CVE-2025-52565, " +
			"CVE-2025-52881",
		"runc version 1.1.5+ds1":     "CVE-2024-21626; CVE-2025-31133, CVE-2025-52565, CVE-2025-52881",
		"runc version 1.1.12":        "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881",
		"runc version 1.2.7":         "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881",
		"runc version 1.2.8":         "",
		"runc version 1.2.9":         "",
		"runc version 1.3.0":         "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881",
		"runc version 1.3.2":         "CVE-2025-31133, CVE-2025-52565, CVE-2025-52881",
		"runc version 1.3.3":         "",
		"runc version 1.4.0":         "",
		"runc version 1.5.2":         "",
		"runc version 2.0.0":         "",
		"crun version 1.8.1":         "",
		"runsc version release-2026": "",
		"":                           "",
	} {
		if got := strings.Join(advisories(version), "; "); got != want {
			t.Errorf("advisories(%q) = %q, want %q", version, got, want)
		}
	}
}

// TestAdvisoriesAreShown: an operator sees them, and the handler can be used.
func TestAdvisoriesAreShown(t *testing.T) {
	dir := t.TempDir()
	r := New(Config{
		Name: "old", Path: program(t, dir, "rt", "runc version 1.1.11"),
		Conmon: program(t, dir, "conmon", "conmon version 2.1.7"), Root: dir, RunDir: dir,
	})
	if err := r.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := r.Features().Advisories; len(got) != 2 || got[0] != "CVE-2024-21626" {
		t.Errorf("advisories = %q, want 2, the first CVE-2024-21626", got)
	}
}
