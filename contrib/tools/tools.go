//go:build tools

// Package tools pins what podd runs beside itself and what checks it: an OCI runtime, CNI plugins, the CRI client and
// validation suite, and the linters. It is never compiled; build.sh beside it builds the pinned programs.
package tools

// critest is a test binary, which a tool directive cannot name: its packages are pinned by importing them.
import (
	_ "sigs.k8s.io/cri-tools/pkg/benchmark"
	_ "sigs.k8s.io/cri-tools/pkg/validate"
)
