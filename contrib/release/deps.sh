#!/bin/sh
# Installs the Debian packages that build.sh and the tests of releases need, and only those that are missing. Needs root
# to install. "deps.sh test" adds what the tests need.
set -eu

# The cross compiler of the other architecture: podd embeds two small static C programs.
packages='gcc libc6-dev git'
[ "$(dpkg --print-architecture)" = arm64 ] || packages="$packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
[ "$(dpkg --print-architecture)" = amd64 ] || packages="$packages gcc-x86-64-linux-gnu libc6-dev-amd64-cross"
[ "${1:-}" != test ] || packages="$packages lintian rpm mmdebstrap debian-archive-keyring qemu-user-static mandoc"

missing=
for p in $packages; do
	status=$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null) || status=none
	[ "$status" = installed ] || missing="$missing $p"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ]; then
	echo "release: not root; run: sudo apt-get install --no-install-recommends$missing" >&2
	exit 1
fi
echo "release: installing$missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # a list of words is meant
apt-get update -qq && apt-get install -qq -y --no-install-recommends $missing >/dev/null
