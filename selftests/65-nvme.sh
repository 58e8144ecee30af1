#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# NVMe over Fabrics: nvmet-rdma and nvme-rdma over a device of the driver, with
# data verified. Both live in the initial network namespace, as they know no
# other, so the host connects to itself. Their kernel verbs: fast registration,
# local and remote invalidation, ib_poll contexts, and SRQs of the target.

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=selftests/lib/topology.sh
. "$here/lib/topology.sh"

NQN=nqn.2026-01.test:nvme
IP=10.9.0.1
CFG=/sys/kernel/config/nvmet
DEV=${RXO_DRIVER}nvme
SIZE=${RXO_NVME_MB:-64}
tmp=$(mktemp -d)
n=0 bad=0

result() # STATUS NAME
{
	n=$((n + 1))
	if [ "$1" = 0 ]; then echo "ok $n - $2"; else echo "not ok $n - $2"; bad=1; fi
}

t() # NAME COMMAND...
{
	local name=$1
	shift
	"$@" >"$tmp/out" 2>&1
	local s=$?
	[ $s = 0 ] || sed 's/^/# /' "$tmp/out"
	result $s "$name"
	return $s
}

skip_all() { echo "1..0 # SKIP $*"; exit 0; }

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
	ip link add nvt0 type veth peer name nvt1 &&
		ip addr add $IP/24 dev nvt0 && ip link set nvt0 mtu 4200 up &&
		ip link set nvt1 mtu 4200 up && ip link set lo up &&
		rdma link add "$DEV" type "$RXO_DRIVER" netdev nvt0 || return 1
	truncate -s "${SIZE}M" "$tmp/disk" && loop=$(losetup -f --show "$tmp/disk") || return 1
	mkdir "$CFG/subsystems/$NQN" && cd "$CFG/subsystems/$NQN" || return 1
	echo 1 >attr_allow_any_host
	mkdir namespaces/1 && echo -n "$loop" >namespaces/1/device_path &&
		echo 1 >namespaces/1/enable || return 1
	mkdir "$CFG/ports/1" && cd "$CFG/ports/1" || return 1
	echo rdma >addr_trtype && echo ipv4 >addr_adrfam && echo $IP >addr_traddr &&
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
	# The last references to the device go with queues that are torn down later.
	local i
	for i in $(seq 100); do
		rdma link delete "$DEV" 2>/dev/null && break
		sleep 0.1
	done
	ip link del nvt0
	! rdma link show | grep -q "$DEV/"
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
	timeout 30 nvme connect -t rdma -a $IP -s 4420 -n $NQN -i 2 "$@" || return 1
	for i in $(seq 100); do
		[ -b "/dev/$(disk)" ] && [ -n "$(disk)" ] && return 0
		sleep 0.05
	done
	echo "no disk appeared"
	return 1
}

disconnect() { timeout 60 nvme disconnect -n $NQN; }

# Data goes there and back, in requests of several sizes.
verify()
{
	local d=/dev/$(disk) bs seed
	dd if=/dev/urandom of="$tmp/data" bs=1M count=8 status=none || return 1
	for bs in 512 4096 12288 131072 1048576; do
		local count=$((8 * 1048576 / bs)) seek=$((bs == 512 ? 3 : 1))
		[ $count -le 2048 ] || count=2048
		head -c $((count * bs)) "$tmp/data" >"$tmp/want"
		dd if="$tmp/want" of="$d" bs=$bs seek=$seek oflag=direct conv=notrunc status=none || return 1
		dd if="$d" of="$tmp/got" bs=$bs skip=$seek count=$count iflag=direct status=none || return 1
		cmp "$tmp/want" "$tmp/got" || return 1
	done
	echo 3 >/proc/sys/vm/drop_caches
}

# fio_verify FILE SIZE: random writes of random sizes, then read back and checked.
fio_verify()
{
	fio --name=verify --filename="$1" --size="$2" --rw=randwrite --bsrange=512-64k \
		--bs_unaligned=0 --blockalign=512 --ioengine=libaio --iodepth=16 --direct=1 \
		--verify=crc32c --verify_fatal=1 --do_verify=1 --randrepeat=0 --output="$tmp/fio" ||
		{ tail -n 15 "$tmp/fio"; return 1; }
	grep -q 'err= *0' "$tmp/fio"
}

fio_disk()
{
	fio_verify "/dev/$(disk)" 16m
}

filesystem()
{
	local d=/dev/$(disk)
	mkfs.ext4 -qF "$d" && mkdir -p "$tmp/m" && mount "$d" "$tmp/m" || return 1
	cp -r "$here" "$tmp/m/tree" && cp "$tmp/data" "$tmp/m/" && umount "$tmp/m" &&
		mount "$d" "$tmp/m" && diff -r "$here" "$tmp/m/tree" &&
		cmp "$tmp/data" "$tmp/m/data"
	local s=$?
	if [ $s = 0 ] && command -v fio >/dev/null; then
		fio_verify "$tmp/m/fio" 8m
		s=$?
	fi
	umount "$tmp/m"
	return $s
}

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
	sleep 0.5
	rm "$CFG/ports/1/subsystems/$NQN"
	timeout 60 nvme disconnect -n $NQN || s=1
	wait $w
	[ $? != 124 ] || { echo "the writer hangs"; s=1; }
	ln -s "$CFG/subsystems/$NQN" "$CFG/ports/1/subsystems/" || s=1
	return $s
}

counter() { rdma statistic show link "$DEV/1" | grep -oE "\b$1 [0-9]+" | cut -d' ' -f2; }

errors()
{
	local c s=0
	for c in key_unknown key_domain key_rights key_range memory_op_errors; do
		[ "$(counter $c)" = 0 ] || { echo "$c: $(counter $c)"; s=1; }
	done
	return $s
}

if t "target" target_up && t "connect" connect; then
	t "data verified" verify
	if command -v fio >/dev/null; then
		t "fio with verify" fio_disk
	else
		n=$((n + 1))
		echo "ok $n - fio with verify # SKIP fio is not installed"
	fi
	if command -v mkfs.ext4 >/dev/null && modprobe -q ext4; then
		t "file system" filesystem
	else
		n=$((n + 1))
		echo "ok $n - file system # SKIP no ext4 here"
	fi
	[ "$RXO_DRIVER" != rxo ] || t "no access was refused" errors
	t "disconnect" disconnect
	t "connect and disconnect" often
	t "connect again" connect && t "target removed under I/O" removed_under_io
	t "connect to the target that came back" connect && t "data verified again" verify
	t "disconnect again" disconnect
fi
t "everything goes away" target_down
rm -rf "$tmp"
echo "1..$n"
exit $bad
