#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# On-demand paging: what is special about it (verbs/odp.c), and the operations
# and errors of the verbs on such memory, which is absent whenever something is
# posted.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
# shellcheck source=selftests/lib/wire.sh
. "$(dirname "$0")/lib/wire.sh"
must_build odp odp.c rig.c
must_build data data.c rig.c
must_build errors errors.c rig.c
must_build flush flush.c rig.c

# Who waits says so.
waited()
{
	[ "$RXO_DRIVER" = rxo ] || { skip "a counter of rxo"; return; }
	local c
	for c in rx_page_waits tx_page_waits; do
		[ "$(counter a $c)" -gt 0 ] && [ "$(counter b $c)" -gt 0 ] ||
			{ echo "$c: $(counter a $c), $(counter b $c)"; return 1; }
	done
}

waits() { echo "$(counter a "$1") $(counter b "$1")"; }

# Nobody waits for pages that were got in ahead.
prefetched()
{
	[ "$RXO_DRIVER" = rxo ] || { skip "a counter of rxo"; return; }
	local rx tx
	rx=$(waits rx_page_waits) tx=$(waits tx_page_waits)
	"$BIN/odp" -a "hosta:$DEVA" -b "hostb:$DEVB" prefetched prefetched_present prefetched_everything || return 1
	[ "$rx" = "$(waits rx_page_waits)" ] && [ "$tx" = "$(waits tx_page_waits)" ] && return
	echo "waits: received $rx, then $(waits rx_page_waits); sent $tx, then $(waits tx_page_waits)"
	return 1
}

# Each message that waits is preceded by one that is acknowledged meanwhile: an ACK more. The
# first one waits at both ends.
asked_before()
{
	[ "$RXO_DRIVER" = rxo ] || { skip "counters of rxo"; return; }
	local acks probes tx rx
	snapshot
	"$BIN/odp" -a "hosta:$DEVA" -b "hostb:$DEVB" odp_before_absent || return 1
	after
	acks=$(counted a rx_acks) probes=$(counted a tx_ack_probes)
	tx=$(counted a tx_page_waits) rx=$(counted b rx_page_waits)
	echo "waits: $tx sent, $rx received; $probes questions, $acks ACKs"
	[ $tx -gt 0 ] && [ $rx -gt 0 ] && [ $probes -ge $tx ] && [ $acks -ge $((15 + tx + rx)) ]
}

tap_program 400 "" "$BIN/odp" -a "hosta:$DEVA" -b "hostb:$DEVB"
t "packets and work requests waited for pages" waited
t "nobody waited for what was prefetched" prefetched
t "who waits for pages doesn't keep what came before waiting" asked_before
export RXO_QUICK=1 RIG_ON_DEMAND=1
tap_program 300 "on demand: " "$BIN/data" -a "hosta:$DEVA" -b "hostb:$DEVB" \
	rc_mixed rc_send rc_write rc_read rc_atomic rc_psn_wrap rc_outstanding rc_fence ud_data
tap_program 300 "on demand: " "$BIN/errors" -a "hosta:$DEVA" -b "hostb:$DEVB" 'rem_*' 'loc_*' recv_too_small
tap_program 200 "on demand: " "$BIN/flush" -a "hosta:$DEVA" -b "hostb:$DEVB"
tap_program 200 "on demand, here: " "$BIN/data" -a "hosta:$DEVA" rc_mixed ud_data
finish
