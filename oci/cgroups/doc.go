// Package cgroups reads what control groups use and what they are limited to, on cgroup v1, on v2, and on machines
// that mix them (each controller is looked up in the hierarchy that has it), and changes the limits of groups that
// exist.
//
// It never makes a cgroup, removes one or moves a process: OCI runtimes, systemd and the kubelet do. Reading is made
// to be cheap: the files that are read again and again stay open and are read with one pread(2) each. It knows
// nothing of pods; the sandbox engine calls it.
package cgroups
