#!/bin/sh
# Builds programs pinned in the go.mod next to this file into <repo>/bin:
#   runc  cni/{bridge,host-local,loopback,portmap,bandwidth,firewall,tuning}  crictl  critest  ginkgo
# The linters are pinned there too; "make lint" runs them with "go tool".
#
# Binaries are cached in $PODD_CACHE (default ${XDG_CACHE_HOME:-~/.cache}/podd). The key is a hash of everything that
# goes into them, so that a fresh clone of the same commit copies them instead of compiling.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "$here/../.." && pwd)/bin
cache=${PODD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podd}

cd "$here"
key=$( { go env GOVERSION GOARCH; cat go.mod go.sum build.sh; } | sha256sum | cut -c1-16)
out=$cache/tools/$key

version() { go list -m -f '{{.Version}}' "$1"; }

# build NAME PACKAGE [go build flags...]: build one binary, static unless cgo=1, as $new/NAME.
build() {
	name=$1 pkg=$2
	shift 2
	echo "  build $name"
	CGO_ENABLED=${cgo:-0} go build -mod=readonly -trimpath "$@" -o "$new/$name" "$pkg"
}

if [ ! -d "$out" ]; then
	new=$out.new.$$
	trap 'rm -rf "$new"' EXIT
	mkdir -p "$new/cni"
	echo "building the pinned tools (a few minutes once; later runs copy them from $out)"

	# runc needs cgo for nsenter and for libseccomp, without which no container gets a seccomp profile.
	cgo=1 build runc github.com/opencontainers/runc -tags seccomp -ldflags '-s -w'

	cni=github.com/containernetworking/plugins
	cni_ld="-s -w -X $cni/pkg/utils/buildversion.BuildVersion=$(version $cni)"
	for p in main/bridge main/loopback ipam/host-local meta/portmap meta/bandwidth meta/firewall meta/tuning; do
		build "cni/${p#*/}" "$cni/plugins/$p" -ldflags "$cni_ld"
	done

	cri=sigs.k8s.io/cri-tools
	cri_ld="-s -w -X $cri/pkg/version.Version=$(version $cri | sed s/^v//)"
	build crictl $cri/cmd/crictl -ldflags "$cri_ld"
	echo "  build critest"
	CGO_ENABLED=0 go test -mod=readonly -trimpath -c -ldflags "$cri_ld" -o "$new/critest" $cri/cmd/critest
	# It runs the specs of critest in parallel. Its version must be that of the library in critest.
	build ginkgo github.com/onsi/ginkgo/v2/ginkgo -ldflags '-s -w'

	rm -rf "$out"
	mv "$new" "$out"
	# Keep this build and the previous one, for work on two branches.
	find "$cache/tools" -mindepth 1 -maxdepth 1 -type d -printf '%T@ %p\n' | sort -rn | tail -n +3 |
		cut -d' ' -f2- | xargs -r rm -rf
fi

mkdir -p "$bin/cni"
# Copy and rename: a binary that is being executed cannot be written to.
(cd "$out" && find . -type f) | while read -r f; do
	cmp -s "$out/$f" "$bin/$f" && continue
	cp "$out/$f" "$bin/$f.new"
	mv "$bin/$f.new" "$bin/$f"
done
