#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# soak.sh SECONDS: a long run in a guest with the two hosts up: workers with
# many queue pairs, all operations, every byte verified, while links lose,
# delay and double packets and go down, workers are killed and memory runs low.
# At the end: nothing wrong, as many objects and as much memory as before.
#
#   WORKERS=3

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
# shellcheck source=selftests/lib/wire.sh
. "$TESTS/lib/wire.sh"
must_build soak soak.c rig.c

SECS=${1:-60}
WORKERS=${WORKERS:-3}
FILE=$TMP/work
END=$((SECONDS + SECS + 1))
KILLS=0 FLAPS=0 WEATHERS=0 RECLAIMS=0
declare -a PID

worker() # SLOT
{
	(in_host a "$BIN/soak" -a "hosta:$DEVA" -b "hostb:$DEVB" "$FILE" "$1" $((END - SECONDS))) >"$TMP/worker$1" 2>&1 </dev/null &
	PID[$1]=$!
	PIDS+=($!)
}

kernel_memory() { awk '/^(Slab|VmallocUsed|Percpu|KernelStack|PageTables):/ { n += $2 } END { print n }' /proc/meminfo; }

weather() # HOST
{
	local kind
	case $((RANDOM % 6)) in
	0) kind="loss 1%" ;;
	1) kind="loss 3% duplicate 2%" ;;
	2) kind="delay 2ms 1ms reorder 20%" ;;
	3) kind="loss 0.1% corrupt 1%" ;;
	4) kind="delay 500us duplicate 5%" ;;
	*) ip netns exec "host$1" tc qdisc del dev eth0 root 2>/dev/null; return ;;
	esac
	WEATHERS=$((WEATHERS + 1))
	# shellcheck disable=SC2086
	ip netns exec "host$1" tc qdisc replace dev eth0 root netem $kind limit 10000
}

# One thing that goes wrong.
mishap()
{
	local k
	case $((RANDOM % 8)) in
	0 | 1 | 2) weather a ;;
	3 | 4) weather b ;;
	5)
		k=$((RANDOM % WORKERS))
		pkill -KILL -P "${PID[$k]}" 2>/dev/null
		kill -KILL "${PID[$k]}" 2>/dev/null
		wait "${PID[$k]}" 2>/dev/null
		KILLS=$((KILLS + 1))
		worker $k
		;;
	6)
		ip -n hosta link set eth0 down
		sleep 0.1
		ip -n hosta link set eth0 up
		FLAPS=$((FLAPS + 1))
		;;
	7)
		echo 3 >/proc/sys/vm/drop_caches
		[ ! -e /proc/sys/vm/compact_memory ] || echo 1 >/proc/sys/vm/compact_memory
		RECLAIMS=$((RECLAIMS + 1))
		;;
	esac
}

# A worker that ended by itself and before its time found something.
all_there()
{
	local k
	for ((k = 0; k < WORKERS; k++)); do
		kill -0 "${PID[$k]}" 2>/dev/null || { echo "worker $k:"; cat "$TMP/worker$k"; return 1; }
	done
}

# Where the worker hangs, and in what state its queue pairs are; ends it.
stuck() # SLOT
{
	local pid=${PID[$1]} child
	child=$(pgrep -P "$pid" || echo "$pid")
	echo "worker $1 does not end"
	cat "$TMP/worker$1"
	cat "/proc/$child/stack" "/proc/$child/status" 2>&1 | head -n 40
	host a rdma -dd resource show qp pid "$child"
	host b rdma -dd resource show qp pid "$child"
	kill -KILL "$child" "$pid"
}

soak()
{
	local k s before after mid='' r=0
	echo 3 >/proc/sys/vm/drop_caches
	before=$(kernel_memory)
	for ((k = 0; k < WORKERS; k++)); do
		worker $k
	done
	while [ $SECONDS -lt $((END - 3)) ]; do
		sleep $((1 + RANDOM % 3))
		all_there || { r=1; kill -TERM "${PID[@]}" 2>/dev/null; break; }
		[ $SECONDS -ge $((END - 4)) ] || mishap
		# With all at work, once they have been so for a while, and at the end.
		[ -n "$mid" ] || [ $SECONDS -lt $((END - SECS * 2 / 3)) ] || mid=$(kernel_memory)
	done
	after=$(kernel_memory)
	netem_off
	for ((k = 0; k < WORKERS; k++)); do
		ended "${PID[$k]}" 120 || { stuck $k; r=1; }
		wait "${PID[$k]}"
		s=$?
		[ $s = 0 ] || { echo "worker $k: status $s"; cat "$TMP/worker$k"; r=1; }
	done
	sleep 2
	echo 3 >/proc/sys/vm/drop_caches
	# A leak of a byte an operation would show.
	[ -z "$mid" ] || [ $((after - mid)) -lt 10000 ] || r=1
	echo "kernel memory: $before KB before, $mid KB after a third of the time, $after KB at the end, $(kernel_memory) KB after it"
	return $r
}

verdict()
{
	python3 - "$FILE" "$SECS" "$WORKERS" <<-'PY'
	import struct, sys
	names = "SEND SEND_IMM WRITE WRITE_IMM READ FETCH_ADD CMP_SWAP".split()
	data = open(sys.argv[1], "rb").read()
	total = [0] * 14
	for i in range(int(sys.argv[3])):
	    for j, v in enumerate(struct.unpack_from("14Q", data, i * 112)):
	        total[j] += v
	ops = total[:7]
	print("%d s: %d operations (%s), %.1f GB" % (int(sys.argv[2]), sum(ops),
	      ", ".join("%s %d" % x for x in zip(names, ops)), total[8] / 1e9))
	print("%d datagrams of UC and UD, %d lost; %d RC pairs; %d rounds; wrong: %d" % (
	      total[9], total[10], total[11], total[12], total[13]))
	sys.exit(total[13] != 0 or sum(ops) == 0)
	PY
}

snapshot
t "nothing wrong in $SECS s" soak
diag <"$TMP/out"
t "what was done" verdict
diag <"$TMP/out"
after
for c in tx_packets tx_retransmits timeouts rx_duplicates rx_out_of_sequence rx_icrc_errors; do
	echo "# $c: $(counted a $c) at hosta, $(counted b $c) at hostb"
done
echo "# $KILLS workers killed, $FLAPS link flaps, $WEATHERS times bad weather, $RECLAIMS times memory reclaimed"
finish
