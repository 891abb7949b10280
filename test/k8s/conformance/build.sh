#!/bin/sh
# Builds tests of Kubernetes, ginkgo, which runs them, and what their pods need, and prints their directory:
#
#	build.sh [e2e_node]
#
#	e2e.test       end-to-end tests that are about a node, which use a cluster
#	e2e_node.test  with the argument: the kubelet's own tests, which start a kubelet and an API server
#	test-driver    a driver for dynamic resource allocation, with devices that do not exist
#	agnhost        the program in most of their images
#
# The directory is in $PODD_CACHE (default ${XDG_CACHE_HOME:-~/.cache}/podd); its name is a hash of everything that goes
# into it.
set -eu
cd "$(dirname "$0")"
cache=${PODD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podd}
export CGO_ENABLED=0

version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
key=$( { go env GOVERSION GOARCH; cat go.mod go.sum build.sh e2e/*; } | sha256sum | cut -c1-16)
out=$cache/conformance/$key
minor=${version#v1.} minor=${minor%%.*} package=k8s.io/component-base/version
x="-X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=$minor"
x="-s -w $x -X k8s.io/client-go/pkg/version.gitVersion=$version"

if [ ! -x "$out/e2e.test" ]; then
	new=$out.new.$$
	trap 'rm -rf "$new"' EXIT
	mkdir -p "$new"
	echo "building the node tests of Kubernetes $version (ten minutes once; they are kept in $out)" >&2
	for program in github.com/onsi/ginkgo/v2/ginkgo k8s.io/kubernetes/test/images/agnhost \
		k8s.io/kubernetes/test/e2e/dra/test-driver; do
		go build -mod=readonly -trimpath -ldflags "$x" -o "$new/" "$program" >&2
	done
	source=$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)
	install -m 644 "$source/test/images/agnhost/porter/"localhost.crt "$source/test/images/agnhost/porter/"localhost.key \
		"$new/"
	go test -c -vet=off -mod=readonly -trimpath -ldflags "$x" -o "$new/e2e.test" ./e2e >&2
	rm -rf "$cache/conformance"/????????????????
	mv "$new" "$out"
fi
if [ "${1:-}" = e2e_node ] && [ ! -x "$out/e2e_node.test" ]; then
	echo "building e2e_node of Kubernetes $version (six minutes once)" >&2
	go test -c -vet=off -mod=readonly -trimpath -ldflags "$x" -o "$out/e2e_node.test.$$" k8s.io/kubernetes/test/e2e_node >&2
	mv "$out/e2e_node.test.$$" "$out/e2e_node.test"
fi
echo "$out"
