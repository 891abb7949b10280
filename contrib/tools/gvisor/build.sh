#!/bin/sh
# Builds gVisor's runtime and its containerd shim, pinned in go.mod beside this file, into <repo>/bin:
#   runsc  containerd-shim-runsc-v1
#
# They are kept like the other tools (../build.sh): by everything that goes into them, in $PODD_CACHE.
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
	# Static: a dynamic runsc does not find its libraries in the empty root that it makes for its sandbox.
	CGO_ENABLED=0 go build -mod=readonly -trimpath -ldflags "$ld" -o "$new/runsc" $module/runsc
	# The shim refuses to start where its OOM score cannot be lowered, which takes CAP_SYS_RESOURCE; containers in which tests
	# run do not have it. This one goes on, and is otherwise the same.
	patched=$new/src
	cp -r "$(go list -m -f '{{.Dir}}' $module)" "$patched"
	chmod -R u+w "$patched"
	sed -i 's/\(sys.SetOOMScore(cmd.Process.Pid, oomScoreMax); err != nil\) {/\1 \&\& !os.IsPermission(err) {/' "$patched/pkg/shim/v1/manager.go"
	grep -q 'oomScoreMax); err != nil && !os.IsPermission(err) {' "$patched/pkg/shim/v1/manager.go"
	cp go.sum "$new/shim.sum"
	cp go.mod "$new/shim.mod"
	go mod edit -replace="$module=$patched" "$new/shim.mod"
	CGO_ENABLED=0 go build -modfile="$new/shim.mod" -trimpath -ldflags "$ld" -o "$new/containerd-shim-runsc-v1" $module/shim
	rm -rf "$patched" "$new/shim.mod" "$new/shim.sum"
	rm -rf "$out"
	mv "$new" "$out"
	# keep this one and the one before, for whoever works on two branches
	find "$cache" -mindepth 1 -maxdepth 1 -type d -printf '%T@ %p\n' | sort -rn | tail -n +3 | cut -d' ' -f2- | xargs -r rm -rf
fi

mkdir -p "$bin"
# A copy and a rename, never a write into a binary that somebody may be running.
for f in runsc containerd-shim-runsc-v1; do
	cmp -s "$out/$f" "$bin/$f" && continue
	cp "$out/$f" "$bin/$f.new"
	mv "$bin/$f.new" "$bin/$f"
done
