#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# RNBD, a block device over RTRS: rnbd-server and rnbd-client over a device of
# the driver, with data verified. Their kernel verbs: WRITE with immediate, READs
# of the server as WRITEs, SEND with invalidate, regions that are registered
# again and again without being mapped anew, pages of 128 KB, and two paths that
# take over from each other.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
# shellcheck source=selftests/lib/disk.sh
. "$TESTS/lib/disk.sh"

modprobe -qn rnbd-server && modprobe -qn rnbd-client || skip_all "no RNBD in this kernel"

SESSION=here
PATH4=ip:$DISK_IP@ip:$DISK_IP
PATH6=ip:$DISK_IP6@ip:$DISK_IP6
# (The server takes a path of each family for the same one.)
OTHER_IP=10.9.0.3
OTHER=ip:$OTHER_IP@ip:$OTHER_IP
CLIENT=/sys/class/rtrs-client/$SESSION

# server_up INVALIDATE: Y, it takes a buffer from the client while it works on it.
server_up()
{
	modprobe rtrs-server always_invalidate="$1" && modprobe rnbd-server && modprobe rnbd-client
}

# With its connections; the device has nothing of it afterwards.
server_down()
{
	modprobe -r rnbd-client && modprobe -r rnbd-server rtrs-server && unused
}

# What is left is QP 1, what belongs to it, and what the server listens at.
no_objects()
{
	rdma resource show | tee "$TMP/left" | grep -qE " $DISK_DEV: pd 1 cq [0-9]+ qp 1 cm_id [0-2] mr 0 "
}

unused()
{
	eventually 10 no_objects && return
	cat "$TMP/left"
	rdma resource show qp
	return 1
}

link_of() { echo "/sys/class/rnbd-client/ctl/devices/${loop//\//!}@$SESSION"; }

disk() { basename "$(readlink "$(link_of)")"; }

# map [PATH] [OPTIONS]: the disk appears.
map()
{
	echo "sessname=$SESSION path=${1:-$PATH4} device_path=$loop ${2:-}" \
		>/sys/class/rnbd-client/ctl/map_device &&
		eventually 5 test -b "/dev/$(disk)"
}

unmap()
{
	local d
	d=$(disk)
	echo "${1:-normal}" >"/sys/block/$d/rnbd/unmap_device" && eventually 10 test ! -e "/sys/block/$d"
}

on_disk() { "$1" "/dev/$(disk)" "${@:2}"; }

# The server's disk has what the client wrote, and the other way round.
both_ends()
{
	dd if=/dev/urandom of="$TMP/data" bs=1M count=4 status=none
	dd if="$TMP/data" of="/dev/$(disk)" bs=256k seek=3 oflag=direct,sync conv=notrunc status=none &&
		cmp "$TMP/data" <(tail -c +$((3 * 262144 + 1)) "$TMP/disk" | head -c 4194304) || return 1
	dd if=/dev/urandom of="$TMP/data" bs=1M count=4 status=none
	dd if="$TMP/data" of="$loop" bs=256k seek=7 oflag=direct conv=notrunc status=none &&
		dd if="/dev/$(disk)" bs=64k skip=28 count=64 iflag=direct status=none | cmp - "$TMP/data"
}

read_only()
{
	map "$PATH4" access_mode=ro || return 1
	dd if="/dev/$(disk)" of=/dev/null bs=64k count=8 iflag=direct status=none || return 1
	! dd if=/dev/zero of="/dev/$(disk)" bs=4k count=1 oflag=direct conv=notrunc 2>/dev/null || return 1
	unmap
}

by_ipv6()
{
	map "$PATH6" && both_ends && unmap
}

often()
{
	local i
	for i in $(seq "$([ "$QUICK" = 1 ] && echo 3 || echo 10)"); do
		map && dd if="/dev/$(disk)" of=/dev/null bs=64k count=8 iflag=direct status=none &&
			unmap || return 1
	done
	unused
}

# The server posts what it has to say in hard interrupts.
in_interrupts()
{
	local loop
	modprobe -qn null_blk || { skip "no null_blk in this kernel"; return; }
	disk_in_interrupts && map && on_disk disk_fio 16m && unmap || return 1
	modprobe -r null_blk
}

state_is() { [ "$(cat "$CLIENT/paths/$1/state")" = "$2" ]; }

# Each path is taken away under I/O and comes back: the other carries on, and
# not a request is lost.
fail_over()
{
	local w s=0 p
	command -v fio >/dev/null || { skip "fio is not installed"; return; }
	map && echo "$OTHER" >"$CLIENT/add_path" && state_is "$OTHER" connected || return 1
	fio --name=verify --filename="/dev/$(disk)" --size=8m --rw=randwrite --bs=16k --direct=1 \
		--ioengine=libaio --iodepth=8 --verify=crc32c --verify_fatal=1 --do_verify=1 \
		--time_based --runtime=12 --output="$TMP/fio" &
	w=$!
	for p in "$PATH4" "$OTHER"; do
		sleep 2
		echo 1 >"$CLIENT/paths/$p/disconnect" && state_is "$p" disconnected || s=1
		kill -0 $w 2>/dev/null || { echo "fio ended while $p was away"; s=1; }
		sleep 1
		echo 1 >"$CLIENT/paths/$p/reconnect" && eventually 5 state_is "$p" connected || s=1
	done
	wait $w || s=1
	[ $s = 0 ] && grep -q 'err= *0' "$TMP/fio" || { show_end "$TMP/fio" 15; s=1; }
	# Both have carried data.
	for p in "$PATH4" "$OTHER"; do
		[ "$(cut -d' ' -f3 "$CLIENT/paths/$p/stats/rdma")" != 0 ] || { echo "nothing by $p"; s=1; }
	done
	unmap || s=1
	return $s
}

# Writes until it can't any more, and must be told so.
writer()
{
	local d
	d=/dev/$(disk)
	while timeout 60 dd if=/dev/zero of="$d" bs=64k count=$((DISK_MB * 16)) oflag=direct status=none 2>"$TMP/dd"; do
		:
	done
	grep -q 'error writing' "$TMP/dd" && return
	echo "the writer hung, or noticed nothing:"
	cat "$TMP/dd"
	return 1
}

# The server ends a session that is written to: requests fail, nobody hangs; the
# client can go, and come back.
ended_under_io()
{
	local w s=0
	map || return 1
	writer &
	w=$!
	disk_busy "$(disk)" || s=1
	modprobe -r rnbd-server rtrs-server || s=1
	wait $w || s=1
	unmap force || s=1
	unused || s=1
	server_up Y && map && both_ends && unmap || s=1
	return $s
}

# The device goes with all of it in use. RTRS lets go of it when it tries to
# connect again, after 30 seconds, on any driver.
device_removed()
{
	local w s=0
	[ "$QUICK" != 1 ] || { skip "takes half a minute"; return; }
	map || return 1
	writer &
	w=$!
	disk_busy "$(disk)" || s=1
	timeout 60 rdma link delete "$DISK_DEV" || { echo "the device does not go"; s=1; }
	wait $w || s=1
	unmap force || s=1
	rdma link add "$DISK_DEV" type "$RXO_DRIVER" netdev dsk0 && map && both_ends && unmap || s=1
	return $s
}

case_up()
{
	disk_net_up && ip addr add $OTHER_IP/24 dev dsk0 && disk_backing "$TMP/disk" && server_up Y
}

case_down()
{
	server_down && losetup -d "$loop" && disk_net_down
}

t "server" case_up
[ $TAP_BAD != 0 ] || t "map" map
if [ $TAP_BAD = 0 ]; then
	t "data verified" on_disk disk_sizes
	t "both ends have the same" both_ends
	t "fio with verify" on_disk disk_fio 16m
	t "file system" on_disk disk_filesystem
	t "no access was refused" disk_no_errors
	t "unmap" unmap
	t "read-only" read_only
	t "by IPv6" by_ipv6
	t "mapped often" often
	t "answers posted in hard interrupts" in_interrupts
	t "a path lost under I/O" fail_over
	t "session ended under I/O" ended_under_io
	t "device removed under I/O" device_removed
	t "server ends" server_down
	t "server whose buffers are one region" server_up N
	t "map again" map
	t "data verified again" on_disk disk_sizes
	t "both ends have the same again" both_ends
	t "unmap again" unmap
fi
t "everything goes away" case_down
finish
