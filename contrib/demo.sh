#!/bin/sh
# Demonstrates podd: starts it on private directories, runs and inspects a pod with crictl, kills the daemon meanwhile,
# removes the pod, and checks that nothing is left on the machine. `make demo` builds what it needs first. Needs root.
set -eu
cd "$(dirname "$0")/.."

hint='make demo builds everything that this needs: run that, as root'
bold= plain=
[ ! -t 1 ] || { bold='\033[1m' plain='\033[0m'; }
step() { # step TITLE HINT: print the title; HINT is printed if the step fails
	printf "\\n$bold%s$plain\\n" "$1"
	hint=$2
}
run() { # run COMMAND...: print a command and run it
	printf '  $ %s\n' "$*"
	"$@" | sed -e 's/\x1b\[[0-9;]*[A-Za-z]//g' -e 's/^/    /' # crictl stats clears the screen
}
crictl() { bin/crictl --config "$dir/crictl.yaml" "$@"; }

[ "$(id -u)" = 0 ] || { echo "the demo creates namespaces, mounts and cgroups: run it as root" >&2; exit 1; }

# Short, because the path of a unix socket has at most 107 bytes; searchable by all users, because the root filesystems
# of containers are below it.
dir=$(mktemp -d /tmp/podd-demo-XXXXXX)
chmod 755 "$dir"
bridge=pd$(printf %s "$dir" | tail -c 6)
pid=
# The pod's parent cgroup, which a kubelet would create and remove: a slice under systemd, else a path.
cgroup=$(basename "$dir") parent=/$(basename "$dir")
[ ! -d /run/systemd/system ] || { cgroup=$(printf %s "$cgroup" | tr -d -).slice parent=$cgroup; }
remove_cgroup() { find /sys/fs/cgroup -depth -type d -name "$cgroup" -exec rmdir {} +; }

start() { # start podd and wait until it serves
	bin/podd --config "$dir/podd.toml" >>"$dir/podd.log" 2>&1 &
	pid=$!
	for _ in $(seq 200); do
		crictl --timeout 1s version >/dev/null 2>&1 && return
		kill -0 $pid 2>/dev/null || break
		sleep 0.05
	done
	return 1
}

end() { # at exit: clean up; after a failure print the hint
	status=$?
	trap - EXIT
	if [ $status != 0 ]; then
		printf "\\n${bold}This step failed.$plain %s\\n" "$hint"
		[ ! -f "$dir/podd.log" ] || {
			echo "The end of podd's log:"
			tail -n 15 "$dir/podd.log" | cut -c1-300 | sed 's/^/    /'
		}
		for p in $(crictl pods -q 2>/dev/null); do crictl rmp -f "$p" >/dev/null 2>&1 || true; done
	fi
	[ -z "$pid" ] || { kill $pid 2>/dev/null && wait $pid || true; }
	ip link del "$bridge" 2>/dev/null || true
	remove_cgroup 2>/dev/null || true
	rm -rf "$dir" 2>/dev/null || echo "something is still mounted below $dir: see findmnt -R $dir"
	exit $status
}
trap end EXIT
trap 'exit 130' INT TERM

step "1. Create private directories in $dir" "See the message above. Is /tmp writable?"
test/host/setup.sh
bin/leak take "$dir/before.json"
mkdir -p "$dir/root/preload" "$dir/run" "$dir/net.d" "$dir/logs"
cat >"$dir/podd.toml" <<END
# All other keys have their defaults: see podd config default.
root = "$dir/root"
run = "$dir/run"

[runtime]
search_path = ["$PWD/bin", "/usr/local/bin", "/usr/sbin", "/usr/bin"]

# Otherwise runsc pins a network namespace for its helper processes and never removes it.
[runtime.handlers.gvisor.options]
gofer-network-namespace = "new"

[runtime.handlers.gvisor-shim]
type = "shim"
path = "containerd-shim-runsc-v1"

[runtime.handlers.vm]
type = "shim"
path = "containerd-shim-podvm-v1"
options = {driver = "uml", images = "$PWD/bin/vm"}

[network]
conf_dir = "$dir/net.d"
bin_dirs = ["$PWD/bin/cni"]
END
cat >"$dir/net.d/10-demo.conflist" <<END
{"cniVersion": "1.0.0", "name": "$bridge", "plugins": [
  {"type": "bridge", "bridge": "$bridge", "isGateway": true, "ipMasq": true,
   "ipam": {"type": "host-local", "dataDir": "$dir/ips", "ranges": [[{"subnet": "10.222.0.0/24"}]],
            "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
END
cat >"$dir/crictl.yaml" <<END
runtime-endpoint: unix://$dir/run/podd.sock
image-endpoint: unix://$dir/run/podd.sock
timeout: 30
END
echo '  podd.toml, a CNI network on 10.222.0.0/24, crictl.yaml'

step '2. Build an image from busybox, without a registry, in the directory from which podd loads images' \
	'The image is built from Debian packages. Is a Debian mirror reachable? Try: apt-get update'
run bin/testimages export e2e-test-images/busybox:1.29-2 example.com/demo:1 "$dir/root/preload/demo"
echo "  an OCI layout in $dir/root/preload/demo"

step '3. Start podd' \
	"See the log below. bin/podd config check --config $dir/podd.toml checks the configuration."
start
run crictl version
grep -h 'handler' "$dir/podd.log" | sed -n 's/.*msg="\([^"]*\)" \(.*\)/    log: \1 \2/p' | cut -c1-150 | head -n 4
for _ in $(seq 200); do [ -z "$(crictl images -q example.com/demo:1)" ] || break; sleep 0.05; done
run crictl images

step '4. Run a pod' 'crictl info shows what is missing. iptables, conmon and runc are needed: make deps tools'
cat >"$dir/pod.json" <<END
{"metadata": {"name": "demo", "namespace": "default", "uid": "demo-1"}, "hostname": "demo", "log_directory": "$dir/logs",
 "linux": {"cgroup_parent": "$parent", "security_context": {"namespace_options": {"pid": 1}}}}
END
cat >"$dir/container.json" <<END
{"metadata": {"name": "web"}, "image": {"image": "example.com/demo:1"}, "log_path": "web.log",
 "labels": {"io.kubernetes.pod.name": "demo", "io.kubernetes.pod.namespace": "default"},
 "command": ["sh", "-c", "echo Hello from \$(hostname), pid \$\$, uid \$(id -u); echo It works. >/tmp/index.html; httpd -p 80 -h /tmp; n=0; while sleep 1; do n=\$((n+1)); echo line \$n; done"]}
END
pod=$(crictl runp "$dir/pod.json")
echo "  pod $pod"
container=$(crictl create "$pod" "$dir/container.json" "$dir/pod.json")
run crictl start "$container"
run crictl pods
run crictl ps

step '5. Its log, a command in it, its address' \
	'See crictl inspect and crictl logs of the container. The bridge plugin needs iptables.'
for _ in $(seq 100); do grep -qs Hello "$dir/logs/web.log" && break; sleep 0.05; done
run crictl logs "$container"
run crictl exec -s "$container" sh -c 'echo I am $(id -un) in $(cat /etc/hostname), with pid $$; ip -4 -o addr show eth0'
ip=$(crictl inspectp -o go-template --template '{{.status.network.ip}}' "$pod")
run busybox wget -q -O - "http://$ip/"

step '6. Its resource usage' 'See the log below.'
run crictl stats "$container"

step '7. Kill the daemon and start it again: the pod keeps running' \
	'The log below says which pods podd could not take over.'
kill -9 $pid
wait $pid 2>/dev/null || true
sleep 2
start
run crictl ps
run crictl logs --tail 3 "$container"

step '8. Remove the pod' 'The log below says what could not be removed. crictl rmp -f tries again.'
run crictl stopp "$pod"
run crictl rmp "$pod"

step '9. The same pod under each runtime handler, and the kernel that it sees' \
	'crictl info shows which handlers are ready, and why others are not. make tools builds gVisor.'
others=
for handler in $(crictl info | jq -r '.handlers | to_entries[] | select(.value.ready) | .key'); do
	sed "s/\"demo\"/\"demo-$handler\"/; s/demo-1/demo-$handler/" "$dir/pod.json" >"$dir/pod-$handler.json"
	other=$(crictl runp -r "$handler" "$dir/pod-$handler.json")
	inside=$(crictl create "$other" "$dir/container.json" "$dir/pod-$handler.json")
	crictl start "$inside" >/dev/null
	printf '  %-12s uname -r: %-20s dmesg: %s\n' "$handler" "$(crictl exec -s "$inside" uname -r)" \
		"$(crictl exec -s "$inside" sh -c 'dmesg 2>&1' 2>/dev/null | head -n 1 | cut -c1-60)"
	crictl rmp -f "$other" >/dev/null
	others="$others -only $other -only $inside"
done

step '10. Stop podd and check that nothing is left' 'This is a bug: please report the lines above.'
kill $pid
wait $pid || true
pid=
ip link del "$bridge" # the CNI plugin creates it for all pods and never removes it
remove_cgroup
# Only resources whose names contain one of these are reported.
# shellcheck disable=SC2086 # a list of words is meant
bin/leak diff "$dir/before.json" -only "$dir/" -only "$bridge" -only "$cgroup" -only "$pod" -only "$container" \
	-only 10.222.0. $others
echo '  nothing is left: no network namespace, mount, cgroup, process, address or rule'
