package main

import (
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/semver"

	"github.com/podd-project/podd/oci/runc/advisory"
)

const repository = "../.."

// TestModulesHaveFixes: podd is not built with a module that lacks a fix it had.
func TestModulesHaveFixes(t *testing.T) {
	least, err := readMinimum("minimum.txt")
	if err != nil || len(least) < 10 {
		t.Fatalf("minimum.txt = %v, %v, want the modules with advisories", least, err)
	}
	used, err := requirements(repository)
	if err != nil {
		t.Fatal(err)
	}
	for module, version := range used {
		if min := least[module]; min != "" && semver.Compare(version, min) < 0 {
			t.Errorf("%s %s, want at least %s, which fixes a vulnerability", module, version, min)
		}
	}
	for module := range least {
		if used[module] == "" {
			t.Errorf("minimum.txt has %s, which podd is not built with: run make advisories", module)
		}
	}
}

// maxAge is how old the advisories may be on the day of a commit.
const maxAge = 180 * 24 * time.Hour

// TestAdvisoriesAge compares the day of the advisories with that of the last commit, not with today: a commit that
// passed goes on to pass, and a change made long after the last "make advisories" fails.
func TestAdvisoriesAge(t *testing.T) {
	out, err := exec.Command("git", "-c", "safe.directory=*", "-C", repository, "log", "-1", "--format=%ct").Output()
	if err != nil {
		t.Skipf("this is not a clone, so the day of the commit is unknown: %v", err)
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	made, err := time.Parse(time.DateOnly, advisory.Runtimes().Date)
	if err != nil {
		t.Fatal(err)
	}
	if age := time.Unix(seconds, 0).Sub(made); age > maxAge {
		t.Errorf("the advisories are of %s, %d days before the last commit, want at most %d: run make advisories",
			advisory.Runtimes().Date, int(age.Hours()/24), int(maxAge.Hours()/24))
	}
}

// TestDatabase: records are read as OSV defines them.
func TestDatabase(t *testing.T) {
	known, err := readDatabase("testdata")
	if err != nil {
		t.Fatal(err)
	}
	list := known["example.org/m"]
	if len(list) != 1 || list[0].ID != "CVE-2000-1" {
		t.Fatalf("advisories of example.org/m = %+v, want CVE-2000-1 alone: the other is withdrawn", list)
	}
	for version, want := range map[string]bool{
		"v0.9.0": false, "v1.0.0": true, "v1.4.9": true, "v1.5.0": false, "v2.0.0-rc.1": true, "v2.0.0": true,
		"v2.0.0-alpha": false,
	} {
		if got := list[0].Affects(version); got != want {
			t.Errorf("%s is affected = %v, want %v", version, got, want)
		}
	}
	if got := minimum(map[string]string{"example.org/m": "v1.7.0"}, known)["example.org/m"]; got != "v1.5.0" {
		t.Errorf("minimum of v1.7.0 = %q, want v1.5.0", got)
	}
	if _, err := readDatabase(t.TempDir()); err == nil {
		t.Error("readDatabase of an empty directory succeeded, want an error")
	}
}
