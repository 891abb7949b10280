#!/bin/bash
# Runs in the virtual machine, from the payload disk, on the serial console: installs podd as a user would, runs the
# tests of the requested mode, and writes the results to the results disk. test/vm/run.sh prints lines that begin with
# "vm: ".
set -u
. /payload/env
results=/run/results
mkdir -p $results
failed=
say() { echo "vm: [$(cut -d. -f1 /proc/uptime)s] $*"; }

install_network() {
	mkdir -p /opt/cni /etc/cni/net.d
	ln -sfn /payload/cni /opt/cni/bin
	cp /payload/10-vm.conflist /etc/cni/net.d/
}

# install_debs FILE...: installs debs that are on the payload disk, and checks the node.
install_debs() {
	DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends --allow-downgrades install "$@" &&
		podd config check --node
}

# The older deb, with Debian's runc. It starts podd.
install_package() {
	install_network
	ln -sf /payload/bin/crictl /usr/local/bin/
	install_debs /payload/runc_*.deb /payload/libseccomp2_*.deb /payload/old.deb
}

# purge removes what install_package has installed, and fails if anything of podd is left.
purge() {
	local left
	systemctl stop podd
	podd wipe --yes --images && apt-get -qq -y purge podd || return
	left=$(find / -xdev \( -path /proc -o -path /sys -o -path /payload -o -path /var/log -o -path /var/lib/dpkg -o \
		-path /var/cache -o -path /run/results \) -prune -o -name '*podd*' ! -name 'podd-vm*' -print
		find /sys/fs/cgroup -name '*podd*' ! -name 'podd-vm*'
		grep podd /proc/self/mounts
		grep podd /sys/kernel/security/apparmor/profiles)
	[ -z "$left" ] || { sed 's/^/vm:   left: /' <<<"$left"; return 1; }
}

# The files stay on the payload disk, linked to the paths of an installation.
install_podd() {
	install_network
	ln -sf /payload/bin/{podd,runc,crictl,criu} /usr/local/bin/
	mkdir -p /etc/podd/podd.toml.d /usr/local/lib/systemd/system
	cp /payload/crictl.yaml /etc/
	cp /payload/podd.service /usr/local/lib/systemd/system/
	[ "$handler" = runc ] || printf '[runtime]\ndefault_handler = "%s"\n' "$handler" >/etc/podd/podd.toml.d/50-vm.toml
	printf '[runtime.handlers.writable]\npath = "%s"\nwritable_cgroups = true\n' "$handler" \
		>/etc/podd/podd.toml.d/60-writable.toml
	printf '[runtime]\nblockio_config_file = "/etc/podd/blockio.yaml"\n' >/etc/podd/podd.toml.d/70-blockio.toml
	cat >/etc/podd/blockio.yaml <<-END
		Classes:
		  slow:
		  - Devices: ["/dev/nvme*n1"]
		    ThrottleReadBps: 3M
	END
	systemctl daemon-reload
}

network() {
	ip link set lo up
	ip link set eth0 up
	ip addr add 10.0.2.15/24 dev eth0
	ip route add default via 10.0.2.2
}

# Loads the policy of test/vm/selinux and has the kernel enforce it. podd reads from lxc_contexts which labels containers
# have; a distribution's policy brings such a file.
selinux() {
	local conf=/etc/selinux/podd-test/contexts
	mkdir -p $conf
	echo SELINUXTYPE=podd-test >/etc/selinux/config
	cat >$conf/lxc_contexts <<-END
		process = "system_u:system_r:container_t:s0"
		file = "system_u:object_r:container_file_t:s0"
	END
	mountpoint -q /sys/fs/selinux || mount -t selinuxfs selinuxfs /sys/fs/selinux || return
	dd if=/payload/selinux.policy of=/sys/fs/selinux/load bs=1M status=none && echo 1 >/sys/fs/selinux/enforce
}

# Starts the test registry and waits for its configuration files, which it writes where podd reads them.
registry() {
	mkdir -p /etc/containers
	systemd-run -q --unit=testimages -E PODD_CACHE=/payload/cache \
		/payload/bin/testimages serve 127.0.0.1:5000 /etc/containers
	for _ in $(seq 100); do
		[ ! -f /etc/containers/policy.json ] || return 0
		sleep 0.1
	done
	return 1
}

# must NAME COMMAND...: a step that the others need; if it fails, the run ends.
must() {
	local name=$1
	shift
	say "$name"
	"$@" || { say "FAILED: $name"; failed=1; finish; }
}

# check NAME COMMAND...: a test; if it fails, the others still run.
check() {
	local name=$1 start=$SECONDS
	shift
	if "$@"; then
		say "passed: $name ($((SECONDS - start))s)"
	else
		say "FAILED: $name ($((SECONDS - start))s)"
		failed=1
	fi
}

# After its start podd runs conmon and runc to learn their versions. Until then the node is not ready.
ready() {
	for _ in $(seq 60); do
		crictl info | tr -d ' \n' | grep -q '"status":true,"type":"RuntimeReady"' && return
		sleep 1
	done
	crictl info
	return 1
}

# Runs one pod before the leak check's snapshot: podd and the CNI plugins keep what they make for the first pod.
warm_up() {
	local pod
	printf '{"metadata":{"name":"warm","namespace":"vm","uid":"warm"},"linux":{}}' >/run/warm.json
	pod=$(crictl runp /run/warm.json) && crictl rmp -f "$pod"
}

checks() {
	/payload/bin/checks -test.v -test.run "$run" -test.timeout 40m 2>&1 | tee $results/checks.log |
		sed -u -n 's/^ *--- /vm:   /p'
	local status=${PIPESTATUS[0]}
	[ "$status" = 0 ] || grep -v '^=== ' $results/checks.log
	return "$status"
}

critest() {
	# critest runs apparmor_parser with sudo, which is not installed. It is root here.
	printf '#!/bin/sh\nexec "$@"\n' >/usr/local/bin/sudo
	chmod +x /usr/local/bin/sudo
	local args=(--runtime-endpoint unix:///run/podd/podd.sock --image-endpoint unix:///run/podd/podd.sock
		--nri-socket /run/nri/nri.sock --ginkgo.no-color --ginkgo.focus "$focus" --ginkgo.timeout 60m
		--ginkgo.poll-progress-after 3m
		--ginkgo.junit-report $results/critest.xml)
	[ ! -s /payload/skip ] || args+=(--ginkgo.skip "$(cat /payload/skip)")
	[ -z "$seed" ] || args+=(--ginkgo.seed "$seed")
	/payload/bin/critest "${args[@]}" >$results/critest.log 2>&1 &
	local pid=$!
	while sleep 20 && kill -0 $pid 2>/dev/null; do
		say "critest: $(grep -o '•' $results/critest.log | wc -l) specs done"
	done
	wait $pid
	local status=$?
	sed -n '/^Summarizing /,$p' $results/critest.log
	grep -E '^(Ran |SUCCESS!|FAIL!)' $results/critest.log | sed 's/^/vm:   /'
	grep -E '^  \[(FAIL|PANICKED|TIMEDOUT|INTERRUPTED)\]' $results/critest.log | sed 's/^/vm: /'
	# This machine has everything that critest's specs need: a spec that skips itself is a failure.
	if grep -o 'message="skipped - [^"]*' $results/critest.xml | sort | uniq -c | sed 's/^/vm:   /' | grep .; then
		return 1
	fi
	return $status
}

# Compares the machine with the snapshot. With -all every difference is a failure: nothing else runs here.
leaks() {
	# critest does not remove the slice that it names as the pods' parent; a kubelet removes its own. podd's process is
	# ignored, because tests restart it.
	systemctl stop test.slice 2>/dev/null
	/payload/bin/leak diff /run/before.json -all -ignore '/bin/podd serve' -wait 15s |
		tee $results/leaks.log | sed 's/^/vm:   /'
	return "${PIPESTATUS[0]}"
}

# Fails if a unit failed, or if podd's journal has a panic, a data race or a watchdog timeout.
journal() {
	local bad
	bad=$(systemctl list-units --failed --plain --no-legend
		journalctl -b -u podd -o cat | grep -E '^panic|panic=|DATA RACE|^fatal error|Watchdog timeout')
	[ -z "$bad" ] || { sed 's/^/vm:   /' <<<"$bad"; return 1; }
}

finish() {
	systemd-analyze blame --no-pager >$results/boot.log 2>&1
	systemd-analyze critical-chain --no-pager >>$results/boot.log 2>&1
	journalctl -b -u podd -o short-monotonic --no-hostname >$results/podd.log
	journalctl -b -o short-monotonic --no-hostname >$results/journal.log
	dmesg >$results/dmesg.log
	[ -n "$failed" ] && echo failed >$results/status || echo passed >$results/status
	tar -C $results -cf - . | dd of=/dev/disk/by-id/virtio-results bs=1M conv=sparse,fsync status=none
	say "power off"
	exit 0
}

systemd=$(systemctl --version | awk 'NR == 1 { print $2 }')
apparmor=$(cat /sys/module/apparmor/parameters/enabled)
say "Linux $(uname -r), systemd $systemd, $(stat -fc %T /sys/fs/cgroup), AppArmor $apparmor"
must "network" network
case $mode in
packages) must "install the package" install_package ;;
*) must "install podd" install_podd ;;
esac
must "test registry" registry
[ "$mode" != selinux ] || must "SELinux" selinux
must "systemctl start podd" systemctl start podd
must "runtime ready" ready
must "first pod" warm_up
if [ "$mode" = shell ]; then
	cd /root || exit
	PATH=$PATH:/payload/bin exec bash -i
fi
/payload/bin/leak take /run/before.json
case $mode in all | checks | selinux | packages) check "podd's own checks" checks ;; esac
[ "$mode" != packages ] || must "install the newer package" install_debs /payload/new.deb
case $mode in all | critest | packages) check "critest with $handler" critest ;; esac
check "leak check" leaks
[ "$mode" != packages ] || check "purge" purge
check "no failed units, no panics in the journal" journal
finish
