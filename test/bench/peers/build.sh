#!/bin/sh
# build.sh [containerd] [crio]: builds the runtimes that podd is compared with, or those that are named, pinned in the
# modules below, and prints their directory:
#   containerd  containerd-shim-runc-v2  crio  pinns
# It is in $PODD_CACHE (default ${XDG_CACHE_HOME:-~/.cache}/podd); its name is a hash of everything that goes into it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
peers=${*:-containerd crio}
cache=${PODD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podd}
key=$( { cd "$here"; echo "$peers"; go env GOVERSION GOARCH; cat */go.mod */go.sum build.sh; } | sha256sum | cut -c1-16)
out=$cache/peers/$key
if [ -d "$out" ]; then
	echo "$out"
	exit
fi
echo "building $peers (some minutes once)" >&2
new=$out.new.$$
trap 'rm -rf "$new"' EXIT
mkdir -p "$new"

build_containerd() {
	cd "$here/containerd"
	for p in containerd containerd-shim-runc-v2; do
		echo "  build $p" >&2
		CGO_ENABLED=0 go build -trimpath -tags no_btrfs -ldflags '-s -w' -o "$new/$p" \
			github.com/containerd/containerd/v2/cmd/$p
	done
}

# Without CAP_SYS_RESOURCE a process cannot get a lower oom_score_adj than its parent's, and no pod of CRI-O starts. The
# lowest value that works there is 0. It does not change what is measured.
build_crio() {
	cd "$here/crio"
	cri=github.com/cri-o/cri-o
	src=$(go mod download -json "$cri@$(go list -m -f '{{.Version}}' $cri)" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	mkdir "$new/module"
	cp go.mod go.sum "$new/module/"
	cp -r "$src" "$new/cri-o"
	chmod -R u+w "$new/cri-o"
	sed -i 's/PodInfraOOMAdj int = -998/PodInfraOOMAdj int = 0/' "$new/cri-o/server/sandbox_run.go"
	echo "  build crio" >&2
	cd "$new/module"
	go mod edit -replace github.com/cri-o/cri-o=../cri-o
	CGO_ENABLED=1 go build -trimpath -tags 'containers_image_openpgp exclude_graphdriver_btrfs seccomp' -ldflags '-s -w' \
		-o "$new/crio" github.com/cri-o/cri-o/cmd/crio
	echo "  build pinns" >&2
	gcc -std=c99 -Os -static -s -o "$new/pinns" "$src"/pinns/src/*.c
	rm -rf "$new/cri-o" "$new/module"
}

for peer in $peers; do build_$peer; done
mv "$new" "$out"
echo "$out"
