#!/bin/sh
# build.sh PROGRAM...: makes the layers of the images of these programs from Debian packages, unless the cache has them,
# and prints their directory: base.tar.gz, and PROGRAM.tar.gz with what apt-get changes over it. Needs root, and the
# mirror of this machine's apt.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
suite=bookworm
dir=${PODD_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/podd}/workloads
say() { echo "workloads: $*" >&2; }

# The packages of a program; what else it needs is in files/PROGRAM, which becomes /app, where "setup" is run.
packages() {
	case $1 in
	nginx) echo nginx ;;
	postgresql) echo postgresql gosu ;;
	redis) echo redis-server gosu ;;
	jvm) echo openjdk-17-jdk-headless ;;
	node) echo nodejs ;;
	python) echo python3 ;;
	systemd) echo systemd systemd-sysv dbus nginx-light ;;
	sshd) echo openssh-server openssh-client ;;
	tcpdump) echo tcpdump iproute2 ;;
	buildah) echo buildah crun busybox-static ;;
	fuse) echo bindfs fuse3 ;;
	atd) echo at rsyslog ;;
	*) say "no program $1"; return 1 ;;
	esac
}

# pack TREE FILE: a layer without the caches of apt. A whiteout of overlayfs becomes one of OCI.
pack() {
	find "$1" -type c ! -path "$1/dev/*" | while read -r f; do
		rm "$f"
		touch "$(dirname "$f")/.wh.$(basename "$f")"
	done
	tar -C "$1" --numeric-owner --xattrs --xattrs-include=security.capability --exclude=./var/cache/apt/* \
		--exclude=./var/lib/apt/lists/* --exclude=./dev/* --exclude=./tmp/* --exclude=./run/* -cf - . | gzip -1 >"$2.new"
	mv "$2.new" "$2"
}

# add PROGRAM: install it over the base in a chroot.
add() {
	new=$dir/new.$1
	rm -rf "$new"
	mkdir -p "$new/upper" "$new/work" "$new/root"
	mount -t overlay podd-workloads -o "lowerdir=$dir/base,upperdir=$new/upper,workdir=$new/work" "$new/root"
	mount -t proc proc "$new/root/proc" # Java's installation needs it
	trap 'umount -R "$new/root"; rm -rf "$new"' EXIT
	printf '#!/bin/sh\nexit 101\n' >"$new/root/usr/sbin/policy-rc.d" # installing starts no service
	chmod +x "$new/root/usr/sbin/policy-rc.d"
	mkdir -p "$new/root/etc/postgresql-common"
	echo 'create_main_cluster = false' >"$new/root/etc/postgresql-common/createcluster.conf"
	# shellcheck disable=SC2046 # a list of words is meant
	mkdir -p "$new/root/usr/share/man/man1" # Java's installation makes links there
	DEBIAN_FRONTEND=noninteractive chroot "$new/root" apt-get -qq -y --no-install-recommends install \
		$(packages "$1") >"$new/log" 2>&1 </dev/null || { cat "$new/log" >&2; exit 1; }
	if [ -d "$here/files/$1" ]; then
		cp -r "$here/files/$1" "$new/root/app"
		[ ! -f "$new/root/app/setup" ] || chroot "$new/root" sh -eu /app/setup >&2
	fi
	umount -R "$new/root"
	trap 'rm -rf "$new"' EXIT
	pack "$new/upper" "$dir/$1.tar.gz"
	rm -rf "$new"
	trap - EXIT
}

# sum PROGRAM: what its layer depends on.
sum() { { packages "$1"; find "$here/files/$1" -type f -exec cat {} + 2>/dev/null || true; } | sha256sum; }

mkdir -p "$dir"
exec 9>"$dir/lock"
flock 9
if [ ! -f "$dir/base.tar.gz" ]; then
	say "a bare Debian $suite (once)"
	mirror=$(apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' |
		awk '$1 == "Debian" { print $2; exit }')
	[ -n "$mirror" ] || { say "apt on this machine knows no Debian mirror: see sources.list(5)"; exit 1; }
	rm -rf "$dir/base"
	mmdebstrap --quiet --variant=minbase --components=main --skip=cleanup/apt,cleanup/reproducible --include=procps \
		--aptopt='APT::Install-Recommends "false"' --dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' "$suite" "$dir/base" \
		"$mirror" >&2
	pack "$dir/base" "$dir/base.tar.gz"
fi
for program; do
	sum=$(sum "$program")
	[ "$(cat "$dir/$program.sum" 2>/dev/null)" != "$sum" ] || continue
	say "$program"
	add "$program"
	echo "$sum" >"$dir/$program.sum"
done
echo "$dir"
