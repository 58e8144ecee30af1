#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The verbs, between the hosts and on one: each operation, each error.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
# shellcheck source=selftests/lib/wire.sh
. "$(dirname "$0")/lib/wire.sh"
must_build data data.c rig.c
must_build errors errors.c rig.c
must_build quiet quiet.c rig.c

tap_program 900 "" "$BIN/data" -a "hosta:$DEVA" -b "hostb:$DEVB"
tap_program 600 "" "$BIN/errors" -a "hosta:$DEVA" -b "hostb:$DEVB"
tap_program 300 "" "$BIN/quiet" -a "hosta:$DEVA" -b "hostb:$DEVB"
export RXO_QUICK=1
tap_program 300 "IPv6: " "$BIN/data" -a "hosta:$DEVA" -b "hostb:$DEVB" -6 rc_mixed rc_atomic rc_psn_wrap ud_data
tap_program 300 "here: " "$BIN/data" -a "hosta:$DEVA" rc_mixed rc_atomic rc_psn_wrap rc_outstanding rc_one_at_a_time rc_fence rc_events ud_data
tap_program 300 "here: " "$BIN/quiet" -a "hosta:$DEVA"
tap_program 300 "here: " "$BIN/errors" -a "hosta:$DEVA" 'rem_*' 'loc_*' recv_too_small 'rnr_*' once_in_error destroy_under_traffic

# The same with packets, through the network stack of the one host.
if [ "$RXO_DRIVER" = rxo ]; then
	t "here: nothing was a packet" test "$(counter a loopback_packets)" -gt 0
	# held LEAST MOST CASE: so many messages of a case wait.
	held()
	{
		local held
		snapshot
		"$BIN/quiet" -a "hosta:$DEVA" -b "hostb:$DEVB" "$3" || return 1
		after
		held=$(counted a tx_held)
		echo "$held waited"
		[ "$held" -ge "$1" ] && [ "$held" -le "$2" ]
	}
	for case in quiet_stream unread_stream unread_sig_all unread_long; do
		t "some messages waited for others: $case" held 1 10000 $case
	done
	# It would be three of 200 if each were found to be waited for.
	t "some messages waited for others: unread_asleep" held 20 200 unread_asleep
	for case in unread_armed read_each; do
		t "none waited: $case" held 0 0 $case
	done
	t "loopback=0, hold=0" topo_reload loopback=0 hold=0
	tap_program 300 "here, as packets: " "$BIN/data" -a "hosta:$DEVA" rc_mixed rc_atomic rc_psn_wrap rc_outstanding uc_data
	tap_program 300 "here, as packets: " "$BIN/quiet" -a "hosta:$DEVA" quiet_stream
	t "none waited" test "$(counter a tx_held)" = 0
	t "here, as packets: all were packets" test "$(counter a loopback_packets)" = 0
	t "loopback=1, hold=1" topo_reload
fi
finish
