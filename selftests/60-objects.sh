#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Verbs objects: SRQs, CQs of changing size, CQ overflow, re-registration,
# memory windows, multicast (verbs/objects.c); mckey of librdmacm.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"

must_build objects objects.c rig.c

one() # CASE [-6]
{
	"$BIN/objects" -a "hosta:$DEVA" -b "hostb:$DEVB" ${2:+"$2"} "$1" >"$TMP/one" 2>&1
	local s=$?
	if grep -q "# SKIP" "$TMP/one"; then
		skip "$(sed -n 's/.*# SKIP //p' "$TMP/one")"
		return
	fi
	cat "$TMP/one"
	return $s
}

# Both ends join by rdma_cm, and the one gets what the other sends.
case_mckey() # GROUP A B
{
	on_b timeout 20 mckey -m "$1" -b "$3" >"$TMP/mckey.b" 2>&1 &
	local p=$!
	sleep 1
	on_a timeout 20 mckey -s -m "$1" -b "$2" || { cat "$TMP/mckey.b"; return 1; }
	wait $p || { cat "$TMP/mckey.b"; return 1; }
	grep -q "data transfers complete" "$TMP/mckey.b"
}

for c in $("$BIN/objects" -l); do
	t "$c" one "$c"
done
t "mcast, IPv6" one mcast -6
t "mckey" case_mckey 239.7.7.7 "$IPA" "$IPB"
finish
