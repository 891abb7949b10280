#!/bin/sh
# Makes the host fit for the tests, and says what it does. Does nothing on a host that is. Needs root.
set -eu

# With cgroup v1 mounted (the hybrid layout), a controller that no v1 hierarchy has claimed stays with the empty cgroup v2
# mount, and crun refuses to run: "cgroups in hybrid mode not supported, drop all controllers from cgroupv2". The one
# that distributions forget is hugetlb.
unified=/sys/fs/cgroup/unified
if [ -f $unified/cgroup.controllers ] && grep -qw hugetlb $unified/cgroup.controllers; then
	echo "host: mounting the cgroup v1 controller hugetlb on /sys/fs/cgroup/hugetlb, without which crun does not run here"
	mkdir -p /sys/fs/cgroup/hugetlb
	mount -t cgroup -o hugetlb none /sys/fs/cgroup/hugetlb
fi
