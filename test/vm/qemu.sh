#!/bin/sh
# Runs the virtual machine that rootfs.sh has built, without KVM:
#
#	qemu.sh DIR PAYLOAD OPTION...
#
# DIR is what rootfs.sh prints, PAYLOAD the disk that the machine mounts at /payload. The options are QEMU's: the network,
# the serial port, further disks. The root disk is never written to: changes are in a snapshot that QEMU discards.
# VM_CLOCK, VM_LIMIT and VM_NICE are described in README.md, VM_MEMORY is the machine's memory (default 3G), VM_KERNEL
# further parameters of its kernel.
set -eu
root=$1 payload=$2
shift 2

# Software emulation needs no KVM. With the real clock it uses two cores, and on a busy host the guest misses its own
# timeouts. With the counted clock the guest's time is the number of instructions executed, so that no timeout depends
# on the host's load. That takes longer, because it uses one core.
case ${VM_CLOCK:-real} in
real) clock='-accel tcg,thread=multi' ;;
counted) clock='-accel tcg,thread=single -icount shift=1,sleep=on -rtc clock=vm' ;;
*)
	echo "vm: VM_CLOCK is $VM_CLOCK, must be real or counted"
	exit 1
	;;
esac

# CPU features that are slow to emulate and not needed are off.
# no_timer_check: on a busy host the kernel panics when it counts too few ticks of its timer at boot.
tools=$root/qemu/usr
# shellcheck disable=SC2086 # options are meant
exec nice -n "${VM_NICE:-15}" timeout --foreground "${VM_LIMIT:-75m}" \
	"$tools/lib64/ld-linux-x86-64.so.2" --library-path "$tools/lib/x86_64-linux-gnu" \
	"$tools/bin/qemu-system-x86_64" -L "$tools/share/qemu" -L "$tools/share/seabios" \
	-nodefaults -no-user-config -display none -no-reboot $clock -M q35 -cpu max,la57=off,pku=off -smp 2 \
	-m "${VM_MEMORY:-3G}" \
	-kernel "$root/vmlinuz" -append "root=/dev/nvme0n1 rw rootfstype=ext4 console=ttyS0 quiet panic=-1 net.ifnames=0 \
		mitigations=off nokaslr no_timer_check cryptomgr.notests systemd.show_status=no systemd.getty_auto=0 \
		${VM_KERNEL:-}" \
	-drive "file=$root/root.img,format=raw,if=none,id=d0,snapshot=on,cache=unsafe" \
	-device nvme,drive=d0,serial=root \
	-drive "file=$payload,format=raw,if=none,id=d1,readonly=on" \
	-device virtio-blk-pci,drive=d1,serial=payload \
	-object rng-random,id=r0,filename=/dev/urandom -device virtio-rng-pci,rng=r0 "$@"
