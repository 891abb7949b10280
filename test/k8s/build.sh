#!/bin/sh
# Builds Kubernetes and etcd, all components as one program, into <repo>/bin/kube, with a link for each component;
# CoreDNS; and <repo>/bin/k8s. KUBERNETES=1.36 builds that version of Kubernetes in place of the one in go.mod.
#
# The program is cached in $PODD_CACHE (default ${XDG_CACHE_HOME:-~/.cache}/podd). The key is a hash of everything that
# goes into it.
set -eu
cd "$(dirname "$0")"
bin=$(cd ../.. && pwd)/bin
cache=${PODD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podd}
export CGO_ENABLED=0

modfile=go.mod
[ -z "${KUBERNETES:-}" ] || modfile=kubernetes-$KUBERNETES.mod
[ -f "$modfile" ] || {
	echo "build.sh: no $modfile; KUBERNETES can be: $(ls kubernetes-*.mod | sed 's/[^0-9]*//; s/[.]mod//')" >&2
	exit 2
}
version=$(go list -modfile="$modfile" -m -f '{{.Version}}' k8s.io/kubernetes)
key=$( { go env GOVERSION GOARCH; cat "$modfile" "${modfile%.mod}.sum" build.sh allinone/*.go coredns/*; } |
	sha256sum | cut -c1-16)
out=$cache/k8s/$key

if [ ! -x "$out/kube" ]; then
	new=$out.new.$$
	trap 'rm -rf "$new"' EXIT
	mkdir -p "$new"
	echo "building Kubernetes $version (ten minutes once; later runs copy it from $out)"
	# Without these flags the components report version 0.0.0 and show metrics that this version hides.
	minor=${version#v1.} minor=${minor%%.*} package=k8s.io/component-base/version
	x="-X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=$minor"
	x="$x -X k8s.io/client-go/pkg/version.gitVersion=$version"
	go build -modfile="$modfile" -mod=readonly -trimpath -ldflags "-s -w $x" -o "$new/kube" ./allinone
	(cd coredns && go build -mod=readonly -trimpath -ldflags "-s -w" -o "$new/coredns" .)
	rm -rf "$out"
	mv "$new" "$out"
	# Keep this build and the previous one, for two branches or versions.
	find "$cache/k8s" -mindepth 1 -maxdepth 1 -type d -printf '%T@ %p\n' | sort -rn | tail -n +3 |
		cut -d' ' -f2- | xargs -r rm -rf
fi

mkdir -p "$bin/kube"
# Copy and rename: a binary that is being executed cannot be written to.
for program in kube coredns; do
	cmp -s "$out/$program" "$bin/kube/$program" && continue
	cp "$out/$program" "$bin/kube/$program.new"
	mv "$bin/kube/$program.new" "$bin/kube/$program"
done
for component in etcd kube-apiserver kube-controller-manager kube-scheduler kube-proxy kubeadm kubelet kubectl; do
	ln -sf kube "$bin/kube/$component"
done
go build -mod=readonly -trimpath -o "$bin/k8s" ./cmd/k8s
