#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# RC over a link that loses, reorders, duplicates, corrupts and delays: all of
# it arrives, once, in order and whole. What retries cost when nothing arrives,
# and credits in place of RNR NAKs.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
# shellcheck source=selftests/lib/wire.sh
. "$TESTS/lib/wire.sh"
must_build link link.c rig.c
must_build quiet quiet.c rig.c

if [ "$RXO_LANE" = vm ]; then TIMEOUT=14; else TIMEOUT=12; fi
ROUNDS=12
[ "$QUICK" = 0 ] || ROUNDS=4

# sum NAME: of both hosts since the snapshot
sum() { echo $(($(counted a "$1") + $(counted b "$1"))); }

# The link did what was asked of it, and the counters tell.
felt() # COUNTER...
{
	local c n

	after
	echo "netem dropped $(cat "$TMP/dropped")"
	for c; do
		n=$(sum "$c")
		echo "$c: $n"
		[ "$n" -gt 0 ] || return 1
	done
}

# None of these was counted.
none() # COUNTER...
{
	local c n

	for c; do
		n=$(sum "$c")
		echo "$c: $n"
		[ "$n" = 0 ] || return 1
	done
}

# Nothing was sent twice.
untouched()
{
	after
	none tx_retransmits timeouts rx_out_of_sequence rx_duplicates rx_icrc_errors tx_seq_naks
}

# matrix NAME TIMEOUT RESTARTS IP-VERSION NETEM... -- COUNTERS...
matrix()
{
	local name=$1 timeout=$2 restarts=$3 v=$4 how=() o=()
	shift 4
	while [ "$1" != -- ]; do
		how+=("$1")
		shift
	done
	shift
	[ "$v" = 4 ] || o=(-6)
	netem "${how[@]}" || { result 1 "$name: netem"; return; }
	snapshot
	LINK_TIMEOUT=$timeout LINK_RESTARTS=$restarts LINK_ROUNDS=$ROUNDS \
		link_tests 300 "$name" "${o[@]}" 'stream_*'
	netem_dropped >"$TMP/dropped"
	netem_off
	[ $# = 0 ] || t "$name: it was" "$@"
	after
	note "$name: lost $(cat "$TMP/dropped"), sent again $(sum tx_retransmits), timeouts $(sum timeouts)," \
		"sequence NAKs $(sum tx_seq_naks), duplicates $(sum rx_duplicates), replays $(sum rx_replays)"
}

# At 20 % each way a packet is not acknowledged at the eighth attempt about
# once in 10,000 times, and giving up is right then.
matrix "loss 0.1 %" $TIMEOUT 0 4 loss 0.1% --
matrix "loss 1 %" $TIMEOUT 0 4 loss 1% -- felt tx_retransmits
matrix "loss 5 %" $TIMEOUT 0 4 loss 5% -- felt tx_retransmits rx_duplicates
matrix "loss 20 %" $TIMEOUT 4 4 loss 20% -- felt tx_retransmits rx_duplicates rx_replays
matrix "reordering 25 %" $TIMEOUT 0 4 delay 1ms reorder 25% -- felt rx_out_of_sequence
matrix "duplication 5 %" $TIMEOUT 0 4 duplicate 5% -- felt rx_duplicates
matrix "corruption 1 %" $TIMEOUT 0 4 corrupt 1% -- felt rx_icrc_errors tx_retransmits
matrix "delay 10 ms" 16 0 4 delay 10ms -- untouched
matrix "all at once, IPv6" $TIMEOUT 1 6 delay 1ms reorder 10% loss 2% duplicate 2% corrupt 1% -- \
	felt tx_retransmits rx_out_of_sequence rx_icrc_errors rx_duplicates

# A queue that is full most of the time: what it refuses, several messages at
# once or one, is offered again.
refusing()
{
	ip netns exec hosta tc qdisc replace dev eth0 root tbf rate 8mbit burst 4k limit 4k
}
was_refused()
{
	after
	echo "tx_refused $(counted a tx_refused), tx_trains $(counted a tx_trains), tx_held $(counted a tx_held)"
	none tx_retransmits timeouts rx_out_of_sequence tx_dropped && [ "$(counted a tx_refused)" -gt 20 ] &&
		[ "$(counted a tx_trains)" -gt 0 ]
}
if [ "$RXO_DRIVER" = rxo ]; then
	snapshot
	t "full queue: tbf" refusing
	tap_program 120 "full queue: " "$BIN/quiet" -a "hosta:$DEVA" -b "hostb:$DEVB" \
		quiet_stream quiet_lists quiet_until_awaited quiet_answers
	tap_program 120 "full queue: " "$BIN/quiet" -b "hosta:$DEVA" -a "hostb:$DEVB" quiet_reads
	ip netns exec hosta tc qdisc del dev eth0 root
	t "full queue: it refused, and nothing was lost" was_refused
fi

# Black hole: retries run out in (retries + 1) x 4.096 us x 2^timeout.
lose b
link_tests 60 "nothing arrives" retry_time
lose_off
link_tests 60 "no receives" 'rnr_*'

# A receiver with few receives, and slow, as it has its CPU with the sender: that
# waits for credit, and is never told that it should have waited. A receiver that
# doesn't get to run for 67 ms is asked all the same, so on a busy machine this may
# take some attempts.
credits() # RECEIVES LEAST-STALLS
{
	local ga gb stalls naks try

	gb=$(gid_index b $IPB) && ga=$(gid_index a $IPA) || return 1
	for try in 1 2 3 4; do
		next_port
		snapshot
		pair 60 tcp $PORT b taskset 1 ib_send_bw -F -p $PORT -d "$DEVB" -x "$gb" -n 2000 -s 4096 -r "$1" -t 64 -- \
			a taskset 1 ib_send_bw -F -p $PORT -d "$DEVA" -x "$ga" -n 2000 -s 4096 -r "$1" -t 64 $IPB || return 1
		after
		stalls=$(counted a credit_stalls) naks=$(counted b tx_rnr_naks)
		echo "# ib_send_bw, $1 receives: $stalls credit stalls," \
			"$(counted a credit_probes) probes, $naks RNR NAKs" >&3
		[ "$stalls" -ge "$2" ] && [ "$naks" = 0 ] && return
	done
	return 1
}

# A peer that always has a receive in time, though it never has two, is asked for
# credit before some messages at first, and then no more.
asked_little()
{
	snapshot
	link one_receive || return 1
	after
	echo "$(counted a credit_stalls) credit stalls, $(counted a tx_ack_probes) questions," \
		"$(counted a credit_probes) without credit, $(counted b tx_rnr_naks) RNR NAKs"
	[ "$(counted a tx_ack_probes)" -le 64 ] && [ "$(counted a credit_probes)" -ge 200 ] && [ "$(counted b tx_rnr_naks)" = 0 ]
}
t "one receive for each message: the peer is soon asked no more" asked_little
exec 3>&1
t "ib_send_bw with 4 receives: credit stalls, no RNR NAKs" credits 4 1
t "ib_send_bw with 16 receives: no RNR NAKs" credits 16 0
finish
