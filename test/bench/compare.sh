#!/bin/sh
# compare.sh REF: runs the Go benchmarks that need neither root nor other programs, at commit REF and in this tree,
# alternately, and prints benchstat's comparison. COUNT is the number of rounds (default 6), BENCH the pattern for
# go test -bench (default: all).
set -eu
ref=${1:?the commit to compare with: make bench-compare REF=HEAD~1}
count=${COUNT:-6}
pattern=${BENCH:-.}
packages='./checkpoint ./oci/spec ./server ./image ./sandbox'
here=$(git rev-parse --show-toplevel)
old=$(mktemp -d)
trap 'git -C "$here" worktree remove --force "$old/tree" 2>/dev/null || true; rm -rf "$old"' EXIT
git -C "$here" worktree add --quiet --detach "$old/tree" "$ref"
# The programs that podd embeds are not in the repository. In older commits the target is "pause".
grep -q '^embedded:' "$old/tree/Makefile" && embedded=embedded || embedded=pause
make -C "$old/tree" -s "$embedded"
mkdir -p "$here/bin"
: >"$here/bin/bench-old.txt"
: >"$here/bin/bench-new.txt"

# once DIR FILE: run every benchmark once, in DIR. With BENCH_COMPARE=1 none fails for being too slow.
once() {
	# shellcheck disable=SC2086 # a list of packages
	(cd "$1" && BENCH_COMPARE=1 CGO_ENABLED=0 go test -tags containers_image_openpgp,nri_no_wasm,grpcnotrace -run '^$' -bench "$pattern" \
		-benchmem $packages) >>"$2" || echo "a benchmark failed in $1, see $2" >&2
}
i=0
while [ $i -lt "$count" ]; do
	i=$((i + 1))
	echo "round $i of $count" >&2
	once "$old/tree" "$here/bin/bench-old.txt"
	once "$here" "$here/bin/bench-new.txt"
done
go run golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da \
	"$ref=$here/bin/bench-old.txt" "tree=$here/bin/bench-new.txt"
