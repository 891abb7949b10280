#!/bin/sh
# Runs every native fuzz target of the module for the given time each (go test -fuzz takes one target of one package).
set -eu
cd "$(dirname "$0")/.."
time=${1:-20s}
grep -rlE '^func Fuzz' --include='*_test.go' . | while read -r file; do
	grep -oE '^func Fuzz[A-Za-z0-9_]*' "$file" | while read -r _ target; do
		echo "== $(dirname "$file") $target $time"
		go test -tags containers_image_openpgp -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$(dirname "$file")" </dev/null
	done
done
