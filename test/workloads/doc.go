// Package workloads runs real programs from Debian packages on podd, under each kind of handler, and checks of each
// what its users rely on: it serves, sees its limits, survives the end of podd, stops in its grace period, and has its
// data and logs whole. It has only tests: make test-workloads.
package workloads
