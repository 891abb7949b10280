#!/bin/sh
# Builds gVisor's runtime and its containerd shim, pinned in the go.mod next to this file, into <repo>/bin:
#   runsc  containerd-shim-runsc-v1
#
# They are cached like the other tools (../build.sh).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "$here/../../.." && pwd)/bin
cache=${PODD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podd}/gvisor

cd "$here"
key=$( { go env GOVERSION GOARCH; cat go.mod go.sum build.sh; } | sha256sum | cut -c1-16)
out=$cache/$key

if [ ! -d "$out" ]; then
	new=$out.new.$$
	trap 'rm -rf "$new"' EXIT
	mkdir -p "$new"
	echo "building gVisor (some minutes once; later runs copy it from $out)"
	module=gvisor.dev/gvisor
	ld="-s -w -X $module/runsc/version.version=$(go list -m -f '{{.Version}}' $module)"
	# Static: runsc runs its sandbox in an empty root, without shared libraries.
	CGO_ENABLED=0 go build -mod=readonly -trimpath -ldflags "$ld" -o "$new/runsc" $module/runsc
	# The shim exits if it cannot lower its OOM score, which needs CAP_SYS_RESOURCE. Containers that tests run in may lack
	# that capability: the patched shim ignores EPERM.
	patched=$new/src
	cp -r "$(go list -m -f '{{.Dir}}' $module)" "$patched"
	chmod -R u+w "$patched"
	sed -i 's/\(sys.SetOOMScore(cmd.Process.Pid, oomScoreMax); err != nil\) {/\1 \&\& !os.IsPermission(err) {/' \
		"$patched/pkg/shim/v1/manager.go"
	grep -q 'oomScoreMax); err != nil && !os.IsPermission(err) {' "$patched/pkg/shim/v1/manager.go"
	cp go.sum "$new/shim.sum"
	cp go.mod "$new/shim.mod"
	go mod edit -replace="$module=$patched" "$new/shim.mod"
	CGO_ENABLED=0 go build -modfile="$new/shim.mod" -trimpath -ldflags "$ld" \
		-o "$new/containerd-shim-runsc-v1" $module/shim
	rm -rf "$patched" "$new/shim.mod" "$new/shim.sum"
	rm -rf "$out"
	mv "$new" "$out"
	# Keep this build and the previous one, for work on two branches.
	find "$cache" -mindepth 1 -maxdepth 1 -type d -printf '%T@ %p\n' | sort -rn | tail -n +3 |
		cut -d' ' -f2- | xargs -r rm -rf
fi

mkdir -p "$bin"
# Copy and rename: a binary that is being executed cannot be written to.
for f in runsc containerd-shim-runsc-v1; do
	cmp -s "$out/$f" "$bin/$f" && continue
	cp "$out/$f" "$bin/$f.new"
	mv "$bin/$f.new" "$bin/$f"
done
