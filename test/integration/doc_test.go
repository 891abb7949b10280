// Package integration drives a real podd through its CRI socket, as a kubelet does, with real runtimes, CNI plugins and
// images, and checks after every test that nothing is left on the machine.
//
// It needs root and the programs that `make tools` builds; `make integration` runs it. Tests are skipped only if the
// kernel lacks FUSE or loop devices.
package integration
