// Package containerd runs podd's shim for virtual machines under a real containerd. `make test-containerd` builds
// containerd and runs it.
package containerd
