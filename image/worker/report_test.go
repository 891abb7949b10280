package worker

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/podd-project/podd/image/child"
)

// endless is what a pull's process could report that has been taken over: a line for each number, without end.
type endless struct {
	line func(n int) string
	n    int
	left strings.Reader
}

func (e *endless) Read(b []byte) (int, error) {
	if e.left.Len() == 0 {
		e.left.Reset(e.line(e.n) + "\n")
		e.n++
	}
	return e.left.Read(b)
}

// TestHostileReports: whatever a pull's process reports, podd's memory is bounded.
func TestHostileReports(t *testing.T) {
	blob := func(d string) string {
		line, err := json.Marshal(pullReport{Kind: reportBlob, Digest: digest.Digest(d)})
		if err != nil {
			t.Fatal(err)
		}
		return string(line)
	}
	for name, c := range map[string]struct {
		line func(n int) string
		text string
	}{
		"blobs without end": {
			func(n int) string { return blob(fmt.Sprintf("sha256:%064x", n)) }, "more than 65536 blobs",
		},
		"long digests": {
			func(n int) string { return blob(fmt.Sprintf("%050000d", n)) }, "invalid checksum digest",
		},
		"images without end": {
			func(int) string { return `{"Kind":"image","Loaded":{"ID":"a"}}` }, "more than 1000",
		},
		"request of a job that may not look up": {
			func(int) string { return `{"Kind":"lookup","LookUp":{}}` }, "one request to the additional layer store, or none",
		},
		"no image":  {func(int) string { return `{"Kind":"image"}` }, "no image"},
		"long line": {func(int) string { return strings.Repeat("x", child.MaxMessage) }, "token too long"},
		"no report": {func(int) string { return "{" }, "read a report of the pull's process"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &events{}
			const most = 64 << 20 // bytes, so that the test ends
			last, err := readReports(io.LimitReader(&endless{line: c.line}, most), p)
			if err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("readReports = %+v, %v, want an error with %q", last, err, c.text)
			}
			if n := len(p.got); n > maxReportedBlobs {
				t.Errorf("podd remembers %d blobs, want at most %d", n, maxReportedBlobs)
			}
		})
	}
}

// TestReportsOfPart: a process that fetches a part of an artifact reports its end only.
func TestReportsOfPart(t *testing.T) {
	for _, kind := range []string{reportStage, reportBlob, reportImage, reportLookUp, "", "other"} {
		line := fmt.Sprintf(`{"Kind":%q,"LookUp":{}}`, kind)
		if _, err := readReports(strings.NewReader(line), nil); err == nil || !strings.Contains(err.Error(), "its end only") {
			t.Errorf("report of kind %q = %v, want an error", kind, err)
		}
	}
	if _, err := readReports(strings.NewReader(`{"Kind":"done"}`), nil); err != nil {
		t.Error(err)
	}
}

// readReports reads reports as child.Run does.
func readReports(r io.Reader, p Observer) (pullReport, error) {
	reports := newReportReader(p, nil)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, child.MaxMessage)
	for lines.Scan() {
		if _, err := reports.take(lines.Bytes()); err != nil {
			return pullReport{}, err
		}
	}
	return reports.result(), lines.Err()
}
