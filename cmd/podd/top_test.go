package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podd-project/podd/cmd/podd/admin"
)

func measured(cpu, memory uint64, after time.Duration, read, written uint64) admin.Resources {
	at := time.Unix(1e9, 0).Add(after)
	return admin.Resources{CPU: &cpu, Memory: &memory, IO: &admin.IO{At: at, ReadBytes: read, WriteBytes: written}}
}

func TestTopPods(t *testing.T) {
	before := []admin.PodUsage{
		{ID: "a", Name: "n/a", Resources: measured(1, 1, 0, 100, 0)},
		{ID: "b", Name: "n/b", Containers: []admin.ContainerUsage{
			{ID: "b1", Name: "one", Resources: measured(1, 1, 0, 0, 10)},
			{ID: "b2", Name: "two", Resources: measured(1, 1, 0, 0, 1000)},
			{ID: "b3", Name: "three", Resources: measured(1, 1, 0, 50, 0)},
		}},
	}
	now := []admin.PodUsage{
		{ID: "a", Name: "n/a", Resources: measured(5, 70, 2*time.Second, 300, 0)},
		{ID: "b", Name: "n/b", Resources: admin.Resources{CPU: new(uint64(9)), Memory: new(uint64(40))},
			Containers: []admin.ContainerUsage{
				{ID: "b1", Name: "one", Resources: measured(1, 9, 2*time.Second, 0, 50)},
				{ID: "b2", Name: "two", Resources: measured(8, 8, 2*time.Second, 0, 1800)},
				{ID: "b3", Name: "three", Resources: measured(0, 7, 2*time.Second, 20, 0)}, // the counter went back
			}},
		{ID: "c", Name: "n/c", Resources: measured(7, 1, time.Second, 5, 5)}, // measured once
		{ID: "d", Name: "n/d"},
	}
	for order, want := range map[topOrder]string{
		"cpu": "n/b n/c n/a n/d", "memory": "n/a n/b n/c n/d", "read": "n/a n/b n/c n/d", "write": "n/b n/a n/c n/d",
		"name": "n/a n/b n/c n/d",
	} {
		var names []string
		for _, p := range topPods(before, now, order) {
			names = append(names, p.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("sorted by %s: %s, want %s", order, got, want)
		}
	}
	got := topPods(before, now, "cpu")[0]
	want := topItem{ID: "b", Name: "n/b",
		rates: rates{CPU: new(uint64(9)), Memory: new(uint64(40)), Read: new(uint64(0)), Write: new(uint64(420))},
		Containers: []topItem{
			{"b2", "two", rates{new(uint64(8)), new(uint64(8)), new(uint64(0)), new(uint64(400))}, nil},
			{"b1", "one", rates{new(uint64(1)), new(uint64(9)), new(uint64(0)), new(uint64(20))}, nil},
			{"b3", "three", rates{new(uint64(0)), new(uint64(7)), nil, new(uint64(0))}, nil},
		}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(topItem{})); diff != "" {
		t.Errorf("rates of n/b (-want +got):\n%s", diff)
	}
}

// TestTopOnATerminal: names with control characters, which are other people's, do not reach the terminal.
func TestTopOnATerminal(t *testing.T) {
	pods := []topItem{
		{Name: "n/\x1b]0;title\a\u009b2J\u202e", rates: rates{CPU: new(uint64(1500e6)), Memory: new(uint64(3 << 20))},
			Containers: []topItem{{Name: "c\r\n\x7fmain"}}},
	}
	var out bytes.Buffer
	if err := (topFlags{containers: true}).redraw(&out, pods); err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(out.String(), "\n\n")
	const want = "CPU    MEMORY   READ/S  WRITE/S  POD\n" +
		"1.500  3.0 MiB  -       -        n/?]0;title??2J?\n" +
		"-      -        -       -          c???main\n"
	if list != want {
		t.Errorf("list = %q, want %q", list, want)
	}
}

// TestTop: the command measures a running daemon, once because its output is no terminal.
func TestTop(t *testing.T) {
	s := newSite(t)
	s.start(t, nil)
	for _, test := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"top", "--interval", "1s"}, 0, "CPU  MEMORY  READ/S  WRITE/S  POD\n"},
		{[]string{"top", "--interval", "1s", "-o", "json"}, 0, "[]\n"},
		{[]string{"top", "--interval", "10ms"}, exitConfig, "flag --interval: 10ms is shorter than 1s"},
		{[]string{"top", "--sort", "disk"}, exitConfig, "want cpu, memory, read, write or name"},
		{[]string{"top", "-o", "xml"}, exitConfig, "want text, json or yaml"},
	} {
		cmd := s.command(test.args...)
		out, _ := cmd.CombinedOutput()
		code, same := cmd.ProcessState.ExitCode(), string(out) == test.want
		if test.code != 0 {
			same = strings.Contains(string(out), test.want)
		}
		if code != test.code || !same {
			t.Errorf("podd %q = %d\n%s\nwant %d with %q", test.args, code, out, test.code, test.want)
		}
	}
}
