package network

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func TestLoadConfTakesTheFirstValidFile(t *testing.T) {
	single := `{"cniVersion":"0.4.0","name":"single","type":"bridge","ipam":{"type":"host-local"}}`
	tests := []struct {
		name   string
		files  map[string]string
		want   string // the network's name, or part of the error
		broken int
	}{
		{"nothing", nil, "no CNI configuration in", 0},
		{"one list", map[string]string{"10-a.conflist": fakeConf("1.0.0", "a")}, "a", 0},
		{"lexical order", map[string]string{"9-b.conflist": fakeConf("1.0.0", "b"), "10-a.conflist": fakeConf("1.0.0", "a")},
			"a", 0},
		{"single plugin", map[string]string{"10-a.conf": single}, "single", 0},
		{"json", map[string]string{"10-a.json": single}, "single", 0},
		{"list in a .conf", map[string]string{"10-a.conf": fakeConf("1.0.0", "a")}, "a", 0},
		{"single in a .conflist", map[string]string{"10-a.conflist": single}, "single", 0},
		{"other files", map[string]string{"00-readme.txt": "x", "01.conflist.bak": "x", ".00-being-written.conflist": "x",
			"10-a.conflist": fakeConf("1.0.0", "a")}, "a", 0},
		{"broken one first", map[string]string{"00-x.conflist": "{", "10-a.conflist": fakeConf("1.0.0", "a")}, "a", 1},
		{"only broken ones", map[string]string{"00-x.conflist": "{", "10-y.conf": "[]"},
			"00-x.conflist: unexpected end of JSON input; 10-y.conf", 2},
		{"empty file", map[string]string{"00-x.conflist": ""}, "unexpected end", 1},
		{"too large", map[string]string{"00-x.conflist": strings.Repeat(" ", maxConf+1)}, "larger than", 1},
		{"too deep", map[string]string{"00-x.conflist": strings.Repeat("[", 100)}, "nested deeper", 1},
		{"no plugins", map[string]string{"00-x.conflist": `{"cniVersion":"1.0.0","name":"x","plugins":[]}`}, "no plugins", 1},
		{"no plugins key", map[string]string{"00-x.conflist": `{"cniVersion":"1.0.0","name":"x"}`}, "lists no plugins", 1},
		{"no name", map[string]string{"00-x.conflist": `{"cniVersion":"1.0.0","plugins":[{"type":"fake"}]}`}, "no name", 1},
		{"name is a path", map[string]string{"00-x.conflist": fakeConf("1.0.0", "../../etc")}, "invalid characters", 1},
		{"no type", map[string]string{"00-x.conflist": `{"cniVersion":"1.0.0","name":"x","plugins":[{}]}`},
			"missing 'type'", 1},
		{"plugin is a path", map[string]string{
			"00-x.conflist": `{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"../../bin/sh"}]}`,
		}, "not a plain file name", 1},
		{"ipam is a path", map[string]string{
			"00-x.conflist": `{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"fake","ipam":{"type":"/bin/sh"}}]}`,
		}, "not a plain file name", 1},
		{"version of the future", map[string]string{"00-x.conflist": fakeConf("9.0.0", "x")}, "newer than", 1},
		{"version is nonsense", map[string]string{"00-x.conflist": fakeConf("one", "x")}, `cniVersion "one"`, 1},
		{"null", map[string]string{"00-x.conflist": "null"}, "no name", 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range tt.files {
				write(t, filepath.Join(dir, name), text)
			}
			list, _, broken, err := loadConf(dir)
			if len(broken) != tt.broken {
				t.Errorf("%d invalid files, want %d: %v", len(broken), tt.broken, broken)
			}
			if err == nil {
				if list.Name != tt.want {
					t.Errorf("network %q, want %q", list.Name, tt.want)
				}
				return
			}
			if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want unavailable with %q", err, tt.want)
			}
		})
	}
}

func TestLoadConfOfAnAbsentDirectory(t *testing.T) {
	if _, _, _, err := loadConf(filepath.Join(t.TempDir(), "absent")); !errdefs.IsUnavailable(err) {
		t.Errorf("loadConf of an absent directory = %v, want an unavailable error", err)
	}
}

func TestLoadConfPassesOverWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "00.conflist"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/nowhere", filepath.Join(dir, "01.conflist")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "02.conflist"), fakeConf("1.0.0", "a"))
	if list, _, broken, err := loadConf(dir); err != nil || list.Name != "a" || len(broken) != 2 {
		t.Errorf("loadConf = %v, %v, %v, want network a and 2 invalid files", list, broken, err)
	}
}

// TestConfGathersPluginFiles: CNI 1.1 allows plugins in files of their own. The record must have them, too.
func TestConfGathersPluginFiles(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "10.conflist"),
		`{"cniVersion":"1.1.0","name":"net","disableGC":true,"plugins":[{"type":"one"}]}`)
	if err := os.Mkdir(filepath.Join(dir, "net"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "net", "a.conf"), `{"type":"two","x":9007199254740993}`)
	list, _, _, err := loadConf(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"cniVersion":"1.1.0","name":"net","disableGC":true,"loadOnlyInlinedPlugins":true,` +
		`"plugins":[{"type":"one"},{"type":"two","x":9007199254740993}]}`
	if string(list.Bytes) != want {
		t.Errorf("got  %s\nwant %s", list.Bytes, want)
	}
	again, err := parseConf(list.Bytes)
	if err != nil || len(again.Plugins) != 2 || !again.DisableGC {
		t.Errorf("flattened list parsed again = %+v, %v, want 2 plugins and DisableGC", again, err)
	}
	write(t, filepath.Join(dir, "net", "b.conf"), `{"type":"../evil"}`)
	if _, _, _, err := loadConf(dir); err == nil {
		t.Error("a plugin with a path for a type was accepted")
	}
}

func TestCheckNesting(t *testing.T) {
	deep := func(n int) string { return strings.Repeat(`{"a":[`, n) + strings.Repeat("]}", n) }
	for text, ok := range map[string]bool{
		"": true, deep(32): true, deep(33): false, `"` + strings.Repeat("[", 1000) + `"`: true,
		`"\"` + strings.Repeat("[", 1000) + `"`: true, strings.Repeat("[]", 1000): true, "]]]" + deep(32): true,
	} {
		if err := checkNesting([]byte(text)); (err == nil) != ok {
			t.Errorf("checkNesting(%.40s) = %v, want success: %v", text, err, ok)
		}
	}
}

// FuzzConf: an accepted configuration has a safe name and safe plugins, and does not change when it is parsed again.
func FuzzConf(f *testing.F) {
	for _, s := range []string{fakeConf("1.1.0", "a"), `{"name":"x","type":"bridge"}`,
		`{"name":"x","plugins":[{"type":"a"}],"cniVersions":["1.0.0","2.0.0"]}`, "null", "[]", `{"plugins":null}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		list, err := parseConf(data)
		if err != nil {
			return
		}
		if list, err = flatten(list); err != nil {
			return
		}
		if !idPattern.MatchString(list.Name) && len(list.Name) <= 200 {
			t.Errorf("network name = %q, want a valid one", list.Name)
		}
		again, err := parseConf(list.Bytes)
		if err != nil {
			t.Fatalf("parseConf of its own output %s = %v, want no error", list.Bytes, err)
		}
		if again, err = flatten(again); err != nil || string(again.Bytes) != string(list.Bytes) {
			t.Errorf("%s parsed again = %s, %v, want no change", list.Bytes, again.Bytes, err)
		}
	})
}
