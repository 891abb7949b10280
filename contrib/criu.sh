#!/bin/sh
# Makes bin/criu and bin/checkpointctl of <repo>: CRIU, with which podd checkpoints containers, and the program that reads
# the archives, which a test runs. They are packages of the Debian releases CRIU_SUITE (default sid) and
# CHECKPOINTCTL_SUITE (default forky). CRIU 3.17 of Debian 12 does not work on kernels from 6.16 on, and 4.1 of Debian 13
# crashes at the option network-lock (https://github.com/checkpoint-restore/criu/pull/3051).
#
# Nothing is installed: debian-tree.sh extracts the packages to the cache, with the libraries that they need, and bin/
# gets scripts that run them from there.
set -eu
contrib=$(cd "$(dirname "$0")" && pwd)
bin=$(dirname "$contrib")/bin

# script PROGRAM SUITE PATH: fetch the package PROGRAM and write bin/PROGRAM, which runs PATH of it with the libraries of
# its release.
script() {
	tree=$("$contrib/debian-tree.sh" "$1" "$2" "$1")
	loader=$(echo "$tree"/usr/lib*/ld-linux-*.so.*)
	cat >"$bin/$1.new" <<-EOF
		#!/bin/sh
		exec $loader --library-path $(dirname "$(find "$tree/usr/lib" -name libc.so.6)") --argv0 $1 $tree/$3 "\$@"
	EOF
	chmod 755 "$bin/$1.new"
	mv "$bin/$1.new" "$bin/$1"
}

mkdir -p "$bin"
script criu "${CRIU_SUITE:-sid}" usr/sbin/criu
script checkpointctl "${CHECKPOINTCTL_SUITE:-forky}" usr/bin/checkpointctl
