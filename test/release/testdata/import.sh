#!/bin/sh
# Pulls images with another runtime, imports them into podd and runs one, with all registries gone.
#
#	import.sh DIRECTORY BIN PEERS containerd|crio
#
# BIN has podd, crictl, runc, cni and testimages, PEERS the other runtime.
set -eu
dir=$1 bin=$2 peers=$3 other=$4 theirs=$1/theirs
export PATH="$bin:$PATH"
say() { echo "== $*"; }
podd() { "$bin/podd" --root "$dir/podd" --run "$dir/run" --set "network.netns_dir=$dir/run/netns" \
	--set "runtime.search_path=[\"$bin\", \"/usr/bin\"]" --set image.registries_conf=/absent --set image.policy=/absent "$@"; }
from="--from $other --$other-root $theirs"
import() { podd image import $from; }
wait_for() { # SECONDS COMMAND...
	tries=$(($1 * 5))
	shift
	while ! "$@" >/dev/null 2>&1; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || { echo "waited in vain: $*"; tail -n 20 "$dir"/*.log; exit 1; }
		sleep 0.2
	done
}
end() { kill "$1" && wait "$1" || :; }

# What runs in the background ends with the script.
running=
trap '[ -z "$running" ] || kill $running 2>/dev/null || :' EXIT

run_containerd() {
	cat >"$dir/certs/_default/hosts.toml" <<END
server = "http://$addr"
[host."http://$addr"]
capabilities = ["pull", "resolve"]
END
	cat >"$dir/config.toml" <<END
version = 3
root = "$theirs"
state = "$dir/state"
[grpc]
address = "$dir/theirs.sock"
[plugins."io.containerd.internal.v1.opt"]
path = "$dir/opt"
[plugins."io.containerd.nri.v1.nri"]
disable = true
[plugins."io.containerd.cri.v1.images".registry]
config_path = "$dir/certs"
END
	exec "$peers/containerd" --config "$dir/config.toml"
}
run_crio() {
	cat >"$dir/crio.conf" <<END
[crio]
root = "$theirs"
runroot = "$dir/state"
storage_driver = "overlay"
log_dir = "$dir/logs"
version_file = "$dir/version"
version_file_persist = ""
clean_shutdown_file = "$dir/clean"
[crio.api]
listen = "$dir/theirs.sock"
stream_address = "127.0.0.1"
stream_port = "0"
[crio.runtime]
default_runtime = "runc"
cgroup_manager = "cgroupfs"
namespaces_dir = "$dir/state/ns"
container_exits_dir = "$dir/state/exits"
container_attach_socket_dir = "$dir/state/attach"
pinns_path = "$peers/pinns"
enable_criu_support = false
[crio.runtime.runtimes.runc]
runtime_path = "$bin/runc"
runtime_root = "$dir/state/runc"
monitor_path = "$(command -v conmon)"
monitor_cgroup = "pod"
[crio.image]
signature_policy = "$dir/conf/policy.json"
[crio.network]
network_dir = "$dir/certs"
plugin_dirs = ["$bin/cni"]
[crio.nri]
enable_nri = false
END
	exec "$peers/crio" --config "$dir/crio.conf" --config-dir "" --registries-conf "$dir/conf/registries.conf"
}

say "pull with $other"
mkdir -p "$dir/conf" "$dir/certs/_default"
testimages serve 127.0.0.1:0 "$dir/conf" >"$dir/registry.log" 2>&1 &
registry=$! running=$!
wait_for 60 grep '^serving on' "$dir/registry.log"
addr=$(sed -n 's/^serving on //p' "$dir/registry.log")
run_"$other" >"$dir/$other.log" 2>&1 &
runtime=$! running="$running $!"
there="crictl -r unix://$dir/theirs.sock -i unix://$dir/theirs.sock"
wait_for 60 $there images
for name in $(testimages build | grep -v -e foreign -e hostile); do
	$there pull "registry.test/$name" >/dev/null
done
$there images -q --no-trunc | sed "s,^sha256:,," | sort -u >"$dir/before"
[ "$(wc -l <"$dir/before")" -ge 10 ]
if [ "$other" = containerd ]; then # CRI-O holds no lock
	import >"$dir/refused" 2>&1 && exit 1
	grep "stop containerd first" "$dir/refused"
fi
end $runtime
end $registry

say "import, killed ever later"
for delay in 0.2 0.4 0.6 0.8 1 1.3 1.6 2 2.5 3; do
	setsid sh -c "exec timeout -s KILL $delay \"\$@\"" sh "$bin/podd" --root "$dir/podd" --run "$dir/run" \
		--set image.registries_conf=/absent --set image.policy=/absent \
		image import $from >"$dir/killed.log" 2>&1 || :
	tail -n 1 "$dir/killed.log" | cut -c1-100
done
wait_for 30 podd check --images # the lock is free once the killed processes have ended
find "$theirs" -type f -exec sha256sum {} + | sort >"$dir/sums"
import 2>/dev/null
say "again"
import >"$dir/again" 2>/dev/null
tail -n 1 "$dir/again" | grep "^0 images imported, [1-9][0-9]* were present, 0 not imported"
find "$theirs" -type f -exec sha256sum {} + | sort | cmp - "$dir/sums"
podd check --images 2>/dev/null

say "run"
podd serve >"$dir/podd.log" 2>&1 &
podd=$!
here="crictl -r unix://$dir/run/podd.sock -i unix://$dir/run/podd.sock"
wait_for 60 $here images
$here images -q --no-trunc | sed "s,^sha256:,," | sort -u | cmp - "$dir/before"
cat >"$dir/pod.json" <<END
{"metadata": {"name": "a", "namespace": "b", "uid": "c"}, "log_directory": "$dir",
 "linux": {"security_context": {"namespace_options": {"network": 2}}}}
END
cat >"$dir/container.json" <<END
{"metadata": {"name": "a"}, "image": {"image": "registry.test/library/busybox:latest"},
 "command": ["/bin/sh", "-c", "echo it runs"], "log_path": "a.log",
 "linux": {"security_context": {"namespace_options": {"network": 2}}}}
END
pod=$($here runp "$dir/pod.json")
$here start "$($here create "$pod" "$dir/container.json" "$dir/pod.json")"
wait_for 20 grep "it runs" "$dir/a.log"
kill "$(cat "$dir/podd/lock")"
wait $podd || :
podd wipe --yes --images
say "done"
