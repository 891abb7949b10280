package cadvisor

import (
	"fmt"
	"path/filepath"
	"strings"
)

// Socket is where cAdvisor asks about containers whose cgroups have CRI-O's names.
const Socket = "/var/run/crio/crio.sock"

// maxSocketPath is the size of sun_path without the terminating zero.
const maxSocketPath = 107

// Config is the [cadvisor] section of podd.toml.
type Config struct {
	// Socket is the path of the unix socket, "" for none.
	Socket string `toml:"socket" comment:"Unix socket on which podd describes containers to the kubelet's cAdvisor as CRI-O does: /var/run/crio/crio.sock. With it /metrics/cadvisor names pod, namespace, container and image; pods get an infra container, whose row has the pod's network. The kubelet must start after podd, and must never have this socket as containerRuntimeEndpoint. Empty: off."`
}

// Enabled reports whether there is a socket.
func (c Config) Enabled() bool { return c.Socket != "" }

// Validate reports each wrong key. It opens no file and no socket.
func (c Config) Validate(problem func(key string, err error)) {
	switch {
	case !c.Enabled():
	case !filepath.IsAbs(c.Socket) || c.Socket != filepath.Clean(c.Socket) || c.Socket == "/" ||
		strings.ContainsFunc(c.Socket, func(r rune) bool { return r < ' ' || r == 0x7f }):
		problem("socket", fmt.Errorf("%q is not the clean absolute path of a socket", c.Socket))
	case len(c.Socket) > maxSocketPath:
		problem("socket", fmt.Errorf("%q is longer than the %d bytes of a unix socket's path", c.Socket, maxSocketPath))
	}
}
