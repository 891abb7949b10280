package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestConfigCheckSpeed names what makes pods slow, by the configuration of a node and by its programs.
func TestConfigCheckSpeed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	const masquerade = `{"cniVersion": "1.0.0", "name": "test", "plugins": [{"type": "bridge", "ipMasq": true}]}`
	args := goodNode(t, map[string]string{
		conflistFile: masquerade,
		"bin/crun":   "#!/bin/sh\necho crun version 1.21\n",
	})
	for set, want := range map[string][]string{
		"runtime.default_handler=runc": {"the CNI plugin bridge runs iptables", `runtime.default_handler = "crun"`},
		"runtime.default_handler=crun": {"the CNI plugin bridge runs iptables"},
		"runtime.conmon=/bin/sh":       {"/bin/sh is linked to shared libraries"},
	} {
		var out, errs bytes.Buffer
		if code := execute(append(args, "--set", set), &out, &errs); code > 1 {
			t.Fatalf("exit status = %d: %s", code, errs.Bytes())
		}
		for _, text := range want {
			if !strings.Contains(out.String(), text) {
				t.Errorf("%s: %s\nwant %q", set, out.Bytes(), text)
			}
		}
		if strings.Contains(out.String(), "default_handler =") != (len(want) == 2) {
			t.Errorf("%s: %s\nwant only %q", set, out.Bytes(), want)
		}
	}
}
