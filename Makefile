# make help lists the targets. Everything that needs more than a few lines is a script in contrib/ or a program in test/.

GO       ?= go
TAGS     := containers_image_openpgp
# Tests under -race need cgo, and with cgo the storage library would want btrfs headers.
RACE     := -race -tags "$(TAGS) exclude_graphdriver_btrfs"
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS  := -s -w -X main.version=$(VERSION)
# All of staticcheck but what it says of the form of comments and names.
CHECKS   := all,-ST1000,-ST1003,-ST1020,-ST1021,-ST1022
# The runtime handlers that make critest tests.
HANDLERS ?= runc,crun
# What make test plays of the CRI validation suite with gVisor under conmon: what runsc does otherwise than runc, which has
# played all of it. Its shim plays all of it, too; make critest-gvisor plays all of it with both.
GVISOR   := Streaming|execSync|container log|Multiple Containers|PodSandbox|stats|removing|stopping|port mapping|PodPID
# Where make k8s-up puts its cluster: short, for the sake of sockets.
K8S_DIR  := /tmp/podd-k8s
SHELL    := /bin/sh
.SHELLFLAGS := -euc
MAKEFLAGS += --no-print-directory

# What comes from disk, from plugins and from the kubelet is fuzzed a little in every test run.
FUZZED    = checkpoint.FuzzDecode network.FuzzRecord network.FuzzResult server.FuzzRequests

# The tests that have a long variant or find more the longer they run.
SOAKED    = ^Test(Crash|Killed|DaemonAway|Behind|StuckDependencies|AfterReboot|ReadOnlyDisk|PowerLoss|Damaged|Upgrade|Load|Restart)

# The packages that need a built daemon and the tools have their own target.
UNIT      = $$($(GO) list -tags "$(TAGS)" ./... | grep -v -e /test/integration -e /test/vm)

.DEFAULT_GOAL := help
.PHONY: help deps tools pause images build vet lint unit integration critest critest-gvisor test-vm vm-shell test bench bench-peers bench-compare demo fuzz clean
.PHONY: k8s k8s-up k8s-down test-k8s conformance

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

deps: ## install the Debian packages that are missing (root)
	@contrib/install-deps.sh

tools: deps ## build runc, gVisor, the CNI plugins, crictl, critest, a shim and the linters into bin/
	@contrib/tools/build.sh
	@contrib/tools/gvisor/build.sh
	@contrib/shims/build.sh

pause: oci/pause/bin/pause oci/runc/initproxy/bin/standin oci/shim/bin/keeper ## build what podd carries: the infra container's process, gVisor's stand-in, the keeper of shims' output
oci/pause/bin/pause: oci/pause/pause.c
oci/runc/initproxy/bin/standin: oci/runc/initproxy/initproxy.c
oci/pause/bin/pause oci/runc/initproxy/bin/standin:
	@mkdir -p $(@D)
	gcc -Os -static -s -Wall -Wextra -o $@ $<
oci/shim/bin/keeper: $(wildcard oci/shim/stdio/*.go oci/shim/stdio/main/*.go oci/shim/fifo/*.go) go.mod
	CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '-s -w' -o $@ ./oci/shim/stdio/main

images: deps ## build the test images into the cache
	@CGO_ENABLED=0 $(GO) build -o bin/ ./test/images/cmd/testimages ./test/leak/cmd/leak
	@bin/testimages build >/dev/null

build: pause ## build bin/podd, static
	CGO_ENABLED=0 $(GO) build -trimpath -tags "$(TAGS)" -ldflags "$(LDFLAGS)" -o bin/podd ./cmd/podd

vet: pause ## gofmt and go vet
	@out=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$out" ] || { echo "not gofmt'd:"; echo "$$out"; exit 1; }
	CGO_ENABLED=0 $(GO) vet -tags "$(TAGS)" ./...

lint: tools pause ## staticcheck and go-errorlint
	CGO_ENABLED=0 bin/staticcheck -checks "$(CHECKS)" -tags "$(TAGS)" ./...
	CGO_ENABLED=0 GOFLAGS="-tags=$(TAGS)" bin/go-errorlint ./...

unit: tools images pause ## unit tests of all packages, with the race detector
	$(GO) test $(RACE) -timeout 20m $(UNIT)

integration: tools images pause ## start the real daemon, drive it through its socket, look for leaks (root)
	$(GO) test $(RACE) -count=1 -parallel 4 -timeout 40m ./test/integration/...

critest: tools images build ## the CRI validation suite, or what FOCUS matches of it, with each of HANDLERS (default runc,crun), ROUNDS times (default 3; root)
	@CGO_ENABLED=0 $(GO) run ./test/critest -handlers $(HANDLERS) -rounds $(or $(ROUNDS),3) -focus '$(FOCUS)'

critest-gvisor: ## the CRI validation suite with gVisor under conmon and by its shim, ROUNDS times (default 3; root)
	@$(MAKE) critest HANDLERS=gvisor,gvisor-shim

test-vm: tools images build ## critest and checks in a VM: cgroup v2, systemd, AppArmor (root; see test/vm/README.md)
	@test/vm/run.sh all

vm-shell: tools images build ## a shell in that VM, with podd running
	@test/vm/run.sh shell

k8s: ## build a whole Kubernetes, into the cache (ten minutes once)
	@test/k8s/build.sh

k8s-up: tools images build k8s ## start a cluster of NODES (default 1) nodes on podd, and say how to use it (root)
	@test/host/setup.sh
	@bin/k8s up $(K8S_DIR) $(CURDIR)/bin $(or $(NODES),1)

k8s-down: ## remove that cluster
	@[ ! -x bin/k8s ] || bin/k8s down $(K8S_DIR)

test-k8s: tools images build k8s ## podd through a real kubelet: the scenarios of test/k8s, or those that RUN matches (root)
	@test/host/setup.sh
	cd test/k8s && CGO_ENABLED=0 $(GO) vet ./cluster ./cmd/... ./suite
	@bin/leak take bin/before-k8s.json
	cd test/k8s && CGO_ENABLED=0 $(GO) test -count=1 -timeout 40m -parallel 8 ./cluster ./suite $(if $(RUN),-run '$(RUN)')
	@bin/leak diff bin/before-k8s.json -wait 10s

conformance: tools images build k8s ## Kubernetes' own node tests on podd: those that FOCUS matches, without SKIP; report in bin/conformance.txt (root)
	@test/host/setup.sh
	cd test/k8s && CGO_ENABLED=0 $(GO) build -trimpath -o $(CURDIR)/bin/ ./cmd/conformance
	@tests=$$(test/k8s/conformance/build.sh); bin/leak take bin/before-k8s.json; \
	bin/conformance $(if $(FOCUS),-focus '$(FOCUS)') $(if $(SKIP),-skip '$(SKIP)') -report bin/conformance.txt $(CURDIR)/bin $$tests
	@bin/leak diff bin/before-k8s.json -wait 10s

test: tools images pause ## everything, and then a look at what is left on the machine
	@test/host/setup.sh
	@bin/leak take bin/before.json
	@$(MAKE) vet lint unit integration
	@contrib/fuzz.sh 3s $(FUZZED)
	@$(MAKE) critest ROUNDS=1
	@$(MAKE) critest ROUNDS=1 HANDLERS=gvisor-shim
	@$(MAKE) critest ROUNDS=1 HANDLERS=gvisor FOCUS='$(GVISOR)'
	@bin/leak diff bin/before.json -wait 10s
	@echo "All passed, and nothing is left on the machine."

bench: tools images build ## measure podd beside the same pod made by hand; flags in BENCH (root; see test/bench/README.md)
	@CGO_ENABLED=0 $(GO) run -tags "$(TAGS)" ./test/bench $(BENCH)

bench-peers: tools images build ## the same beside containerd and CRI-O, which it builds
	@peers=$$(test/bench/peers/build.sh); CGO_ENABLED=0 $(GO) run -tags "$(TAGS)" ./test/bench -peers $$peers $(BENCH)

bench-compare: pause ## the Go benchmarks here and at the commit REF, compared by benchstat
	@test/bench/compare.sh "$(REF)"

soak: tools images pause ## the long variants of the reliability tests, ROUNDS times (default 1; root)
	SOAK=1 $(GO) test $(RACE) -count=$(or $(ROUNDS),1) -timeout 12h -v -run '$(SOAKED)' ./test/integration/

demo: tools images build ## run a pod on a private podd, look at it, remove it (root)
	@contrib/demo.sh

fuzz: pause ## each fuzz target for FUZZTIME (default 20s)
	@contrib/fuzz.sh $(or $(FUZZTIME),20s)

clean: ## remove what was built; the cache in ~/.cache/podd stays
	rm -rf bin oci/pause/bin/pause oci/runc/initproxy/bin/standin oci/shim/bin/keeper
