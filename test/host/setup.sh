#!/bin/sh
# Prepares the host for the tests, and prints what it changes. Changes nothing on a host that is prepared. Needs root.
set -eu

# In the hybrid layout (cgroup v1 and an empty cgroup v2 mount), a controller that no v1 hierarchy uses stays with v2,
# and crun refuses to run: "cgroups in hybrid mode not supported, drop all controllers from cgroupv2". Distributions
# leave hugetlb there.
unified=/sys/fs/cgroup/unified
if [ -f $unified/cgroup.controllers ] && grep -qw hugetlb $unified/cgroup.controllers; then
	echo "host: mounting the cgroup v1 controller hugetlb on /sys/fs/cgroup/hugetlb, without which crun does not run here"
	mkdir -p /sys/fs/cgroup/hugetlb
	mount -t cgroup -o hugetlb none /sys/fs/cgroup/hugetlb
fi
