// Package cgroups finds, reads, limits, kills, freezes and removes cgroups, on cgroup v1, on v2, and on machines that
// mix them: each controller is looked up in the hierarchy that has it. Group is one cgroup that is read and limited,
// Dirs are the directories of a container's cgroups, ExecGroup is the cgroup of a single command.
//
// It creates no cgroup except an ExecGroup: OCI runtimes, systemd and the kubelet do. It knows nothing of pods. The
// runtime drivers call it to kill and to clean up, the sandbox engine to measure and to update, oci/spec/host to detect
// the features of the machine.
//
// Of github.com/containerd/cgroups/v3 only the parser of /proc/<pid>/cgroup is used, because usage is read for every
// container every few seconds. The library's Stat opens, reads and closes each file at every call: 240 us of CPU time
// and 450 allocations on cgroup v1 (v3.1.3). Group.Read keeps the files open and needs one pread(2) for each: 14 us and
// 8 allocations on the same machine. On v2 the library also reports a file that cannot be read as 0, so that a removed
// cgroup looks idle, and its packages for v1 and v2 would add go-systemd and an eBPF library to podd.
package cgroups
