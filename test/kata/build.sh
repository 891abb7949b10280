#!/bin/sh
# Builds the shim of Kata Containers as its module has it, and a hypervisor that only pretends to be one, and prints their
# directory:
#   containerd-shim-kata-v2  kata-pretend
# It is in $PODD_CACHE (default ${XDG_CACHE_HOME:-~/.cache}/podd); its name is a hash of everything that goes into it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${PODD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podd}
key=$( { cd "$here"; go env GOVERSION GOARCH; cat go.mod go.sum build.sh pretend/*.go; } | sha256sum | cut -c1-16)
out=$cache/kata/$key
if [ -d "$out" ]; then
	echo "$out"
	exit
fi
echo "building the shim of Kata Containers (some minutes once)" >&2
new=$out.new.$$
trap 'chmod -R u+w "$new" && rm -rf "$new"' EXIT
mkdir -p "$new/module"
cd "$here"
kata=github.com/kata-containers/kata-containers/src/runtime
src=$(go mod download -json "$kata@$(go list -m -f '{{.Version}}' $kata)" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
cp -r "$src" "$new/runtime"
chmod -R u+w "$new/runtime"
# Kata's Makefile generates this file. Only the path of the configuration matters here, which podd passes.
sed 's/@[A-Z_]*@/podd/g' "$new/runtime/pkg/katautils/config-settings.go.in" >"$new/runtime/pkg/katautils/config-settings.go"
cp -r go.mod go.sum pretend "$new/module/"
cd "$new/module"
go mod edit -replace $kata=../runtime
CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$new/containerd-shim-kata-v2" $kata/cmd/containerd-shim-kata-v2
CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$new/kata-pretend" ./pretend
rm -rf "$new/runtime" "$new/module"
mv "$new" "$out"
trap - EXIT
echo "$out"
