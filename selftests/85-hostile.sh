#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Processes and peers that mean harm, while others have verified traffic on the
# same devices.
#
#   PACKETS=n    how many packets the hostile peer sends

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
# shellcheck source=selftests/lib/wire.sh
. "$TESTS/lib/wire.sh"
# shellcheck source=selftests/lib/beside.sh
. "$TESTS/lib/beside.sh"
must_build siege siege.c rings.c rig.c
must_build uverbs uverbs.c rings.c rig.c
must_build peer peer.c rig.c
must_build traffic traffic.c rig.c

dared "hostile"

beside 600 "process: " "$BIN/siege" "${HOSTS[@]}"
beside 900 "commands: " "$BIN/uverbs" "${HOSTS[@]}"

# Each packet that UDP takes is counted, as received or by the reason why not.
accounted()
{
	local c n=0 want
	local -a all=(rx_packets rx_malformed rx_icrc_errors rx_no_qp rx_no_memory)
	at_rest a "${all[@]}"
	snapshot
	"$BIN/peer" "${HOSTS[@]}" "$@" alone || return 1
	at_rest a "${all[@]}"
	after
	for c in "${all[@]}"; do
		echo "$c: $(counted a $c)"
		n=$((n + $(counted a $c)))
	done
	want=$(sed -n 's/^# \([0-9]*\) packets sent.*/\1/p' "$TMP/out")
	echo "counted $n of $want"
	[ -n "$want" ] && [ "$n" = "$want" ] || return 1
	# and those that reached a queue pair in vain, by reasons of several kinds
	n=0
	for c in drop_state drop_service drop_gap drop_qkey rx_duplicates rx_out_of_sequence rx_wrong_address \
		rx_bad_pkey rx_stale_responses key_unknown key_domain key_rights key_range; do
		echo "$c: $(counted a $c)"
		[ "$(counted a $c)" -gt 0 ] && n=$((n + 1))
	done
	[ $n -ge 10 ]
}
t "peer: every packet is counted" accounted
t "peer, IPv6, and several at once: every packet is counted" accounted -6
beside 1790 "peer: " "$BIN/peer" "${HOSTS[@]}" storm
beside 1790 "peer, IPv6: " "$BIN/peer" "${HOSTS[@]}" -6 storm shifty
finish
