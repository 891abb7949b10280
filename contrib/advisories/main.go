// Command advisories makes the lists of known vulnerabilities that the repository keeps, from a checkout of the Go
// vulnerability database (https://go.googlesource.com/vulndb) and extra.json: ids, ranges of versions and names of
// functions, no prose.
//
//	advisories -vulndb DIR -date 2006-01-02
//	advisories -unpack DIR
//
// The first writes oci/runc/advisory/runtimes.json, which podd embeds; contrib/advisories/records.jsonl, the records of
// the modules that podd is built from and of the Go release; and contrib/advisories/minimum.txt: for each module with
// advisories, the newest version with a fix that podd has. The test of this package fails if go.mod goes below it. The
// second makes a database of records.jsonl, with which "make vulncheck" runs govulncheck without network.
//
// extra.json has what the database lacks: crun, which is not written in Go, and advisories for programs that cannot be
// imported. Those of crun's handler krun are left out, because podd has no such handler (CVE-2025-24965,
// CVE-2026-84042).
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/podd-project/podd/oci/runc/advisory"
)

// Paths below the root of the repository, in which the command must be run.
const (
	extraFile    = "contrib/advisories/extra.json"
	runtimesFile = "oci/runc/advisory/runtimes.json"
	minimumFile  = "contrib/advisories/minimum.txt"
	recordsFile  = "contrib/advisories/records.jsonl"
)

// runcModule is the name of runc in the database.
const runcModule = "github.com/opencontainers/runc"

func main() {
	vulndb := flag.String("vulndb", "", "directory of a checkout of the Go vulnerability database")
	date := flag.String("date", "", "day of that checkout's commit, as 2006-01-02")
	database := flag.String("unpack", "", "directory to replace by a database for govulncheck")
	flag.Parse()
	work := func() error { return run(*vulndb, *date) }
	if *database != "" {
		work = func() error { return unpack(*database) }
	}
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "advisories:", err)
		os.Exit(1)
	}
}

func run(vulndb, date string) error {
	if vulndb == "" || date == "" {
		return fmt.Errorf("-vulndb and -date are needed")
	}
	known, err := readDatabase(filepath.Join(vulndb, "data", "osv"))
	if err != nil {
		return err
	}
	extra := map[string][]advisory.Advisory{}
	if err := readJSON(extraFile, &extra); err != nil {
		return err
	}
	extra["runc"] = append(extra["runc"], known[runcModule]...)
	if err := write(runtimesFile, date, extra); err != nil {
		return err
	}
	used, err := requirements(".")
	if err != nil {
		return err
	}
	modules, err := modulesOf(moduleRoots)
	if err != nil {
		return err
	}
	return errors.Join(writeMinimum(minimumFile, date, minimum(used, known)),
		writeRecords(recordsFile, date, filepath.Join(vulndb, "data", "osv"), modules))
}

// record is the part of an OSV record that is used.
type record struct {
	ID        string     `json:"id"`
	Aliases   []string   `json:"aliases"`
	Withdrawn string     `json:"withdrawn"`
	Affected  []affected `json:"affected"`
}

type affected struct {
	Package struct {
		Name string `json:"name"`
	} `json:"package"`
	Ranges []struct {
		Events []advisory.Range `json:"events"` // each with one of the two fields
	} `json:"ranges"`
}

// ranges joins each pair of events.
func (a affected) ranges() (out []advisory.Range) {
	for _, list := range a.Ranges {
		for _, e := range list.Events {
			switch {
			case e.Introduced != "":
				out = append(out, e)
			case len(out) > 0:
				out[len(out)-1].Fixed = e.Fixed
			}
		}
	}
	return out
}

// readDatabase returns the advisories by module.
func readDatabase(dir string) (map[string][]advisory.Advisory, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no records: is it a checkout of the database?", dir)
	}
	known := map[string][]advisory.Advisory{}
	for _, f := range files {
		var r record
		if err := readJSON(f, &r); err != nil {
			return nil, err
		}
		if r.Withdrawn != "" {
			continue
		}
		for _, a := range r.Affected {
			known[a.Package.Name] = append(known[a.Package.Name], advisory.Advisory{ID: r.name(), Ranges: a.ranges()})
		}
	}
	return known, err
}

// name returns the record's CVE, by which operators know it, or else its own id.
func (r record) name() string {
	for _, a := range r.Aliases {
		if strings.HasPrefix(a, "CVE-") {
			return a
		}
	}
	return r.ID
}

func readJSON(path string, to any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// write writes the advisories sorted, one a line, so that a change can be read.
func write(path, date string, affected map[string][]advisory.Advisory) error {
	var b strings.Builder
	fmt.Fprintf(&b, "{\n  \"date\": %q,\n  \"affected\": {", date)
	names := make([]string, 0, len(affected))
	for name := range affected {
		names = append(names, name)
	}
	slices.Sort(names)
	for i, name := range names {
		list := affected[name]
		slices.SortFunc(list, func(x, y advisory.Advisory) int { return cmp.Compare(x.ID, y.ID) })
		fmt.Fprintf(&b, "%s\n    %q: [", comma(i), name)
		for j, a := range list {
			line, err := json.Marshal(a)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "%s\n      %s", comma(j), line)
		}
		b.WriteString("\n    ]")
	}
	b.WriteString("\n  }\n}\n")
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

func comma(i int) string {
	if i == 0 {
		return ""
	}
	return ","
}
