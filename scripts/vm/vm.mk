# Targets that use the guests. The Makefile includes this file.

.PHONY: vm-test vm-test-all test-qemu vm-kill-test vm-torture vm-take-over vm-node-take-over conformance-vm vm-bench vm-docs vm-shell demo-vm

vm-test: build plugin ## the tests in guests of User Mode Linux, slow ones left out; VM_ARGS: a selection
	@scripts/vm/run.py -m "not slow" $(VM_ARGS)

vm-test-all: build plugin ## all of them, slow ones too
	@scripts/vm/run.py --limit 2400 $(VM_ARGS)

test-qemu: build plugin ## the same in emulated machines, with kernels 6.1 and 6.12 and two processors (45 minutes)
	@scripts/setup.sh qemu-system-x86
	@failed=0; \
	scripts/vm/run.py --engine qemu --kernel 6.1 --limit 3600 $(VM_ARGS) || failed=1; \
	scripts/vm/run.py --engine qemu --kernel 6.12 --limit 3600 -m "not slow" $(VM_ARGS) || failed=1; \
	exit $$failed

demo-vm: build ## the main job over TCMU: targetcli, the kernel's iSCSI, EXTENDED COPY and WRITE SAME, both layers' counters
	@image=$$(scripts/rootfs.sh) && scripts/vm/run.py --limit 1200 --file "$$image" \
		--command "python3 tests/vm/demo_kernel.py files/$$(basename "$$image")" $(VM_ARGS)

vm-docs: build ## write docs/targetcli.md again from what targetcli says in a guest
	@scripts/vm/run.py tests/vm/test_docs.py $(VM_ARGS) || { new=.cache/vm/results/last/test_docs/results/targetcli.md; \
		[ -s $$new ] && cp $$new docs/ && echo "docs/targetcli.md was written again; look at the difference."; }

conformance-vm: build ## the whole of libiscsi's suite through LIO and TCMU, against the table of what differs there
	@scripts/vm/run.py --limit 2400 tests/vm/test_conformance.py $(VM_ARGS)

vm-bench: build ## arraysim over TCMU against tcmu-runner and LIO fileio in alternation: ratios and costs (an hour); BENCH_ARGS="--rounds 1"
	@scripts/vm/run.py --limit 10800 --memory 4096 --command "python3 tests/vm/bench.py $(BENCH_ARGS)" $(VM_ARGS)

vm-kill-test: build ## 20 kills of the daemon under a mounted, busy file system, each followed by a check
	@scripts/vm/run.py --limit 2400 --env ARRAYSIM_KILLS=20 tests/vm/test_tcmu.py -s -k kills_under $(VM_ARGS)

vm-torture: build ## stress-ng, fs_mark and fio --verify on xfs and ext4 over TCMU, 50 kills of the daemon meanwhile, then fsck
	@scripts/vm/run.py --limit 3000 --env ARRAYSIM_KILLS=50 tests/vm/test_torture.py -s $(VM_ARGS)

vm-take-over: build ## 50 hosts with caches that die or fall silent under verified writes, and a silent peer under fio
	@scripts/vm/run.py --limit 2400 tests/vm/test_takeover.py -s $(VM_ARGS)

vm-node-take-over: build ## two nodes that take an array over from each other 20 times below dm-multipath, ext4 and fio --verify
	@scripts/vm/run.py --limit 2400 --env ARRAYSIM_TAKE_OVERS=20 tests/vm/test_nodes.py -s -k below_a_file_system $(VM_ARGS)

vm-shell: build ## a console in a guest
	@scripts/vm/run.py --shell $(VM_ARGS)
