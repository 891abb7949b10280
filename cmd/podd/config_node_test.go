package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podd-project/podd/cmd/podd/preflight"
)

// TestConfigCheckNode breaks, one at a time, what the configuration of a good node names.
func TestConfigCheckNode(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for name, test := range map[string]struct {
		files map[string]string
		set   string
		// problem is what the only problem is about, and a part of its text. Empty: there is none.
		what, text string
	}{
		"good node":       {},
		"no network yet":  {files: one(conflistFile, "")},
		"missing plugin":  {files: one(conflistFile, conflist("absent")), what: "network", text: "absent"},
		"broken network":  {files: one(conflistFile, "{"), what: "network", text: conflistFile},
		"default handler": {set: "runtime.default_handler=gvisor", what: "handler gvisor", text: "no runsc"},
		"auto": {
			files: map[string]string{"bin/runc": "", "bin/crun": "#!/bin/sh\necho crun version 1.21\n"},
			set:   "runtime.default_handler=auto",
		},
		"auto without both": {
			files: one("bin/runc", ""), set: "runtime.default_handler=auto", what: "handler runc", text: "no runc",
		},
		"template": {
			files: one(templateFile, `{{with .PodCIDR}}{{end}}`), what: "network", text: "a template may use fields",
		},
		"template for two families": {
			files: one(templateFile, `{{range $i, $r := .PodCIDRRanges}}{{if $i}},{{else}}`+conflist("bridge")+`{{end}}{{end}}`),
			what:  "network", text: "2001:db8::/64",
		},
		"configured":        {set: "runtime.handlers.kata.type=shim", what: "handler kata", text: "containerd-shim-kata-v2"},
		"conmon":            {set: "runtime.conmon=absent", what: "handler runc", text: "no absent"},
		"policy":            {files: one("policy.json", "{"), what: "images", text: "policy.json"},
		"key of the policy": {files: one("policy.json", signedBy), what: "images", text: "/absent.gpg"},
		"registries":        {files: one("registries.conf", "["), what: "images", text: "registries"},
		"credentials":       {files: one("auth.json", `{"auths": "secret"}`), what: "images", text: "auth_file"},
		"store of credentials": {
			files: one("auth.json", `{"auths":{"a.test":{}},"credsStore":"pass"}`), what: "images", text: `credsStore "pass"`,
		},
		"no credentials": {set: "image.auth_file=/absent", what: "images", text: "/absent"},
	} {
		t.Run(name, func(t *testing.T) {
			args := append(goodNode(t, test.files), "-o", "json")
			if test.set != "" {
				args = append(args, "--set", test.set)
			}
			var out, errs bytes.Buffer
			code := execute(args, &out, &errs)
			var report preflight.Report
			if err := json.Unmarshal(out.Bytes(), &report); err != nil {
				t.Fatalf("%v: %s%s", err, out.Bytes(), errs.Bytes())
			}
			checkProblem(t, report, test.what, test.text)
			if want := min(report.Problems(), 1); code != want {
				t.Errorf("exit status = %d, want %d", code, want)
			}
			if strings.Contains(out.String()+errs.String(), "secret") {
				t.Errorf("the output contains a secret: %s%s", out.Bytes(), errs.Bytes())
			}
		})
	}
}

// TestCheckNodeNotesCheckpoints: what a handler cannot checkpoint is a note, because only some clusters need it.
func TestCheckNodeNotesCheckpoints(t *testing.T) {
	var out, errs bytes.Buffer
	if code := execute(append(goodNode(t, nil), "--set", "runtime.criu=criu"), &out, &errs); code > 1 {
		t.Fatalf("exit status = %d: %s", code, errs.Bytes())
	}
	for _, want := range []string{"no CheckpointContainer: ", "CRIU is not installed", "no CheckpointPod: "} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("report:\n%swant %q", out.Bytes(), want)
		}
	}
}

// checkProblem requires the only problem, if any, of what the machine does not decide.
func checkProblem(t *testing.T, report preflight.Report, what, text string) {
	t.Helper()
	found := what == ""
	for _, f := range report {
		decides := f.What == "network" || f.What == "images" || strings.HasPrefix(f.What, "handler ")
		switch {
		case f.Result != preflight.Problem || !decides:
		case what != "" && (f.What == what || text == "no absent") && strings.Contains(f.Detail, text):
			found = true
		default:
			t.Errorf("found %+v, want no such problem", f)
		}
	}
	if !found {
		t.Errorf("found %v, want a problem of %s with %q", report, what, text)
	}
}

// templateFile is the network's template, if there is one.
const templateFile = "cni.template"

// conflistFile is the network's configuration of a good node.
const conflistFile = "net.d/10-test.conflist"

func one(path, text string) map[string]string { return map[string]string{path: text} }

// signedBy is a policy that requires a key that is not there.
const signedBy = `{"default": [{"type": "signedBy", "keyType": "GPGKeys", "keyPath": "/absent.gpg"}]}`

func conflist(plugin string) string {
	return `{"cniVersion": "1.0.0", "name": "test", "plugins": [{"type": "` + plugin + `"}]}`
}

// goodNode returns the arguments of a check of a node with everything: programs that print versions, a network, files
// of the image store. Files replace some of them; an empty one is removed.
func goodNode(t *testing.T, files map[string]string) []string {
	t.Helper()
	dir := t.TempDir()
	write := func(path, text string, mode os.FileMode) {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	for program, says := range map[string]string{"runc": "runc version 1.5.2", "conmon": "conmon version 2.1.12"} {
		write("bin/"+program, "#!/bin/sh\necho "+says+"\n", 0o755)
	}
	write("cni/bridge", "#!/bin/sh\n", 0o755)
	write(conflistFile, conflist("bridge"), 0o644)
	for path, text := range files {
		mode := os.FileMode(0o644)
		if strings.HasPrefix(path, "bin/") {
			mode = 0o755
		}
		write(path, text, mode)
		if text == "" {
			if err := os.Remove(filepath.Join(dir, path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	args := []string{"config", "check", "--node", "--root", dir + "/root", "--run", dir + "/run"}
	for _, set := range []string{
		`runtime.search_path=["DIR/bin"]`, "network.conf_dir=DIR/net.d", `network.bin_dirs=["DIR/cni"]`,
		"image.policy=DIR/policy.json", "image.registries_conf=DIR/registries.conf",
	} {
		args = append(args, "--set", strings.ReplaceAll(set, "DIR", dir))
	}
	if files["auth.json"] != "" {
		args = append(args, "--set", "image.auth_file="+dir+"/auth.json")
	}
	if files[templateFile] != "" {
		args = append(args, "--set", "network.conf_template="+filepath.Join(dir, templateFile))
	}
	return args
}
