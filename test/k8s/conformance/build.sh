#!/bin/sh
# Builds Kubernetes' own node tests, ginkgo, which runs them, and agnhost, which their images contain, and prints their
# directory. It is in $PODD_CACHE (default ${XDG_CACHE_HOME:-~/.cache}/podd); its name is a hash of everything that goes
# into it.
set -eu
cd "$(dirname "$0")"
cache=${PODD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podd}
export CGO_ENABLED=0

version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
key=$( { go env GOVERSION GOARCH; cat go.mod go.sum build.sh; } | sha256sum | cut -c1-16)
out=$cache/conformance/$key

if [ ! -x "$out/e2e_node.test" ]; then
	new=$out.new.$$
	trap 'rm -rf "$new"' EXIT
	mkdir -p "$new"
	echo "building the node tests of Kubernetes $version (ten minutes once; they are kept in $out)" >&2
	minor=${version#v1.} minor=${minor%%.*} package=k8s.io/component-base/version
	x="-X $package.gitVersion=$version -X $package.gitMajor=1 -X $package.gitMinor=$minor"
	x="-s -w $x -X k8s.io/client-go/pkg/version.gitVersion=$version"
	for program in github.com/onsi/ginkgo/v2/ginkgo k8s.io/kubernetes/test/images/agnhost; do
		go build -mod=readonly -trimpath -ldflags "$x" -o "$new/" "$program" >&2
	done
	source=$(go list -m -f '{{.Dir}}' k8s.io/kubernetes)
	install -m 644 "$source/test/images/agnhost/porter/"localhost.crt "$source/test/images/agnhost/porter/"localhost.key \
		"$new/"
	go test -c -vet=off -mod=readonly -trimpath -ldflags "$x" -o "$new/e2e_node.test" k8s.io/kubernetes/test/e2e_node >&2
	rm -rf "$cache/conformance"/????????????????
	mv "$new" "$out"
fi
echo "$out"
