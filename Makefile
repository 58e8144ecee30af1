# SPDX-License-Identifier: GPL-2.0
#
# The module itself is built by Kbuild; this is for people.  `make help` tells.

CACHE := $(or $(RXO_CACHE),$(HOME)/.cache/rxo)
LANE ?= vm
KVM ?= auto
export LANE KVM

# Without a tree of the user's: the test kernel, if there is one.
CACHED_TREE := $(wildcard $(CACHE)/build/vm/Module.symvers)
KDIR ?= $(if $(CACHED_TREE),,/lib/modules/$(shell uname -r)/build)
MO ?= $(CURDIR)/build

# As it was typed, dollars and all.
export RXO_CMD := $(value CMD)

.PHONY: modules modules_install clean demo test test-debug fuzz fuzz-wire soak soak-guest bench bench-transport check vm setup help

ifneq ($(KDIR),)
modules:
	$(MAKE) -C $(KDIR) M=$(CURDIR) MO=$(MO) modules

modules_install:
	$(MAKE) -C $(KDIR) M=$(CURDIR) MO=$(MO) modules_install

clean:
	$(MAKE) -C $(KDIR) M=$(CURDIR) MO=$(MO) clean
else
modules:
	scripts/module-build vm
	@echo "$(CACHE)/build/vm/rxo/rxo.ko"

modules_install:
	@echo "modules_install: name the kernel's tree, KDIR=..."; exit 1

clean:
	rm -rf $(CACHE)/build/*/rxo-* $(CACHE)/build/*/check-* $(CACHE)/cargo
endif

setup:
	@scripts/setup $(LANE)

# $(LANE)'s kernel, and the module for it.
.PHONY: ready
ready: setup
	@[ "$${RXO_DRIVER:-rxo}" != rxo ] || scripts/module-build $(LANE)

demo: ready
	@scripts/guest $(LANE) selftests/demo.sh

vm: ready
	@[ -n "$$RXO_CMD" ] || { echo "make vm: say what to run, CMD='...'"; exit 1; }
	@scripts/guest $(LANE) "$$RXO_CMD"

check: setup
	@scripts/check $(LANE)

test: setup
	@scripts/run-tests $(LANE)

# Under a kernel that looks for faults of memory, locking and context.
test-debug:
	@scripts/setup debug
	@scripts/run-tests debug

SECONDS ?= 60
fuzz: setup
	@scripts/fuzz $(SECONDS)

# What takes long runs where it is quick, unless told where.
LONG_LANE := $(if $(filter file,$(origin LANE)),uml,$(LANE))

PACKETS ?= 1000000
fuzz-wire:
	@scripts/setup $(LONG_LANE)
	@scripts/module-build $(LONG_LANE)
	@TIMEOUT=$${TIMEOUT:-7200} scripts/guest $(LONG_LANE) selftests/storm.sh $(PACKETS)

soak-guest:
	@scripts/setup $(LONG_LANE)
	@scripts/module-build $(LONG_LANE)
	@TIMEOUT=$${TIMEOUT:-$$(($(SECONDS) + 600))} scripts/guest $(LONG_LANE) selftests/soak.sh $(SECONDS)

EVENTS ?= 1000000
soak: setup
	@scripts/soak $(EVENTS)

# BENCH, ROUNDS, QUICK and DRIVERS are looked at by bench/run.py.
bench: ready
	@scripts/bench $(LANE)

bench-transport: setup
	@scripts/bench-transport

help:
	@echo "make [modules] [KDIR=tree]      build rxo.ko for a kernel's object tree"
	@echo "make modules_install KDIR=tree  and install it"
	@echo "make demo                       set up, boot a VM and run RDMA between two hosts in it"
	@echo "make test                       the whole suite"
	@echo "make test-debug                 the same under KASAN, lockdep, kmemleak"
	@echo "make fuzz SECONDS=60            fuzz the transport on the host for so long"
	@echo "make fuzz-wire PACKETS=1000000  a hostile peer's packets at live queue pairs, in a guest"
	@echo "make soak EVENTS=1000000        the transport over bad links, so many random events"
	@echo "make bench [QUICK=1] [BENCH=...] rxo, rdma_rxe and siw measured in one guest"
	@echo "make bench-transport            what the transport costs a packet, apart from the kernel"
	@echo "make soak-guest SECONDS=60      everything at once in a guest, with losses and kills"
	@echo "make check                      rustfmt, clippy, rustdoc, licence lines"
	@echo "make vm CMD='...'               run a command in a fresh VM with the two hosts up"
	@echo "make setup                      only what the above need once"
	@echo
	@echo "LANE=vm     x86-64 in QEMU (default); KVM=auto, on or off"
	@echo "LANE=uml    User Mode Linux: quick"
	@echo "LANE=debug  User Mode Linux with KASAN, lockdep and more"
	@echo "RXO_CACHE   where all that is kept ($(CACHE)); needs 15 GB"
	@echo "RXO_MIRROR  the Debian archive, if not the one of apt"
