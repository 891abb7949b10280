#!/bin/sh
# Builds the virtual machine from Debian packages, unless the cache has it, and prints its directory:
#
#	vmlinuz   the kernel                 root.img  the root filesystem
#	qemu/     QEMU of the same Debian, unpacked, so that the host's QEMU does not matter
#
# Of podd it has only a unit that runs run.sh of the payload disk (see payload.sh): a change of podd does not need a new
# machine. Needs root, for the chroot. The packages come from the mirror that this machine's apt uses. VM_SUITE is the
# Debian release (default trixie).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${PODD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podd}/vm
suite=${VM_SUITE:-trixie}
say() { echo "vm: $*" >&2; }

out=$cache/$suite-$(cat "$here/rootfs.sh" "$here"/rootfs/* | sha256sum | cut -c1-16)
[ ! -f "$out/root.img" ] || { echo "$out"; exit 0; }

mirror=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' |
	awk '$1 == "Debian" { print $2; exit }')
[ -n "$mirror" ] || { say "apt on this machine knows no Debian mirror: see sources.list(5)"; exit 1; }

# What podd, critest and the boot need. Recommended packages are left out.
packages='systemd systemd-sysv dbus udev kmod apparmor iproute2 iptables nftables conmon crun procps util-linux
	busybox-static ca-certificates uidmap'
# Only these of the kernel's drivers are kept: systemd-udevd loads every one it has a device for, which is slow under
# emulation.
drivers='kernel/fs kernel/net kernel/crypto kernel/lib kernel/security kernel/drivers/block kernel/drivers/net
	kernel/drivers/virtio kernel/drivers/nvme kernel/drivers/char'

new=$cache/new.$$
trap 'rm -rf "$new"' EXIT
tree=$new/tree
mkdir -p "$new/deb"

# debian DIR PACKAGES OPTION...: install Debian with the packages in a directory.
debian() {
	to=$1 include=$2
	shift 2
	# shellcheck disable=SC2086,SC2046 # a list of words is meant
	mmdebstrap --quiet --include="$(echo $include | tr ' ' ,)" --components=main \
		--aptopt='APT::Install-Recommends "false"' \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' "$@" "$suite" "$to" "$mirror" >&2
}

say "building a Debian $suite (a few minutes once; later runs take it from $out)"

# shellcheck disable=SC2016 # the hook's variables are its own
debian "$tree" "$packages" --variant=minbase --customize-hook='cd '"$new/deb"' &&
	export APT_CONFIG=$MMDEBSTRAP_APT_CONFIG &&
	image=$(apt-cache depends linux-image-cloud-amd64 | sed -n "s/.*Depends: \(linux-image-[0-9].*\)/\1/p") &&
	apt-get -qq download "$image"'

say "QEMU"
debian "$new/qemu" 'qemu-system-x86 qemu-system-data seabios' --variant=extract

say "kernel"
dpkg-deb -x "$new"/deb/linux-image-*.deb "$new/kernel"
mv "$new"/kernel/boot/vmlinuz-* "$new/vmlinuz"
mkdir -p "$tree/boot"
mv "$new"/kernel/boot/config-* "$tree/boot/" # kubeadm reads it
modules=$(echo "$new"/kernel/usr/lib/modules/* "$new"/kernel/lib/modules/*)
for m in $modules; do [ -d "$m" ] && modules=$m; done
to=$tree/usr/lib/modules/$(basename "$modules")
mkdir -p "$to"
cp "$modules"/modules.builtin* "$modules"/modules.order "$to/"
for d in $drivers; do
	[ -d "$modules/$d" ] || continue
	mkdir -p "$to/$(dirname "$d")"
	cp -a "$modules/$d" "$to/$d"
done
find "$to" -name '*.ko.xz' -exec xz -d {} + # takes seconds for each module under emulation
chroot "$tree" depmod "$(basename "$modules")"

# Units that make the boot longer and that no pod needs.
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service \
	fstrim.timer logrotate.timer systemd-tmpfiles-clean.timer systemd-timesyncd.service systemd-networkd.service \
	systemd-resolved.service systemd-random-seed.service systemd-update-utmp.service systemd-logind.service getty.target \
	systemd-hwdb-update.service ldconfig.service systemd-journal-catalog-update.service systemd-update-done.service \
	systemd-pcrphase.service systemd-firstboot.service systemd-modules-load.service systemd-udev-load-credentials.service \
	systemd-user-sessions.service systemd-journal-flush.service systemd-sysusers.service kmod-static-nodes.service \
	sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount sys-fs-fuse-connections.mount \
	dev-hugepages.mount run-lock.mount tmp.mount modprobe@.service; do
	ln -sf /dev/null "$tree/etc/systemd/system/$unit"
done
# Profiles of desktop programs, which take 14 s to compile under emulation. podd loads its own.
find "$tree/etc/apparmor.d" -maxdepth 1 -type f -delete
mkdir -p "$tree/etc/systemd/journald.conf.d" "$tree/payload"
cp "$here/rootfs/podd-vm.service" "$tree/etc/systemd/system/"
cp "$here/rootfs/journald.conf" "$tree/etc/systemd/journald.conf.d/50-vm.conf"
ln -s /etc/systemd/system/podd-vm.service "$tree/etc/systemd/system/multi-user.target.wants/"
echo podd-vm >"$tree/etc/hostname"
printf '127.0.0.1 localhost podd-vm\n::1 localhost\n' >"$tree/etc/hosts"
echo 'nameserver 10.0.2.3' >"$tree/etc/resolv.conf" # QEMU's
echo 0123456789abcdef0123456789abcdef >"$tree/etc/machine-id"
: >"$tree/etc/fstab"
rm -rf "$tree"/var/cache/apt/* "$tree"/var/lib/apt/lists/*

say "disk image"
mke2fs -q -t ext4 -O ^has_journal -L root -d "$tree" "$new/root.img" 6G >&2
rm -rf "$tree" "$new/deb" "$new/kernel"
rm -rf "$out"
mv "$new" "$out"
# Keep this machine and the previous one, for two branches.
find "$cache" -mindepth 1 -maxdepth 1 -name "$suite-*" -printf '%T@ %p\n' | sort -rn | tail -n +3 | cut -d' ' -f2- |
	xargs -r rm -rf
echo "$out"
