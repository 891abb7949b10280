#!/bin/sh
# Makes bin/chromium: Debian's Chromium, for the tests of podd's page. It is the package of the release CHROMIUM_SUITE
# (default trixie), extracted to the cache (debian-tree.sh) and run there with chroot(1), by root. All processes end with
# the one that was started.
set -eu
contrib=$(cd "$(dirname "$0")" && pwd)
bin=$(dirname "$contrib")/bin
# base-files has the links /bin and /lib64; without fonts the page has no text
tree=$("$contrib/debian-tree.sh" chromium "${CHROMIUM_SUITE:-trixie}" chromium base-files dash fonts-dejavu-core)
mkdir -p "$bin" "$tree/proc" "$tree/dev" "$tree/tmp"
cat >"$bin/chromium.new" <<EOF
#!/bin/sh
# Chromium of $tree, made by contrib/chromium.sh
exec unshare --mount --pid --fork --kill-child --propagation slave sh -ec '
	mount -t proc proc $tree/proc
	mount --rbind /dev $tree/dev
	mount -t tmpfs tmpfs $tree/tmp
	exec chroot $tree /usr/lib/chromium/chromium "\$@"' sh "\$@"
EOF
chmod 755 "$bin/chromium.new"
mv "$bin/chromium.new" "$bin/chromium"
