#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The tracepoints, through tracefs as trace-cmd and perf use them.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
# shellcheck source=selftests/lib/symptom.sh
. "$TESTS/lib/symptom.sh"

TRACE=/sys/kernel/tracing
only_rxo "tracepoints" "they are rxo's"
if [ ! -d $TRACE/events ]; then
	t "tracepoints" skip "this kernel has no tracefs"
	finish
fi
must_build symptom symptom.c rig.c

# A queue pair by its number alone may be one of either host.
A="netns=$(stat -Lc %i /run/netns/hosta) ifindex=[0-9]* qpn="
B="netns=$(stat -Lc %i /run/netns/hostb) ifindex=[0-9]* qpn="

trace_on()
{
	echo 0 >$TRACE/tracing_on
	echo >$TRACE/trace
	echo "${1:-1}" >$TRACE/events/rxo/enable
	echo 1 >$TRACE/tracing_on
}

trace_off()
{
	echo 0 >$TRACE/tracing_on
	echo 0 >$TRACE/events/rxo/enable
	cat $TRACE/trace >"$TMP/trace"
}

# traced EVENT REGEX [COUNT]: lines of an event.
traced() { expect_line "$TMP/trace" "$1" "rxo_$1: .*$2" "${@:3}"; }

case_there()
{
	local e

	for e in tx rx qp_state nak_sent nak_received retransmit stall stall_end drop key_fault local_key_fault error; do
		[ -e $TRACE/events/rxo/rxo_$e/format ] || { echo "no rxo_$e"; return 1; }
		is 0 cat $TRACE/events/rxo/rxo_$e/enable || return 1
	done
	is 12 sh -c "ls -d $TRACE/events/rxo/rxo_* | wc -l"
}

case_well()
{
	local a b

	trace_on
	symptom well
	through idle done
	ended_well || return 1
	trace_off
	a=$(told "qp a") b=$(told "qp b")
	traced qp_state "$A$a from=INIT to=RTR" 1 && traced qp_state "$A$a from=RTR to=RTS" 1 &&
		traced tx "$A$a dest_qpn=$b opcode=0x00 psn=$((0x123456)) len=1024 syndrome=0xff" 1 &&
		traced rx "$B$b dest_qpn=$b opcode=0x00 psn=$((0x123456)) len=1024 syndrome=0xff" 1 &&
		traced tx "$B$b dest_qpn=$a opcode=0x11 .* syndrome=0x[01]" &&
		traced rx "$A$a dest_qpn=$a opcode=0x11 .* syndrome=0x[01]" &&
		traced retransmit "$A$a" 0 && traced drop "$B$b" 0
}

# A sender in vain: tries three times from 0x123456 on, and gives up.
in_vain()
{
	symptom no_answer
	look begin && lose b && go && through trying failed
	ended_well
	local status=$?
	lose_off
	return $status
}

traced_in_vain()
{
	local a
	a=$(told "qp a")
	traced retransmit "$A$a psn=$((0x123456)) why=timeout left=1" 1 &&
		traced retransmit "$A$a psn=$((0x123456)) why=timeout left=0" 1 &&
		traced tx "$A$a .*psn=$((0x123456)) " 3 &&
		traced error "$A$a what=send why=retry_exc_err" 1
}

case_loss()
{
	trace_on
	in_vain || return 1
	trace_off
	traced_in_vain && traced qp_state "$A$(told "qp a") from=RTS to=ERR" 1
}

case_naks()
{
	local a b

	trace_on
	symptom unknown_key
	through begin failed
	ended_well || return 1
	a=$(told "qp a") b=$(told "qp b") key=$(printf '0x%08x' "$(told key)")
	symptom slow_receiver
	through begin done
	ended_well || return 1
	symptom sender_ahead
	through begin trying failed
	ended_well || return 1
	trace_off
	traced key_fault "$B$b key=$key why=key_unknown" 1 && traced nak_sent "$B$b .* why=remote_access" 1 &&
		traced nak_received "$A$a .* why=remote_access" 1 &&
		traced error "$B$b what=event why=qp_access_err" 1 || return 1
	traced stall "psn=[0-9]* why=credit" && traced stall_end "why=credit us=[1-9]" || return 1
	b=$(told "qp b")
	traced drop "$B$b .* why=drop_gap" && traced nak_sent "$B$b .* why=sequence" 1
}

# A key in a work request of the QP's own: of the sender, and of the receiver, who
# tells the peer that it is not the peer's fault.
case_own_keys()
{
	local a b key

	trace_on
	symptom own_send_key
	through begin failed
	ended_well || return 1
	trace_off
	a=$(told "qp a") key=$(printf '0x%08x' "$(told key)")
	traced local_key_fault "$A$a key=$key why=key_unknown" 1 && traced local_key_fault "" 1 &&
		traced error "$A$a what=send why=loc_prot_err" 1 && traced key_fault "" 0 || return 1
	trace_on
	symptom own_recv_key
	through begin failed
	ended_well || return 1
	trace_off
	a=$(told "qp a") b=$(told "qp b") key=$(printf '0x%08x' "$(told key)")
	traced local_key_fault "$B$b key=$key why=key_unknown" 1 && traced local_key_fault "" 1 &&
		traced nak_sent "$B$b .* why=remote_operational" 1 &&
		traced error "$B$b what=recv why=loc_prot_err" 1 &&
		traced error "$A$a what=send why=rem_op_err" 1 && traced key_fault "" 0
}

# As people use them: by programs that know nothing of rxo but the formats that
# the kernel tells.

# PIDS[0], the one that records, ends well when interrupted.
recorded()
{
	kill -INT "${PIDS[0]}" && ended "${PIDS[0]}" 30 && return
	echo "it does not end:"
	show_end "$TMP/record"
	return 1
}

# Recorded to a file, and read back from there.
case_trace_cmd()
{
	local dat=$TMP/trace.dat

	(cd "$TMP" && exec trace-cmd record -q -e rxo:rxo_retransmit -e rxo:rxo_tx \
		-f 'psn == 0x123456' -e rxo:rxo_error -o "$dat") >"$TMP/record" 2>&1 </dev/null &
	PIDS+=($!)
	eventually 20 grep -q 1 $TRACE/events/rxo/rxo_error/enable || { cat "$TMP/record"; return 1; }
	in_vain && recorded || return 1
	trace-cmd report -i "$dat" -F 'rxo_.*' >"$TMP/trace" 2>"$TMP/report" || { cat "$TMP/report"; return 1; }
	traced_in_vain && is 0 cat $TRACE/events/rxo/rxo_retransmit/enable
}

# The same by perf, with filters: it starts its program when all is on.
case_perf()
{
	local a dat=$TMP/perf.data

	[ -e /proc/sys/kernel/perf_event_paranoid ] || { skip "this kernel has no perf events"; return; }
	command -v perf >/dev/null || { skip "no perf"; return; }
	rm -f "$TMP/on"
	perf record -q -a -e rxo:rxo_retransmit --filter 'why == "timeout" && left == 0' \
		-e rxo:rxo_error -o "$dat" -- sh -c "echo >'$TMP/on'; exec sleep 300" >"$TMP/record" 2>&1 </dev/null &
	PIDS+=($!)
	eventually 60 [ -e "$TMP/on" ] || { cat "$TMP/record"; return 1; }
	in_vain && recorded || return 1
	perf script -i "$dat" >"$TMP/trace" 2>"$TMP/report" || { cat "$TMP/report"; return 1; }
	a=$(told "qp a")
	traced retransmit "$A$a psn=$((0x123456)) why=timeout left=0" 1 && traced retransmit "" 1 &&
		traced error "$A$a what=send why=retry_exc_err" 1
}

# By texts and by numbers, as `perf record --filter` has it.
case_filter()
{
	local f=$TRACE/events/rxo/rxo_retransmit/filter

	echo 'why == "rnr"' >$f || return 1
	trace_on
	symptom no_answer
	look begin && lose b && go && through trying failed
	ended_well || { lose_off; return 1; }
	lose_off
	trace_off
	echo 0 >$f
	traced retransmit 'why=timeout' 0
}

# Off and on again with packets under way.
case_toggle()
{
	local i

	(exec "$BIN/link" -a "$HOSTA" -b "$HOSTB" stream_mixed) >"$TMP/busy" 2>&1 &
	for i in $(seq 20); do
		trace_on
		sleep 0.05
		trace_off
	done
	wait $! || { cat "$TMP/busy"; return 1; }
	[ "$(grep -c 'rxo_tx:' "$TMP/trace")" -gt 0 ] || echo "nothing was under way any more"
}

must_build link link.c rig.c
t "each is there, and off" case_there
t "states, packets and ACKs" case_well
t "retransmission with its cause, and the end" case_loss
t "NAKs, keys, stalls, drops" case_naks
t "keys of one's own work requests" case_own_keys
t "filters" case_filter
t "trace-cmd records a retransmission, and reads it back" case_trace_cmd
t "perf record and perf script, with filters" case_perf
t "on and off under traffic" case_toggle
finish
