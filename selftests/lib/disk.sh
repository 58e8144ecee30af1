# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What tests of kernel users that bring a disk from the far end share; to be
# sourced after tap.sh. Such users know the initial network namespace and no
# other, so the host connects to itself there, by a device of its own.

DISK_IP=10.9.0.1
DISK_IP6=fd09::1
DISK_DEV=${RXO_DRIVER}disk
DISK_MB=${RXO_DISK_MB:-64}

disk_net_up()
{
	ip link add dsk0 type veth peer name dsk1 &&
		ip addr add $DISK_IP/24 dev dsk0 && ip addr add $DISK_IP6/64 dev dsk0 nodad &&
		ip link set dsk0 mtu 4200 up && ip link set dsk1 mtu 4200 up && ip link set lo up &&
		rdma link add "$DISK_DEV" type "$RXO_DRIVER" netdev dsk0
}

# The last references to the device go with queues that are torn down later.
disk_net_down()
{
	eventually 10 rdma link delete "$DISK_DEV"
	ip link del dsk0
	! rdma link show | grep -q "$DISK_DEV/"
}

# disk_backing FILE: a disk that is a file; its name in $loop.
disk_backing()
{
	truncate -s "${DISK_MB}M" "$1" && loop=$(losetup -f --show "$1")
}

# A disk whose requests end in hard interrupts, of timers; its name in $loop.
disk_in_interrupts()
{
	modprobe null_blk nr_devices=1 gb=1 memory_backed=1 irqmode=2 completion_nsec=20000 &&
		loop=/dev/nullb0 && eventually 5 test -b $loop
}

# disk_sizes DEVICE: data goes there and back, in requests of several sizes.
disk_sizes()
{
	local bs count seek
	dd if=/dev/urandom of="$TMP/data" bs=1M count=8 status=none || return 1
	for bs in 512 4096 12288 131072 1048576; do
		count=$((8 * 1048576 / bs)) seek=$((bs == 512 ? 3 : 1))
		[ $count -le 2048 ] || count=2048
		head -c $((count * bs)) "$TMP/data" >"$TMP/want"
		dd if="$TMP/want" of="$1" bs=$bs seek=$seek oflag=direct conv=notrunc status=none || return 1
		dd if="$1" of="$TMP/got" bs=$bs skip=$seek count=$count iflag=direct status=none || return 1
		cmp "$TMP/want" "$TMP/got" || return 1
	done
	echo 3 >/proc/sys/vm/drop_caches
}

# disk_fio FILE SIZE: random writes of random sizes, then read back and checked.
disk_fio()
{
	command -v fio >/dev/null || { skip "fio is not installed"; return; }
	fio --name=verify --filename="$1" --size="$2" --rw=randwrite --bsrange=512-64k \
		--bs_unaligned=0 --blockalign=512 --ioengine=libaio --iodepth=16 --direct=1 \
		--verify=crc32c --verify_fatal=1 --do_verify=1 --randrepeat=0 --output="$TMP/fio" ||
		{ show_end "$TMP/fio" 15; return 1; }
	grep -q 'err= *0' "$TMP/fio"
}

# disk_filesystem DEVICE: a tree of files, compared after it was mounted again.
disk_filesystem()
{
	local s
	command -v mkfs.ext4 >/dev/null && modprobe -q ext4 || { skip "no ext4 here"; return; }
	mkfs.ext4 -qF "$1" && mkdir -p "$TMP/m" && mount "$1" "$TMP/m" || return 1
	cp -r "$TESTS" "$TMP/m/tree" && cp "$TMP/data" "$TMP/m/" && umount "$TMP/m" &&
		mount "$1" "$TMP/m" && diff -r "$TESTS" "$TMP/m/tree" && cmp "$TMP/data" "$TMP/m/data"
	s=$?
	if [ $s = 0 ] && command -v fio >/dev/null; then
		disk_fio "$TMP/m/fio" 8m
		s=$?
	fi
	umount "$TMP/m"
	return $s
}

# disk_busy NAME: waits until somebody writes to it.
disk_busy()
{
	local before
	before=$(disk_written "$1")
	eventually 10 disk_moves "$1" "$before"
}

# Sectors.
disk_written() { awk '{ print $7 }' "/sys/block/$1/stat"; }
disk_moves() { [ "$(disk_written "$1")" != "$2" ]; }

disk_counter()
{
	rdma statistic show link "$DISK_DEV/1" | grep -oE "\b$1 [0-9]+" | cut -d' ' -f2
}

# No key was refused meanwhile.
disk_no_errors()
{
	local c s=0
	[ "$RXO_DRIVER" = rxo ] || { skip "counters of rxo"; return; }
	for c in key_unknown key_domain key_rights key_range memory_op_errors; do
		[ "$(disk_counter $c)" = 0 ] || { echo "$c: $(disk_counter $c)"; s=1; }
	done
	return $s
}
