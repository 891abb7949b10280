// Package checks is what podd must do on a machine as it is in production, with pure cgroup v2, systemd as process 1
// and AppArmor, and that no test elsewhere can see. It is compiled to a test binary that runs in the virtual machine,
// against the podd that systemd started there (test/vm/guest/run.sh). Imported by nobody.
package checks
