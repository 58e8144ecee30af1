#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Counters of single queue pairs: `rdma statistic qp`.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
# shellcheck source=selftests/lib/symptom.sh
. "$TESTS/lib/symptom.sh"

only_rxo "counters of queue pairs" "rdma_rxe and siw have none"
must_build symptom symptom.c rig.c

stat_qp() { host a rdma statistic qp "$@"; }

# bound CNTN NAME: a counter of a set.
bound()
{
	host a rdma -j statistic qp show link "$DEVA/1" | jq -r ".[] | select(.cntn == $1) | .$2"
}

# The number of the set that a queue pair is bound to.
set_of()
{
	host a rdma -j statistic qp show link "$DEVA/1" | jq -r ".[] | select(.lqpn | index($1)) | .cntn"
}

no_sets() { is 0 sh -c "ip netns exec hosta rdma -j statistic qp show link $DEVA/1 | jq length"; }

case_bind()
{
	local n qp shot

	begin writes || return 1
	qp=$(told "qp a")
	stat_qp bind link "$DEVA/1" lqpn "$qp" || return 1
	n=$(set_of "$qp")
	stat_qp show link "$DEVA/1"
	[ -n "$n" ] && is 0 bound "$n" tx_packets || return 1
	go
	look done || return 1
	after
	# 40 WRITEs of eight packets, and what came back.
	is 320 bound "$n" tx_requests && is 320 bound "$n" tx_packets && is 40 bound "$n" send_completions &&
		is 1.. bound "$n" rx_packets && is 0 bound "$n" tx_retransmits || return 1
	# The port has them too, once: by all ways to read it.
	is 320 counted a tx_requests && is 320 counted a tx_packets || return 1
	shot=$(shot a | jq .counters.tx_packets)
	is "$shot" counter a tx_packets && is "$shot" host a cat "/sys/class/infiniband/$DEVA/ports/1/hw_counters/tx_packets" ||
		return 1
	go
	ended_well || return 1
	# With the queue pair goes the set, and nothing of the sums.
	no_sets && is "$shot" counter a tx_packets
}

case_unbind()
{
	local n qp

	begin writes || return 1
	qp=$(told "qp a")
	stat_qp bind link "$DEVA/1" lqpn "$qp" || return 1
	n=$(set_of "$qp")
	stat_qp unbind link "$DEVA/1" cntn "$n" lqpn "$qp" && no_sets || return 1
	go
	look done || return 1
	after
	is 320 counted a tx_packets && go
	ended_well
}

# Two queue pairs on a set, one without.
case_shared()
{
	local n a b

	symptom two
	look begin || return 1
	a=$(told "qp a") b=$(told "qp c")
	stat_qp bind link "$DEVA/1" lqpn "$a" || return 1
	n=$(set_of "$a")
	stat_qp bind link "$DEVA/1" lqpn "$b" cntn "$n" && is "$n" set_of "$b" || return 1
	snapshot
	go
	look done || return 1
	after
	is 3 bound "$n" tx_packets && is 4 counted a tx_packets || return 1
	go
	ended_well && no_sets
}

# Each new queue pair of a type gets a set by itself.
case_auto()
{
	local n r=0

	stat_qp set link "$DEVA/1" auto type on || return 1
	begin writes || r=1
	n=$(set_of "$(told "qp a")")
	go
	look done && is 320 bound "$n" tx_requests || r=1
	go
	ended_well || r=1
	stat_qp set link "$DEVA/1" auto off || r=1
	return $r
}

case_refused()
{
	! stat_qp bind link "$DEVA/1" lqpn 99999 2>/dev/null &&
		! stat_qp unbind link "$DEVA/1" cntn 99 lqpn 16 2>/dev/null && no_sets
}

# The device goes with queue pairs bound.
case_removed()
{
	symptom writes
	look begin && stat_qp bind link "$DEVA/1" lqpn "$(told "qp a")" && topo_link_down a || return 1
	leftovers_kill
	exec 6>&-
	topo_link_up a && no_sets
}

t "bound, used, destroyed: sums stay right" case_bind
t "unbound" case_unbind
t "two on one set" case_shared
t "bound by type" case_auto
t "what is not there" case_refused
t "the device is removed" case_removed
finish
