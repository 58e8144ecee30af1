#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The snapshot in debugfs: its format, whose it is, how long it is there; and
# the histories in it.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
# shellcheck source=selftests/lib/symptom.sh
. "$TESTS/lib/symptom.sh"

only_rxo "snapshot" "it is rxo's"
must_build symptom symptom.c rig.c
must_build link link.c rig.c

SCHEMA=$TESTS/../uapi/snapshot.schema.json

valid()
{
	local h

	for h in a b; do
		shot $h >"$TMP/shot" || return 1
		python3 "$TESTS/lib/schema.py" "$SCHEMA" <"$TMP/shot" || { head -c 2000 "$TMP/shot"; return 1; }
	done
}

# The checker itself: it must find what is wrong.
case_checker()
{
	shot a >"$TMP/shot"
	local change

	for change in 'del(.version)' '.version = 2' '.new = 1' '.counters.timeouts = -1' '.qps[0].state = "XYZ"' \
		'.qps[0].next_psn = 16777216' '.qps[0].credits = "some"' '.history.lost = "0"' '.ended = {}'; do
		! jq "$change" "$TMP/shot" | python3 "$TESTS/lib/schema.py" "$SCHEMA" >/dev/null ||
			{ echo "the schema takes $change"; return 1; }
	done
}

case_format()
{
	valid || return 1
	is "$DEVA" jq -r .device <(shot a) && is active jq -r .state <(shot a) && is 4096 jq .mtu <(shot a) || return 1
	# The same counters as those of rdma statistic, by name.
	counters_of a | cut -d' ' -f1 | sort >"$TMP/names"
	shot a | jq -r '.counters | keys[]' | sort | diff "$TMP/names" - || return 1
	is GSI jq -r '.qps[] | select(.qpn == 1) | .type' <(shot a)
}

# All kinds of queue pairs and much to tell.
case_format_busy()
{
	local i r=0

	(exec "$BIN/link" -a "$HOSTA" -b "$HOSTB" ops_rc ops_uc ops_ud emit) >"$TMP/busy" 2>&1 &
	PIDS+=($!)
	for i in $(seq 20); do
		valid || { r=1; break; }
		sleep 0.1
	done
	wait "${PIDS[-1]}" || { cat "$TMP/busy"; return 1; }
	return $r
}

case_owner()
{
	local f=$SHOT/$DEVA/snapshot

	is 400 stat -c %a "$f" || return 1
	! setpriv --reuid 65534 --clear-groups cat "$f" >/dev/null 2>&1
}

case_rename()
{
	host a rdma dev set "$DEVA" name renamed || return 1
	ls $SHOT
	is renamed jq -r .device $SHOT/renamed/snapshot && [ ! -e "$SHOT/$DEVA" ] || return 1
	host a rdma dev set renamed name "$DEVA" || return 1
	is "$DEVA" jq -r .device "$SHOT/$DEVA/snapshot" && [ ! -e $SHOT/renamed ] || return 1
	# A name that makes trouble in JSON.
	host a rdma dev set "$DEVA" name 'a"b\c' || return 1
	is 'a"b\c' jq -r .device "$SHOT/a\"b\\c/snapshot" || return 1
	host a rdma dev set 'a"b\c' name "$DEVA"
}

# The file goes with the device, also under those who have it open.
case_gone()
{
	local r=0

	exec 7<"$SHOT/$DEVA/snapshot"
	topo_link_down a || return 1
	[ ! -e "$SHOT/$DEVA" ] || { echo "still there"; r=1; }
	! cat <&7 >/dev/null 2>"$TMP/gone" || { echo "it can be read after its end"; r=1; }
	exec 7<&-
	topo_link_up a || return 1
	valid || r=1
	return $r
}

case_module()
{
	local r=0

	exec 7<"$SHOT/$DEVA/snapshot"
	topo_link_down || return 1
	! rmmod rxo 2>"$TMP/rmmod" || { echo "unloaded while a file was open"; r=1; }
	exec 7<&-
	if [ $r = 0 ]; then
		rmmod rxo || r=1
		[ ! -e $SHOT ] || { echo "$SHOT is still there"; r=1; }
	fi
	topo_modules && topo_link_up && return $r
}

# Read by several while devices come and go.
case_races()
{
	local i r=0

	for i in 1 2 3; do
		(while [ ! -e "$TMP/enough" ]; do cat $SHOT/*/snapshot; done) >/dev/null 2>&1 &
		PIDS+=($!)
	done
	for i in 1 2 3 4 5; do
		topo_link_down a && topo_link_up a || { r=1; break; }
		host a rdma dev set "$DEVA" name other && host a rdma dev set other name "$DEVA" || { r=1; break; }
	done
	touch "$TMP/enough"
	leftovers_kill
	rm -f "$TMP/enough"
	return $r
}

case_history()
{
	local r=0

	symptom no_answer
	look begin && lose b && go && through trying || r=1
	look failed || r=1
	# How it came to be, and how it ended, after the end.
	is ERR qp a .state && is 1 happened a state INIT && is 1 happened a state RTR && is 1 happened a state RTS &&
		is 1 happened a state ERR && is 2 happened a retransmit timeout &&
		is 1 happened a send_failed retry_exc_err || r=1
	# In order, each with its time; a run has its end.
	is true qp a '.history.events | [.[].at_ns] | (. == sort)' || r=1
	is true qp a '.history.events[] | select(.event == "retransmit") |
		(.last_ns - .at_ns) > 400000000 and .left == 0' || r=1
	is 0 qp b '[.history.events[] | select(.event != "state")] | length' || r=1
	QPN=$(told "qp a")
	go
	lose_off
	ended_well || r=1
	# What went wrong is still known when the queue pair is not.
	is 1 jq "[.ended[] | select(.qpn == $QPN) | .history.events[] |
		select(.what == \"retry_exc_err\")] | length" <(shot a) || r=1
	valid && return $r
}

# A life without faults is none to be kept.
case_nothing_kept()
{
	local before

	before=$(shot a | jq '.ended | map(.qpn) | join(" ")')
	symptom well
	through idle done
	ended_well && is "$before" jq '.ended | map(.qpn) | join(" ")' <(shot a)
}

# However much happens, a record is bounded, and the last is in it.
case_bounded()
{
	local i

	for i in $(seq 10); do
		symptom unknown_key
		look begin && go && look failed && QPN=$(told "qp b") && go
		ended_well || return 1
	done
	is 8 jq '.ended | length' <(shot b) && is "$QPN" jq '.ended[-1].qpn' <(shot b) && valid
}

case_port_events()
{
	local before

	before=$(shot a | jq '[.history.events[] | select(.event == "port" and .what == "down") | .times // 1] | add // 0')
	ip -n hosta link set eth0 down
	ip -n hosta link set eth0 up
	ip -n hosta addr replace $IP6A/64 dev eth0 nodad
	link_local
	topo_neighbours hosta hostb eth0 "$IPB" "$IP6B"
	eventually 5 gid_index a $IP6A || return 1
	is $((before + 1)).. jq '[.history.events[] | select(.event == "port" and .what == "down") | .times // 1] | add // 0' <(shot a)
}

t "the format is that of the schema" case_format
t "the schema refuses what is wrong" case_checker
t "the format with queue pairs of all kinds at work" case_format_busy
t "root may read it, and nobody else" case_owner
t "it follows the device's name" case_rename
t "it goes with the device" case_gone
t "it holds the module while it is open" case_module
t "read while devices come and go" case_races
t "a queue pair's history outlives its failure and itself" case_history
t "queue pairs without faults are not kept" case_nothing_kept
t "histories are bounded" case_bounded
t "the port's changes are in the device's history" case_port_events
finish
