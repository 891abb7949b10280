// Package checks tests what podd must do on a production machine and what the other tests cannot see: cgroup v2 only,
// systemd as process 1, AppArmor. It is compiled to a test binary that runs in the virtual machine against the podd
// that systemd started there (test/vm/guest/run.sh). No package imports it.
package checks
