package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// layOut creates the directories and files that an installer creates.
func (d *Daemon) layOut() error {
	for _, dir := range []string{"root", "run", "net.d", "ips", "logs"} {
		if err := os.Mkdir(filepath.Join(d.Dir, dir), 0o755); err != nil {
			return err
		}
	}
	if d.opts.RunOnTmpfs {
		if err := unix.Mount("podd-test", d.Path("run"), "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("mount a tmpfs for the run directory: %w", err)
		}
	}
	registries, policy, err := d.opts.Registry.WriteConf(d.Dir)
	if err != nil {
		return err
	}
	if err := d.chooseNetwork(); err != nil {
		return err
	}
	if err := d.writeCNI(); err != nil {
		return err
	}
	bin := filepath.Join(d.repo, "bin")
	programs, plugins := bin, filepath.Join(bin, "cni")
	if d.opts.Gated {
		if d.Gates, err = newGates(d.Path("gates"), bin); err != nil {
			return err
		}
		programs, plugins = d.Gates.bin(), d.Gates.bin()
	}
	conf := fmt.Sprintf(`root = %q
run = %q

[log]
level = "debug"

[runtime]
default_handler = %q
cgroup_driver = "auto"
search_path = [%q, "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
seccomp_profile_root = %q
cdi_spec_dirs = [%q]

[runtime.handlers.gvisor.options]
# By default runsc pins one for all its helper processes and never removes it.
gofer-network-namespace = "new"
# Off by default in gVisor; needed for ping, seccomp profiles of pods, and setuid binaries.
net-raw = "true"
oci-seccomp = "true"
allow-suid = "true"

[runtime.handlers.gvisor-shim]
type = "shim"
path = "containerd-shim-runsc-v1"
options = {net-raw = "true", oci-seccomp = "true", allow-suid = "true"}

%s
[network]
conf_dir = %q
bin_dirs = [%q]

[image]
registries_conf = %q
policy = %q
`, d.Path("root"), d.Path("run"), d.opts.Handler, programs, d.Path("seccomp"), d.Path("cdi"),
		machineHandlers(filepath.Join(bin, "vm")), d.Path("net.d"), plugins, registries, policy)
	if err := os.WriteFile(d.Path("podd.toml"), []byte(conf), 0o644); err != nil {
		return err
	}
	return d.writeSet()
}

// machineHandlers returns the handlers of virtual machines whose images have been built.
func machineHandlers(images string) string {
	var b strings.Builder
	for _, h := range []struct{ name, driver, options string }{
		{"vm", "uml", ""}, {"vm-qemu", "qemu", `accelerator = "tcg", `},
	} {
		if _, err := os.Stat(filepath.Join(images, h.driver)); err == nil {
			fmt.Fprintf(&b, "[runtime.handlers.%s]\ntype = \"shim\"\npath = \"containerd-shim-podvm-v1\"\n"+
				"options = {driver = %q, %simages = %q}\n\n", h.name, h.driver, h.options, images)
		}
	}
	return b.String()
}

// Path returns a path below the daemon's directory.
func (d *Daemon) Path(elem ...string) string {
	return filepath.Join(append([]string{d.Dir}, elem...)...)
}

// writeSet writes Options.Set as a drop-in.
func (d *Daemon) writeSet() error {
	if len(d.opts.Set) == 0 {
		return nil
	}
	if err := os.Mkdir(d.Path("podd.toml.d"), 0o755); err != nil {
		return err
	}
	var b strings.Builder
	for _, s := range d.opts.Set {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return fmt.Errorf("option %q, want key=value", s)
		}
		fmt.Fprintf(&b, "%s = %s\n", strings.TrimSpace(key), strings.TrimSpace(value))
	}
	return os.WriteFile(d.Path("podd.toml.d", "50-test.toml"), []byte(b.String()), 0o644)
}

// chooseNetwork names a bridge and subnets that nothing else on the machine uses.
func (d *Daemon) chooseNetwork() error {
	// the random digits of the directory's name; an interface name has space for ten
	suffix := strings.TrimPrefix(filepath.Base(d.Dir), "podd-t-")
	d.Bridge = "pt" + suffix[:min(len(suffix), 10)]
	v4, v6, err := freeSubnets()
	d.ranges = subnets(v4, v6)
	return err
}

// Masquerade switches the translation of addresses on or off for pods that do not exist yet. podd may read the change
// only when it is started again.
func (d *Daemon) Masquerade(on bool) error {
	d.opts.NoMasquerade = !on
	return d.writeCNI()
}

// writeCNI writes a conf list with the bridge and the subnets.
func (d *Daemon) writeCNI() error {
	list := map[string]any{
		"cniVersion": "1.0.0", "name": d.Bridge,
		"plugins": []any{
			map[string]any{
				"type": "bridge", "bridge": d.Bridge, "isGateway": true, "ipMasq": !d.opts.NoMasquerade, "hairpinMode": true,
				"ipam": map[string]any{
					"type": "host-local", "dataDir": d.Path("ips"),
					"ranges": d.ranges,
					"routes": []any{map[string]string{"dst": "0.0.0.0/0"}},
				},
			},
			map[string]any{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}},
			map[string]any{"type": "bandwidth", "capabilities": map[string]bool{"bandwidth": true}},
		},
	}
	data, err := json.MarshalIndent(list, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(err, os.WriteFile(d.Path("net.d", "10-test.conflist"), data, 0o644))
}

// subnets returns the "ranges" of host-local's configuration.
func subnets(cidrs ...string) [][]map[string]string {
	var ranges [][]map[string]string
	for _, c := range cidrs {
		if c != "" {
			ranges = append(ranges, []map[string]string{{"subnet": c}})
		}
	}
	return ranges
}
