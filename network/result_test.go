package network

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestParseResult(t *testing.T) {
	eth0 := `"interfaces":[{"name":"br0"},{"name":"eth0","sandbox":"/n"},{"name":"net1","sandbox":"/n"}]`
	tests := []struct {
		name, text, preference string
		want                   string // addresses, or part of the error
		fails                  bool
	}{
		{"one address", `{` + eth0 + `,"ips":[{"address":"10.0.0.2/24","interface":1}]}`, "cni", "10.0.0.2", false},
		{"no interface given", `{"ips":[{"address":"10.0.0.2/24"}]}`, "cni", "10.0.0.2", false},
		{"two families", `{"ips":[{"address":"fd00::2/64"},{"address":"10.0.0.2/24"}]}`, "cni", "fd00::2 10.0.0.2", false},
		{"ipv4 first", `{"ips":[{"address":"fd00::2/64"},{"address":"10.0.0.2/24"},{"address":"10.0.0.3/24"}]}`, "ipv4",
			"10.0.0.2 10.0.0.3 fd00::2", false},
		{"ipv6 first", `{"ips":[{"address":"10.0.0.2/24"},{"address":"fd00::2/64"}]}`, "ipv6", "fd00::2 10.0.0.2", false},
		{"twice", `{"ips":[{"address":"10.0.0.2/24"},{"address":"10.0.0.2/16"}]}`, "cni", "10.0.0.2", false},
		{"mapped", `{"ips":[{"address":"::ffff:10.0.0.2/120"}]}`, "cni", "10.0.0.2", false},
		{"other interface too", `{` + eth0 +
			`,"ips":[{"address":"10.1.0.2/24","interface":2},{"address":"10.0.0.2/24","interface":1}]}`, "cni", "10.0.0.2",
			false},
		{"no sandbox named", `{"interfaces":[{"name":"veth1"},{"name":"eth0"}],"ips":[` +
			`{"address":"10.0.0.1/24","interface":0},{"address":"10.0.0.2/24","interface":1}]}`, "cni", "10.0.0.2", false},
		{"CNI 0.2", `{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24"},"ip6":{"ip":"fd00::2/64"}}`, "cni", "10.0.0.2 fd00::2",
			false},
		{"unknown fields", `{"ips":[{"address":"10.0.0.2/24","more":[]}],"more":{}}`, "cni", "10.0.0.2", false},

		{"empty", ``, "cni", "not a CNI result", true},
		{"null", `null`, "cni", "no address", true},
		{"no ips", `{` + eth0 + `}`, "cni", "no address", true},
		{"only of the node's end", `{` + eth0 + `,"ips":[{"address":"10.0.0.1/24","interface":0}]}`, "cni", "no address",
			true},
		{"only of the node's eth0", `{"interfaces":[{"name":"eth0"},{"name":"net1","sandbox":"/n"}],` +
			`"ips":[{"address":"10.0.0.1/24","interface":0}]}`, "cni", "no address", true},
		{"interface out of range", `{` + eth0 + `,"ips":[{"address":"10.0.0.2/24","interface":3}]}`, "cni",
			"interface 3 of 3", true},
		{"negative interface", `{` + eth0 + `,"ips":[{"address":"10.0.0.2/24","interface":-1}]}`, "cni", "interface -1",
			true},
		{"huge interface", `{"ips":[{"address":"10.0.0.2/24","interface":99999999999999999999}]}`, "cni", "not a CNI result",
			true},
		{"null address", `{"ips":[null]}`, "cni", "null", true},
		{"null interface", `{"interfaces":[null],"ips":[{"address":"10.0.0.2/24","interface":0}]}`, "cni", "null", true},
		{"null route", `{"routes":[null],"ips":[{"address":"10.0.0.2/24"}]}`, "cni", "null", true},
		{"no prefix length", `{"ips":[{"address":"10.0.0.2"}]}`, "cni", "not an IP address", true},
		{"no address at all", `{"ips":[{"address":"eth0; rm -rf /"}]}`, "cni", "not an IP address", true},
		{"unspecified", `{"ips":[{"address":"0.0.0.0/0"}]}`, "cni", "cannot be", true},
		{"loopback", `{"ips":[{"address":"127.0.0.1/8"}]}`, "cni", "cannot be", true},
		{"multicast", `{"ips":[{"address":"ff02::1/64"}]}`, "cni", "cannot be", true},
		{"wrong types", `{"ips":{"address":1}}`, "cni", "not a CNI result", true},
		{"too large", `{"x":"` + strings.Repeat("a", maxResult) + `"}`, "cni", "more than", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := parseResult([]byte(tt.text), tt.preference)
			if tt.fails {
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("got %v, %v, want an error with %q", r, err, tt.want)
				}
				return
			}
			var want []netip.Addr
			for s := range strings.FieldsSeq(tt.want) {
				want = append(want, netip.MustParseAddr(s))
			}
			if err != nil || !slices.Equal(r.IPs, want) || r.Interface != "eth0" {
				t.Errorf("got %v, %v, want %v", r, err, want)
			}
		})
	}
}

func TestNormalize(t *testing.T) {
	for _, tt := range []struct{ text, version, want string }{
		{`{"ips":[{"address":"10.0.0.2/24"}]}`, "1.0.0", `{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24"}]}`},
		{`{"cniVersion":"","ips":[{"address":"10.0.0.2/24"}]}`, "1.1.0",
			`{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.2/24"}]}`},
		{`{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.0.0.2/24"}]}`, "1.0.0",
			`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24"}]}`},
		{`{}`, "1.0.0", `{"cniVersion":"1.0.0"}`},
		{`null`, "1.0.0", `{"cniVersion":"1.0.0"}`},
		{`{"ip4":{"ip":"10.0.0.2/24"}}`, "", `{"cniVersion":"0.1.0","ip4":{"ip":"10.0.0.2/24"},"dns":{}}`},
	} {
		if got, err := normalize([]byte(tt.text), tt.version); err != nil || string(got) != tt.want {
			t.Errorf("%s as %q: got %s, %v, want %s", tt.text, tt.version, got, err, tt.want)
		}
	}
	for _, text := range []string{``, `[]`, `"x"`, `{"cniVersion":"7.0.0"}`, `{"ips":[null]}`,
		`{"ips":[{"address":"x"}]}`} {
		if got, err := normalize([]byte(text), "1.0.0"); err == nil {
			t.Errorf("normalize(%s) = %s, want an error", text, got)
		}
	}
}

// FuzzResult runs ADD and DEL with two plugins that return arbitrary results: nothing panics, accepted results have
// addresses, and recorded ones can be read back and torn down.
func FuzzResult(f *testing.F) {
	for _, s := range []string{
		`{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/n"}],` +
			`"ips":[{"address":"10.0.0.2/24","interface":0}]}`,
		`{"cniVersion":"0.4.0","ips":[{"version":"4","address":"10.0.0.2/24"}],"routes":[{"dst":"0.0.0.0/0"}],` +
			`"dns":{"nameservers":["1.1.1.1"]}}`,
		`{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24"},"ip6":null}`, `{"ips":[null],"interfaces":[null],"routes":[null]}`,
		`null`, `[]`, ``, `{"cniVersion":1}`,
	} {
		for _, v := range []string{"0.2.0", "0.4.0", "1.0.0", "1.1.0"} {
			f.Add(v, []byte(s))
		}
	}
	f.Fuzz(func(t *testing.T, version string, text []byte) {
		list, err := parseConf([]byte(strings.ReplaceAll(fakeConf("VERSION", "net"), "VERSION", version)))
		if err != nil {
			return
		}
		list.Plugins = append(list.Plugins, list.Plugins[0])
		if list, err = flatten(list); err != nil {
			return
		}
		cfg := testConfig(t)
		c := newFakeCNI(t, cfg, func(context.Context, string, []byte) ([]byte, error) { return text, nil })
		c.stateDir = inMemory(t)
		r := newRecord(Request{PodID: "pod1", Netns: "/n"}, list)
		if err := c.writeRecord(r); err != nil {
			t.Fatal(err)
		}
		result, err := c.add(t.Context(), r)
		if err := r.syncs.Wait(); err != nil {
			t.Errorf("sync = %v, want nil", err)
		}
		if err == nil && len(result.IPs) == 0 {
			t.Error("accepted without an address")
		}
		if err := c.Teardown(t.Context(), "pod1"); err != nil {
			t.Errorf("Teardown = %v, want no error", err)
		}
		if ids, err := c.Attachments(); err != nil || len(ids) != 0 {
			t.Errorf("Attachments = %v, %v, want none", ids, err)
		}
	})
}

// inMemory returns a directory in which fsync is cheap.
func inMemory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "podd-fuzz-*")
	if err != nil {
		return filepath.Join(t.TempDir(), "state")
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestResultIsRecordedAfterEachPlugin: if the second plugin fails, DEL still gets the first one's result.
func TestResultIsRecordedAfterEachPlugin(t *testing.T) {
	calls, boom := 0, errors.New("boom")
	c := newFakeCNI(t, testConfig(t), func(context.Context, string, []byte) ([]byte, error) {
		if calls++; calls == 2 {
			return nil, boom
		}
		return []byte(`{"ips":[{"address":"10.0.0.2/24"}]}`), nil
	})
	r := testRecord(t, "pod1")
	r.list.Plugins = append(r.list.Plugins, r.list.Plugins[0])
	if _, err := c.add(t.Context(), r); !errors.Is(err, boom) {
		t.Fatalf("add = %v, want %v", err, boom)
	}
	kept, err := c.readRecord("pod1")
	if err != nil || !strings.Contains(string(kept.Result), "10.0.0.2/24") {
		t.Errorf("result in the record = %s, %v, want it with 10.0.0.2/24", kept.Result, err)
	}
}
