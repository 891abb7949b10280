#!/bin/sh
# Runs the tests in a virtual machine: Debian with cgroup v2 only, systemd and AppArmor, and podd under its unit.
#
#	run.sh [all | checks | critest | selinux | packages | smoke | shell]
#
# checks runs podd's own tests (checks/), critest the CRI validation suite, all both (default); selinux runs the tests
# that need SELinux in place of AppArmor; packages installs, upgrades, downgrades and purges the debs VM_DEB_BEFORE and
# VM_DEB, and runs critest's specs of conformance and AppArmor with the latter; smoke only starts podd and one pod; shell
# starts a shell on the console. See README.md. Environment:
#	VM_HANDLER  runtime handler: runc (default) or crun     VM_RUN    which checks, as for go test -run
#	VM_FOCUS    which specs of critest                      VM_SEED   order of the specs
#	VM_LIMIT    time limit, as for timeout(1)               VM_CLOCK  real (default) or counted: see below
#	VM_SUITE    Debian release in the machine
set -eu
here=$(cd "$(dirname "$0")" && pwd)
repo=$(cd "$here/../.." && pwd)
mode=${1:-all} limit=${VM_LIMIT:-75m}
out=$repo/bin/vm.d
[ "$mode" != selinux ] || export VM_KERNEL=security=selinux VM_RUN="${VM_RUN:-^TestSELinux}"
[ "$mode" != packages ] ||
	export VM_RUN="${VM_RUN:-^TestPackages$}" VM_FOCUS="${VM_FOCUS:-\\[Conformance\\]|AppArmor}"
say() { echo "vm: $*"; }

"$here/deps.sh"
root=$("$here/rootfs.sh")
rm -rf "$out"
mkdir -p "$out"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$here/payload.sh" "$scratch/payload.img" "$mode"
truncate -s 256M "$scratch/results.img"

# The network is isolated, so that a test that needs another host fails.
qemu() {
	VM_LIMIT=$limit "$here/qemu.sh" "$root" "$scratch/payload.img" \
		-drive "file=$scratch/results.img,format=raw,if=none,id=d2,cache=unsafe" \
		-device virtio-blk-pci,drive=d2,serial=results \
		-netdev user,id=n0,restrict=on -device virtio-net-pci,netdev=n0,romfile= "$@"
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
