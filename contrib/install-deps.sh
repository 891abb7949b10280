#!/bin/sh
# install-deps.sh [PACKAGE...]: installs Debian packages, and only those that are missing: without arguments those that
# podd, its build and its tests need.
# Does nothing, without network access, if all are installed. Needs root to install.
set -eu

# What for:
#   run     conmon crun iptables            the monitor, a second OCI runtime, used by CNI plugins portmap and bridge
#   build   gcc libc6-dev pkg-config libseccomp-dev git     runc needs cgo and libseccomp; pause is a static C program
#   test    busybox-static iproute2 procps jq               network probes, demo output
#           e2fsprogs xfsprogs                              disks with quotas
packages='conmon crun iptables gcc libc6-dev pkg-config libseccomp-dev git
	busybox-static iproute2 procps jq e2fsprogs xfsprogs util-linux ca-certificates'
[ $# = 0 ] || packages=$*

missing=
for p in $packages; do
	status=$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null) || status=none
	[ "$status" = installed ] || missing="$missing $p"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
	echo "install-deps: these Debian packages are needed and this is not Debian; install the equivalents:$missing" >&2
	exit 1
fi
if [ "$(id -u)" != 0 ]; then
	echo "install-deps: not root; run: sudo apt-get install --no-install-recommends$missing" >&2
	exit 1
fi
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # a list of words is meant
apt-get update -qq && apt-get install -qq -y --no-install-recommends $missing || {
	echo "install-deps: apt-get failed; see above. Is a Debian mirror reachable, is the disk full?" >&2
	exit 1
}
