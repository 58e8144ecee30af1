#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What goes wrong around the devices: memory runs short, links and network
# devices come and go, namespaces end, signals rain. Verified traffic goes on,
# or ends with an error where its device went.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
# shellcheck source=selftests/lib/wire.sh
. "$TESTS/lib/wire.sh"
# shellcheck source=selftests/lib/beside.sh
. "$TESTS/lib/beside.sh"
must_build faults faults.c rig.c
must_build traffic traffic.c rig.c

SECS=10
[ "$QUICK" = 0 ] || SECS=4
DEBUG=/sys/kernel/debug

# ---- allocations ----------------------------------------------------------

# inject NAME=VALUE...: for both allocators; what they do is not to be told.
inject()
{
	local a f
	for a in failslab fail_page_alloc; do
		for f; do
			[ ! -e "$DEBUG/$a/${f%%=*}" ] || echo "${f#*=}" >"$DEBUG/$a/${f%%=*}" || return 1
		done
	done
}

can_inject() { [ -e $DEBUG/failslab/probability ] && [ -e /proc/self/fail-nth ]; }

# Atomic allocations alone, those of packets, some per cent of them.
starve()
{
	inject ignore-gfp-wait=1 ignore-gfp-highmem=0 min-order=0 task-filter=N interval=1 times=-1 probability=3
	sleep $SECS
	inject probability=0 ignore-gfp-wait=0
}

starved_packets()
{
	can_inject || { skip "this kernel injects no faults"; return; }
	local r=0
	snapshot
	during starve || r=1
	after
	local lost=$(($(counted a tx_dropped) + $(counted b tx_dropped) + $(counted a rx_no_memory) + $(counted b rx_no_memory)))
	echo "packets without memory: $lost; retransmissions: $(counted a tx_retransmits)"
	[ $lost -gt 0 ] || r=1
	return $r
}

# ---- memory pressure --------------------------------------------------------

# Pages that can move or go are asked to, again and again.
reclaim()
{
	local end=$((SECONDS + SECS))
	while [ $SECONDS -lt $end ]; do
		echo 3 >/proc/sys/vm/drop_caches
		[ ! -e /proc/sys/vm/compact_memory ] || echo 1 >/proc/sys/vm/compact_memory
		sleep 0.05
	done
}

# All memory but a little is taken, and given back.
hog()
{
	local i mb
	for i in 1 2; do
		mb=$(awk '/^MemAvailable/ { print int($2 / 1024) - 150 }' /proc/meminfo)
		[ "$mb" -gt 0 ] || return 1
		timeout 120 python3 -c "
import mmap, time
m = mmap.mmap(-1, $mb << 20)
for i in range(0, $mb << 20, 4096):
    m[i] = 1
time.sleep(1)" || return 1
	done
}

# ---- links ------------------------------------------------------------------

flap()
{
	local i
	for ((i = 0; i < SECS; i++)); do
		ip -n hosta link set eth0 down && sleep 0.1 && ip -n hosta link set eth0 up || return 1
		sleep 0.2
		ip -n hostb link set eth0 down && ip -n hostb link set eth0 up || return 1
		sleep 0.3
	done
	# what goes with a link that is down
	ip -n hosta addr replace $IP6A/64 dev eth0 nodad && ip -n hostb addr replace $IP6B/64 dev eth0 nodad
	link_local
	topo_neighbours hosta hostb eth0 "$IPB" "$IP6B" && topo_neighbours hostb hosta eth0 "$IPA" "$IP6A"
}

readdress()
{
	local i
	for ((i = 0; i < 5 * SECS; i++)); do
		ip -n hosta addr add 10.7.0.9/24 dev eth0 && ip -n hosta addr add fd07::9/64 dev eth0 nodad
		ip -n hosta addr del 10.7.0.9/24 dev eth0 && ip -n hosta addr del fd07::9/64 dev eth0 || return 1
		ip -n hosta link set eth0 mtu $((RXO_MTU + i % 2)) || return 1
	done
	ip -n hosta link set eth0 mtu "$RXO_MTU"
	eventually 5 gid_index a $IPA && eventually 5 gid_index b $IPB
}

# ---- signals ----------------------------------------------------------------

signals()
{
	ALARMS=500 PATIENT=1 start traffic a 100 "$BIN/traffic" "${HOSTS[@]}" $SECS
	local pid=$!
	ended $pid $((SECS + 30)) || { echo "it does not end"; return 1; }
	wait $pid || { echo "status $?"; show_end "$TMP/traffic"; return 1; }
	show_end "$TMP/traffic"
	[ "$(sed -n 's/.* rounds, \([0-9]*\) signals/\1/p' "$TMP/traffic")" -gt $((SECS * 50)) ]
}

# ---- namespaces and network devices -------------------------------------------

exclusive() { [ "$RXO_NETNS" = exclusive ] || { skip "devices are shared between namespaces"; return 1; }; }

# Two more hosts, the first of which goes while its device has traffic.
namespace_under_traffic()
{
	exclusive || return
	local i pid s
	for i in 1 2 3; do
		ip netns add hostc && ip netns add hostd || return 1
		ip link add eth0 netns hostc mtu "$RXO_MTU" type veth peer name eth0 netns hostd mtu "$RXO_MTU" &&
			ip -n hostc link set eth0 up && ip -n hostd link set eth0 up &&
			ip -n hostc addr add 10.9.0.1/24 dev eth0 && ip -n hostd addr add 10.9.0.2/24 dev eth0 &&
			ip netns exec hostc rdma link add "${RXO_DRIVER}c" type "$RXO_DRIVER" netdev eth0 &&
			ip netns exec hostd rdma link add "${RXO_DRIVER}d" type "$RXO_DRIVER" netdev eth0 || return 1
		# It ends up in the namespace that it opens last, and so does not hold the first.
		(exec timeout -k 3 60 "$BIN/traffic" -a "hostc:${RXO_DRIVER}c" -b "hostd:${RXO_DRIVER}d") >"$TMP/cd" 2>&1 </dev/null &
		pid=$!
		PIDS+=($pid)
		eventually 20 grep -q '^going' "$TMP/cd" || { show_end "$TMP/cd"; return 1; }
		ip netns delete hostc
		ended $pid 25 || { echo "the program still runs:"; show_end "$TMP/cd"; return 1; }
		wait $pid
		s=$?
		[ $s = 3 ] || { echo "status $s:"; show_end "$TMP/cd"; return 1; }
		ip netns delete hostd
		eventually 15 nobody_left || return 1
	done
}
nobody_left() { ! rdma dev show | grep -E "${RXO_DRIVER}[cd]:"; }

# The core may be moving the device just when its network device goes.
moved_while_it_goes()
{
	exclusive || return
	local i rounds=40
	[ "$QUICK" = 0 ] || rounds=15
	ip netns add hostc || return 1
	for ((i = 0; i < rounds; i++)); do
		ip -n hosta link add spare type dummy && ip -n hosta link set spare up &&
			host a rdma link add odd type "$RXO_DRIVER" netdev spare || return 1
		(host a rdma dev set odd netns hostc) >/dev/null 2>&1 &
		sleep "0.00$((RANDOM % 10))"
		ip -n hosta link delete spare || return 1
		wait $!
		eventually 10 odd_gone || { host a rdma dev; ip netns exec hostc rdma dev; return 1; }
	done
	ip netns delete hostc
}
odd_gone()
{
	! host a rdma dev show odd && ! ip netns exec hostc rdma dev show odd
}

# Two devices are asked for on one network device at once: one is made.
two_on_one()
{
	local i k rounds=20
	[ "$QUICK" = 0 ] || rounds=8
	for ((i = 0; i < rounds; i++)); do
		ip -n hosta link add spare type dummy && ip -n hosta link set spare up || return 1
		for k in 1 2 3 4; do
			(host a rdma link add odd$k type "$RXO_DRIVER" netdev spare) >/dev/null 2>&1 &
		done
		wait
		[ "$(host a rdma link show | grep -c "^link odd")" = 1 ] || { host a rdma link show; return 1; }
		ip -n hosta link delete spare
		eventually 5 no_odds || return 1
	done
}
no_odds() { [ "$(host a rdma link show | grep -c "^link odd")" = 0 ]; }

dared "faults"

if can_inject; then
	inject verbose=0 ignore-gfp-wait=0 ignore-gfp-highmem=0 min-order=0 probability=0
fi
tap_program 1700 "no memory: " "$BIN/faults" "${HOSTS[@]}"
t "packets without memory" starved_packets
t "caches dropped, memory compacted" during reclaim
if [ "$QUICK" = 0 ]; then
	t "memory taken" during hog
fi
t "both links flap" during flap
t "addresses and MTU change" during readdress
t "a storm of signals" signals
t "a namespace goes under traffic" namespace_under_traffic
t "a device that is moved while its netdev goes" moved_while_it_goes
t "two devices at once on one netdev" two_on_one
finish
