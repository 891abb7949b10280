package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// osvRecord is a record of the database without its prose: what govulncheck needs.
type osvRecord struct {
	ID       string            `json:"id"`
	Modified string            `json:"modified,omitempty"`
	Aliases  []string          `json:"aliases,omitempty"`
	Affected []json.RawMessage `json:"affected"`
	// Database has the address of a page on the record. It is empty, but govulncheck 1.9.0 crashes without it.
	Database struct{} `json:"database_specific"`
}

// recordsHeader is the first line of recordsFile.
type recordsHeader struct {
	// Date is the day of the database, Source where it is from, with its licence.
	Date   string `json:"date"`
	Source string `json:"source"`
	// Modules are those of which the file has all records.
	Modules []string `json:"modules"`
}

// standardModules are in every program.
var standardModules = []string{"stdlib", "toolchain"}

// writeRecords writes the records of modules in the database in dir to path, one a line.
func writeRecords(path, date, dir string, modules []string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return err
	}
	var out bytes.Buffer
	lines := json.NewEncoder(&out)
	lines.SetEscapeHTML(false)
	if err := lines.Encode(recordsHeader{
		Date: date, Source: "the Go vulnerability database, go.dev/security/vuln, CC-BY-4.0", Modules: modules,
	}); err != nil {
		return err
	}
	for _, file := range files {
		r, err := readRecord(file, modules)
		if err != nil {
			return err
		}
		if len(r.Affected) == 0 {
			continue
		}
		if err := lines.Encode(r); err != nil {
			return err
		}
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

// readRecord returns what a record says of modules; nothing is affected if it is withdrawn.
func readRecord(file string, modules []string) (osvRecord, error) {
	var whole struct {
		osvRecord
		Withdrawn string `json:"withdrawn"`
	}
	if err := readJSON(file, &whole); err != nil {
		return osvRecord{}, err
	}
	var unused error
	whole.Affected = slices.DeleteFunc(whole.Affected, func(raw json.RawMessage) bool {
		var a affected
		if err := json.Unmarshal(raw, &a); err != nil {
			unused = fmt.Errorf("%s: %w", file, err)
		}
		return whole.Withdrawn != "" || !slices.Contains(modules, a.Package.Name)
	})
	for i, raw := range whole.Affected {
		var short bytes.Buffer
		if err := json.Compact(&short, raw); err != nil {
			return osvRecord{}, fmt.Errorf("%s: %w", file, err)
		}
		whole.Affected[i] = short.Bytes()
	}
	return whole.osvRecord, unused
}

// unpackRecords writes the records of path as a database for govulncheck, a directory of files, in place of dir. It
// returns the header of the records.
func unpackRecords(path, dir string) (recordsHeader, error) {
	var header recordsHeader
	raw, err := os.ReadFile(path)
	if err != nil {
		return header, err
	}
	if err := os.RemoveAll(dir); err != nil {
		return header, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return header, err
	}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, len(raw)+1)
	for first := true; lines.Scan(); first = false {
		if first {
			if err := json.Unmarshal(lines.Bytes(), &header); err != nil {
				return header, fmt.Errorf("%s: %w", path, err)
			}
			continue
		}
		var r osvRecord
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return header, fmt.Errorf("%s: %w", path, err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(r.ID)+".json"), lines.Bytes(), 0o644); err != nil {
			return header, err
		}
	}
	return header, lines.Err()
}

// unpack does unpackRecords and says what the records lack.
func unpack(dir string) error {
	header, err := unpackRecords(recordsFile, dir)
	if err != nil {
		return err
	}
	fmt.Println("vulnerabilities known on", header.Date)
	modules, err := modulesOf(moduleRoots)
	if err != nil {
		return err
	}
	added := slices.DeleteFunc(modules, func(m string) bool { return slices.Contains(header.Modules, m) })
	if len(added) > 0 {
		fmt.Println("NOT CHECKED, because these modules are newer than the records (run make advisories):",
			strings.Join(added, " "))
	}
	return nil
}
