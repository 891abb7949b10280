package daemon

import (
	"context"
	"net"
	"os"
	"path/filepath"

	"github.com/podd-project/podd/cmd/podd/state"
	"github.com/podd-project/podd/sandbox"
	"github.com/podd-project/podd/sandbox/nri"
)

// plugins returns the NRI plugins, which are none until servePlugins.
func (d *daemon) plugins() *nri.Plugins {
	cfg := d.cfg.NRI
	if !cfg.Enable {
		cfg.Validator = nri.Validator{}
	}
	return nri.New(cfg, semver(d.version), d.log)
}

// servePlugins serves NRI plugins until ctx ends, if they are enabled. That the socket cannot be made does not keep the
// node from working: another runtime may have it.
func (d *daemon) servePlugins(ctx context.Context, n *Node) {
	if !d.cfg.NRI.Enable {
		return
	}
	l, err := d.listenForPlugins()
	if err != nil {
		d.log.WithError(err).Error("failed to make the socket of NRI plugins: none can connect, see nri.socket")
	}
	d.background.Go(func() { n.plugins.Run(ctx, sandbox.ForPlugins(n.Engine, specReader(d.cfg.ContainersDir())), l) })
}

// listenForPlugins returns the listener of the plugins' socket, nil if there is none.
func (d *daemon) listenForPlugins() (net.Listener, error) {
	path := d.cfg.NRI.Socket
	if path == "" {
		return nil, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	l, err := state.Listen(path, state.RootSocketMode, d.log)
	if err != nil {
		return nil, err // not l: it would be a listener that is not nil
	}
	return l, nil
}
