#!/bin/sh
# debian-tree.sh NAME SUITE PACKAGE...: extracts Debian packages of the release SUITE, with all that they depend on, to a
# directory of the cache, $PODD_CACHE (default ${XDG_CACHE_HOME:-~/.cache}/podd), and prints its path. It is named
# debian/NAME-SUITE and kept; remove it to get newer packages. Nothing is installed, and apt verifies the packages as
# usual; this machine's own package lists are not touched.
#
# debian-tree.sh NAME SUITE src:PACKAGE: the same with a source package, which is extracted to the directory PACKAGE and
# gets Debian's patches (needs dpkg-dev). UNPATCHED=1 takes upstream's tarball only, for a mirror that lacks the rest.
set -eu
to=${PODD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podd}/debian/$1-$2
name=$1 suite=$2 kind=deb
shift 2
case $1 in src:*) kind=deb-src ;; esac
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
echo "$kind [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$new/apt/sources.list"
options="-o Dir::State::lists=$new/apt/lists -o Dir::State::status=$new/apt/status -o Dir::Cache=$new/apt/cache
	-o Dir::Etc::sourcelist=$new/apt/sources.list -o Dir::Etc::sourceparts=/dev/null
	-o Acquire::Languages=none -o APT::Sandbox::User= -o Debug::NoLocking=1 -qq"

# fetch PACKAGE...: download the packages and extract them to the tree.
# shellcheck disable=SC2086 # a list of words is meant
fetch() {
	apt-get $options install -y --no-install-recommends --download-only "$@" >/dev/null || return 1
	for deb in "$new"/apt/cache/archives/*.deb; do dpkg-deb -x "$deb" "$new" || return 1; done
}

# fetch_source src:PACKAGE: the same with a source package. apt compares each file with the signed index.
# shellcheck disable=SC2086 # a list of words is meant
fetch_source() (
	package=${1#src:}
	cd "$new/apt" || exit 1
	if [ "${UNPATCHED:-}" != 1 ]; then
		apt-get $options -o Acquire::Retries=3 source --download-only "$package" >/dev/null || {
			echo "$name: if the mirror lacks Debian's patches of $package, UNPATCHED=1 takes upstream's tarball" >&2
			exit 1
		}
		dpkg-source -q -x ./*.dsc "$new/$package" >/dev/null
		exit
	fi
	apt-get $options source --download-only --tar-only "$package" >/dev/null || exit 1
	mkdir "$new/$package" && tar -C "$new/$package" --strip-components=1 -xf ./*.orig.tar.?z # not the signature's .asc
)

# shellcheck disable=SC2086 # a list of words is meant
apt-get $options update && if [ $kind = deb ]; then fetch "$@"; else fetch_source "$@"; fi || {
	echo "$name: the packages $* of Debian $suite could not be fetched; is a Debian mirror reachable?" >&2
	rm -rf "$new"
	exit 1
}
rm -rf "$new/apt"
mv -T "$new" "$to" 2>/dev/null || rm -rf "$new" # another process may have fetched it meanwhile
