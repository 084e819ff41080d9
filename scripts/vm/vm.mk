# Targets that use the virtual machine. The Makefile includes this file.

.PHONY: vm-image vm-test vm-test-all vm-kill-test vm-shell

vm-image: ## build the virtual machine's image if it is missing or out of date
	@scripts/vm/image.py

vm-test: build ## the tests in the virtual machine, slow ones left out; VM_ARGS: a selection, --kernel 6.12
	@scripts/vm/run.py --limit 1200 -m "not slow" $(VM_ARGS)

vm-test-all: build ## all of them, with every kernel
	@scripts/vm/run.py --limit 2400 --kernel 6.1 $(VM_ARGS)
	@scripts/vm/run.py --limit 2400 --kernel 6.12 $(VM_ARGS)

vm-kill-test: build ## 20 kills of the daemon under a mounted, busy file system, each followed by a check
	@scripts/vm/run.py --limit 1200 --env ARRAYSIM_KILLS=20 tests/vm/test_tcmu.py -k kills_under $(VM_ARGS)

vm-shell: build ## a console in the virtual machine
	@scripts/vm/run.py --shell $(VM_ARGS)
