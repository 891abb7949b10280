#!/bin/sh
# Runs a node without root, as user 0 of a user namespace with mount, network, IPC and cgroup namespaces of its own: podd
# and the kubelet, which starts once kubeadm has configured it. The cgroup was delegated to the user. What both write is
# in the user's home.
set -eu

# A cgroup with controllers for its children has no processes itself.
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir /sys/fs/cgroup/init
echo $$ >/sys/fs/cgroup/init/cgroup.procs
sed 's/[^ ]*/+&/g' /sys/fs/cgroup/cgroup.controllers >/sys/fs/cgroup/cgroup.subtree_control

mount --make-rshared /
mount -t tmpfs tmpfs /run
for dir in /etc/cni /etc/kubernetes /var/lib /var/log; do
	mkdir -p "$HOME$dir"
	mount --bind "$HOME$dir" $dir
done
ip link set lo up
sysctl -qw net.ipv4.ip_forward=1

podd serve &
until [ -e /etc/kubernetes/bootstrap-kubelet.conf ] && [ -e /var/lib/kubelet/kubeadm-flags.env ]; do sleep 1; done
. /var/lib/kubelet/kubeadm-flags.env
# shellcheck disable=SC2086 # a list of flags is meant
kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf \
	--config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS
