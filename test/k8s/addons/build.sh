#!/bin/sh
# Puts into <repo>/bin/addons what the scenarios install on their cluster: add-ons built from their Go modules, with the
# manifests that they publish, and Debian's Prometheus. build.sh of the directory above must have run.
#
# They are cached in $PODD_CACHE (default ${XDG_CACHE_HOME:-~/.cache}/podd).
set -eu
cd "$(dirname "$0")"
bin=$(cd ../../.. && pwd)/bin
cache=${PODD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podd}
export CGO_ENABLED=0

key=$( { go env GOVERSION GOARCH; cat go.mod go.sum build.sh; } | sha256sum | cut -c1-16)
out=$cache/addons/$key

if [ ! -d "$out" ]; then
	new=$out.new.$$
	trap 'rm -rf "$new"' EXIT
	mkdir -p "$new/deb"
	echo "building add-ons (five minutes once; later runs copy them from $out)"
	go build -mod=readonly -trimpath -ldflags "-s -w" -o "$new/" \
		gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/install_multus \
		gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus-daemon \
		gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus-shim \
		gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/passthru-cni \
		k8s.io/kube-state-metrics/v2 \
		sigs.k8s.io/metrics-server/cmd/metrics-server \
		github.com/prometheus/node_exporter \
		github.com/rancher/local-path-provisioner
	module() { go list -m -f '{{.Dir}}' "$1"; }
	cp "$(module gopkg.in/k8snetworkplumbingwg/multus-cni.v4)/deployments/multus-daemonset-thick.yml" "$new/multus.yaml"
	for f in "$(module k8s.io/kube-state-metrics/v2)"/examples/standard/[!k]*.yaml; do
		printf -- '---\n'
		cat "$f"
	done >"$new/kube-state-metrics.yaml"
	"$bin/kube/kubectl" kustomize "$(module sigs.k8s.io/metrics-server)/manifests/overlays/release" \
		>"$new/metrics-server.yaml"
	cp "$(module github.com/rancher/local-path-provisioner)/deploy/local-path-storage.yaml" \
		"$new/local-path-provisioner.yaml"
	chmod 644 "$new"/*.yaml
	# The package itself is not installed: it would start a service.
	(cd "$new/deb" && { apt-get -qq download prometheus 2>/dev/null ||
		{ apt-get -qq update && apt-get -qq download prometheus; }; } && dpkg-deb -x prometheus_*.deb .)
	mv "$new/deb/usr/bin/prometheus" "$new/prometheus"
	rm -rf "$new/deb"
	mv "$new" "$out"
	find "$cache/addons" -mindepth 1 -maxdepth 1 -type d -printf '%T@ %p\n' | sort -rn | tail -n +3 |
		cut -d' ' -f2- | xargs -r rm -rf
fi
mkdir -p "$bin/addons"
cp -u --remove-destination "$out"/* "$bin/addons/"
