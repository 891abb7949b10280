#!/bin/sh
# debian-tree.sh NAME SUITE PACKAGE...: extracts Debian packages of the release SUITE, with all that they depend on, to a
# directory of the cache, $PODD_CACHE (default ${XDG_CACHE_HOME:-~/.cache}/podd), and prints its path. It is named
# debian/NAME-SUITE and kept; remove it to get newer packages. Nothing is installed, and apt verifies the packages as
# usual; this machine's own package lists are not touched.
set -eu
to=${PODD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podd}/debian/$1-$2
name=$1 suite=$2
shift 2
echo "$to"
[ ! -d "$to" ] || exit 0
echo "fetching the package $name of Debian $suite (once; kept in $to)" >&2
mirror=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' |
	sed -n 's/^Debian \(.*debian\)\/*$/\1/p' | head -n 1)
[ -n "$mirror" ] || { echo "$name: apt has no mirror of Debian: add one to its sources.list" >&2; exit 1; }
new=$to.new.$$
rm -rf "$new"
mkdir -p "$new/apt/lists/partial" "$new/apt/cache/archives/partial"
: >"$new/apt/status" # no package is installed: apt fetches all that are needed, libc included
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$new/apt/sources.list"
options="-o Dir::State::lists=$new/apt/lists -o Dir::State::status=$new/apt/status -o Dir::Cache=$new/apt/cache
	-o Dir::Etc::sourcelist=$new/apt/sources.list -o Dir::Etc::sourceparts=/dev/null
	-o Acquire::Languages=none -o APT::Sandbox::User= -o Debug::NoLocking=1 -qq"
# shellcheck disable=SC2086 # a list of words is meant
apt-get $options update && apt-get $options install -y --no-install-recommends --download-only "$@" >/dev/null || {
	echo "$name: the packages $* of Debian $suite could not be fetched; is a Debian mirror reachable?" >&2
	rm -rf "$new"
	exit 1
}
for deb in "$new"/apt/cache/archives/*.deb; do dpkg-deb -x "$deb" "$new"; done
rm -rf "$new/apt"
mv -T "$new" "$to" 2>/dev/null || rm -rf "$new" # another process may have fetched it meanwhile
