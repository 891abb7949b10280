// Package integration drives a real podd through its CRI socket, as a kubelet does, with real runtimes, CNI plugins and
// images, and checks after every test that nothing is left on the machine.
//
// It needs root and what `make tools` builds; `make integration` runs it. Nothing is skipped.
package integration
