#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# A bad wire (tc netem on both ends of the veth pair): every byte still
# arrives, and the counters tell what it took.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
# shellcheck source=selftests/lib/wire.sh
. "$TESTS/lib/wire.sh"

case $RXO_DRIVER in
rxo)
	RETRANSMITS="tx_retransmits"
	LOSSES="timeouts rx_seq_naks rx_implied_naks"
	DUPLICATES="rx_duplicates"
	DISORDER="rx_out_of_sequence tx_seq_naks"
	CORRUPTION="rx_icrc_errors"
	;;
*)
	RETRANSMITS="completer_retry_err rcvd_seq_err duplicate_request"
	LOSSES="completer_retry_err rcvd_seq_err out_of_seq_request"
	DUPLICATES="duplicate_request"
	DISORDER="out_of_seq_request rcvd_seq_err"
	CORRUPTION=
	;;
esac

counters() # NAME...: the sum of both devices'
{
	local h n sum=0
	for h in a b; do
		for n; do
			sum=$((sum + $(counter $h "$n")))
		done
	done
	echo $sum
}

wire() # NETEM...: on both; nothing: a good one
{
	local h
	for h in hosta hostb; do
		tc -n $h qdisc del dev eth0 root 2>/dev/null
		[ $# = 0 ] || tc -n $h qdisc add dev eth0 root "$@" || return 1
	done
}

dropped() { tc -n hosta -s qdisc show dev eth0; tc -n hostb -s qdisc show dev eth0; }

# A server is gone as soon as it has all that it waits for. If the last
# acknowledgement that it sent got lost, its client waits for another in vain:
# that is how a reliable connection ends of which one end doesn't wait for the
# other. All the data arrived, as the server knows.
left_alone() # CLIENT SERVER PID-OF-SERVER BYTES
{
	ended "$3" 10 && wait "$3" &&
		expect_line "$TMP/$2" "$2" "^$4 bytes in" 1 &&
		expect_line "$TMP/$1" "$1" "^Failed status " 1 &&
		expect_line "$TMP/$1" "$1" "^Failed status transport retry counter exceeded \(12\) for wr_id 2$" 1 &&
		echo "$1: the server's last acknowledgement was lost"
}

# Both programs at a time: they mostly wait.
bad_wire() # COUNTERS... -- NETEM...
{
	local -a names=()
	local before after r=0 n=1000 ga gb rp rs pp ps bytes
	while [ "$1" != -- ]; do
		names+=("$1")
		shift
	done
	shift
	[ "$QUICK" = 0 ] || n=200
	bytes=$((2 * n * 9000))
	ga=$(gid_index a $IPA) && gb=$(gid_index b $IPB) || return 1
	before=$(counters "${names[@]}")
	next_port
	start rs b 400 rping -s -a $IPB -p $PORT -V -v -C $n -S 5000
	rs=$!
	listening b cm $PORT $rs || return 1
	start ps b 400 ibv_rc_pingpong -d "$DEVB" -g "$gb" -p $PORT -c -e -n $n -s 9000
	ps=$!
	listening b tcp $PORT $ps || return 1
	wire "$@" || return 1
	start rp a 400 rping -c -a $IPB -p $PORT -V -v -C $n -S 5000
	rp=$!
	start pp a 400 ibv_rc_pingpong -d "$DEVA" -g "$ga" -p $PORT -c -e -n $n -s 9000 $IPB
	pp=$!
	ended $rp 400; ended $pp 400; ended $rs 10
	wait $rp || { echo "rping: status $?"; show_end "$TMP/rp" 3; show_end "$TMP/rs" 3; r=1; }
	if wait $pp; then
		expect_line "$TMP/pp" ibv_rc_pingpong "^$bytes bytes in" 1 || r=1
	elif ! left_alone pp ps $ps $bytes; then
		echo "ibv_rc_pingpong failed"; show_end "$TMP/pp"; show_end "$TMP/ps"; r=1
	fi
	dropped
	wire
	expect_line "$TMP/rp" "rping client" "^ping data: rdma-ping-[0-9]+: " $n || r=1
	expect_line "$TMP/rs" "rping server" "^server ping data: rdma-ping-[0-9]+: " $n || r=1
	expect_line "$TMP/rp" "rping client" "mismatch" 0 || r=1
	expect_line "$TMP/pp" ibv_rc_pingpong "invalid data" 0 || r=1
	expect_line "$TMP/ps" "ibv_rc_pingpong server" "invalid data" 0 || r=1
	after=$(counters "${names[@]}")
	echo "${names[*]}: $before, then $after"
	if [ ${#names[@]} -gt 0 ] && [ "$after" -le "$before" ]; then
		host a rdma statistic show link "$DEVA/1" | grep -v ' 0 *$'
		r=1
	fi
	return $r
}

bulk() # PROGRAM ARGS... over the wire as it is
{
	local prog=$1 ga gb
	shift
	ga=$(gid_index a $IPA) && gb=$(gid_index b $IPB) || return 1
	next_port
	pair 120 tcp $PORT b "$prog" -d "$DEVB" -F -p $PORT -x "$gb" "$@" -- \
		a "$prog" -d "$DEVA" -F -p $PORT -x "$ga" "$@" $IPB || return 1
	expect_line "$TMP/client" client "^ *[0-9]+ +[0-9]+ +" 1
}

bulk_bad_wire() # PROGRAM ARGS... -- NETEM...
{
	local -a prog=()
	local r
	while [ "$1" != -- ]; do
		prog+=("$1")
		shift
	done
	shift
	wire "$@" || return 1
	bulk "${prog[@]}"
	r=$?
	[ $r = 0 ] || dropped
	wire
	return $r
}

data_bad_wire() # NETEM...: the byte by byte tests
{
	wire "$@" || return 1
	RXO_QUICK=1 timeout -k 5 240 "$BIN/data" -a "hosta:$DEVA" -b "hostb:$DEVB" rc_mixed rc_atomic rc_outstanding rc_psn_wrap rc_fence
	local r=$?
	wire
	return $r
}

must_build data data.c rig.c
# shellcheck disable=SC2086
{
	t "1 % loss" bad_wire $RETRANSMITS $LOSSES -- netem loss 1%
	t "1 % duplication" bad_wire $DUPLICATES -- netem duplicate 1%
	# In a train the packets of a message can't overtake each other.
	no_trains
	t "reordering" bad_wire $DISORDER -- netem delay 300us reorder 90% 25%
	trains
	t "1 % corruption" bad_wire $CORRUPTION -- netem corrupt 1%
}
t "all of it" bad_wire -- netem delay 200us 100us loss 0.5% duplicate 0.5% corrupt 0.5%
t "data, 1 % loss" data_bad_wire netem loss 1%
t "data, reordered and duplicated" data_bad_wire netem delay 300us reorder 90% 25% duplicate 1%
t "ib_send_bw, 1 % loss" bulk_bad_wire ib_send_bw -s 65536 -n 100 -- netem loss 1%
t "ib_write_bw, 1 % loss" bulk_bad_wire ib_write_bw -s 65536 -n 100 -- netem loss 1%
t "ib_read_bw, 1 % loss" bulk_bad_wire ib_read_bw -s 65536 -n 100 -- netem loss 1%
t "ib_write_bw through a queue of 8 packets" bulk_bad_wire ib_write_bw -s 1048576 -n 5 -- pfifo limit 8
finish
