#!/bin/sh
# Makes the payload disk of one run: podd and the programs that it is tested with, from bin/, the test images, podd's
# systemd unit, the scripts in guest/, and the settings of the run (env).
#
#	payload.sh IMAGE MODE
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
image=$1 mode=$2

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir/bin" "$dir/cache/images"
cd "$repo"
cp bin/podd bin/runc bin/crictl bin/critest bin/testimages bin/leak "$dir/bin/"
cp -r bin/cni "$dir/"
# CRIU, as bin/criu runs it, with its libraries.
criu=$(sed -n 's|.* \(/[^ ]*\)/usr/sbin/criu "$@"$|\1|p' bin/criu)
cp -r "$criu" "$dir/criu"
sed "s|$criu|/payload/criu|g" bin/criu >"$dir/bin/criu"
chmod 755 "$dir/bin/criu"
CGO_ENABLED=0 go test -c -o "$dir/bin/checks" ./test/vm/checks
(cd oci/vm && CGO_ENABLED=0 go test -c -o "$dir/bin/jail" ./jail)

bin/testimages build >/dev/null
cp -r "${PODD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podd}"/images/[0-9a-f]*/ "$dir/cache/images/"
cp contrib/systemd/podd.service contrib/crictl.yaml "$dir/"
cp "$here"/guest/* "$dir/"
if [ "$mode" = selinux ]; then
	# The categories of all levels: c0 to c1023 in this order.
	seq 0 1023 | awk '{ all = all " c" $1; print "(category c" $1 ")" } END { print "(categoryorder (" all "))" }' \
		>"$dir/categories.cil"
	secilc -o "$dir/selinux.policy" -f /dev/null "$here/selinux/policy.cil" "$dir/categories.cil"
fi
if [ "$mode" = packages ]; then # and what the rootfs lacks of what they depend on
	cp "$VM_DEB" "$dir/new.deb"
	cp "$VM_DEB_BEFORE" "$dir/old.deb"
	tar -C "$dir" --strip-components=5 --wildcards -xf "$(test/release/chroot.sh "${VM_SUITE:-trixie}" 2>/dev/null)" \
		'./var/cache/apt/archives/runc_*' './var/cache/apt/archives/libseccomp2_*'
fi
# critest takes the specs to skip as one regular expression.
sed -e 's/#.*//; s/[[:space:]]*$//; /^$/d' -e 's/[][\.*^$+?(){}|]/\\&/g' test/critest/skip.txt |
	paste -sd'|' >"$dir/skip"
cat >"$dir/env" <<END
mode='$mode'
handler='${VM_HANDLER:-runc}'
focus='${VM_FOCUS:-.}'
run='${VM_RUN:-.}'
seed='${VM_SEED:-}'
END

size=$(($(du -sm "$dir" | cut -f1) * 5 / 4 + 16))
rm -f "$image"
mke2fs -q -t ext4 -O ^has_journal -d "$dir" "$image" "${size}M" >/dev/null
