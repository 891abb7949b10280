//go:build tools

// Package gvisor pins gVisor's runtime and its containerd shim. They have a module of their own, because gVisor's
// requirements would determine the versions of the other tools' dependencies.
package gvisor

import (
	_ "gvisor.dev/gvisor/runsc"
	_ "gvisor.dev/gvisor/shim"
)
