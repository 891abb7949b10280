package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	if warning := advisory.Runtimes().Warning(time.Unix(seconds, 0)); warning != "" {
		t.Errorf("on the day of the last commit, %s; want less than %v: run make advisories", warning, advisory.MaxAge)
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

// TestRecords: the database for govulncheck has the records of modules, without prose, and none that is withdrawn.
func TestRecords(t *testing.T) {
	file, dir := filepath.Join(t.TempDir(), "records.jsonl"), filepath.Join(t.TempDir(), "db")
	if err := writeRecords(file, "2000-01-02", "testdata", []string{"example.org/m"}); err != nil {
		t.Fatal(err)
	}
	header, err := unpackRecords(file, dir)
	if err != nil || header.Date != "2000-01-02" || !slices.Equal(header.Modules, []string{"example.org/m"}) {
		t.Errorf("header %+v, %v, want the date and the modules", header, err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("the database has %v, %v, want one record", files, err)
	}
	raw, err := os.ReadFile(filepath.Join(dir, files[0].Name()))
	if err != nil || strings.Contains(string(raw), "details") {
		t.Errorf("record %s, %v, want one without details", raw, err)
	}
	if known, err := readDatabase(dir); err != nil || len(known["example.org/m"]) != 1 {
		t.Errorf("the database is read as %v, %v, want one advisory of example.org/m", known, err)
	}
}

// TestRecordsOfRepository: records.jsonl is of the same day as the other lists, and has records of the Go release.
func TestRecordsOfRepository(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "db")
	header, err := unpackRecords("records.jsonl", dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := advisory.Runtimes().Date; header.Date != want {
		t.Errorf("records.jsonl is of %s, runtimes.json of %s, want the same day", header.Date, want)
	}
	known, err := readDatabase(dir)
	if err != nil || len(known["stdlib"]) < 100 || len(known["github.com/docker/distribution"]) == 0 {
		t.Errorf("%d modules in records.jsonl, %v, want those of podd and the standard library", len(known), err)
	}
}
