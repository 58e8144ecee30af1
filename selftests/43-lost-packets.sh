#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Exactly one packet is lost (or the same one twice): what it is decides what
# notices the loss, what is sent again, and what must not happen twice.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
# shellcheck source=selftests/lib/wire.sh
. "$TESTS/lib/wire.sh"

only_rxo "lost packets" "the counters are rxo's"
must_build link link.c rig.c

no_trains || exit 1
# Long enough that nothing but the planned loss runs into it.
if [ "$RXO_LANE" = uml ]; then export LINK_TIMEOUT=14; else export LINK_TIMEOUT=17; fi

# lost_one CASE "HOST MATCH; ..." COUNTERS...: the case goes well though each
# rule takes what its last number says (default 1); counters are
# host.name=value or host.name>=value.
lost_one()
{
	local what=$1 rules=$2 rule c want have status=0 total=0 taken=0 n h
	local -A used=()

	shift 2
	snapshot
	while IFS= read -r rule; do
		# shellcheck disable=SC2086
		lose $rule || return 1
		used[${rule%% *}]=1
		n=1
		[[ $rule != *"< 2"* ]] || n=2
		total=$((total + n))
	done < <(tr ';' '\n' <<<"$rules" | sed 's/^ *//')
	link "${V6[@]}" "$what" || status=1
	for h in "${!used[@]}"; do
		taken=$((taken + $(lost "$h")))
	done
	after
	[ "$taken" = $total ] || { echo "$taken packets were lost, not $total"; status=1; }
	for c; do
		[[ $c =~ ^([ab])\.([a-z_]+)(=|>=)([0-9]+)$ ]] || { echo "what is $c?"; return 1; }
		have=$(counted "${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}") want=${BASH_REMATCH[4]}
		case ${BASH_REMATCH[3]} in
		=) [ "$have" = "$want" ] && continue ;;
		*) [ "$have" -ge "$want" ] && continue ;;
		esac
		echo "$c, but it is $have"
		status=1
	done
	return $status
}

# The opcode of BTH, the syndrome of AETH, the first such packet, the second.
op() { echo "@th,64,8 $1"; }
once="numgen inc mod 1000000 0"
second="numgen inc mod 1000000 1"
twice="numgen inc mod 1000000 < 2"
V6=()

# Hosta asks, hostb answers. A message of five packets; what follows the lost
# one shows the loss at once, and after the last one only the timer does.
nak="a.timeouts=0 b.tx_seq_naks=1 a.rx_seq_naks=1 b.rx_out_of_sequence=1"
timer="a.timeouts=1 b.tx_seq_naks=0 a.rx_seq_naks=0"
once_there="b.recv_completions=1"

requests()
{
	# shellcheck disable=SC2086
	{
	t "SEND, first lost" lost_one one_send "b $(op 0x00) $once" $nak a.tx_retransmits=5 $once_there
	t "SEND, middle lost" lost_one one_send "b $(op 0x01) $second" $nak a.tx_retransmits=3 $once_there
	t "SEND, last lost" lost_one one_send "b $(op 0x02) $once" $timer $once_there
	t "SEND, last with immediate lost" lost_one one_send_imm "b $(op 0x03) $once" $timer $once_there
	t "SEND, only packet lost" lost_one one_send_small "b $(op 0x04) $once" $timer \
		a.tx_retransmits=1 $once_there
	t "SEND, only packet with immediate lost" lost_one one_send_small_imm "b $(op 0x05) $once" \
		$timer a.tx_retransmits=1 $once_there
	t "WRITE, first lost" lost_one one_write "b $(op 0x06) $once" $nak a.tx_retransmits=5
	t "WRITE, middle lost" lost_one one_write "b $(op 0x07) $second" $nak a.tx_retransmits=3
	t "WRITE, last lost" lost_one one_write "b $(op 0x08) $once" $timer
	t "WRITE, last with immediate lost" lost_one one_write_imm "b $(op 0x09) $once" $timer $once_there
	t "WRITE, only packet lost" lost_one one_write_small "b $(op 0x0a) $once" $timer a.tx_retransmits=1
	t "WRITE, only packet with immediate lost" lost_one one_write_small_imm "b $(op 0x0b) $once" \
		$timer a.tx_retransmits=1 $once_there
	}
}

# shellcheck disable=SC2086
answers()
{
	local replay="b.rx_replays=1 a.timeouts=0 a.rx_implied_naks=1"
	local late="b.rx_replays=1 a.timeouts=1 a.rx_implied_naks=0"

	t "READ, request lost" lost_one one_read "b $(op 0x0c) $once" $timer b.rx_replays=0 \
		b.tx_read_responses=5
	# Only what is missing is asked for again.
	t "READ, first response lost" lost_one one_read "a $(op 0x0d) $once" $replay \
		b.tx_read_responses=10
	t "READ, middle response lost" lost_one one_read "a $(op 0x0e) $second" $replay \
		b.tx_read_responses=8
	t "READ, last response lost" lost_one one_read "a $(op 0x0f) $once" $late \
		b.tx_read_responses=6
	t "READ, only response lost" lost_one one_read_small "a $(op 0x10) $once" $late \
		b.tx_read_responses=2
	t "atomic, request lost" lost_one one_fadd "b $(op 0x14) $once" $timer b.rx_replays=0 \
		b.tx_atomic_acks=1 b.rx_requests=1
	t "atomic, answer lost: replayed, not repeated" lost_one one_fadd "a $(op 0x12) $once" \
		a.timeouts=1 b.rx_replays=1 b.tx_atomic_acks=2 b.rx_requests=1 b.rx_duplicates=1
	t "atomic, answer lost twice" lost_one one_fadd "a $(op 0x12) $twice" \
		a.timeouts=2 b.rx_replays=2 b.tx_atomic_acks=3 b.rx_requests=1
}

# shellcheck disable=SC2086
acks()
{
	local ack="@th,64,8 0x11 @th,160,8"

	t "ACK of a SEND lost" lost_one one_send_small "a $(op 0x11) $once" a.timeouts=1 b.rx_duplicates=1 \
		a.tx_retransmits=1 $once_there
	t "ACK of a WRITE lost twice" lost_one one_write_small "a $(op 0x11) $twice" a.timeouts=2 \
		b.rx_duplicates=2 b.rx_requests=1
	t "only packet of one of ten SENDs lost" lost_one ten_sends "b $(op 0x04) numgen inc mod 1000000 4" \
		b.recv_completions=10 a.timeouts=0 b.tx_seq_naks=1
	t "first lost, its NAK lost as well" lost_one one_send \
		"b $(op 0x00) $once; a $ack 0x60 $once" a.timeouts=1 a.rx_seq_naks=0 $once_there
	# One NAK for each gap: that the packet is lost again only the timer notices.
	t "first lost twice" lost_one one_send "b $(op 0x00) $twice" b.tx_seq_naks=1 a.timeouts=1 $once_there
	t "RNR NAK lost" lost_one late_receive "a $ack 0x20-0x3f $once" a.timeouts=1 $once_there
	# Asked for alone, it is the only one.
	t "last READ response lost twice" lost_one one_read "a $(op '{ 0x0f, 0x10 }') $twice" a.timeouts=2 \
		b.rx_replays=2 b.tx_read_responses=7
	t "READ request lost twice" lost_one one_read "b $(op 0x0c) $twice" a.timeouts=2 b.rx_replays=0
}

requests
answers
acks
# The same machinery, so a few will do.
V6=(-6)
# shellcheck disable=SC2086
{
t "IPv6: SEND, first lost" lost_one one_send "b $(op 0x00) $once" $nak a.tx_retransmits=5
t "IPv6: READ, middle response lost" lost_one one_read "a $(op 0x0e) $second" a.timeouts=0 \
	a.rx_implied_naks=1 b.rx_replays=1 b.tx_read_responses=8
t "IPv6: atomic, answer lost: replayed, not repeated" lost_one one_fadd "a $(op 0x12) $once" \
	a.timeouts=1 b.rx_replays=1 b.rx_requests=1
}
trains
finish
