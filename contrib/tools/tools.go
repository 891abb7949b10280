//go:build tools

// Package tools pins the programs that podd runs and those that check it: an OCI runtime, CNI plugins, the CRI client
// and validation suite, and the linters. It is never compiled; build.sh builds the programs, and "go tool" runs the
// linters.
package tools

// critest is a test binary, which a tool directive cannot name: its packages are pinned by importing them.
import (
	_ "sigs.k8s.io/cri-tools/pkg/benchmark"
	_ "sigs.k8s.io/cri-tools/pkg/validate"
)
