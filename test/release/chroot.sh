#!/bin/sh
# Makes a bare Debian, unless the cache has it, and prints the path of its tar. In its apt cache are the packages that
# podd's deb depends on, so that it can be installed without network. Needs root, and the mirror of this machine's apt.
#
#	chroot.sh SUITE
set -eu
here=$(cd "$(dirname "$0")" && pwd)
suite=$1
cache=${PODD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podd}/release
out=$cache/$suite-$(sha256sum <"$here/chroot.sh" | cut -c1-16).tar
[ ! -f "$out" ] || { echo "$out"; exit 0; }

mirror=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' |
	awk '$1 == "Debian" { print $2; exit }')
[ -n "$mirror" ] || { echo "release: apt on this machine knows no Debian mirror: see sources.list(5)" >&2; exit 1; }
mkdir -p "$cache"
trap 'rm -f "$out.new"' EXIT
# shellcheck disable=SC2016 # the hook's variable is its own
mmdebstrap --quiet --variant=minbase --components=main --skip=cleanup/apt,cleanup/reproducible \
	--customize-hook='chroot "$1" apt-get -qq -y --no-install-recommends --download-only install conmon runc iptables' \
	--format=tar "$suite" "$out.new" "$mirror" >&2
mv "$out.new" "$out"
echo "$out"
