# "make help" lists the targets. Anything longer than a few lines is a script in contrib/ or a program in test/.

GO       ?= go
# The last one leaves out pages about calls, which podd does not serve and which keep dead code (TestDeadCodeIsLeftOut).
TAGS     := containers_image_openpgp,nri_no_wasm,grpcnotrace
# The race detector needs cgo, and with cgo the storage library needs the btrfs headers unless they are excluded.
RACETAGS := $(TAGS),exclude_graphdriver_btrfs
RACE     := -race -tags "$(RACETAGS)"
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT   ?= $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS  := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
# The compiler of the C programs that podd embeds.
ifeq ($(origin CC),default)
CC       := gcc
endif

# All checks of staticcheck except those for the form of comments and names.
CHECKS   := all,-ST1000,-ST1003,-ST1020,-ST1021,-ST1022
# All modernizers of "go fix" except the one that makes every += on a string a strings.Builder.
FIXES    := -stringsbuilder=false
# The linters, pinned in contrib/tools/go.mod; Go caches the built programs.
LINTER   := env CGO_ENABLED=0 GOFLAGS="-tags=$(TAGS)" $(GO) tool -modfile=contrib/tools/go.mod
VMLINTER := env CGO_ENABLED=0 $(GO) tool -modfile=$(CURDIR)/contrib/tools/go.mod

# The runtime handlers that "make critest" tests.
HANDLERS ?= runc,crun
# The other ones of "make test", which runs every fourth spec with them.
OTHERS   := crun,gvisor,gvisor-shim,vm
# Directory of the cluster of "make k8s-up". Short, because the path of a unix socket has at most 107 bytes.
K8S_DIR  := /tmp/podd-k8s
SHELL    := /bin/sh
.SHELLFLAGS := -euc
MAKEFLAGS += --no-print-directory

# Fuzz targets of "make test": parsers of input from disk, CNI plugins, the kubelet and virtual machines.
FUZZED   := checkpoint.FuzzDecode network.FuzzRecord network.FuzzResult server.FuzzRequests oci/vm/wire.FuzzPaced \
            oci/vm/wire.FuzzSession oci/vm/kernel.FuzzCheckBootable

# Tests with a long variant, or that find more the longer they run ("make soak").
SOAKED   := Crash|Killed|DaemonAway|Behind|StuckDependencies|AfterReboot|ReadOnlyDisk|PowerLoss|Damaged|Upgrade|Load|\
            Reload|Restart|Restore|Travel|VMContainersEnd|VMMany

# Packages of "make unit", which PKG selects, except those that need a built daemon: they have separate targets.
NOUNIT   := -e /test/integration -e /test/release -e /test/vm -e /test/containerd -e /test/workloads
# The packages among them that are built with the race detector: their goroutines share memory. The others wait for
# other programs or run copies of the test program. RACED=. builds all with it, as "make nightly" does.
RACED    ?= $(if $(PKG),.,/(cmd|network|sandbox|server|streaming|oci/(driver|lock|subprocess))(/|$$))
# Packages of "make unit" that take longest, for other programs: begun first, they do not run alone in the end.
FIRST    := /oci/(shim|runc)$$|/image$$
# Non-empty: the integration tests use only the daemon with the race detector. Else most use one without.
RACE_ALL ?=
# Long lists of tests are sampled: the steps of a verb at which podd fails or ends, the further runtimes of a driver, the
# specs of further handlers, the longest integration tests. The sample depends on this value; "all" takes everything, as
# "make nightly" does.
PODD_SAMPLE ?= $(shell git rev-parse HEAD 2>/dev/null)
export PODD_SAMPLE
# The Go vulnerability database for "make vulncheck": a URL, or file:// and a directory with a copy of its files.
VULNDB   ?= https://vuln.go.dev

# Packages of "make check": those whose tests change nothing on the machine and need neither root nor other programs.
PURE     := checkpoint sandbox/budget cmd/podd/admin cmd/podd/cadvisor cmd/podd/history cmd/podd/metrics \
            cmd/podd/preflight cmd/podd/settings cmd/podd/tomlconfig cmd/podd/tracing cmd/podd/ui \
            oci/shim/fifo oci/shim/stdio/... \
            oci/spec sandbox sandbox/convert sandbox/lifecycle sandbox/operation sandbox/record sandbox/usage \
            server streaming/... test/arch \
            test/bench test/critest

# Programs embedded into podd, compressed. Each has its digest beside it, which podd compares with what is installed.
EMBEDDED := oci/pause/bin/pause.gz oci/runc/initproxy/bin/initproxy.gz oci/runc/thaw/bin/thaw.gz \
            oci/runc/starter/bin/starter.gz oci/shim/bin/stdio.gz
# pack makes NAME.sha256 and NAME.gz of NAME, which it removes: what is in these directories is embedded. Without name
# and time in the .gz, so that the same program gives the same file.
pack      = sha256sum <$(1) | cut -c -64 >$(1).sha256 && gzip -9 -n -f $(1)
# The packages of which oci/shim/bin/stdio is built.
STDIO    := oci/shim/stdio/main oci/shim/stdio oci/shim/fifo oci/driver/socket oci/logfile oci/openat

# The module of virtual machines, which podd's own does not need.
VM       := oci/vm

.DEFAULT_GOAL := help
.PHONY: help env deps tools embedded images build clean
.PHONY: check vet lint vulncheck outdated pure unit integration critest critest-gvisor test soak fuzz fuzz-long test-vm vm-shell
.PHONY: bench bench-peers bench-compare demo k8s k8s-up k8s-down test-k8s test-tools test-nri test-prometheus conformance

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

env: ## print what a bare "go test" and an editor need in the environment: eval "$(make env)"
	@flags=$$($(GO) env GOFLAGS | sed 's/ *-tags=[^ ]*//g'); echo "export GOFLAGS='$${flags:+$$flags }-tags=$(RACETAGS)'"
	@echo '# For gopls, unless the editor is started with this environment:'
	@echo '#   "gopls": { "buildFlags": ["-tags=$(RACETAGS)"] }'

deps: ## install the Debian packages that are missing (root)
	@contrib/install-deps.sh

tools: deps ## build the pinned runc, gVisor, CNI plugins, crictl, critest, containerd shim; and fetch CRIU, into bin/
	@contrib/tools/build.sh
	@contrib/tools/gvisor/build.sh
	@contrib/shims/build.sh
	@contrib/criu.sh

.PHONY: crun
crun: deps ## fetch the crun of a later Debian release (CRUN_SUITE) into bin/, which tests and benchmarks then use
	@contrib/crun.sh

.PHONY: conmon
conmon: deps ## build a static conmon (CONMON_SUITE) into bin/, which tests and benchmarks then use
	@contrib/conmon.sh

.PHONY: vm
vm: deps ## build the shim of virtual machines, and a guest image for User-Mode Linux, into bin/
	@$(VM)/build.sh

.PHONY: test-qemu
test-qemu: tools vm-qemu images embedded ## the tests of virtual machines with QEMU, emulated (root)
	SOAK=1 VM_HANDLER=vm-qemu $(GO) test $(RACE) -count=1 -timeout 60m -run '^TestVM' ./test/integration/

.PHONY: test-gpu
test-gpu: build tools images ## a GPU in a container by CDI, on a machine that has one (root); never ran there
	@test/gpu/run.sh

.PHONY: test-containerd
test-containerd: tools vm images ## a real containerd, which it builds, runs pods with the shim of virtual machines (root)
	@test/host/setup.sh
	CONTAINERD=$$(test/bench/peers/build.sh containerd) CGO_ENABLED=0 $(GO) test -tags "$(TAGS)" -count=1 -timeout 5m \
		-v ./test/containerd

.PHONY: test-workloads
test-workloads: tools vm images build ## real programs from Debian packages on four handlers, into test/workloads/MATRIX.txt; RUN=nginx/vm selects (root)
	@contrib/install-deps.sh mmdebstrap
	@test/host/setup.sh
	MATRIX=MATRIX.txt CGO_ENABLED=0 $(GO) test -tags "$(TAGS)" -count=1 -timeout 60m -v \
		-run '^TestWorkloads$$$(if $(RUN),/$(RUN))' ./test/workloads

.PHONY: test-kata
test-kata: tools images embedded ## podd drives the real shim of Kata Containers, which it builds, without a machine (root)
	@test/host/setup.sh
	KATA=$$(test/kata/build.sh) $(GO) test $(RACE) -count=1 -timeout 5m -v -run '^TestKata$$' ./test/integration/

.PHONY: vm-qemu
vm-qemu: deps ## the same, and an image for QEMU; installs QEMU if it is missing (root)
	@$(VM)/build.sh qemu

embedded: $(EMBEDDED) ## build what podd embeds: pause, init proxy (gVisor), thaw, starter, stdio program (shims)
	@rm -f $(filter-out $(EMBEDDED) $(EMBEDDED:.gz=.sha256) %README.md,$(wildcard $(addsuffix *,$(dir $(EMBEDDED)))))
oci/pause/bin/pause.gz: oci/pause/pause.c
oci/runc/initproxy/bin/initproxy.gz: oci/runc/initproxy/initproxy.c
oci/runc/thaw/bin/thaw.gz: oci/runc/thaw/thaw.c
oci/runc/starter/bin/starter.gz: oci/runc/starter/starter.c
oci/pause/bin/pause.gz oci/runc/initproxy/bin/initproxy.gz oci/runc/thaw/bin/thaw.gz oci/runc/starter/bin/starter.gz:
	@mkdir -p $(@D)
	$(CC) -Os -static -s -Wall -Wextra -o $(basename $@) $<
	@$(call pack,$(basename $@))
oci/shim/bin/stdio.gz: $(wildcard $(addsuffix /*.go,$(STDIO))) go.mod
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '-s -w' -o $(basename $@) ./oci/shim/stdio/main
	@$(call pack,$(basename $@))

images: deps ## build the test images into the cache
	@CGO_ENABLED=0 $(GO) build -o bin/ ./test/images/cmd/testimages ./test/leak/cmd/leak
	@bin/testimages build >/dev/null

build: embedded ## build bin/podd, static
	CGO_ENABLED=0 $(GO) build -trimpath -tags "$(TAGS)" -ldflags "$(LDFLAGS)" -o bin/podd ./cmd/podd

.PHONY: release test-release
release: ## packages, archives, SBOM and checksums of the tagged commit for amd64 and arm64, in bin/release
	@contrib/release/build.sh

test-release: tools images build ## build a release twice, install, upgrade and remove it in chroots of Debian (root)
	@contrib/release/deps.sh test
	CGO_ENABLED=0 $(GO) test -count=1 -timeout 60m -v $(if $(RUN),-run '$(RUN)') ./test/release/

check: vet lint pure ## the fast checks: vet, lint, and the tests that need no root and nothing but Go

vet: ## gofmt and go vet
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "not gofmt'd:"; echo "$$out"; exit 1; }
	CGO_ENABLED=0 $(GO) vet -tags "$(TAGS)" ./...
	cd $(VM) && CGO_ENABLED=0 $(GO) vet ./...

lint: ## staticcheck, go-errorlint, unparam, misspell, and the modernizers of go fix
	$(LINTER) staticcheck -checks "$(CHECKS)" ./...
	$(LINTER) go-errorlint ./...
	$(LINTER) unparam ./...
	@git ls-files | grep -vE '(^|/)(go\.sum|testdata/.*)$$' | xargs $(LINTER) misspell -error -i levle
	CGO_ENABLED=0 $(GO) fix -diff -tags "$(TAGS)" $(FIXES) ./...
	cd $(VM) && $(VMLINTER) staticcheck -checks "$(CHECKS)" ./... && $(VMLINTER) go-errorlint ./... && \
		$(VMLINTER) unparam ./... && CGO_ENABLED=0 $(GO) fix -diff $(FIXES) ./...

vulncheck: ## look for known vulnerabilities in functions that podd calls, in the database VULNDB
	$(LINTER) govulncheck -db $(VULNDB) ./...
	cd $(VM) && $(VMLINTER) govulncheck -db $(VULNDB) ./...

outdated: ## list the modules and tools with a newer release, of each go.mod
	@for mod in $$(git ls-files '*go.mod'); do (cd $$(dirname $$mod) && echo "$$mod" && \
		{ $(GO) list -m -f '{{if not (or .Indirect .Main)}}{{.Path}}{{end}}' all; \
		  $(GO) list -f '{{with .Module}}{{.Path}}{{end}}' tool 2>/dev/null; } | sort -u | grep . | xargs $(GO) list -e -m -u \
			-f '{{with .Update}}  {{.Path}} {{$$.Version}} -> {{.Version}}{{end}}{{with .Error}}  {{.Err}}{{end}}' | grep . || true); done

pure:
	CGO_ENABLED=0 $(GO) test -tags "$(TAGS)" $(addprefix ./,$(PURE))
	cd $(VM) && CGO_ENABLED=0 $(GO) test ./guest ./image ./shim ./vmm ./wire

unit: tools vm images embedded ## unit tests; PKG=./oci/... and RUN=TestName select, with the race detector (root)
	@$(MAKE) unit-raced unit-plain unit-vm

.PHONY: unit-raced unit-plain unit-vm
UNITS     = all=$$($(GO) list -tags "$(TAGS)" $(or $(PKG),./...)); units=$$(echo "$$all" | grep -v $(NOUNIT) || true)
unit-raced:
	@$(UNITS); raced=$$(echo "$$units" | grep -E '$(RACED)' || true); set -x; \
	[ -z "$$raced" ] || $(GO) test $(RACE) -p 4 -timeout 20m $(if $(RUN),-run '$(RUN)') $$raced
unit-plain:
	@$(UNITS); plain=$$(echo "$$units" | grep -vE '$(RACED)' || true); \
	plain=$$(echo "$$plain" | grep -E '$(FIRST)' || true; echo "$$plain" | grep -vE '$(FIRST)' || true); set -x; \
	[ -z "$$plain" ] || CGO_ENABLED=0 $(GO) test -tags "$(TAGS)" -p 4 -timeout 20m $(if $(RUN),-run '$(RUN)') $$plain
unit-vm:
	cd $(VM) && $(GO) test -race -timeout 5m $(if $(RUN),-run '$(RUN)') ./...

integration: tools vm images embedded ## drive a real daemon through its socket, look for leaks; RUN selects (root)
	RACE_ALL=$(RACE_ALL) CGO_ENABLED=0 $(GO) test -tags "$(TAGS)" -count=1 -parallel 4 -timeout 60m \
		$(if $(RUN),-run '$(RUN)') ./test/integration/...

critest: $(if $(findstring vm-qemu,$(HANDLERS)),vm-qemu,$(if $(findstring vm,$(HANDLERS)),vm))
critest: tools images build ## the CRI validation suite with HANDLERS, ROUNDS times (default 3); FOCUS selects, SAMPLE=N takes every N-th spec; CRITEST is another critest (root)
	@CGO_ENABLED=0 $(GO) run ./test/critest $(if $(CRITEST),-critest $(CRITEST)) -handlers $(HANDLERS) -rounds $(or $(ROUNDS),3) -focus '$(FOCUS)' -sample $(or $(SAMPLE),1)

critest-gvisor: ## the CRI validation suite with gVisor, under conmon and through its shim, ROUNDS times (root)
	@$(MAKE) critest HANDLERS=gvisor,gvisor-shim

test-vm: tools images build ## critest and more in a VM: cgroup v2, systemd, AppArmor (root; see test/vm/README.md)
	@test/vm/run.sh all

.PHONY: test-selinux
test-selinux: tools images build ## the tests of SELinux in that VM, whose kernel enforces a small policy (root)
	@test/vm/run.sh selinux

vm-shell: tools images build ## a shell in that VM, with podd running (root)
	@test/vm/run.sh shell

k8s: ## build Kubernetes into the cache (ten minutes, once); KUBERNETES=1.36 for that version
	@test/k8s/build.sh

k8s-up: tools images build k8s ## start a cluster of NODES (default 1) nodes on podd, and print how to use it (root)
	@test/host/setup.sh
	@bin/k8s up $(K8S_DIR) $(CURDIR)/bin $(or $(NODES),1)

k8s-down: ## remove that cluster (root)
	@[ ! -x bin/k8s ] || bin/k8s down $(K8S_DIR)

test-k8s: tools vm images build k8s ## the scenarios of test/k8s on a real cluster; RUN=TestName selects (root)
	@test/k8s/addons/build.sh
	@test/host/setup.sh
	cd test/k8s && CGO_ENABLED=0 $(GO) vet ./cluster ./cmd/... ./suite
	@bin/leak take bin/before-k8s.json
	cd test/k8s && CGO_ENABLED=0 $(GO) test -count=1 -timeout 40m -parallel 8 ./cluster ./suite $(if $(RUN),-run '$(RUN)')
	@bin/leak diff bin/before-k8s.json -wait 10s

.PHONY: test-k8s-vm
test-k8s-vm: tools images build k8s ## a VM with cgroup v2 and systemd joins by kubeadm, as in contrib/kubernetes; another has feature gates (root)
	@test/host/setup.sh
	@test/vm/deps.sh
	@bin/leak take bin/before-k8s.json
	cd test/k8s && CGO_ENABLED=0 $(GO) test -count=1 -v -timeout 80m ./vm $(if $(RUN),-run '$(RUN)')
	@bin/leak diff bin/before-k8s.json -wait 10s

.PHONY: conformance-vm
conformance-vm: tools images build k8s ## NodeConformance on that VM, LIMIT (40m) at a time; a further run goes on; FOCUS selects (root)
	@test/host/setup.sh
	@test/vm/deps.sh
	cd test/k8s && VM_LIMIT=24h CGO_ENABLED=0 $(GO) test -count=1 -v -timeout 24h ./vm -run '^TestNodeConformance$$' \
		-results conformance.txt -limit $(or $(LIMIT),40m) -procs $(or $(PROCS),8) $(if $(FOCUS),-focus '$(FOCUS)')

conformance: tools images build k8s ## Kubernetes' node tests; FOCUS and SKIP select; writes bin/conformance.txt (root)
	@test/host/setup.sh
	cd test/k8s && CGO_ENABLED=0 $(GO) build -trimpath -o $(CURDIR)/bin/ ./cmd/conformance
	@tests=$$(test/k8s/conformance/build.sh e2e_node); bin/leak take bin/before-k8s.json; \
	bin/conformance $(if $(FOCUS),-focus '$(FOCUS)') $(if $(SKIP),-skip '$(SKIP)') \
		-report bin/conformance.txt $(CURDIR)/bin $$tests
	@bin/leak diff bin/before-k8s.json -wait 10s

test: vet lint tools images embedded ## everything that CI runs; then look for what it left behind (root)
	@test/host/setup.sh
	@bin/leak take bin/before.json
	@$(MAKE) unit integration test-tools
	@contrib/fuzz.sh 3000x $(FUZZED)
	@$(MAKE) critest ROUNDS=1 HANDLERS=runc
	@$(MAKE) critest ROUNDS=1 HANDLERS=$(OTHERS) SAMPLE=4
	@bin/leak diff bin/before.json -wait 10s
	@echo "All passed, and nothing of podd is left on the machine."

.PHONY: nightly
nightly: ## run every suite there is on the last commit; goes on where it stopped; writes test/NIGHTLY.md (root; hours)
	@test/nightly.sh $(SUITES)

test-tools: tools images build ## have the code of other tools find the containers of a running podd (root)
	@test/host/setup.sh
	cd test/tools && CGO_ENABLED=0 $(GO) vet -tags "$(TAGS)" ./... && CGO_ENABLED=0 $(GO) test -tags "$(TAGS)" -count=1 ./...

test-prometheus: tools images build ## the alerts and the dashboard of contrib with a real Prometheus (root)
	@GO="$(GO)" TAGS="$(RACETAGS)" contrib/prometheus/test.sh

test-nri: tools images build ## run NRI plugins of other projects on podd, those in NRI_PLUGINS, too (root; see test/nri)
	@test/host/setup.sh
	cd test/nri && CGO_ENABLED=0 $(GO) vet -tags "$(TAGS)" ./... && \
		CGO_ENABLED=0 $(GO) test -tags "$(TAGS)" -count=1 -v -timeout 20m $(if $(RUN),-run '$(RUN)') ./...

.PHONY: test-lazy bench-lazy layer-store
layer-store:
	CGO_ENABLED=0 $(GO) build -C test/lazy -trimpath -o $(CURDIR)/bin/layer-store ./store

test-lazy: tools images build layer-store ## pull eStargz images through a real additional layer store (root; see test/lazy)
	@test/host/setup.sh
	cd test/lazy && CGO_ENABLED=0 $(GO) vet -tags "$(TAGS)" ./... && \
		CGO_ENABLED=0 $(GO) test -tags "$(TAGS)" -count=1 -v -timeout 10m $(if $(RUN),-run '$(RUN)') ./...

bench-lazy: tools images build layer-store ## the first line of an image that is pulled lazily, beside a full pull (root)
	@test/host/setup.sh
	@cd test/lazy && CGO_ENABLED=0 $(GO) test -tags "$(TAGS)" -count=1 -timeout 30m -run '^$$' -bench FirstLine -benchtime 1x .

.PHONY: test-ui
test-ui: tools images build ## open the page of podd ui in Chromium, which it fetches; SCREENSHOTS=DIR writes pictures (root)
	@contrib/chromium.sh
	@test/host/setup.sh
	cd test/ui && CGO_ENABLED=0 $(GO) vet -tags "$(TAGS)" ./... && CGO_ENABLED=0 $(GO) test -tags "$(TAGS)" -count=1 -v \
		-timeout 10m $(if $(RUN),-run '$(RUN)') ./... $(if $(SCREENSHOTS),-screenshots $(SCREENSHOTS))

.PHONY: test-cilium
test-cilium: ## have the code of Cilium find cgroups by the names that podd gives (root)
	cd test/tools/cilium && CGO_ENABLED=0 $(GO) test -tags "$(TAGS)" -count=1 .

bench: tools images build ## measure podd against a pod made by hand; BENCH has flags (root; see test/bench/README.md)
	@CGO_ENABLED=0 $(GO) run -tags "$(TAGS)" ./test/bench $(BENCH)

bench-peers: tools images build ## the same against containerd and CRI-O, which it builds (root)
	@peers=$$(test/bench/peers/build.sh); CGO_ENABLED=0 $(GO) run -tags "$(TAGS)" ./test/bench -peers $$peers $(BENCH)

.PHONY: bench-journal
bench-journal: tools images build ## make bench with a journaled ext4 below all files, on a loop device (root; BENCH)
	@CGO_ENABLED=0 $(GO) build -tags "$(TAGS)" -o bin/bench ./test/bench
	@test/bench/journal.sh bin/bench $(BENCH)

.PHONY: bench-scale
bench-scale: tools images build ## what a node with PODS (250,500) pods costs at rest, beside containerd (root; PODS, BENCH)
	@peers=$$(test/bench/peers/build.sh containerd); CGO_ENABLED=0 $(GO) run -tags "$(TAGS)" ./test/bench -peers $$peers \
		-only scale -handlers runc -sizes $(or $(PODS),250,500) $(BENCH)

bench-compare: embedded ## compare the Go benchmarks with those of commit REF, with benchstat
	@test/bench/compare.sh "$(REF)"

soak: tools vm images embedded ## the long variants of the reliability tests, ROUNDS times (default 1; root)
	SOAK=1 PODD_SAMPLE=all $(GO) test $(RACE) -count=$(or $(ROUNDS),1) -timeout 12h -v -run '^Test($(subst | ,|,$(SOAKED)))' ./test/integration/

.PHONY: simulate
simulate: ## histories of a node from SEEDS seeds (default 1000), the first is SEED; LOG=1 prints them
	CGO_ENABLED=0 $(GO) test -tags "$(TAGS)" -count=1 -timeout 12h -run '^TestSimulate$$' ./test/simulate \
		-seeds=$(or $(SEEDS),1000) -seed=$(or $(SEED),1) $(if $(LOG),-v -log)

.PHONY: torture
torture: tools vm images build ## the kubelet of simulate with a real podd that is killed, stopped, on a full disk; LENGTH (20m), SEED (root)
	TORTURE=$(or $(LENGTH),20m) SEED=$(SEED) CGO_ENABLED=0 $(GO) test -tags "$(TAGS)" -count=1 -timeout 24h -v -run '^TestTorture$$' ./test/integration/

.PHONY: endurance
endurance: tools vm images build ## hours of pods that come and go, probes, pulls and kills: podd does not grow (root; LENGTH, 2h)
	ENDURANCE=$(or $(LENGTH),2h) $(GO) test $(RACE) -count=1 -timeout 24h -v -run '^TestEndurance$$' ./test/integration/

demo: tools vm images build ## run a pod on a private podd, inspect it, remove it (root)
	@contrib/demo.sh

fuzz-long: ## run each fuzz target for FUZZTIME (default 10m): hours
	@contrib/fuzz.sh $(or $(FUZZTIME),10m)

fuzz: ## run each fuzz target for FUZZTIME (default 20s)
	@contrib/fuzz.sh $(or $(FUZZTIME),20s)

clean: ## remove what was built, except the cache in ~/.cache/podd
	rm -rf bin $(EMBEDDED) $(EMBEDDED:.gz=.sha256)
