package arch

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// testReference is `folder.TestName/subtest` in backquotes; without a folder the test is in test/integration.
var testReference = regexp.MustCompile("`(?:([a-z0-9/]+)\\.)?(Test[A-Z]\\w*)((?:/[^`/]+)*)`")

// TestTablesNameTests: each row of server's tables that claims a feature names a test that exists, with its subtest.
func TestTablesNameTests(t *testing.T) {
	tests := parseTests(t)
	for _, page := range []string{"README.md", "FIELDS.md"} {
		claims := 0
		for line := range strings.Lines(readPage(t, page)) {
			cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
			if !strings.HasPrefix(line, "| ") || len(cells) != 4 {
				continue
			}
			row, support, proof := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1]), cells[3]
			switch support {
			case "podd": // the header
				continue
			case "", "partly":
				claims++
			case "no":
				continue
			default:
				t.Errorf("server/%s: row %q: support = %q, want none, partly or no", page, row, support)
			}
			references := testReference.FindAllStringSubmatch(proof, -1)
			if n := strings.Count(proof, "Test"); n == 0 || n != len(references) {
				t.Errorf("server/%s: row %q: proved by %q, want `folder.Test/subtest` only", page, row, proof)
			}
			for _, r := range references {
				if err := tests.check(r[1], r[2], r[3]); err != nil {
					t.Errorf("server/%s: row %q: %s: %v", page, row, r[0], err)
				}
			}
		}
		if claims == 0 {
			t.Errorf("server/%s has no row of 4 cells that claims a feature, want its tables", page)
		}
	}
}

// promiseReference is a testReference that may also name a fuzz target.
var promiseReference = regexp.MustCompile("`(?:([a-z0-9/]+)\\.)?((?:Test|Fuzz)[A-Z]\\w*)((?:/[^`/]+)*)`")

// TestPromisesNameTests: each row of test/PROMISES.md names tests that exist.
func TestPromisesNameTests(t *testing.T) {
	tests, rows := parseTests(t), 0
	for _, cells := range tableRows(t, "../PROMISES.md") {
		if len(cells) == 2 {
			rows++
			checkTests(t, tests, promiseReference, cells[0], cells[1])
		}
	}
	if rows == 0 {
		t.Error("test/PROMISES.md has no rows of 2 cells, want its table")
	}
}

// TestIncidentsNameTests: each row of contrib/docs/trouble.md names tests that exist.
func TestIncidentsNameTests(t *testing.T) {
	tests, rows := parseTests(t), 0
	for _, cells := range tableRows(t, "../../contrib/docs/trouble.md") {
		if len(cells) == 4 {
			rows++
			checkTests(t, tests, testReference, cells[0], cells[3])
		}
	}
	if rows != 10 {
		t.Errorf("contrib/docs/trouble.md has %d rows, want 10", rows)
	}
}

// TestTableOfRPCs: the table has a row for each RPC of cri-api.
func TestTableOfRPCs(t *testing.T) {
	text := readPage(t, "README.md")
	rows := 0
	for _, d := range [][]string{methods(cri.RuntimeService_ServiceDesc), methods(cri.ImageService_ServiceDesc)} {
		for _, name := range d {
			if !strings.Contains(text, "\n| "+name+" | ") {
				t.Errorf("server/README.md: no row for %s, want one for each RPC", name)
			}
			rows++
		}
	}
	if want := "## The " + strconv.Itoa(rows) + " RPCs"; !strings.Contains(text, want) {
		t.Errorf("server/README.md has no heading %q, want the number of RPCs in cri-api", want)
	}
}

func methods(d grpc.ServiceDesc) (names []string) {
	for _, m := range d.Methods {
		names = append(names, m.MethodName)
	}
	for _, s := range d.Streams {
		names = append(names, s.StreamName)
	}
	return names
}

func readPage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../server", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestVulnerabilitiesNameTests: each row of test/VULNERABILITIES.md names tests that exist.
func TestVulnerabilitiesNameTests(t *testing.T) {
	tests := parseTests(t)
	text, err := os.ReadFile("../VULNERABILITIES.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 4 || strings.HasPrefix(line, "|---") || strings.TrimSpace(cells[3]) == "test" {
			continue
		}
		rows++
		references := testReference.FindAllStringSubmatch(cells[3], -1)
		if len(references) == 0 || len(references) != strings.Count(cells[3], "`")/2 {
			t.Errorf("test/VULNERABILITIES.md: row %q: proved by %q, want `folder.Test/subtest` only", cells[0], cells[3])
		}
		for _, r := range references {
			if err := tests.check(r[1], r[2], r[3]); err != nil {
				t.Errorf("test/VULNERABILITIES.md: row %q: %s: %v", cells[0], r[0], err)
			}
		}
	}
	if rows < 20 {
		t.Errorf("test/VULNERABILITIES.md has %d rows of 4 cells, want its table", rows)
	}
}
