#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What `rdma resource show -dd` says of objects: numbers that agree with each
# other and with what was done, and what a sender waits for, whatever that is.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
# shellcheck source=selftests/lib/symptom.sh
. "$TESTS/lib/symptom.sh"

only_rxo "driver detail" "the detail is rxo's"
must_build symptom symptom.c rig.c
must_build hold hold.c rig.c

case_idle()
{
	symptom well
	look idle && is no_work detail a waits_for && is off detail a timer &&
		is 0 detail a sq_posted && is 64.. detail a sq_size && is 0 detail b rq_posted &&
		is 1024 detail a path_mtu && is 7 detail a retry_cnt && is 4 detail a reads_max || return 1
	# Where both began, and where that is expected.
	is $((0x123456)) detail a next_psn && is $((0x123456)) detail b expected_psn &&
		is $((0x124456)) detail b next_psn && is 0 detail b msn || return 1
	go
	look done || return 1
	# Four messages of three packets went, and four receives are left of eight.
	is $((0x123456 + 12)) detail a next_psn && is $((0x123456 + 12)) detail a unacked_psn &&
		is $((0x123456 + 12)) detail a sent_psn && is $((0x123456 + 12)) detail b expected_psn &&
		is 4 detail b msn && is 4 detail a ssn && is 4 detail b rq_posted &&
		is 4 detail a credits && is no_work detail a waits_for && is off detail a timer || return 1
	go
	ended_well
}

# The one field that says why nothing is sent, for each reason that a peer or
# the network can bring about.
case_waits()
{
	local r=0

	symptom waits
	look begin && lose b && go || r=1
	if [ $r = 0 ]; then
		look unacknowledged && is unacknowledged detail a waits_for && is off detail a timer &&
			is 1 detail a sq_posted && go || r=1
	fi
	if [ $r = 0 ]; then
		look read_limit && is read_limit detail a waits_for && is 1 detail a reads_outstanding &&
			is 3 detail a sq_posted && go || r=1
	fi
	[ $r = 0 ] && look fence && is fence detail a waits_for && go || r=1
	[ $r = 0 ] && look window && is window detail a waits_for && go || r=1
	[ $r = 0 ] && look state && is state detail a waits_for && go || r=1
	lose_off
	ended_well && return $r
}

case_rnr()
{
	symptom no_receive
	through begin && look waiting && eventually 5 is rnr detail a waits_for && eventually 5 is rnr detail a timer &&
		is 7 detail a rnr_retry && is 1 detail b awaits_missing && go && look failed && go
	ended_well
}

case_credit()
{
	symptom slow_receiver
	through begin && eventually 5 is credit detail a waits_for && look done &&
		is no_work detail a waits_for && go
	ended_well
}

case_retrying()
{
	local r=0

	symptom no_answer
	look begin && lose b && go && look trying && is ack detail a timer && is 1.. detail a timer_us || r=1
	eventually 5 is retrying detail a waits_for && eventually 5 is 0 detail a retries_left || r=1
	go
	look failed && is state detail a waits_for && is off detail a timer && go || r=1
	lose_off
	ended_well && return $r
}

# The queue of the sender's network device is full. A packet is offered again for
# 10 ms and then counts as lost, so one has to look closely.
case_network()
{
	local looker r=0

	symptom much
	look begin || return 1
	# Without a process for each look, which would take longer than what there is to see.
	timeout 20 awk -v snapshot="$SHOT/$DEVA/snapshot" 'BEGIN {
		for (;;) {
			while ((getline line <snapshot) > 0)
				if (line ~ /"waits_for":"network"/)
					exit
			close(snapshot)
		}
	}' &
	looker=$!
	on_a tc qdisc replace dev eth0 root tbf rate 8kbit burst 5000 limit 5000 && go || r=1
	wait $looker || { echo "it was never seen"; r=1; }
	netem_off
	look posted && go || r=1
	ended_well || r=1
	return $r
}

# objects NAME FILTER: what jq makes of the objects of a kind that hold.c made.
objects()
{
	host a rdma -j -dd resource show "$1" dev "$DEVA" |
		jq -r "[.[] | select(.comm == \"hold\")] | $2"
}

case_objects()
{
	local n

	mkfifo "$TMP/hold.in"
	(in_host a "$BIN/hold" -a "hosta:$DEVA") <"$TMP/hold.in" >"$TMP/hold" 2>&1 &
	PIDS+=($!)
	exec 6>"$TMP/hold.in"
	eventually 10 grep -q '^ready' "$TMP/hold" || { cat "$TMP/hold"; exec 6>&-; return 1; }
	n=$(grep -c '^cq ' "$TMP/hold")
	is "$n" objects cq '[.[] | select(.drv_waiting == 0 and .drv_armed == "no" and .drv_overrun == 0)] | length' || return 1
	n=$(grep -c '^mr ' "$TMP/hold")
	is "$n" objects mr '[.[] | select(.drv_kind == "user" and .drv_windows == 0 and .drv_access > 0)] | length' || return 1
	is 1 objects srq '[.[] | select(.drv_posted == 3 and .drv_size >= 10 and .drv_limit == 0)] | length' || return 1
	exec 6>&-
	wait "${PIDS[-1]}"
}

# Keys and addresses are for those who made the objects.
case_no_secrets()
{
	local fields

	symptom well
	look idle || return 1
	fields=$(host a rdma -j -dd resource show mr dev "$DEVA" | jq -r '[.[] | keys[]] | unique | join(" ")')
	go
	look done && go
	ended_well || return 1
	for f in addr iova start key; do
		! grep -qw "$f" <<<"$fields" || { echo "regions tell their $f: $fields"; return 1; }
	done
}

t "numbers agree" case_idle
t "what the sender waits for: answers, READs, a fence, the window, its state" case_waits
t "what the sender waits for: an RNR timer" case_rnr
t "what the sender waits for: credits" case_credit
t "what the sender waits for: a retry" case_retrying
t "what the sender waits for: the network" case_network
t "CQs, SRQs and MRs" case_objects
t "no addresses of regions" case_no_secrets
finish
