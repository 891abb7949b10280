#!/bin/sh
# Runs the tests in a virtual machine: Debian with cgroup v2 only, systemd and AppArmor, and podd under its unit.
#
#	run.sh [all | checks | critest | smoke | shell]
#
# checks runs podd's own tests (checks/), critest the CRI validation suite, all both (default); smoke only starts podd
# and one pod; shell starts a shell on the console. See README.md. Environment:
#	VM_HANDLER  runtime handler: runc (default) or crun     VM_RUN    which checks, as for go test -run
#	VM_FOCUS    which specs of critest                      VM_SEED   order of the specs
#	VM_LIMIT    time limit, as for timeout(1)               VM_CLOCK  real (default) or counted: see below
#	VM_SUITE    Debian release in the machine
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
mode=${1:-all} limit=${VM_LIMIT:-75m}
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

# Software emulation needs no KVM. With the real clock it uses two cores, and on a busy host the guest misses its own
# timeouts. With the counted clock the guest's time is the number of instructions executed, so that no timeout depends
# on the host's load. That takes longer, because it uses one core.
case ${VM_CLOCK:-real} in
real) clock='-accel tcg,thread=multi' ;;
counted) clock='-accel tcg,thread=single -icount shift=1,sleep=on -rtc clock=vm' ;;
*)
	say "VM_CLOCK is $VM_CLOCK, must be real or counted"
	exit 1
	;;
esac

# The root disk is never written to: changes are in a snapshot that QEMU discards. The network is isolated, so that a
# test that needs another host fails. CPU features that are slow to emulate and not needed are off.
# no_timer_check: on a busy host the kernel panics when it counts too few ticks of its timer at boot.
qemu() {
	tools=$root/qemu/usr
	# shellcheck disable=SC2086 # options are meant
	nice -n 15 timeout --foreground "$limit" \
		"$tools/lib64/ld-linux-x86-64.so.2" --library-path "$tools/lib/x86_64-linux-gnu" \
		"$tools/bin/qemu-system-x86_64" -L "$tools/share/qemu" -L "$tools/share/seabios" \
		-nodefaults -no-user-config -display none -no-reboot $clock -M q35 -cpu max,la57=off,pku=off -smp 2 -m 3G \
		-kernel "$root/vmlinuz" -append "root=/dev/nvme0n1 rw rootfstype=ext4 console=ttyS0 quiet panic=-1 net.ifnames=0 \
			mitigations=off nokaslr no_timer_check cryptomgr.notests systemd.show_status=no systemd.getty_auto=0" \
		-drive "file=$root/root.img,format=raw,if=none,id=d0,snapshot=on,cache=unsafe" \
		-device nvme,drive=d0,serial=root \
		-drive "file=$scratch/payload.img,format=raw,if=none,id=d1,readonly=on" \
		-device virtio-blk-pci,drive=d1,serial=payload \
		-drive "file=$scratch/results.img,format=raw,if=none,id=d2,cache=unsafe" \
		-device virtio-blk-pci,drive=d2,serial=results \
		-netdev user,id=n0,restrict=on -device virtio-net-pci,netdev=n0,romfile= \
		-object rng-random,id=r0,filename=/dev/urandom -device virtio-rng-pci,rng=r0 "$@"
}

if [ "$mode" = shell ]; then
	say "podd is running in the machine; exit powers it off, ctrl-a x kills it"
	qemu -serial mon:stdio
	exit
fi

start=$(date +%s)
say "booting, output in $out/console.log, limit $limit"
{ qemu -serial stdio </dev/null 2>&1 || echo "vm: FAILED: QEMU exited with status $?"; } |
	tee "$out/console.log" | sed -u -n 's/\r//g; /^vm: /p'
sed -i 's/\r//g' "$out/console.log"
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
