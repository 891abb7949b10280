#!/bin/sh
# compare.sh REF: runs the Go benchmarks of the pure parts at REF and in this tree, in turns, and shows what benchstat makes of
# them. COUNT rounds (default 6) of each; BENCH is which, as for go test -bench (default: all of them).
set -eu
ref=${1:?the commit to compare with: make bench-compare REF=HEAD~1}
count=${COUNT:-6}
pattern=${BENCH:-.}
packages='./checkpoint ./oci/spec ./server ./image ./sandbox'
here=$(git rev-parse --show-toplevel)
old=$(mktemp -d)
trap 'git -C "$here" worktree remove --force "$old/tree" 2>/dev/null || true; rm -rf "$old"' EXIT
git -C "$here" worktree add --quiet --detach "$old/tree" "$ref"
make -C "$old/tree" -s pause # what the daemon carries is not in the repository
mkdir -p "$here/bin"
: >"$here/bin/bench-old.txt"
: >"$here/bin/bench-new.txt"

# once DIR FILE: every benchmark once, in DIR. None fails for being too slow: that is for benchstat to show.
once() {
	# shellcheck disable=SC2086
	(cd "$1" && BENCH_COMPARE=1 CGO_ENABLED=0 go test -tags containers_image_openpgp -run '^$' -bench "$pattern" -benchmem $packages) >>"$2" ||
		echo "some benchmark failed in $1, see $2" >&2
}
i=0
while [ $i -lt "$count" ]; do
	i=$((i + 1))
	echo "round $i of $count" >&2
	once "$old/tree" "$here/bin/bench-old.txt"
	once "$here" "$here/bin/bench-new.txt"
done
go run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da "$ref=$here/bin/bench-old.txt" "tree=$here/bin/bench-new.txt"
