package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/podd-project/podd/oci"
)

// askTimeout bounds asking one program for its version.
const askTimeout = 5 * time.Second

// reportHandler logs what a handler runs with, or why it cannot be used.
func (d *daemon) reportHandler(ctx context.Context, name string, r *oci.Runtime) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	log := d.log.WithFields(logrus.Fields{"handler": name, "default": name == d.cfg.Runtime.DefaultHandler})
	if err := r.Probe(ctx); err != nil {
		log.WithError(err).Warn("runtime handler is not ready")
		return
	}
	f := r.Features()
	log.WithFields(logrus.Fields{
		"version": f.Version, "oci_version": f.OCIVersion, "monitor": r.MonitorVersion(),
		"recursive_read_only": f.RecursiveReadOnly, "user_namespaces": f.UserNamespaces,
	}).Info("runtime handler is ready")
}

// plugins are the CNI plugins that are asked for their version. Only those that are known to answer are run: a
// directory of plugins may hold programs that do something when started (Calico's installer is one).
var plugins = []string{"bridge", "host-local", "loopback", "portmap", "bandwidth", "firewall", "tuning"}

// reportNetwork logs which CNI plugins were found and why the pod network is not ready, if so.
func (d *daemon) reportNetwork(ctx context.Context, dirs []string, ready func() error) {
	for _, dir := range dirs {
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
	if err := ready(); err != nil {
		d.log.WithError(err).Warn("pod network is not ready")
		return
	}
	d.log.Info("pod network is ready")
}

// pluginVersion runs a plugin as the CNI project's own answer to that: with no CNI_COMMAND they print what they are,
// "CNI bridge plugin v1.9.1".
func pluginVersion(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", path, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	words := strings.Fields(line)
	if len(words) == 0 {
		return "unknown", nil
	}
	return words[len(words)-1], nil
}
