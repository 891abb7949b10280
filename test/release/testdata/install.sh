#!/bin/sh
# Runs as root in a bare Debian without network and without systemd: installs podd's deb, uses podd, removes it, and
# prints what is left. /tmp/new.deb and /tmp/old.deb are the debs, /tmp/crictl is crictl.
set -eu
export DEBIAN_FRONTEND=noninteractive
say() { echo "== $*"; }
install() { apt-get -qq -y --no-install-recommends --allow-downgrades install "$1" >/tmp/apt.log 2>&1 || {
	cat /tmp/apt.log
	exit 1
}; }
# files: everything of the machine but what packages and their installation leave anywhere.
files() {
	find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /tmp -o -path /var/cache -o -path /var/lib/dpkg \
		-o -path /var/lib/apt -o -path /var/log \) -prune -o -print | sort
	find /run | sort
	cut -d' ' -f2 /proc/self/mounts | sort
	find /sys/fs/cgroup -name '*podd*' -o -name '*crio*'
	cat /sys/kernel/security/apparmor/profiles 2>/dev/null | grep podd || :
}
ready() {
	for _ in $(seq 100); do
		/tmp/crictl info 2>/dev/null | tr -d ' \n' | grep -q '"status":true,"type":"RuntimeReady"' && return
		sleep 0.2
	done
	cat /tmp/podd.log
	exit 1
}

say "install, with what it depends on"
install /tmp/old.deb
apt-get -qq -y purge podd >/dev/null
files >/tmp/before
! grep podd /tmp/before || exit 1

say "install, upgrade, downgrade"
install /tmp/old.deb
install /tmp/new.deb
podd version | grep 'podd *v0.9.1'
install /tmp/old.deb
podd version | grep 'podd *v0.9.0'
install /tmp/new.deb
readlink /etc/systemd/system/multi-user.target.wants/podd.service
cmp /etc/crictl.yaml /usr/share/podd/crictl.yaml
grep -x 'ExecStart=/usr/bin/podd serve $PODD_FLAGS' /usr/lib/systemd/system/podd.service

say "check"
podd config check --node

say "run a pod"
podd serve >/tmp/podd.log 2>&1 &
pid=$!
ready
cat >/tmp/pod.json <<'END'
{"metadata": {"name": "a", "namespace": "b", "uid": "c"}, "linux": {"security_context":
 {"namespace_options": {"network": 2, "pid": 0}}}}
END
pod=$(/tmp/crictl runp /tmp/pod.json)
/tmp/crictl pods -q --state ready | grep "$pod"
kill $pid
wait $pid || { cat /tmp/podd.log; exit 1; }
say "purge, which keeps the pod"
apt-get -qq -y purge podd >/tmp/apt.log 2>&1
grep "there are pods" /tmp/apt.log
[ -d "/var/lib/podd/pods/$pod" ]

say "wipe and purge"
install /tmp/new.deb
podd wipe --yes --images
mkdir -p /etc/podd/podd.toml.d
touch /etc/podd/podd.toml.d/50-mine.toml
apt-get -qq -y purge podd
files >/tmp/after
diff /tmp/before /tmp/after
say "nothing is left"
