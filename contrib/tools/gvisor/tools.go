//go:build tools

// Package gvisor pins gVisor's runtime and its containerd shim. They are a module of their own because gVisor's
// dependencies would hold back those of the other tools.
package gvisor

import (
	_ "gvisor.dev/gvisor/runsc"
	_ "gvisor.dev/gvisor/shim"
)
