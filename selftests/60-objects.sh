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
	on_b timeout 20 stdbuf -oL mckey -m "$1" -b "$3" >"$TMP/mckey.b" 2>&1 &
	local p=$!
	eventually 10 grep -q "joined dgid" "$TMP/mckey.b" || return 1
	on_a timeout 20 mckey -s -m "$1" -b "$2" || { cat "$TMP/mckey.b"; return 1; }
	wait $p || { cat "$TMP/mckey.b"; return 1; }
	grep -q "data transfers complete" "$TMP/mckey.b"
}

hold()
{
	start hold a 60 "$BIN/objects" -a "hosta:$DEVA" -b "hostb:$DEVB" hold
	HOLD=$!
	eventually 10 grep -q '^going' "$TMP/hold" || { show_end "$TMP/hold"; return 1; }
	sleep "0.$((1 + RANDOM % 3))"
}

# A process that ends at any point leaves nothing behind.
case_killed()
{
	local i
	for i in 1 2 3 4 5; do
		hold || return 1
		pkill -KILL -P $HOLD
		ended $HOLD 20 || { echo "it does not end"; return 1; }
		eventually 5 resources_as_before || return 1
	done
}

# A device that goes takes along what a process has on it.
case_removed()
{
	local h
	for h in a b; do
		hold || return 1
		topo_link_down $h || return 1
		ended $HOLD 20 || { echo "removed ($h), the program still runs"; return 1; }
		topo_link_up $h || return 1
		eventually 5 gid_index $h "$(ip_of $h 4)" || return 1
		one srq_traffic || return 1
	done
}

# A host's socket may join some 20 groups at a time. Those of devices that go are left.
case_groups_of_netdevs()
{
	local i s=0
	for ((i = 1; i <= 25 && s == 0; i++)); do
		ip -n hosta link add spare type dummy &&
			ip -n hosta addr add 10.8.0.1/24 dev spare &&
			ip -n hosta link set spare up &&
			on_a rdma link add extra type "$RXO_DRIVER" netdev spare || return 1
		start hold a 20 "$BIN/objects" -a hosta:extra hold_group
		HOLD=$!
		eventually 5 grep -q '^going' "$TMP/hold" || { echo "netdev $i:"; show_end "$TMP/hold"; s=1; }
		ip -n hosta link delete spare
		eventually 5 no_extra || s=1
		pkill -KILL -P $HOLD
		ended $HOLD 5
	done
	return $s
}
no_extra() { ! on_a rdma link show | grep -q '^link extra'; }

for c in $("$BIN/objects" -l); do
	t "$c" one "$c"
done
t "mcast, IPv6" one mcast -6
t "groups of 25 netdevs that go" case_groups_of_netdevs
t "mckey" case_mckey 239.7.7.7 "$IPA" "$IPB"
t "killed with all of it in use" case_killed
t "device removed with all of it in use" case_removed
finish
