# arraysim: see README.md. A bare `make` prints this list.

GO ?= go
PYTHON ?= python3
VENV := .cache/venv
# A seventh of the compiler's time goes into what debuggers read, a third of the rest into collecting its garbage. The flags
# are those of scripts/test.py, so that nothing is compiled twice; `go build` by hand makes a binary for a debugger.
FLAGS := -trimpath -gcflags=all=-dwarf=false
# Inlining takes two fifths of the compiler's time. A first `make run` does without it, and without Parquet, until the complete
# binary is there.
SOON := TAGS="-tags noparquet" FLAGS="-trimpath '-gcflags=all=-dwarf=false -l'"
# The binary is static: it runs on any Linux machine of the architecture. It has its commit from STAMP alone: what Go adds by
# itself depends on how Go is set up and on files that git does not know, and the same tag would make different packages.
BUILD = CGO_ENABLED=0 GOGC=800 $(GO) build $(FLAGS) -buildvcs=false -ldflags="-w $(STAMP)" $(TAGS) -o bin/arraysim ./cmd/arraysim
# What `arraysim version` says of the commit: itself, a plus where files differ from it, its tag. An archive has it in a file.
COMMIT = $$(if [ -e .git ]; then c=$$(git rev-parse HEAD) && git diff --quiet HEAD || c=$$c+; \
	echo "$$c" $$(git describe --exact-match --match 'v[0-9]*' 2>/dev/null); fi)
STAMP = -X 'github.com/arraysim/arraysim/internal/admin.stamp=$(COMMIT)'
# What a first build compiles while its modules are on their way: the largest of the standard library, and then what needs
# little of the modules. Nothing is compiled twice, since the build itself waits. A machine that has the module LAST has had
# such a build, and needs none of this.
LAST := github.com/cockroachdb/pebble
STD := net/http html/template encoding/xml database/sql go/build log/slog expvar
EARLY := github.com/prometheus/client_golang/prometheus github.com/cockroachdb/errors github.com/danielgtaylor/huma/v2

.PHONY: help build build-rados rados-smoke rados-test rados-three rados-failures rados-take-overs rados-bench plugin run judge-field cells test test-quick prove setup lint bench demo kill-test deb image package-test package-boot-test clean

help: ## print this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-17s %s\n", $$1, $$2 }'

build: ## build bin/arraysim
	@echo "building bin/arraysim $(TAGS)"
	@[ -e bin/arraysim ] || [ -n "$$(GOPROXY=off $(GO) list -m -f '{{.Dir}}' $(LAST) 2>/dev/null)" ] || \
		{ export CGO_ENABLED=0 GOGC=800; $(GO) list -deps $(TAGS) ./cmd/arraysim >/dev/null & \
		$(GO) build $(FLAGS) $(STD); $(GO) build $(FLAGS) $(EARLY); wait; }
	@$(BUILD)

# With C, all that it imports is compiled once more.
plugin: ## build bin/handler_arraysim.so, with which tcmu-runner serves LUNs of a running array (docs/tcmu-runner.md)
	CGO_ENABLED=1 GOGC=800 $(GO) build $(FLAGS) -ldflags=-w -buildmode=c-shared -o bin/handler_arraysim.so ./handlers/tcmurunner/plugin
	@rm -f bin/handler_arraysim.h

run: ## build and start the array on 127.0.0.1, data in ./data; the first time soon, while the complete binary is compiling
	@if [ -e bin/arraysim ]; then $(MAKE) --no-print-directory build; \
		else $(MAKE) --no-print-directory build $(SOON) && (nice -n 19 $(MAKE) build >/dev/null 2>&1 &) fi
	@exec bin/arraysim serve

setup: ## install what the tests need (apt, pip into .cache/venv)
	@scripts/setup.sh

lint: ## gofmt, go vet, staticcheck, ruff
	@scripts/lint.sh

test: ## everything: lint, Go tests, real tools against the binary, the kernel's stack in guests; FILE=... one file or package
	@GO=$(GO) scripts/test.py $(FILE)

test-quick: ## the same in under 5 minutes: no race detector, no slow cases, no guests
	@GO=$(GO) scripts/test.py quick

prove: ## tests that take hours: soaks, 100,000 seeds, kernel 6.12; PROOFS="soak judge" runs some; docs/proofs.md has the results
	@scripts/prove.py $(PROOFS)

bench: setup build ## measure every figure that has a target, in turns with tgtd and fio (BENCH_ARGS: scripts/targets.py), then Go's benchmarks
	@scripts/setup.sh fio strace
	$(PYTHON) scripts/targets.py $(BENCH_ARGS)
	$(GO) test -run '^$$' -bench 'MapFill|OverEntries' -benchtime 1x ./internal/array
	$(GO) test -run '^$$' -bench 'WriteSame$$' ./internal/array

demo: setup build ## clone and zero a real root file system by offload; show both layers
	$(PYTHON) scripts/demo.py $(DEMO_ARGS)

kill-test: setup build ## 100 kills at random moments under verified writes and offloads
	ARRAYSIM_KILLS=$${ARRAYSIM_KILLS:-100} $(VENV)/bin/pytest tests/test_kill.py -s

power-test: ## CUTS (100000) power cuts in a simulated file system under random commands, from the program FIRST on
	$(GO) test -run TestPowerCuts -v -timeout 6h ./internal/array -cuts $${CUTS:-100000} $${FIRST:+-seed $$FIRST}

power-kill-test: ## KILLS (10000) deaths of the process inside updates of NVRAM and files of a simulated file system, from FIRST on
	$(GO) test -run TestKills -v -timeout 6h ./internal/array -cuts $${KILLS:-10000} $${FIRST:+-seed $$FIRST}

torture: ## SEEDS (2000) random SCSI programs against a model, each on all stores, profiles and copy modes, with crashes
	$(GO) test -run TestPrograms -v -timeout 12h ./internal/torture -seeds=$${SEEDS:-2000} -first=$${FIRST:-1}

soak: ## SOAK (30m) of 64 sessions at a portal, mixed I/O, offloads, aborts and LUN resets, all verified
	$(GO) test -run TestSoak -v -timeout 24h ./internal/admin -soak $${SOAK:-30m}

sim-torture: ## SEEDS (100000) arrays under verified commands, faults and power cuts in virtual time
	$(GO) test -run TestTorture -timeout 12h ./internal/sim -torture.seeds=$${SEEDS:-100000}

ablations: build ## document 001's incident with one mechanism or setting changed at a time: the table of docs/virtual-time.md
	bin/arraysim sim testdata/scenarios/001-undercover.yaml --expect

judge: ## precision and recall of analyze over 200 scenarios that the firmware runs, and 200 without offloads
	ARRAYSIM_JUDGE=25 $(GO) test -run 'TestPrecisionAndRecall$$|TestHostsAreNotAccused|TestSharesAgainstTheRealThing' -count=1 -v -timeout 2h ./internal/report

judge-field: ## findings over 200 cases of a model of its own: sources, bytes, towers and causes; ARRAYSIM_SEED chooses others
	ARRAYSIM_FIELD=25 $(GO) test -run 'TestFieldCases$$' -count=1 -v -timeout 1h ./internal/report

cells: ## auto against the best of its candidates on 60 cells; ARRAYSIM_TRACES names the folder of the public traces
	ARRAYSIM_CELLS=1 $(GO) test -run 'TestAutoCells$$' -count=1 -v -timeout 2h ./internal/replay

sweep-test: setup build ## 10,000 runs of a sweep on four Dask workers, one of which is killed
	$(VENV)/bin/pytest -m proof tests/test_sweep.py

tier-test: ## SEEDS (100000) runs from SEED (1) on of the caching device under crashes, losses and offloads, and MOVES (10000) of moves
	@echo "seeds from $${SEED:-1} on, $${SEEDS:-100000} of them, and $${MOVES:-10000} of guests that move"
	$(GO) test -run 'TestModel$$' -timeout 6h ./internal/hostcache/tier -tier.seeds=$${SEEDS:-100000} -tier.seed=$${SEED:-1}
	$(GO) test -run 'TestGuestMoves$$' -timeout 6h ./internal/hostcache/tier -tier.seeds=$${MOVES:-10000} -tier.seed=$${SEED:-1}

tier-mutations: ## known defects put back into the host cache, one at a time: each has to turn its model red within SEEDS (10000)
	$(PYTHON) scripts/mutations.py --seeds $${SEEDS:-10000}

page-bench: setup build ## the live page for ten minutes with 1,000 volumes and 200 offloads a second
	$(VENV)/bin/python scripts/page_bench.py $(PAGE_BENCH_ARGS)

walk: setup ## README's first screen, typed in a fresh clone: seconds until UNDERCOVER moves
	$(VENV)/bin/python scripts/walk.py $(WALK_ARGS)

fuzz: ## every fuzz target for FUZZTIME (30s)
	@scripts/fuzz.sh $(FUZZTIME)

build-rados: ## build bin/arraysim-rados, which supports store: rados (docs/rados.md); it loads librados2 and needs no C compiler
	CGO_ENABLED=0 GOGC=800 $(GO) build $(FLAGS) -ldflags=-w -tags rados -o bin/arraysim-rados ./cmd/arraysim

rados-smoke: build-rados ## test it for a minute on a throw-away Ceph cluster; without Ceph's packages, name them and pass
	@scripts/setup.sh ceph-mon ceph-osd ceph-common || echo "rados-smoke: Ceph's packages cannot be had here; they are: ceph-mon ceph-osd ceph-common"
	$(VENV)/bin/pytest -m cluster tests/test_rados.py

rados-test: build build-rados ## the store, the daemon with either log, take-overs, also under copies between two arrays, on a throw-away Ceph cluster of one OSD
	@scripts/setup.sh ceph-mon ceph-osd ceph-common
	CGO_ENABLED=0 $(GO) test -count=1 -tags rados -run 'TestCluster' -v ./internal/store/rados
	$(VENV)/bin/pytest -m "cluster or proof" -s tests/test_rados.py tests/test_rados_peers.py tests/test_move.py

rados-three: build build-rados ## the store, libiscsi's suite, sg3_utils and the kill tests on a cluster of three OSDs, three copies
	@scripts/setup.sh ceph-mon ceph-osd ceph-common
	CGO_ENABLED=0 $(GO) test -count=1 -tags rados -run 'TestCluster' -v ./internal/store/rados -osds 3
	ARRAYSIM_BIN=bin/arraysim-rados scripts/ceph.py run --osds 3 --grace 20 -- $(VENV)/bin/pytest -s $(ON_POOLS)

# An array in a pool has one I/O group, and nothing in its data folder that an older copy could bring back.
ON_POOLS := tests/test_conformance.py tests/test_sg_commands.py tests/test_kill.py \
	--deselect "test_kill.py::test_no_acknowledged_sector_is_lost[two groups]" \
	--deselect test_kill.py::test_the_client_notices_lost_writes

rados-failures: build build-rados ## what hosts see when OSDs or the monitor of three OSDs die, stop, are slow or full
	@scripts/setup.sh ceph-mon ceph-osd ceph-common ceph-mgr
	$(VENV)/bin/pytest -m proof -s tests/test_rados_failures.py

rados-take-overs: build build-rados ## ARRAYSIM_TAKE_OVERS (10) take-overs on three OSDs under verified writes, and the control
	@scripts/setup.sh ceph-mon ceph-osd ceph-common
	$(VENV)/bin/pytest -m proof -s tests/test_rados_takeovers.py

rados-bench: build-rados ## rates of an array in a pool beside `rados bench` on one cluster, in turns (RADOS_BENCH_ARGS: scripts/rados_bench.py)
	@scripts/setup.sh ceph-mon ceph-osd ceph-common
	$(PYTHON) scripts/rados_bench.py $(RADOS_BENCH_ARGS)

deb: build ## bin/arraysim_*.deb: both services, manual pages, completions; the same source makes the same package
	@scripts/release/deb.py $(DEB_ARGS)

image: build ## bin/image: an OCI image from scratch with the static binary; no container engine is needed
	@scripts/release/image.py $(IMAGE_ARGS)

package-test: setup build ## lintian, the package from installing to purging in a clean Debian root, the image from its unpacked root
	@scripts/setup.sh lintian bubblewrap
	$(VENV)/bin/pytest -m proof tests/test_packages.py

package-boot-test: build ## the package in a guest that systemd boots: ready, sandboxed, watched, stopped, purged; the TCMU service beside it
	@deb=$$(scripts/release/deb.py --output .cache) && scripts/vm/run.py --limit 3000 --file "$$deb" tests/vm/boot/test_package.py $(VM_ARGS)

include scripts/vm/vm.mk

clean: ## remove what was built and cached (not ./data)
	rm -rf bin .cache
	find tests scripts -name __pycache__ -prune -exec rm -rf {} +
