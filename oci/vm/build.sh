#!/bin/sh
# build.sh [qemu]: builds containerd-shim-podvm-v1, the agent of its guests and a guest image for User-Mode Linux into
# <repo>/bin:
#   containerd-shim-podvm-v1  podd-vm-agent  podd-vm-image  vm/uml/{kernel,initrd,...}
# With qemu also an image for QEMU, vm/qemu, of the kernel package linux-image-cloud-amd64 of this machine's release.
#
# The kernel is the package user-mode-linux of the Debian release UML_SUITE (default sid), with that release's libc and
# virtiofsd: kernels before 6.13 do not start on processors with AMX, whose registers are larger than they expect.
# Nothing is installed. The packages are kept in $PODD_CACHE (default ${XDG_CACHE_HOME:-~/.cache}/podd)/vm-kernel: a
# kernel that works stays, whatever the release moves to. UML_REFRESH=1 takes the release's present one, and keeps the
# old one if that cannot be fetched.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "$here/../.." && pwd)/bin
cache=${PODD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podd}/vm-kernel
suite=${UML_SUITE:-sid}

# fetch SUITE DIR PACKAGE...: download packages of a Debian release from the mirror that this machine's apt uses, and
# extract them. apt verifies them as usual; this machine's own package lists are not touched.
fetch() {
	suite=$1 to=$2
	shift 2
	mirror=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' |
		sed -n 's/^Debian \(.*debian\)\/*$/\1/p' | head -n 1)
	new=$to.new.$$
	rm -rf "$new"
	mkdir -p "$new/apt/lists/partial" "$new/apt/cache/archives/partial"
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] ${mirror:-http://deb.debian.org/debian} $suite main" \
		>"$new/apt/sources.list"
	set -- -o Dir::State::lists="$new/apt/lists" -o Dir::Cache="$new/apt/cache" \
		-o Dir::Etc::sourcelist="$new/apt/sources.list" -o Dir::Etc::sourceparts=/dev/null \
		-o Acquire::Languages=none -o APT::Sandbox::User= -qq -- "$@"
	options=$(printf '%s\n' "$@" | sed '/^--$/,$d')
	packages=$(printf '%s\n' "$@" | sed '1,/^--$/d')
	# shellcheck disable=SC2086 # lists of words are meant
	(apt-get $options update && cd "$new/apt" &&
		apt-get $options download $(apt-cache $options depends --important $packages |
			sed -n 's/^  Depends: \(linux-image-[0-9].*\)/\1/p') $packages) || {
		echo "vm: no package of Debian $suite could be fetched; is a Debian mirror reachable?" >&2
		rm -rf "$new"
		return 1
	}
	for deb in "$new"/apt/*.deb; do dpkg-deb -x "$deb" "$new"; done
	rm -rf "$new/apt"
	mv -T "$new" "$to" 2>/dev/null || rm -rf "$new" # another process may have fetched it meanwhile
}

mkdir -p "$bin" "$cache"
cd "$here"
CGO_ENABLED=0 go build -mod=readonly -trimpath -ldflags '-s -w' -o "$bin/" ./cmd/...
uml=$cache/uml-$suite
[ -x "$uml/usr/libexec/virtiofsd" ] && [ -z "${UML_REFRESH:-}" ] || {
	echo "fetching the package user-mode-linux of Debian $suite (once; kept in $cache)"
	if fetch "$suite" "$uml.$$" user-mode-linux libc6 libgcc-s1 virtiofsd libseccomp2 libcap-ng0; then
		# Five sixths of these modules are debugging information, which the guest would hold in its memory.
		! command -v strip >/dev/null || find "$uml.$$/usr/lib/uml/modules" -name '*.ko' -exec strip --strip-debug {} +
		rm -rf "$uml"
		mv -T "$uml.$$" "$uml" 2>/dev/null || rm -rf "$uml.$$" # as above
	elif [ -d "$uml" ]; then
		echo "vm: using the kernel that was fetched before" >&2
	else
		echo "vm: without a mirror, extract the packages user-mode-linux, libc6, libgcc-s1, virtiofsd, libseccomp2" \
			"and libcap-ng0 of another machine, each by dpkg-deb -x FILE $uml" >&2
		exit 1
	fi
}
"$bin/podd-vm-image" -driver uml -o "$bin/vm" -root "$uml" -kernel "$uml/usr/bin/linux.uml" \
	-modules "$(echo "$uml"/usr/lib/uml/modules/*)"
[ "${1:-}" = qemu ] || exit 0
command -v qemu-system-x86_64 >/dev/null || {
	[ "$(id -u)" = 0 ] || { echo "vm: no QEMU; run: sudo apt-get install --no-install-recommends qemu-system-x86" >&2; exit 1; }
	echo 'installing: qemu-system-x86'
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq && apt-get install -qq -y --no-install-recommends qemu-system-x86 >/dev/null
}
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
[ -d "$cache/qemu-$release" ] || {
	echo "fetching the package linux-image-cloud-amd64 of Debian $release (once; kept in $cache)"
	fetch "$release" "$cache/qemu-$release" linux-image-cloud-amd64
}
"$bin/podd-vm-image" -driver qemu -o "$bin/vm" -kernel "$(echo "$cache/qemu-$release"/boot/vmlinuz-*)" \
	-modules "$(for d in "$cache/qemu-$release"/lib/modules/* "$cache/qemu-$release"/usr/lib/modules/*; do
		[ ! -d "$d" ] || echo "$d"; done)"
