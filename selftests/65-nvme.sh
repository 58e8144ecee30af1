#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# NVMe over Fabrics: nvmet-rdma and nvme-rdma over a device of the driver, with
# data verified. Their kernel verbs: fast registration, local and remote
# invalidation, ib_poll contexts, and SRQs of the target.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
# shellcheck source=selftests/lib/disk.sh
. "$TESTS/lib/disk.sh"

NQN=nqn.2026-01.test:nvme
CFG=/sys/kernel/config/nvmet

# The kernel's nvmet takes its configuration lock under that of an rdma_cm id, and
# the other way round when a port goes. Lockdep says so, and then no more.
[ ! -e /proc/lockdep ] || [ -n "${RXO_NVME_LOCKDEP:-}" ] ||
	skip_all "nvmet and rdma_cm invert their locks, which would end lockdep's watch"
modprobe -q nvmet-rdma && modprobe -q nvme-rdma || skip_all "no NVMe over RDMA in this kernel"
[ -d "$CFG" ] || mount -t configfs none /sys/kernel/config 2>/dev/null
[ -d "$CFG" ] || skip_all "no configfs"
command -v nvme >/dev/null || skip_all "nvme-cli is not installed"

target_up()
{
	disk_net_up && disk_backing "$TMP/disk" || return 1
	mkdir "$CFG/subsystems/$NQN" && cd "$CFG/subsystems/$NQN" || return 1
	echo 1 >attr_allow_any_host
	mkdir namespaces/1 && echo -n "$loop" >namespaces/1/device_path &&
		echo 1 >namespaces/1/enable || return 1
	mkdir "$CFG/ports/1" && cd "$CFG/ports/1" || return 1
	echo rdma >addr_trtype && echo ipv4 >addr_adrfam && echo $DISK_IP >addr_traddr &&
		echo 4420 >addr_trsvcid &&
		ln -s "$CFG/subsystems/$NQN" subsystems/ || return 1
	cd / || return 1
}

target_down()
{
	cd / || return 1
	rm -f "$CFG/ports/1/subsystems/$NQN"
	rmdir "$CFG/ports/1" && rmdir "$CFG/subsystems/$NQN/namespaces/1" &&
		rmdir "$CFG/subsystems/$NQN" || return 1
	losetup -d "$loop"
	disk_net_down
}

disk()
{
	local c
	for c in /sys/class/nvme/nvme*; do
		[ "$(cat "$c/subsysnqn" 2>/dev/null)" = "$NQN" ] || continue
		ls "$c" | grep -oE '^nvme[0-9]+(c[0-9]+)?n[0-9]+$' | sed -E 's/c[0-9]+//' | head -n 1
	done
}

connect()
{
	local i
	timeout 30 nvme connect -t rdma -a $DISK_IP -s 4420 -n $NQN -i 2 "$@" || return 1
	for i in $(seq 100); do
		[ -b "/dev/$(disk)" ] && [ -n "$(disk)" ] && return 0
		sleep 0.05
	done
	echo "no disk appeared"
	return 1
}

disconnect() { timeout 60 nvme disconnect -n $NQN; }

# on_disk COMMAND ARGS...: with the disk as its first argument.
on_disk() { "$1" "/dev/$(disk)" "${@:2}"; }

often()
{
	local i
	for i in $(seq 5); do
		connect && dd if="/dev/$(disk)" of=/dev/null bs=64k count=8 iflag=direct status=none &&
			disconnect || return 1
	done
}

# The target goes while it is written to: the host fails what it can't do, in
# the time that it was given, and nothing hangs.
removed_under_io()
{
	local d=/dev/$(disk) w s=0
	timeout 60 dd if=/dev/zero of="$d" bs=64k oflag=direct status=none 2>/dev/null &
	w=$!
	disk_busy "$(disk)" || s=1
	rm "$CFG/ports/1/subsystems/$NQN"
	timeout 60 nvme disconnect -n $NQN || s=1
	wait $w
	[ $? != 124 ] || { echo "the writer hangs"; s=1; }
	ln -s "$CFG/subsystems/$NQN" "$CFG/ports/1/subsystems/" || s=1
	return $s
}

# The target posts what it has to say in hard interrupts.
in_interrupts()
{
	local loop d ns=$CFG/subsystems/$NQN/namespaces/2
	modprobe -qn null_blk || { skip "no null_blk in this kernel"; return; }
	disk_in_interrupts && mkdir "$ns" && echo -n $loop >"$ns/device_path" &&
		echo 1 >"$ns/enable" && d=/dev/$(disk) && d=${d%n1}n2 &&
		eventually 10 test -b "$d" && disk_fio "$d" 16m || return 1
	echo 0 >"$ns/enable" && rmdir "$ns" && modprobe -r null_blk
}

t "target" target_up
[ $TAP_BAD != 0 ] || t "connect" connect
if [ $TAP_BAD = 0 ]; then
	t "data verified" on_disk disk_sizes
	t "fio with verify" on_disk disk_fio 16m
	t "file system" on_disk disk_filesystem
	t "no access was refused" disk_no_errors
	t "answers posted in hard interrupts" in_interrupts
	t "disconnect" disconnect
	t "connect and disconnect" often
	t "connect again" connect
	t "target removed under I/O" removed_under_io
	t "connect to the target that came back" connect
	t "data verified again" on_disk disk_sizes
	t "disconnect again" disconnect
fi
t "everything goes away" target_down
finish
