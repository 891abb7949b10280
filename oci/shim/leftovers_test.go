package shim

import "testing"

func TestParseListener(t *testing.T) {
	for line, want := range map[string][2]string{
		"ffff888103a5e800: 00000002 00000000 00010000 0001 01 71234 /run/containerd/s/c909\n": {
			"71234", "/run/containerd/s/c909",
		},
		"0000000000000000: 00000003 00000000 00000000 0001 03 71235 /run/containerd/s/c909\n": {}, // a connection to it
		"0000000000000000: 00000002 00000000 00010000 0001 01 71236 @abstract\n":              {},
		"0000000000000000: 00000002 00000000 00010000 0001 01 71237 relative\n":               {},
		"0000000000000000: 00000002 00000000 00010000 0001 01 71238 /a/../b\n":                {},
		"0000000000000000: 00000002 00000000 00010000 0001 01 71239\n":                        {},
		"Num       RefCount Protocol Flags    Type St Inode Path\n":                           {},
		"": {},
	} {
		if inode, path := parseListener(line); inode != want[0] || path != want[1] {
			t.Errorf("parseListener(%q) = %q, %q, want %q", line, inode, path, want)
		}
	}
}
