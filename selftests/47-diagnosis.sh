#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Documentation/diagnosis.rst, symptom by symptom: the fault is brought about,
# and what the guide names says so, while what it names for the neighbours says
# nothing. Hosta sends, hostb receives.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
# shellcheck source=selftests/lib/symptom.sh
. "$TESTS/lib/symptom.sh"

only_rxo "diagnosis" "the guide is rxo's"
must_build symptom symptom.c rig.c

# What each symptom has to itself: the others must not show it.
LOSS="tx_seq_naks rx_out_of_sequence rx_seq_naks"
AGAIN="timeouts tx_retransmits rx_duplicates retry_exceeded"
RECEIVER="tx_rnr_naks rx_rnr_naks rnr_timeouts rnr_retry_exceeded"
KEYS="key_unknown key_domain key_rights key_range access_errors"
REFUSED="tx_fatal_naks rx_fatal_naks invalid_requests operational_errors"
STATE="drop_state rx_no_qp rx_wrong_address drop_gap drop_unknown_duplicate"
DAMAGE="rx_icrc_errors rx_malformed rx_no_memory"

# quiet COUNTER...: on neither side.
quiet() { none a "$@" && none b "$@"; }

# How many packets of a sender never came to the receiver.
missing()
{
	echo $(($(counted a tx_packets) - $(counted b rx_packets)))
}

# Nothing is wrong: none of the figures moves.
case_none()
{
	begin writes && go && look done || return 1
	after
	# shellcheck disable=SC2086
	quiet $LOSS $AGAIN $RECEIVER $KEYS $REFUSED $STATE $DAMAGE && is 0 missing || return 1
	go
	ended_well
}

# Retransmission storm: packets are lost on the link, many of them.
case_storm()
{
	local r=0

	begin writes || return 1
	on_a tc qdisc replace dev eth0 root netem limit 1000 loss 20% seed 7
	go
	look done || r=1
	after
	is 5.. counted a tx_retransmits && is 2.. counted b rx_out_of_sequence && is 2.. counted b tx_seq_naks &&
		is 2.. missing && is 1.. happened a retransmit sequence_nak || r=1
	# Lost on the link: the receiver has no reason of its own.
	# shellcheck disable=SC2086
	quiet $RECEIVER $KEYS $REFUSED $DAMAGE drop_state rx_no_qp retry_exceeded || r=1
	netem_off
	go
	ended_well && return $r
}

# Loss in the receiver: it got them, and says why it did not take them.
case_receiver_loss()
{
	local r=0

	begin writes || return 1
	on_a tc qdisc replace dev eth0 root netem limit 1000 corrupt 20% seed 7
	go
	look done || r=1
	after
	is 2.. counted b rx_icrc_errors && is 2.. counted a tx_retransmits || r=1
	is true jq '[.history.events[] | select(.what == "rx_icrc_errors")] | length > 0' <(shot b) || r=1
	# shellcheck disable=SC2086
	quiet $RECEIVER $KEYS $REFUSED rx_no_memory drop_state retry_exceeded || r=1
	# Damage to addresses, lengths or ports loses a few before they come that far.
	[ "$(missing)" -ge "$(counted b rx_icrc_errors)" ] || { echo "$(missing) are missing"; r=1; }
	netem_off
	go
	ended_well && return $r
}

# Spurious retransmits: the timeout (16.8 ms) is shorter than the round trip (50 ms).
case_spurious()
{
	local r=0

	export SYMPTOM_TIMEOUT=12
	begin writes || return 1
	netem delay 25ms
	go
	look done || r=1
	unset SYMPTOM_TIMEOUT
	after
	# All of them arrived, so each is a duplicate, and its answer is stale.
	is 20.. counted a timeouts && is 20.. counted b rx_duplicates && is 20.. counted a rx_stale_responses &&
		is "$(counted a tx_retransmits)" counted b rx_duplicates && is 0 missing || r=1
	is 1.. happened a retransmit timeout && is 0 happened a retransmit sequence_nak || r=1
	# shellcheck disable=SC2086
	quiet $LOSS $RECEIVER $KEYS $REFUSED $STATE $DAMAGE retry_exceeded || r=1
	netem_off
	go
	ended_well && return $r
}

# The peer is still in INIT: it drops what comes, and says so.
case_peer_in_init()
{
	begin peer_in_init && go && look trying && is unacknowledged detail a waits_for || return 1
	go
	look failed || return 1
	after
	is 3 counted b drop_state && is 3 counted a timeouts && is 1 counted a retry_exceeded &&
		is INIT qp b .state && is 3 happened b drop drop_state && is 2 happened a retransmit timeout &&
		is 0 missing || return 1
	# shellcheck disable=SC2086
	quiet $LOSS $RECEIVER $KEYS $REFUSED $DAMAGE rx_no_qp rx_wrong_address rx_duplicates drop_gap || return 1
	go
	ended_well
}

# It has the wrong number for its peer: the peer's device knows none such, and which.
case_wrong_qpn()
{
	begin wrong_qpn && go && through trying failed
	ended_well || return 1
	after
	is 3 counted b rx_no_qp && is 1 counted a retry_exceeded &&
		is "$(told nobody)" jq '[.history.events[] | select(.what == "rx_no_qp") | .qpn] | last' <(shot b) || return 1
	# shellcheck disable=SC2086
	quiet $LOSS $RECEIVER $KEYS $REFUSED $DAMAGE drop_state rx_wrong_address rx_duplicates drop_gap
}

# A peer that is not there at all has no figure but that nothing comes.
case_unreachable()
{
	local r=0

	begin no_answer || return 1
	lose b
	go
	through trying || r=1
	look failed || r=1
	after
	is 3 missing && is 3 counted a timeouts && is 1 counted a retry_exceeded && is 0 counted b rx_packets || r=1
	# shellcheck disable=SC2086
	quiet $LOSS $RECEIVER $KEYS $REFUSED $STATE $DAMAGE rx_duplicates || r=1
	lose_off
	go
	ended_well && return $r
}

# The receiver is slow: the sender waits for credit, not for timers.
case_slow_receiver()
{
	begin slow_receiver && go && eventually 5 is credit detail a waits_for && look done || return 1
	after
	is 5.. counted a credit_stalls && is 50000.. counted a credit_stall_us && is 5.. happened a stall credit &&
		is 5.. happened a stall_end credit || return 1
	# Where the machine is so busy that the receiver is late by 67 ms, a message tries without credit.
	[ $(($(counted a rx_rnr_naks) * 4)) -le "$(counted a credit_stalls)" ] || { echo "too many RNR NAKs"; return 1; }
	# shellcheck disable=SC2086
	quiet $LOSS $KEYS $REFUSED $STATE $DAMAGE timeouts rnr_retry_exceeded || return 1
	go
	ended_well
}

# It has no receives at all: RNR NAKs, and in the end the sender gives up.
case_no_receive()
{
	begin no_receive && go && look waiting && eventually 5 is rnr detail a waits_for && eventually 5 is 2.. happened a nak_received rnr || return 1
	is 0 detail b rq_posted && is rnr detail a timer || return 1
	go
	look failed || return 1
	after
	is 3.. counted b tx_rnr_naks && is 3.. counted a rx_rnr_naks && is 1 counted a rnr_retry_exceeded &&
		is 3 happened a nak_received rnr && is 2 happened a retransmit rnr &&
		is 1 happened a send_failed rnr_retry_exc_err || return 1
	# shellcheck disable=SC2086
	quiet $LOSS $KEYS $REFUSED $DAMAGE timeouts retry_exceeded drop_state rx_no_qp || return 1
	go
	ended_well
}

# A remote access error: what is wrong about the key, which the sender can't know.
access_error() # CASE COUNTER
{
	begin "$1" && go && look failed || return 1
	after
	is 1 counted b "$2" && is 1 counted b access_errors && is 1 counted b tx_fatal_naks && is 1 counted a rx_fatal_naks &&
		is 1 happened b key_fault "$2" && is 1 happened b nak_sent remote_access &&
		is 1 happened b event qp_access_err && is 1 happened a nak_received remote_access &&
		is 1 happened a send_failed rem_access_err &&
		is "$(told key)" qp b '.history.events[] | select(.event == "key_fault") | .key' || return 1
	# shellcheck disable=SC2046,SC2086
	quiet $LOSS $AGAIN $RECEIVER $STATE $DAMAGE invalid_requests operational_errors \
		$(tr ' ' '\n' <<<"$KEYS" | grep -v "^$2\$\|access_errors") || return 1
	go
	ended_well
}

# Packets are longer than the path takes, and nobody is told: the small ones pass.
case_mtu()
{
	local r=0

	begin large_packets || return 1
	lose b 'udp length > 1500'
	go
	look small || r=1
	after
	is 0 missing && is 0 counted a timeouts || r=1
	snapshot
	go
	through trying || r=1
	look failed || r=1
	after
	# The same packet each time, and only the large one.
	is 3 missing && is 3 counted a timeouts && is 2 counted a tx_retransmits && is 1 counted a retry_exceeded &&
		is 2 happened a retransmit timeout &&
		is $((0x123457)) qp a '.history.events[] | select(.event == "retransmit") | .psn' &&
		is 4096 detail a path_mtu || r=1
	# shellcheck disable=SC2086
	quiet $LOSS $RECEIVER $KEYS $REFUSED $STATE $DAMAGE tx_dropped tx_refused || r=1
	lose_off
	go
	ended_well && return $r
}

# The far end of a virtual link takes no such packets: it gives them back.
case_mtu_veth()
{
	local r=0

	begin large_packets || return 1
	ip -n hostb link set eth0 mtu 1500
	go
	through small trying || r=1
	look failed || r=1
	after
	is 200.. counted a tx_refused && is 0 counted a tx_dropped && is 0 missing || r=1
	! host a ping -M do -s 4000 -c 1 -W 1 -q $IPB >/dev/null && host a ping -M do -s 1000 -c 1 -W 1 -q $IPB >/dev/null || r=1
	# shellcheck disable=SC2086
	quiet $LOSS $RECEIVER $KEYS $REFUSED $STATE $DAMAGE || r=1
	go
	ended_well || r=1
	ip -n hostb link set eth0 mtu "$RXO_MTU"
	return $r
}

# The sender's own network device takes no such packets.
case_mtu_here()
{
	local r=0

	begin large_packets || return 1
	ip -n hosta link set eth0 mtu 1500
	go
	through small trying && look failed || r=1
	after
	is 3 counted a tx_dropped && is 0 missing || r=1
	# shellcheck disable=SC2086
	quiet $LOSS $RECEIVER $KEYS $REFUSED $STATE $DAMAGE || r=1
	go
	ended_well || r=1
	ip -n hosta link set eth0 mtu "$RXO_MTU"
	return $r
}

# The two ends have different path MTUs: the receiver refuses the first packet.
case_path_mtus()
{
	begin path_mtus && go && look failed || return 1
	after
	is 1 counted b invalid_requests && is 1 happened b nak_sent invalid_request &&
		is 1 happened a nak_received invalid_request && is 1 happened a send_failed rem_inv_req_err &&
		is 4096 detail a path_mtu && is 1024 detail b path_mtu || return 1
	# shellcheck disable=SC2086
	quiet $LOSS $AGAIN $RECEIVER $KEYS $STATE $DAMAGE || return 1
	go
	ended_well
}

# The ends don't agree about the PSN; either one can be ahead.
case_sender_ahead()
{
	begin sender_ahead && go && look trying || return 1
	is $((0x123456)) detail a unacked_psn && is $((0x123456 - 1000)) detail b expected_psn &&
		is 1 detail b awaits_missing || return 1
	go
	look failed || return 1
	after
	# The same gap for ever: it is asked for once, and what asks is not understood.
	is 1 counted b rx_out_of_sequence && is 1 counted b tx_seq_naks && is 2 counted b drop_gap &&
		is 1 counted a rx_stale_responses && is 1 counted a retry_exceeded && is 0 counted b rx_requests &&
		is 0 missing || return 1
	# shellcheck disable=SC2086
	quiet $RECEIVER $KEYS $REFUSED $DAMAGE rx_seq_naks rx_duplicates drop_state rx_no_qp || return 1
	go
	ended_well
}

case_sender_behind()
{
	begin sender_behind && go && look trying || return 1
	is $((0x123456)) detail a unacked_psn && is $((0x123456 + 1000)) detail b expected_psn || return 1
	go
	look failed || return 1
	after
	# It takes them for old ones, and acknowledges what was never sent.
	is 3 counted b rx_duplicates && is 3 counted a rx_stale_responses && is 1 counted a retry_exceeded &&
		is 0 counted b rx_requests && is 0 missing || return 1
	# shellcheck disable=SC2086
	quiet $LOSS $RECEIVER $KEYS $REFUSED $DAMAGE drop_state rx_no_qp drop_gap || return 1
	go
	ended_well
}

t "nothing is wrong" case_none
t "retransmission storm: loss on the link" case_storm
t "loss in the receiver: damaged packets" case_receiver_loss
t "spurious retransmits" case_spurious
t "stuck: the peer is in INIT" case_peer_in_init
t "stuck: the wrong QPN" case_wrong_qpn
t "stuck: nobody there" case_unreachable
t "the receiver is slow: credits" case_slow_receiver
t "the receiver has nothing posted: RNR" case_no_receive
t "remote access error: no such key" access_error unknown_key key_unknown
t "remote access error: no such right" access_error without_right key_rights
t "remote access error: beyond the region" access_error beyond_region key_range
t "MTU mismatch: on the path" case_mtu
t "MTU mismatch: on the far end of a virtual link" case_mtu_veth
t "MTU mismatch: on the sender's device" case_mtu_here
t "MTU mismatch: between the ends" case_path_mtus
t "PSNs apart: the sender is ahead" case_sender_ahead
t "PSNs apart: the sender is behind" case_sender_behind
finish
