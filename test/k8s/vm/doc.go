// Package vm tests podd on a node as users have it: a virtual machine with cgroup v2, systemd and AppArmor, and a
// kubelet in its default configuration that joins a cluster by kubeadm. The control plane runs beside it, on the
// machine itself.
package vm
