package advisory

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestOf names, for versions of runtimes, advisories that they have and do not have. Debian 12 has runc 1.1.5+ds1 and
// crun 1.8.1.
func TestOf(t *testing.T) {
	const devLink = "CVE-2026-41579"
	for version, c := range map[string]struct{ has, lacks []string }{
		"runc version 0.1.1":        {has: []string{"CVE-2019-5736", "CVE-2021-30465", devLink}},
		"runc version 1.0.0~rc6":    {has: []string{"CVE-2019-5736"}},
		"runc version 1.0.0~rc7":    {lacks: []string{"CVE-2019-5736"}},
		"runc version 1.0.0-rc94":   {has: []string{"CVE-2021-30465", "CVE-2024-21626"}, lacks: []string{"CVE-2023-27561"}},
		"runc version 1.0.0-rc95":   {has: []string{"CVE-2023-27561"}, lacks: []string{"CVE-2021-30465"}},
		"runc version 1.1.1":        {has: []string{"CVE-2022-29162", "CVE-2023-27561", "CVE-2023-28642"}},
		"runc version 1.1.5+ds1":    {has: []string{"CVE-2024-21626", "CVE-2024-45310"}, lacks: []string{"CVE-2023-28642"}},
		"runc version 1.1.12":       {has: []string{"CVE-2024-45310"}, lacks: []string{"CVE-2024-21626"}},
		"runc version 1.1.14":       {has: []string{"CVE-2025-31133", devLink}, lacks: []string{"CVE-2024-45310"}},
		"runc version 1.2.0-rc.2":   {has: []string{"CVE-2024-45310"}},
		"runc version 1.2.7":        {has: []string{"CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881", devLink}},
		"runc version 1.2.8":        {has: []string{devLink}, lacks: []string{"CVE-2025-31133"}},
		"runc version 1.3.2":        {has: []string{"CVE-2025-52881", devLink}},
		"runc version 1.3.5":        {has: []string{devLink}, lacks: []string{"CVE-2025-52881"}},
		"runc version 1.3.6":        {lacks: []string{devLink}},
		"runc version 1.4.2":        {has: []string{devLink}},
		"runc version 1.4.3":        {lacks: []string{devLink}},
		"crun version 1.8.1":        {has: []string{"CVE-2026-47766", "CVE-2026-88264"}, lacks: []string{"CVE-2026-30892"}},
		"crun version 1.26":         {has: []string{"CVE-2026-30892", "CVE-2026-47766"}},
		"crun version 1.28":         {has: []string{"CVE-2026-88265"}, lacks: []string{"CVE-2026-47766"}},
		"crun version 1.4.3":        {has: []string{"CVE-2022-27650"}},
		"crun version 0.10.4":       {has: []string{"CVE-2019-18837"}},
		"runc version 1.1.12-dirty": {has: []string{"CVE-2024-45310"}},
	} {
		got := Of(version)
		for _, id := range c.has {
			if !slices.Contains(got, id) {
				t.Errorf("Of(%q) = %q, want it to have %s", version, got, id)
			}
		}
		for _, id := range c.lacks {
			if slices.Contains(got, id) {
				t.Errorf("Of(%q) = %q, want it to lack %s", version, got, id)
			}
		}
	}
}

// TestOfNone: fixed runtimes, and those without data, have none.
func TestOfNone(t *testing.T) {
	for _, version := range []string{"runc version 1.5.2", "runc version 2.0.0", "crun version 1.30",
		"crun version 1.30.1", "runsc version release-2026", "runc version unknown", "runc version ", "runc", ""} {
		if got := Of(version); len(got) > 0 {
			t.Errorf("Of(%q) = %q, want none", version, got)
		}
	}
}

// TestRuntimes: the embedded list can be read, and each advisory has versions.
func TestRuntimes(t *testing.T) {
	d := Runtimes()
	if _, err := time.Parse(time.DateOnly, d.Date); err != nil {
		t.Errorf("date of the list = %q: %v", d.Date, err)
	}
	for _, program := range []string{"runc", "crun"} {
		if len(d.Affected[program]) < 6 {
			t.Errorf("%s has %d advisories, want at least 6", program, len(d.Affected[program]))
		}
		for _, a := range d.Affected[program] {
			if a.ID == "" || len(a.Ranges) == 0 {
				t.Errorf("advisory of %s = %+v, want an id and versions", program, a)
			}
		}
	}
}

// TestWarning: the data is said to be old after MaxAge.
func TestWarning(t *testing.T) {
	d := Data{Date: "2026-01-01"}
	made := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if got := d.Warning(made.Add(MaxAge)); got != "" {
		t.Errorf("Warning() after 180 days = %q, want none", got)
	}
	if got := d.Warning(made.Add(MaxAge + 24*time.Hour)); !strings.Contains(got, "2026-01-01, 181 days old") {
		t.Errorf("Warning() after 181 days = %q, want the day and the age", got)
	}
	if got := (Data{}).Warning(made); got == "" {
		t.Error("Warning() without a date is empty, want one")
	}
	if got := Runtimes().Warning(time.Time{}); got != "" {
		t.Errorf("Warning() of the embedded data = %q, want none: its date cannot be read", got)
	}
}
