#!/bin/bash
# nightly.sh [NAME]...: runs every suite that there is, or those named, on the last commit, one after the other, and
# writes test/NIGHTLY.md, which keeps the rows of earlier commits until their suite is run again. A suite that has passed
# on this commit is not run again, so an interrupted run goes on where it stopped. Logs are in bin/nightly/COMMIT. Exits
# with 1 unless all suites have passed on this commit. As root; many hours.
set -uo pipefail
cd "$(dirname "$0")/.."

# name | limit | command | what it proves
suites() {
	cat <<-'LIST'
	test | 60m | make test | what CI runs
	unit-race | 60m | SOAK=1 PODD_SAMPLE=all make unit RACED=. | all unit tests with the race detector, every step of the every-step tests
	integration-race | 90m | PODD_SAMPLE=all make integration RACE_ALL=1 | all integration tests, the daemon with the race detector
	critest | 30m | make critest ROUNDS=3 | the CRI validation suite with runc and crun, three random orders
	critest-gvisor | 40m | make critest-gvisor ROUNDS=2 | the same with gVisor, under conmon and through its shim
	critest-vm | 40m | make critest HANDLERS=vm ROUNDS=2 | the same in virtual machines, User-Mode Linux
	critest-vm-qemu | 60m | make critest HANDLERS=vm-qemu ROUNDS=1 | the same in virtual machines, QEMU emulated
	soak | 180m | make soak | the long variants of the tests of crashes, disks and hanging dependencies
	fuzz | 90m | make fuzz FUZZTIME=2m | every fuzz target for two minutes
	qemu | 40m | make test-qemu | pods in virtual machines of QEMU
	containerd | 20m | make test-containerd | containerd runs pods with podd's shim
	workloads | 40m | make test-workloads | real programs from Debian packages on runc, crun, gVisor and in machines
	kata | 20m | make test-kata | podd drives the shim of Kata Containers
	vm | 60m | make test-vm | cgroup v2, systemd, AppArmor
	selinux | 30m | make test-selinux | an enforcing SELinux kernel
	k8s | 60m | make test-k8s | a cluster of two nodes
	k8s-vm | 60m | make test-k8s-vm | kubeadm, feature gates, a node without root
	conformance | 90m | make conformance | Kubernetes' node tests
	conformance-vm | 120m | make conformance-vm LIMIT=110m | NodeConformance on a node with cgroup v2, systemd and kubeadm
	vulncheck | 20m | make vulncheck | functions that podd calls, against the Go vulnerability database
	nri | 30m | make test-nri | NRI plugins of other projects
	lazy | 20m | make test-lazy | a real additional layer store
	ui | 20m | make test-ui | the page in Chromium
	prometheus | 20m | make test-prometheus | alerts and dashboard
	cilium | 20m | make test-cilium | names of cgroups as Cilium reads them
	release | 60m | make test-release | packages, installed in chroots
	torture | 40m | make torture | a model of the kubelet with a real podd, faults of all kinds at once
	endurance | 40m | make endurance LENGTH=20m | churn with probes, pulls and kills
	LIST
}

# The last commit that changed more than results.
results_of=(':!test/NIGHTLY.md' ':!test/workloads/MATRIX.txt')
git() { command git -c safe.directory='*' "$@"; } # root may run it in the checkout of another user
commit=$(git log -1 --format=%h -- . "${results_of[@]}") && [ -n "$commit" ] || exit 1
changes=$(git status --porcelain -- . "${results_of[@]}") || exit 1
[ -z "$changes" ] || { echo "nightly: commit your changes first" >&2; exit 1; }
results=$PWD/bin/nightly/$commit
mkdir -p "$results"

# run NAME LIMIT COMMAND: leaves NAME.log, and NAME.result: the exit code, minutes and date.
run() {
	echo "nightly: $1: $3"
	local began=$SECONDS rc=0
	timeout --kill-after=1m "$2" sh -c "$3" >"$results/$1.log" 2>&1 </dev/null || rc=$?
	echo "$rc $(((SECONDS - began + 30) / 60)) $(date +%F)" >"$results/$1.result"
	[ $rc = 0 ] || tail -n 5 "$results/$1.log"
}

# counts LOG: tests that passed, failed and were skipped, of Go's and Ginkgo's output.
counts() {
	awk '/^ok /{p++} /^(FAIL|---? FAIL)/{f++} /^ *--- SKIP/{s++}
		/ Passed .* Failed .* Skipped/{gsub(/[^0-9|]/, ""); split($0, n, "|"); p+=n[1]; f+=n[2]; s+=n[4]}
		END{printf "%d passed, %d failed, %d skipped", p, f, s}' "$1"
}

# table EARLIER: the table, with the rows of an earlier one for suites that were not run on this commit.
table() {
	echo "# The last run of each suite"
	echo
	echo "Written by \`make nightly\`. A row counts packages, or specs with critest."
	echo
	echo "| suite | command | what it proves | result | counts | minutes | date | commit |"
	echo "|---|---|---|---|---|---|---|---|"
	suites | while IFS='|' read -r name limit command what; do
		name=${name//[$' \t']/}
		if [ ! -f "$results/$name.result" ]; then
			grep "^| $name |" "$1" || echo "| $name | \`$(echo $command)\` | $(echo $what) | not run | | | | |"
			continue
		fi
		read -r rc minutes date <"$results/$name.result"
		case $rc in 0) result=passed ;; 124 | 137) result="**longer than ${limit// /}**" ;; *) result="**failed**" ;; esac
		echo "| $name | \`$(echo $command)\` | $(echo $what) | $result | $(counts "$results/$name.log") | $minutes | $date |" \
			"$commit |"
	done
}

wanted=" $* "
while IFS='|' read -r name limit command _; do
	name=${name//[$' \t']/}
	[ $# = 0 ] || [[ $wanted == *" $name "* ]] || continue
	[ "$(cut -d ' ' -f 1 "$results/$name.result" 2>/dev/null)" = 0 ] || run "$name" ${limit} "$(echo $command)"
	new=$(table test/NIGHTLY.md 2>/dev/null)
	echo "$new" >test/NIGHTLY.md
done < <(suites)
missing=$(suites | while IFS='|' read -r name _; do
	name=${name//[$' \t']/}
	[ "$(cut -d ' ' -f 1 "$results/$name.result" 2>/dev/null)" = 0 ] || echo "$name"
done)
[ -z "$missing" ]
