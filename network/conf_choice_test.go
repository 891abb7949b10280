package network

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestConfInUse: while the file in use is rewritten or replaced, or an earlier one is written, no pod gets the network
// of the next file. It is used when the earlier one is gone for good, or was broken before.
func TestConfInUse(t *testing.T) {
	conf := func(name string) string {
		return `{"cniVersion":"1.0.0","name":"` + name + `","plugins":[{"type":"bridge"}]}`
	}
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, content string) func() error {
		return func() error { return os.WriteFile(path(name), []byte(content), 0o600) }
	}
	age := func(what string) func() error {
		return func() error {
			old := time.Now().Add(-2 * settling)
			return os.Chtimes(what, old, old)
		}
	}
	var c choice
	for _, step := range []struct {
		name string
		do   func() error
		want string // a network, or the text of an error
	}{
		{"one file", write("10.conflist", conf("ten")), "ten"},
		{"an earlier one is made", write("00.conflist", ""), "00.conflist: unexpected end"},
		{"it is cut off", write("00.conflist", conf("zero")[:30]), "00.conflist: unexpected end"},
		{"it lists no plugins yet", write("00.conflist", `{"cniVersion":"1.1.0","name":"zero"}`), "lists no plugins"},
		{"it is broken for good", age(path("00.conflist")), "ten"},
		{"it is whole", write("00.conflist", conf("zero")), "zero"},
		{"it is rewritten", write("00.conflist", ""), "00.conflist: unexpected end"},
		{"that takes long", age(path("00.conflist")), "00.conflist: unexpected end"},
		{"it is whole again", write("00.conflist", conf("zero")), "zero"},
		{"it is removed", func() error { return os.Remove(path("00.conflist")) }, "00.conflist was removed less than"},
		{"it is gone for good", age(dir), "ten"},
		{"a later one is broken", write("20.conflist", ""), "ten"},
	} {
		if err := step.do(); err != nil {
			t.Fatal(step.name, err)
		}
		list, _, err := c.load(dir)
		switch {
		case err == nil && list.Name != step.want:
			t.Errorf("%s: network %s, want %s", step.name, list.Name, step.want)
		case err != nil && (!errors.Is(err, errIncomplete) || !strings.Contains(err.Error(), step.want)):
			t.Errorf("%s: %v, want %s", step.name, err, step.want)
		}
	}
}
