#!/bin/sh
# Makes the payload disk of a node: podd, Kubernetes' programs, contrib/, and the configuration of the image registry.
#
#	payload.sh IMAGE REGISTRY-CONFIGURATION NAME ADDRESS GATEWAY [PROGRAM...]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../../.." && pwd)
image=$1 registry=$2

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/bin" "$dir/registry"
cd "$repo"
cp bin/podd bin/runc bin/crictl bin/leak bin/kube/kube "$dir/bin/"
cp -r bin/cni contrib "$dir/"
cp -r "$registry"/* "$dir/registry/"
cp "$here"/guest/* "$dir/"
cat >"$dir/env" <<END
name='$3' address='$4' gateway='$5'
END
shift 5
[ $# = 0 ] || cp "$@" "$dir/bin/"
size=$(($(du -sm "$dir" | cut -f1) * 5 / 4 + 16))
rm -f "$image"
mke2fs -q -t ext4 -O ^has_journal -d "$dir" "$image" "${size}M" >/dev/null
