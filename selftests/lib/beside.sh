# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Verified traffic of somebody else while a test does its worst; to be sourced
# after tap.sh, with "traffic" built.

HOSTS=(-a "hosta:$DEVA" -b "hostb:$DEVB")

traffic_start()
{
	PATIENT=1 start traffic a 3600 "$BIN/traffic" "${HOSTS[@]}" 3500
	TRAFFIC=$!
	eventually 20 grep -q '^going' "$TMP/traffic" || { show_end "$TMP/traffic"; return 1; }
}

# It still runs, and ends well when told to.
traffic_unhurt()
{
	local s
	kill -0 $TRAFFIC || { echo "the traffic ended too early:"; show_end "$TMP/traffic"; return 1; }
	kill -TERM $TRAFFIC
	ended $TRAFFIC 30 || { echo "the traffic does not end:"; show_end "$TMP/traffic"; return 1; }
	wait $TRAFFIC
	s=$?
	show_end "$TMP/traffic"
	[ $s = 0 ]
}

# during COMMAND...: a case; traffic goes on while the command runs.
during()
{
	local r=0
	traffic_start || return 1
	"$@" || r=1
	traffic_unhurt || r=1
	return $r
}

# beside SECONDS PREFIX PROGRAM...: a program that prints TAP.
beside()
{
	local limit=$1 prefix=$2 status
	shift 2
	traffic_start >"$TMP/begin" || { diag <"$TMP/begin"; result 1 "${prefix}traffic begins"; return; }
	tap_program "$limit" "$prefix" "$@"
	# Not by t(), which kills what runs before it looks.
	traffic_unhurt >"$TMP/end"
	status=$?
	diag <"$TMP/end"
	result $status "${prefix}the traffic of others"
	leftovers_kill
}
