package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// tree writes files to a new directory and returns the path of podd.toml in it.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "podd.toml")
}

// command runs podd's command line in this process.
func command(args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	code = execute(args, &out, &errs)
	return out.String(), errs.String(), code
}

// TestMistakesInConfiguration runs the command line: each error must have status EX_CONFIG and name its place.
func TestMistakesInConfiguration(t *testing.T) {
	cases := map[string]struct {
		file, dropIn string
		args         []string
		want         string
	}{
		"unknown key": {
			file: "\n[runtime]\nconmn = \"x\"",
			want: `podd.toml:3: unknown key "runtime.conmn", the nearest known key is "runtime.conmon"`,
		},
		"unknown in drop-in": {
			dropIn: "[log]\n\nlevle = \"x\"",
			want:   `podd.toml.d/50.toml:3: unknown key "log.levle", the nearest known key is "log.level"`,
		},
		"unknown for handler": {
			file: "[runtime.handlers.runc]\nroots = \"/x\"",
			want: `podd.toml:2: unknown key "runtime.handlers.runc.roots", ` +
				`the nearest known key is "runtime.handlers.runc.root"`,
		},
		"syntax": {file: "root = \"/a\"\n[log", want: "podd.toml:2:"},
		"relative root": {
			file: "root = \"var/lib\"",
			want: `podd.toml:1): "var/lib" is relative, want an absolute path`,
		},
		"special root":   {file: "root = \"/var/a:b\"", want: "is special in overlay mount options"},
		"empty run":      {file: "run = \"\"", want: `run (`},
		"unclean path":   {file: "root = \"/var/../etc/podd\"", want: `is not a clean path, want "/etc/podd"`},
		"root directory": {file: "root = \"/\"", want: "must not be the root directory"},
		"sysctl of the node": {
			file: "[runtime.default_sysctls]\n\"vm.swappiness\" = \"1\"", want: `sysctl "vm.swappiness" is not namespaced`,
		},
		"ulimit": {
			file: "[runtime.default_ulimits]\nnofile = \"many\"", want: `nofile: "many" is neither a number`,
		},
		"unknown ulimit": {file: "[runtime.default_ulimits]\nfiles = \"1\"", want: `"RLIMIT_FILES" is not a resource limit`},
		"ulimit above hard": {
			file: "[runtime.default_ulimits]\ncore = \"2:1\"", want: `the soft limit 2 of RLIMIT_CORE is above the hard limit 1`,
		},
		"default capability": {
			file: "[runtime]\ndefault_capabilities = [\"NET_RAV\"]", want: `podd.toml:2): invalid argument: "NET_RAV"`,
		},
		"all capabilities":  {file: "runtime.default_capabilities = [\"ALL\"]", want: `name those that containers get`},
		"default variable":  {file: "[runtime]\ndefault_env = [\"A\"]", want: `runtime.default_env (`},
		"pids limit":        {file: "runtime.pids_limit = 0", want: "0 is neither positive nor -1"},
		"shm size":          {file: "runtime.shm_size = 64", want: "64 is less than 4096 bytes"},
		"time zone":         {file: "runtime.timezone = \"Europe/Atlantis\"", want: `time zone "Europe/Atlantis"`},
		"time zone outside": {file: "runtime.timezone = \"../../etc/passwd\"", want: `is not the name of a time zone`},
		"hooks directory":   {file: "runtime.hooks_dirs = [\"hooks.d\"]", want: `"hooks.d" is not an absolute path`},
		"no base spec": {
			file: "[runtime.handlers.runc]\nbase_runtime_spec = \"/none/base.json\"",
			want: "podd.toml:2): open /none/base.json: no such file",
		},
		"control character": {file: "root = \"/a\\nb\"", want: "contains a control character"},
		"configuration of containerd": {
			file: "version = 3\n[plugins.'io.containerd.cri.v1.runtime']\nx = 1",
			want: "podd.toml is a configuration of containerd: contrib/docs/from-containerd.md says",
		},
		"configuration of CRI-O": {
			file: "[crio.api]\nlisten = \"/x\"", want: "is a configuration of crio: contrib/docs/from-crio.md says",
		},
		"relative listen": {
			args: []string{"--listen", "podd.sock"},
			want: `listen (flag --listen): "podd.sock" is relative`,
		},
		"url for listen": {
			args: []string{"--listen", "unix://podd.sock"},
			want: `listen (flag --listen): "podd.sock" is relative`,
		},
		"long listen": {
			args: []string{"--listen", "/" + strings.Repeat("x", 107)},
			want: "longer than the 107 bytes",
		},
		"run in root":   {file: "root = \"/a\"\nrun = \"/a/run\"", want: "must not contain each other"},
		"root in run":   {file: "root = \"/a/root\"\nrun = \"/a\"", want: "must not contain each other"},
		"same":          {file: "root = \"/a\"\nrun = \"/a\"", want: "must not contain each other"},
		"log level":     {args: []string{"--log-level", "loud"}, want: `"loud" is not one of`},
		"log format":    {args: []string{"--log-format", "xml"}, want: `"xml" is neither text nor json`},
		"output format": {args: []string{"-o", "xml"}, want: "want text, json or yaml"},
		"cgroup driver": {file: "runtime.cgroup_driver = \"cgrupfs\"", want: `runtime.cgroup_driver (`},
		"two meanings of auto": {
			file: "runtime.default_handler = \"auto\"\n[runtime.handlers.auto]\npath = \"runc\"",
			want: `"auto" stands for crun or runc`,
		},
		"no default handler": {file: "runtime.default_handler = \"kata\"", want: `unknown handler "kata"`},
		"handler name":       {file: "[runtime.handlers.\"../x\"]", want: `"../x" is not a DNS label`},
		"handler path":       {file: "[runtime.handlers.a]\npath = \"bin/a\"", want: `runtime.handlers.a.path (`},
		"search path":        {file: "runtime.search_path = [\"bin\"]", want: `"bin" is relative`},
		"conmon":             {file: "runtime.conmon = \"..\"", want: `".." is relative`},
		"criu":               {file: "runtime.criu = \"bin/criu\"", want: `runtime.criu (`},
		"name of criu":       {file: "runtime.criu = \"/opt/criu-4\"", want: `the file must have the name criu`},
		"timeout":            {file: "runtime.kill_timeout = \"0s\"", want: "runtime.kill_timeout ("},
		"open metrics": {
			file: "[metrics]\naddress = \"0.0.0.0:9478\"",
			want: `podd.toml:2): other machines can reach 0.0.0.0`,
		},
		"metrics socket": {
			file: "run = \"/run/x\"\n[metrics]\naddress = \"unix:///run/x/podd.sock\"",
			want: `"/run/x/podd.sock" is the socket of the CRI service`,
		},
		"tracing endpoint": {
			args: []string{"--set", "tracing.endpoint=a:1"},
			want: `tracing.endpoint (flag --set): "a:1" is neither`,
		},
		"tracing rate": {
			args: []string{"--set", "tracing.sampling_rate_per_million=2000000"},
			want: "tracing.sampling_rate_per_million (",
		},
		"streaming address": {file: "[streaming]\naddress = \"localhost\"", want: `streaming.address (`},
		"host devices": {
			file: "[runtime.handlers.a]\nprivileged_without_host_devices = \"no\"", want: `podd.toml:2): "no" must be auto`,
		},
		"infra":            {file: "[runtime.handlers.a]\ninfra = \"some\"", want: `podd.toml:2): "some" must be auto`},
		"plugin directory": {file: "[network]\n\nbin_dirs = [\"bin\"]", want: "network.bin_dirs ("},
		"plugin directories": {
			file: "[network]\n\nbin_dirs = []",
			want: "podd.toml:3): is empty, want at least one directory",
		},
		"image policy": {
			file: "[image]\npolicy = \"p.json\"",
			want: "podd.toml:2): \"p.json\" is not an absolute path",
		},
		"number for timeout": {
			file: "runtime.kill_timeout = 60",
			want: `podd.toml:1: runtime.kill_timeout: want a duration`,
		},
		"set without =": {args: []string{"--set", "root"}, want: `"root" is not of the form section.key=value`},
		"set unknown": {
			args: []string{"--set", "rot=/x"},
			want: `flag --set: unknown key "rot", the nearest known key is "root"`,
		},
		"unknown flag": {args: []string{"--rot", "/x"}, want: "unknown flag: --rot"},
		"argument":     {args: []string{"now"}, want: `unknown command "now"`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"podd.toml": c.file}
			if c.dropIn != "" {
				files["podd.toml.d/50.toml"] = c.dropIn
			}
			args := append([]string{"config", "check", "--config", tree(t, files)}, c.args...)
			out, errs, code := command(args...)
			if code != exitConfig || !strings.Contains(errs, c.want) || out != "" {
				t.Errorf("exit %d, want %d\nstdout %s\nstderr %s\nwant   %s", code, exitConfig, out, errs, c.want)
			}
		})
	}
}

// TestPlacesOfEntries: an error of an entry of a map, or of a table with any name, has the place of that entry. Entries
// that are right, and those of the defaults, are elsewhere.
func TestPlacesOfEntries(t *testing.T) {
	file := tree(t, map[string]string{
		"podd.toml": `[runtime.default_sysctls]
"net.ipv4.ip_forward" = "1"
[runtime.annotation_handlers]
"a.b/c" = "none"
[runtime.handlers."../x"]
[runtime.handlers.runc.options]
"a b" = "c"
root = "/x"
[runtime.handlers.crun]
runtime = "x"
[nri.plugins."a b"]
[nri.plugins."c.d"]
on_failure = "perhaps"
`,
		"podd.toml.d/50.toml": `[runtime.default_sysctls]
"vm.swappiness" = "1"
"kernel.pid_max" = "1"
[runtime.default_ulimits]
core = "0"
NOFILE = "many"
files = "1"
[runtime.handlers.runc.default_annotations]
"io.kubernetes.cri.a" = "b"
`,
	})
	_, errs, _ := command("config", "check", "--config", file, "--set", `runtime.default_sysctls."fs.file-max"=1`)
	for _, want := range []string{
		`runtime.default_sysctls."fs.file-max" (flag --set): `,
		`runtime.default_sysctls."kernel.pid_max" (50.toml:3): `,
		`runtime.default_sysctls."vm.swappiness" (50.toml:2): `,
		`runtime.default_ulimits.NOFILE (50.toml:6): `,
		`runtime.default_ulimits.files (50.toml:7): `,
		`runtime.annotation_handlers."a.b/c" (podd.toml:4): `,
		`runtime.handlers."../x" (podd.toml:5): `,
		`runtime.handlers.crun (podd.toml:9): `,
		`runtime.handlers.runc.options."a b" (podd.toml:7): `,
		`runtime.handlers.runc.options.root (podd.toml:8): `,
		`runtime.handlers.runc.default_annotations."io.kubernetes.cri.a" (50.toml:9): `,
		`nri.plugins."a b" (podd.toml:11): `,
		`nri.plugins."c.d".on_failure (podd.toml:13): `,
	} {
		text := strings.NewReplacer(file+".d/", "", filepath.Dir(file)+"/", "").Replace(errs)
		if !strings.Contains(text, want) {
			t.Errorf("stderr lacks %q:\n%s", want, text)
		}
	}
	if n := strings.Count(strings.TrimSpace(errs), "\n"); n != 12 {
		t.Errorf("stderr has %d lines, want 13:\n%s", n+1, errs)
	}
}

// TestEveryWrongKeyIsReported: one run names all of them: first those that no key is set by, in the order of the files
// and flags, then the values, in the order of the keys.
func TestEveryWrongKeyIsReported(t *testing.T) {
	file := tree(t, map[string]string{
		"podd.toml": "[runtime]\nkill_timeout = 3\nconmn = \"x\"\n[image]\npull_memory = 1\n" +
			"[runtime.handlers.a]\ninfra = \"some\"\nprivileged_without_host_devices = \"no\"\n",
		"podd.toml.d/50.toml": "[metrics]\naddr = \"\"\n[log]\nformat = \"xml\"\n",
	})
	out, errs, code := command("config", "check", "--config", file, "--set", "rot=/x", "--log-level", "loud")
	if code != exitConfig || out != "" {
		t.Errorf("exit status = %d, want %d; stdout %q, want none", code, exitConfig, out)
	}
	rest := errs
	for _, want := range []string{
		"podd.toml:2: runtime.kill_timeout: ", "podd.toml:3: unknown key \"runtime.conmn\"", "50.toml:2: unknown key",
		"flag --set: unknown key \"rot\"",
		"log.level (flag --log-level): ", "log.format (", "runtime.handlers.a.infra (",
		"runtime.handlers.a.privileged_without_host_devices (", "image.pull_memory (",
	} {
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Errorf("stderr %q, want %q after the others", errs, want)
			continue
		}
		rest = after
	}
	if n := strings.Count(strings.TrimSpace(errs), "\n"); n != 8 {
		t.Errorf("stderr %q has %d lines, want 9", errs, n+1)
	}
}

func TestConfigFileIsChecked(t *testing.T) {
	writable := tree(t, map[string]string{"podd.toml": ""})
	if err := os.Chmod(writable, 0o666); err != nil {
		t.Fatal(err)
	}
	large := tree(t, map[string]string{"podd.toml": strings.Repeat("# a comment\n", 100_000)})
	dir := filepath.Dir(writable)
	for path, want := range map[string]string{
		writable:      "is writable by everyone (mode 0666)",
		large:         "is larger than 1048576 bytes",
		dir:           "is not a regular file",
		dir + "/none": "no such file",
	} {
		_, errs, code := command("config", "check", "--config", path)
		if code != exitConfig || !strings.Contains(errs, want) {
			t.Errorf("%s: exit status = %d, stderr %q, want %d and %q", path, code, errs, exitConfig, want)
		}
	}
}

func TestConfigCheckNamesTheFiles(t *testing.T) {
	file := tree(t, map[string]string{"podd.toml": "", "podd.toml.d/a.toml": ""})
	out, _, code := command("config", "check", "--config", file)
	want := "read " + file + "\nread " + file + ".d/a.toml\nthe configuration is valid\n"
	if code != 0 || out != want {
		t.Errorf("exit status = %d, want 0; stdout = %q, want %q", code, out, want)
	}
}

func TestConfigDump(t *testing.T) {
	file := tree(t, map[string]string{
		"podd.toml":          "[log]\nlevel = \"debug\"\n[runtime.handlers.kata]\npath = \"/opt/kata\"\n",
		"podd.toml.d/a.toml": "[runtime]\nconmon = \"/opt/conmon\"\n",
	})
	out, errs, code := command("config", "dump", "--config", file, "--run", "/run/other")
	if code != 0 || errs != "" {
		t.Fatalf("exit status = %d, want 0; stderr %q, want none", code, errs)
	}
	golden(t, "testdata/dump.toml", strings.ReplaceAll(out, filepath.Dir(file), "/etc/podd"))
}

// TestDefaultConfigIsUpToDate keeps contrib/podd.toml what `podd config default` prints.
func TestDefaultConfigIsUpToDate(t *testing.T) {
	out, errs, code := command("config", "default")
	if code != 0 || errs != "" {
		t.Fatalf("exit status = %d, want 0; stderr %q, want none", code, errs)
	}
	golden(t, "../../contrib/podd.toml", out)
}

func TestEveryKeyIsDocumented(t *testing.T) {
	out, _, _ := command("config", "default")
	lines := strings.Split(out, "\n")
	table := "" // the comment of the table, which names the keys of a map such as default_ulimits
	for i, line := range lines {
		if strings.HasPrefix(line, "[") {
			table = ""
			for j := i - 1; j >= 0 && strings.HasPrefix(lines[j], "# "); j-- {
				table += lines[j] + "\n"
			}
		}
		key := regexp.MustCompile(`^#([a-z_]+) = `).FindStringSubmatch(line)
		if key == nil || strings.HasPrefix(lines[i-1], "# ") {
			continue
		}
		if !regexp.MustCompile(`\b` + key[1] + `[,.]`).MatchString(table) {
			t.Errorf("%s has no comment, want one above it or its name in that of its table", line)
		}
	}
}

func TestVersion(t *testing.T) {
	out, errs, code := command("version")
	if code != 0 || errs != "" {
		t.Fatalf("exit status = %d, want 0; stderr %q, want none", code, errs)
	}
	for _, want := range []string{
		`(?m)^podd     dev$`, `(?m)^commit   \S+$`, `(?m)^go       go1\.\d+`, `(?m)^cri-api  v0\.\d+\.\d+$`,
	} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("version = %s, want a match of %s", out, want)
		}
	}
}
