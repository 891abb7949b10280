#!/bin/sh
# Runs the tests in a virtual machine: Debian with pure cgroup v2, systemd and AppArmor, and podd under its systemd unit.
#
#	run.sh [all | checks | critest | smoke | shell]
#
# checks are podd's own (checks/), critest is the CRI validation suite, all is both; smoke runs nothing but podd and one
# pod; shell gives one. README.md says how it works. Environment:
#	VM_HANDLER  runtime handler: runc (default) or crun     VM_FOCUS  which specs of critest, a regular expression
#	VM_SEED     order of the specs                          VM_LIMIT  the longest it may take, as for timeout(1)
#	VM_SUITE    the Debian in there
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
mode=${1:-all} limit=${VM_LIMIT:-30m}
out=$repo/bin/vm.d
say() { echo "vm: $*"; }

"$here/deps.sh"
root=$("$here/rootfs.sh")
rm -rf "$out"
mkdir -p "$out"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$here/payload.sh" "$scratch/payload.img" "$mode"
truncate -s 256M "$scratch/results.img"

# Software emulation: it works everywhere. Without cx16, because QEMU 7.2 sometimes returns from cmpxchg16b with a pointer
# in the flags register, which ends the kernel with a double fault; the others only save time. The root disk is never written to; changes go with the machine. The network
# has nobody on the other side, so that a test that leaves the machine fails.
qemu() {
	nice -n 15 timeout --foreground "$limit" qemu-system-x86_64 -nodefaults -no-user-config -display none -no-reboot \
		-M q35 -accel tcg,thread=multi -cpu max,cx16=off,la57=off,pku=off -smp 2 -m 3G \
		-kernel "$root/vmlinuz" -append "console=ttyS0 root=/dev/nvme0n1 rw rootfstype=ext4 net.ifnames=0 panic=-1 mitigations=off nokaslr cryptomgr.notests systemd.show_status=yes systemd.getty_auto=0" \
		-drive "file=$root/root.img,format=raw,if=none,id=d0,snapshot=on,cache=unsafe" -device nvme,drive=d0,serial=root \
		-drive "file=$scratch/payload.img,format=raw,if=none,id=d1,readonly=on" -device virtio-blk-pci,drive=d1,serial=payload \
		-drive "file=$scratch/results.img,format=raw,if=none,id=d2,cache=unsafe" -device virtio-blk-pci,drive=d2,serial=results \
		-nic user,restrict=on,model=virtio-net-pci -object rng-random,id=r0,filename=/dev/urandom -device virtio-rng-pci,rng=r0 "$@"
}

if [ "$mode" = shell ]; then
	say "podd runs in there; leave with exit, or kill it with ctrl-a x"
	qemu -serial mon:stdio
	exit
fi

start=$(date +%s)
say "booting, output in $out/console.log, limit $limit"
{ qemu -serial stdio </dev/null 2>&1 || echo "vm: QEMU ended with status $?"; } |
	tr -d '\r' | tee "$out/console.log" | grep --line-buffered '^vm: ' || true
tar -xf "$scratch/results.img" -C "$out" 2>/dev/null || true
took=$(($(date +%s) - start))
if [ "$(cat "$out/status" 2>/dev/null)" = passed ]; then
	say "passed in ${took}s, logs in $out"
	exit
fi
say "FAILED after ${took}s, logs in $out; the end of the console:"
tail -n 60 "$out/console.log" | cut -c1-300 | sed 's/^/    /'
if [ -s "$out/podd.log" ]; then
	say "the end of podd's journal:"
	tail -n 30 "$out/podd.log" | cut -c1-300 | sed 's/^/    /'
fi
exit 1
