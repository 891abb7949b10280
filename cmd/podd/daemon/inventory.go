package daemon

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/cmd/podd/settings"
	"github.com/podd-project/podd/oci"
	"github.com/podd-project/podd/oci/subprocess"
)

const (
	// versionTimeout bounds the run of a program that prints its version.
	versionTimeout = 5 * time.Second
	// maxVersion is the number of bytes of its output that are kept.
	maxVersion = 1 << 10
)

// prober is a handler that can be probed.
type prober interface {
	Probe(ctx context.Context) error
	Features() oci.Features
}

// reportHandler logs the versions and features of a handler, or why it is not ready. It logs nothing if ctx ends first:
// podd, or a command that uses its handlers, ended before the probe.
func (d *daemon) reportHandler(ctx context.Context, cfg *settings.RuntimeConfig, name, path string, r prober) {
	probing, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	log := d.log.WithFields(logrus.Fields{"handler": name, "default": name == cfg.DefaultHandler})
	if err := r.Probe(probing); err != nil {
		if ctx.Err() == nil {
			log.WithError(err).Warn("runtime handler is not ready")
		}
		return
	}
	f := r.Features()
	dirs := cfg.SearchPath
	if m, ok := r.(interface{ MonitorVersion() string }); ok {
		log = log.WithFields(logrus.Fields{
			"monitor_path": locate(cfg.Conmon, dirs), "monitor": m.MonitorVersion(),
		})
	}
	log.WithFields(logrus.Fields{
		"path": locate(path, dirs), "version": f.Version, "oci_version": f.OCIVersion,
		"recursive_read_only": f.RecursiveReadOnly, "user_namespaces": f.UserNamespaces, "own_kernel": f.OwnKernel,
	}).Info("runtime handler is ready")
	if f.Warning != "" {
		log.WithField("reason", f.Warning).Warn("runtime handler has a limitation")
	}
}

// locate returns the file that a program name is looked up to, for the log. The drivers in oci use the same rule.
func locate(name string, dirs []string) string {
	if filepath.IsAbs(name) {
		return name
	}
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return path
		}
	}
	return name
}

// plugins are the CNI plugins whose versions are logged. Only plugins that are known to print it are run: the directory
// may contain programs that act when started (Calico's installer does).
var plugins = []string{"bridge", "host-local", "loopback", "portmap", "bandwidth", "firewall", "tuning"}

// reportPlugins logs which CNI plugins were found. Whether the pod network is ready is reported by package network.
func (d *daemon) reportPlugins(ctx context.Context) {
	for _, dir := range d.cfg.Network.BinDirs {
		found := map[string]string{}
		for _, name := range plugins {
			if v, err := pluginVersion(ctx, filepath.Join(dir, name)); err == nil {
				found[name] = v
			}
		}
		if len(found) > 0 {
			d.log.WithFields(logrus.Fields{"dir": dir, "plugins": found}).Info("CNI plugins found")
		}
	}
}

// pluginVersion returns the version of a plugin of the CNI project. Without CNI_COMMAND such a plugin prints its name
// and version: "CNI bridge plugin v1.9.1".
func pluginVersion(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, versionTimeout)
	defer cancel()
	cmd := exec.Command(path)
	out := subprocess.NewHead(maxVersion)
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{"PATH=" + os.Getenv("PATH")}, out, out
	if _, _, err := subprocess.Run(ctx, cmd, 0); err != nil {
		return "", fmt.Errorf("run %s: %w", path, err)
	}
	line, _, _ := strings.Cut(out.String(), "\n")
	words := strings.Fields(line)
	if len(words) == 0 {
		return "unknown", nil
	}
	return words[len(words)-1], nil
}
