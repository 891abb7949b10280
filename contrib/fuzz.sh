#!/bin/sh
# fuzz.sh [TIME [TARGET]...]: runs the native fuzz targets of all modules for the given time each, all or those named
# (go test -fuzz takes one target of one package). 3000x is 3000 inputs instead of a time.
set -eu
cd "$(dirname "$0")/.."
time=${1:-20s}
[ $# = 0 ] || shift
wanted=" $* "
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# fuzz DIRECTORY TARGET: in its directory, which may belong to another module.
# Without a limit, Go tries for a minute to shorten each interesting input of a few kilobytes, and tests little.
fuzz() {
	(cd "$1" && CGO_ENABLED=0 go test -tags containers_image_openpgp,nri_no_wasm,grpcnotrace -run '^$' -fuzz "^$2\$" \
		-fuzztime "$time" -fuzzminimizetime 10x . </dev/null && echo "fuzz: passed") 2>&1 | tee "$log"
	[ "$(tail -n 1 "$log")" = "fuzz: passed" ]
}

# onlyDeadline reports whether Go took the end of the time for the only failure (golang/go#75804, fixed in 1.27). A
# message of a target has the name of its file before it, and Go names the input.
onlyDeadline() {
	grep -qx '    context deadline exceeded' "$log" && ! grep -qE 'Failing input|failure while testing|\.go:[0-9]+:' "$log" &&
		echo "fuzz: passed, up to a late deadline of Go"
}
found=
for file in $(grep -rlE '^func Fuzz' --include='*_test.go' .); do
	for target in $(grep -oE '^func Fuzz[A-Za-z0-9_]*' "$file" | cut -d ' ' -f 2); do
		name=$(dirname "${file#./}").$target
		case $wanted in
		'  ' | *" $name "*) ;;
		*) continue ;;
		esac
		found="$found $name"
		echo "== $name $time"
		fuzz "$(dirname "$file")" "$target" || onlyDeadline || exit 1
	done
done
for name in "$@"; do
	case " $found " in
	*" $name "*) ;;
	*) echo "fuzz: no target $name" >&2; exit 1 ;;
	esac
done
