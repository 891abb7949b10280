#!/bin/bash
# Runs in the virtual machine, from the payload disk: configures the network, and then runs the commands that the test
# sends through a virtio serial port. A command is a line in base64; the answer is a line with the exit status and the
# output in base64. The machine powers off when this ends.
set -u
. /payload/env
ip link set lo up
ip link set eth0 up
ip addr add "$address/24" dev eth0
ip route add default via "$gateway"
echo "nameserver $gateway" >/etc/resolv.conf
echo "$name" >/etc/hostname
hostname "$name"
printf '127.0.0.1 localhost\n%s %s\n' "$address" "$name" >/etc/hosts

port=/dev/virtio-ports/commands
for _ in $(seq 100); do
	[ ! -e $port ] || break
	sleep 0.1
done
exec 3<>$port
cd /payload
echo ready >&3
while read -r line <&3; do
	out=$(
		bash -c "$(base64 -d <<<"$line")" </dev/null 2>&1 3>&- | base64 -w0
		exit "${PIPESTATUS[0]}"
	)
	echo "$? $out" >&3
done
