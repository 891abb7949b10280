#!/bin/sh
# journal.sh COMMAND...: runs a command, the benchmark, with a /tmp of its own: an ext4 with a journal on a file of at
# most SIZE (16G). There podd, the peers and the pods by hand have all their files that are not on a tmpfs.
set -eu
file=$(mktemp /var/tmp/bench-journal-XXXXXX) # not in /tmp, which the mount covers
trap 'rm -f "$file"' EXIT
trap 'exit 130' INT TERM
truncate -s "${SIZE:-16G}" "$file"
mkfs.ext4 -q -m 0 -O has_journal "$file"
# The mount and its loop device end with the last process of the mount namespace. A repository that is itself in /tmp
# is mounted there again; it is found as the working directory, since its path leads to the new /tmp.
# shellcheck disable=SC2016 # the inner shell expands it
unshare --mount --propagation private sh -euc '
	mount -o loop "$1" /tmp
	chmod 1777 /tmp
	if [ ! -e "$PWD" ]; then
		mkdir -p "$PWD"
		mount --no-canonicalize --bind . "$PWD"
		cd "$PWD"
	fi
	shift
	exec "$@"' sh "$file" "$@"
