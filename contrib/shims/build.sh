#!/bin/sh
# Builds the containerd shim pinned in the go.mod next to this file into <repo>/bin: containerd-shim-runc-v2. Only tests
# use it: those of podd's driver for shims.
#
# The binary is cached in $PODD_CACHE (default ${XDG_CACHE_HOME:-~/.cache}/podd). The key is a hash of everything that
# goes into it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "$here/../.." && pwd)/bin
cache=${PODD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podd}
name=containerd-shim-runc-v2

cd "$here"
key=$( { go env GOVERSION GOARCH; cat go.mod go.sum build.sh; } | sha256sum | cut -c1-16)
out=$cache/shims/$key
if [ ! -d "$out" ]; then
	new=$out.new.$$
	trap 'rm -rf "$new"' EXIT
	mkdir -p "$new"
	echo "building $name (a minute once; later runs copy it from $out)"
	CGO_ENABLED=0 go build -mod=readonly -trimpath -ldflags '-s -w' -o "$new/$name" \
		github.com/containerd/containerd/v2/cmd/$name
	mv -T "$new" "$out" 2>/dev/null || [ -d "$out" ] # another process may have built it meanwhile
	# Keep this build and the previous one, for work on two branches.
	find "$cache/shims" -mindepth 1 -maxdepth 1 -type d -printf '%T@ %p\n' | sort -rn | tail -n +3 |
		cut -d' ' -f2- | xargs -r rm -rf
fi
mkdir -p "$bin"
# Copy and rename: a binary that is being executed cannot be written to.
cmp -s "$out/$name" "$bin/$name" && exit 0
cp "$out/$name" "$bin/$name.new"
mv "$bin/$name.new" "$bin/$name"
