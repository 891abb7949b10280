#!/bin/sh
# Runs a program that asks the driver for its device in containers of a private podd: in one that has a GPU by CDI, and
# in one that has none. Needs root, a GPU with its driver, conmon, jq, and bin/{podd,runc,crictl,testimages} with the
# test images, all made by `make build tools images`; no network.
#
# GPU_NODES are the device nodes, GPU_PROGRAM is the program with its arguments. The defaults are NVIDIA's. Another
# device shows that the script works: GPU_NODES=/dev/loop0 GPU_PROGRAM='head -c 1 /dev/loop0' test/gpu/run.sh
set -eu
cd "$(dirname "$0")/../.."

say() { echo "gpu: $*"; }
fail() { say "FAILED: $*"; exit 1; }

[ "$(id -u)" = 0 ] || { say "run this as root"; exit 2; }
nodes=${GPU_NODES:-$(ls -d /dev/nvidia[0-9]* /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia-uvm-tools 2>/dev/null || true)}
[ -n "$nodes" ] || { say "this machine has no GPU: no /dev/nvidia*. Nothing was tested."; exit 77; }
first=$(set -- $nodes; echo "$1")
# shellcheck disable=SC2086 # words are meant
set -- ${GPU_PROGRAM:-nvidia-smi -L}
program=$(command -v "$1") || { say "no program $1: is the driver installed?"; exit 2; }
shift

dir=$(mktemp -d /tmp/podd-gpu-XXXXXX)
chmod 755 "$dir"
pid=
cgroup=$(basename "$dir") parent=/$(basename "$dir")
[ ! -d /run/systemd/system ] || { cgroup=$(printf %s "$cgroup" | tr -d -).slice parent=$cgroup; }
crictl() { bin/crictl --config "$dir/crictl.yaml" "$@"; }
end() {
	status=$?
	trap - EXIT
	[ $status = 0 ] || tail -n 20 "$dir/podd.log" 2>/dev/null | cut -c1-300
	for p in $(crictl pods -q 2>/dev/null); do crictl rmp -f "$p" >/dev/null 2>&1 || true; done
	[ -z "$pid" ] || { kill "$pid" 2>/dev/null && wait "$pid" || true; }
	find /sys/fs/cgroup -depth -type d -name "$cgroup" -exec rmdir {} + 2>/dev/null || true
	rm -rf "$dir"
	exit $status
}
trap end EXIT
trap 'exit 130' INT TERM

mkdir -p "$dir/cdi" "$dir/logs" "$dir/root/preload" "$dir/net.d"
# The program, the libraries that it is linked with, and the driver's that it loads.
files() {
	echo "$program"
	ldd "$program" 2>/dev/null | grep -o '/[^ ]*'
	ldconfig -p 2>/dev/null | sed -n 's/.* => \(.*lib\(nvidia\|cuda\).*\)/\1/p'
}
files | sort -u | jq -Rn --arg nodes "$nodes" '
	{cdiVersion: "0.5.0", kind: "podd.test/gpu", devices: [{name: "0", containerEdits: {
		deviceNodes: [$nodes | splits("\\s+") | {path: .}],
		mounts: [inputs | {hostPath: ., containerPath: ., options: ["ro", "nosuid", "nodev", "bind"]}]}}]}' >"$dir/cdi/gpu.json"
cat >"$dir/podd.toml" <<END
root = "$dir/root"
run = "$dir/run"
[runtime]
search_path = ["$PWD/bin", "/usr/libexec/podd", "/usr/local/bin", "/usr/bin"]
cdi_spec_dirs = ["$dir/cdi"]
[network]
conf_dir = "$dir/net.d"
END
printf 'runtime-endpoint: unix://%s\nimage-endpoint: unix://%s\n' "$dir/run/podd.sock" "$dir/run/podd.sock" \
	>"$dir/crictl.yaml"
bin/testimages export e2e-test-images/busybox:1.29-2 example.com/gpu:1 "$dir/root/preload/gpu" || exit 2
bin/podd --config "$dir/podd.toml" >"$dir/podd.log" 2>&1 &
pid=$!
for _ in $(seq 100); do [ -z "$(crictl images -q example.com/gpu:1 2>/dev/null)" ] || break; sleep 0.1; done
jq -n --arg parent "$parent" --arg logs "$dir/logs" '{metadata: {name: "gpu", namespace: "default", uid: "gpu"},
	log_directory: $logs, linux: {cgroup_parent: $parent, security_context: {namespace_options: {network: 2}}}}' \
	>"$dir/pod.json"
pod=$(crictl runp "$dir/pod.json") || fail "no pod; does this machine allow containers?"

# container NAME CDI COMMAND: runs a shell command in a container, prints its output, and has its status. CDI is a list
# of devices.
container() {
	jq -n --arg name "$1" --argjson cdi "$2" --arg command "$3" '{metadata: {name: $name},
		image: {image: "example.com/gpu:1"}, log_path: ($name + ".log"), CDI_devices: $cdi,
		command: ["sh", "-c", $command]}' >"$dir/$1.json"
	id=$(crictl create "$pod" "$dir/$1.json" "$dir/pod.json") && crictl start "$id" >/dev/null || return 1
	state=
	for _ in $(seq 300); do
		state=$(crictl inspect -o go-template --template '{{.status.state}} {{.status.exitCode}}' "$id")
		case $state in CONTAINER_EXITED*) break ;; esac
		sleep 0.2
	done
	cut -d' ' -f4- "$dir/logs/$1.log" | head -c 4000 | sed 's/^/    /'
	[ "$state" = 'CONTAINER_EXITED 0' ]
}

say "device nodes:" $nodes
say "in a container with the device: $program $*"
container with '[{"name": "podd.test/gpu=0"}]' "exec $program $*" || fail "the program failed"
say "in a container without it the nodes are absent, and cannot be opened if made"
kind=c
[ ! -b "$first" ] || kind=b
number=$(stat -c '%t %T' "$first" | (read -r major minor; echo $((0x$major)) $((0x$minor))))
container without '[]' "for n in $(echo $nodes); do [ ! -e \$n ] || exit 1; done
	mknod /tmp/gpu $kind $number && (: </tmp/gpu) 2>&1 | grep 'not permitted'" || fail "a container without the device can use it"
say "passed"
