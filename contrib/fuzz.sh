#!/bin/sh
# fuzz.sh [TIME [TARGET]...]: runs the native fuzz targets of all modules for the given time each, all or those named
# (go test -fuzz takes one target of one package). 3000x is 3000 inputs instead of a time: with a short time, Go now and
# then takes its own deadline for a failure (golang/go#75804, fixed in 1.27).
set -eu
cd "$(dirname "$0")/.."
time=${1:-20s}
[ $# = 0 ] || shift
wanted=" $* "
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
		# In its directory, which may belong to another module.
		# Without a limit, Go tries for a minute to shorten each interesting input of a few kilobytes, and tests little.
		(cd "$(dirname "$file")" && CGO_ENABLED=0 go test -tags containers_image_openpgp,nri_no_wasm,grpcnotrace -run '^$' -fuzz "^$target\$" \
			-fuzztime "$time" -fuzzminimizetime 10x . </dev/null)
	done
done
for name in "$@"; do
	case " $found " in
	*" $name "*) ;;
	*) echo "fuzz: no target $name" >&2; exit 1 ;;
	esac
done
