#!/bin/sh
# Makes bin/criu and bin/checkpointctl of <repo>: CRIU, with which podd checkpoints containers, and the program that reads
# the archives, which a test runs. They are packages of the Debian releases CRIU_SUITE (default sid) and
# CHECKPOINTCTL_SUITE (default forky). CRIU 3.17 of Debian 12 does not work on kernels from 6.16 on, and 4.1 of Debian 13
# crashes at the option network-lock (https://github.com/checkpoint-restore/criu/pull/3051).
#
# Nothing is installed: the packages are extracted, with the libraries that they need, to $PODD_CACHE (default
# ${XDG_CACHE_HOME:-~/.cache}/podd), and bin/ gets scripts that run them from there. Remove the directory criu of the
# cache to get newer ones. apt verifies them as usual; this machine's own package lists are not touched.
set -eu
bin=$(cd "$(dirname "$0")/.." && pwd)/bin
cache=${PODD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podd}/criu

# fetch PROGRAM SUITE: extract the Debian package PROGRAM of SUITE, with its dependencies, to $cache/PROGRAM-SUITE.
fetch() {
	to=$cache/$1-$2
	[ ! -d "$to" ] || return 0
	echo "fetching the package $1 of Debian $2 (once; kept in $to)"
	mirror=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' |
		sed -n 's/^Debian \(.*debian\)\/*$/\1/p' | head -n 1)
	[ -n "$mirror" ] || { echo "criu: apt has no mirror of Debian: add one to its sources.list" >&2; return 1; }
	new=$to.new.$$
	rm -rf "$new"
	mkdir -p "$new/apt/lists/partial" "$new/apt/cache/archives/partial"
	: >"$new/apt/status" # no package is installed: apt fetches all that are needed, libc included
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $2 main" >"$new/apt/sources.list"
	options="-o Dir::State::lists=$new/apt/lists -o Dir::State::status=$new/apt/status -o Dir::Cache=$new/apt/cache
		-o Dir::Etc::sourcelist=$new/apt/sources.list -o Dir::Etc::sourceparts=/dev/null
		-o Acquire::Languages=none -o APT::Sandbox::User= -o Debug::NoLocking=1 -qq"
	# shellcheck disable=SC2086 # a list of words is meant
	apt-get $options update && apt-get $options install -y --no-install-recommends --download-only "$1" >/dev/null || {
		echo "criu: the package $1 of Debian $2 could not be fetched; is a Debian mirror reachable?" >&2
		rm -rf "$new"
		return 1
	}
	for deb in "$new"/apt/cache/archives/*.deb; do dpkg-deb -x "$deb" "$new"; done
	rm -rf "$new/apt"
	mv -T "$new" "$to" 2>/dev/null || rm -rf "$new" # another process may have fetched it meanwhile
}

# script PROGRAM SUITE PATH: write bin/PROGRAM, which runs PATH of the package with the libraries of its release.
script() {
	tree=$cache/$1-$2
	loader=$(echo "$tree"/usr/lib*/ld-linux-*.so.*)
	cat >"$bin/$1.new" <<-EOF
		#!/bin/sh
		exec $loader --library-path $(dirname "$(find "$tree/usr/lib" -name libc.so.6)") --argv0 $1 $tree/$3 "\$@"
	EOF
	chmod 755 "$bin/$1.new"
	mv "$bin/$1.new" "$bin/$1"
}

mkdir -p "$bin" "$cache"
criu=${CRIU_SUITE:-sid} checkpointctl=${CHECKPOINTCTL_SUITE:-forky}
fetch criu "$criu"
script criu "$criu" usr/sbin/criu
fetch checkpointctl "$checkpointctl"
script checkpointctl "$checkpointctl" usr/bin/checkpointctl
