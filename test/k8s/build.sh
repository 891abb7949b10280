#!/bin/sh
# Builds Kubernetes and etcd, all components as one program, into <repo>/bin/kube, with a link for each component; and bin/k8s.
#
# The program is kept in $PODD_CACHE (default ${XDG_CACHE_HOME:-~/.cache}/podd), keyed by everything that goes into it.
set -eu
cd "$(dirname "$0")"
bin=$(cd ../.. && pwd)/bin
cache=${PODD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podd}
export CGO_ENABLED=0

version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
key=$( { go env GOVERSION GOARCH; cat go.mod go.sum build.sh allinone/*.go; } | sha256sum | cut -c1-16)
out=$cache/k8s/$key

if [ ! -x "$out/kube" ]; then
	new=$out.new.$$
	trap 'rm -rf "$new"' EXIT
	mkdir -p "$new"
	echo "building Kubernetes $version (ten minutes once; later runs copy it from $out)"
	# Without the version the kubelet takes itself for 0.0.0 and shows metrics that are hidden in this one.
	minor=${version#v1.} minor=${minor%%.*}
	x="-X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$minor"
	go build -mod=readonly -trimpath -ldflags "-s -w $x -X k8s.io/client-go/pkg/version.gitVersion=$version" -o "$new/kube" ./allinone
	rm -rf "$out"
	mv "$new" "$out"
	# keep this one and the one before, for whoever works on two branches
	find "$cache/k8s" -mindepth 1 -maxdepth 1 -type d -printf '%T@ %p\n' | sort -rn | tail -n +3 | cut -d' ' -f2- | xargs -r rm -rf
fi

mkdir -p "$bin/kube"
# A copy and a rename, never a write into a binary that somebody may be running.
cmp -s "$out/kube" "$bin/kube/kube" || { cp "$out/kube" "$bin/kube/kube.new"; mv "$bin/kube/kube.new" "$bin/kube/kube"; }
for component in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kubectl; do
	ln -sf kube "$bin/kube/$component"
done
go build -mod=readonly -trimpath -o "$bin/k8s" ./cmd/k8s
