# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For tests that watch or damage the link between the two hosts; to be sourced
# after tap.sh.

LINK=$BIN/link
HOSTA=hosta:$DEVA
HOSTB=hostb:$DEVB

note() { printf '# %s\n' "$*"; }

# link [OPTION...] CASE...: cases of link.c between $HOSTA and $HOSTB; status 0
# if none failed.
link()
{
	"$LINK" -a "$HOSTA" -b "$HOSTB" "$@" >"$TMP/link" 2>&1
	local status=$?

	grep -v '^# pair\|^ok\|^1\.\.\|^# took' "$TMP/link"
	return $status
}

# link_tests SECONDS NAME [OPTION...] CASE...: the same, each case a result.
link_tests()
{
	tap_program "$1" "$2: " "$LINK" -a "$HOSTA" -b "$HOSTB" "${@:3}"
}

# From here on each packet is one to firewalls and captures too, not a train.
no_trains()
{
	on_a ethtool -K eth0 tx-udp-segmentation off >/dev/null &&
		on_b ethtool -K eth0 tx-udp-segmentation off >/dev/null
}

trains()
{
	on_a ethtool -K eth0 tx-udp-segmentation on >/dev/null &&
		on_b ethtool -K eth0 tx-udp-segmentation on >/dev/null
}

# netem WHAT...: what each host's interface does to what it sends.
netem()
{
	on_a tc qdisc replace dev eth0 root netem limit 20000 "$@" &&
		on_b tc qdisc replace dev eth0 root netem limit 20000 "$@"
}

netem_off()
{
	on_a tc qdisc del dev eth0 root 2>/dev/null
	on_b tc qdisc del dev eth0 root 2>/dev/null
	return 0
}

# What netem lost, together.
netem_dropped()
{
	{ on_a tc -s qdisc show dev eth0; on_b tc -s qdisc show dev eth0; } |
		sed -n 's/.*dropped \([0-9]*\),.*/\1/p' | awk '{ n += $1 } END { print n + 0 }'
}

# on_arrival HOST TABLE VERDICT MATCH: a rule, in a table of its own, for packets
# that come in at a host; MATCH ends before the verdict.  @th,64,8 is the opcode,
# @th,160,8 the syndrome of an ACK.
on_arrival()
{
	local h=$1 table=$2 verdict=$3
	shift 3
	host "$h" nft -f - <<-NFT
	add table inet $table
	add chain inet $table in { type filter hook prerouting priority raw; }
	add rule inet $table in udp dport 4791 $* counter $verdict
	NFT
}

# lose HOST MATCH; lost HOST: how many.
lose() { on_arrival "$1" wire drop "${@:2}"; }

# watch HOST MATCH: the same, that only counts; watched HOST: how many it saw.
watch() { on_arrival "$1" watch "" "${@:2}"; }

watched()
{
	host "$1" sh -c 'nft list table inet watch && nft delete table inet watch' |
		sed -n 's/.*counter packets \([0-9]*\) .*/\1/p'
}

lose_off()
{
	lost a >/dev/null
	lost b >/dev/null
}

# How many packets the rules of a host took; they are gone then.
lost()
{
	host "$1" sh -c 'nft list table inet wire && nft delete table inet wire' 2>/dev/null |
		sed -n 's/.*counter packets \([0-9]*\) .*drop.*/\1/p' | awk '{ n += $1 } END { print n + 0 }'
}

# snapshot: remember the counters of both devices;  counted HOST NAME: how far
# one of them came since.
counters_of()
{
	host "$1" rdma statistic show link "$(dev_of "$1")/1" | awk 'NF == 2 && $1 != "link" { print $1, $2 }'
}

snapshot()
{
	counters_of a >"$TMP/before.a"
	counters_of b >"$TMP/before.b"
}

after()
{
	counters_of a >"$TMP/after.a"
	counters_of b >"$TMP/after.b"
}

counted()
{
	awk -v name="$2" '$1 == name { v = FNR == NR ? -$2 : $2; n += v; seen++ }
		END { print seen ? n : "none" }' "$TMP/before.$1" "$TMP/after.$1"
}

# at_rest HOST COUNTER...: waits until what these count has come to rest.
at_rest()
{
	eventually 10 unchanged "$@"
}

unchanged()
{
	local before
	before=$(values "$@")
	sleep 0.1
	[ "$(values "$@")" = "$before" ]
}

values()
{
	local c
	for c in "${@:2}"; do
		counter "$1" "$c"
	done
}

# capture_start FILE: everything at hosta's interface;  capture_stop
capture_start()
{
	local i

	capture=$1
	(in_host a tcpdump --immediate-mode -i eth0 -U -s 4500 -B 16384 -w "$1" udp port 4791) 2>"$TMP/tcpdump.err" &
	tcpdump=$!
	for i in $(seq 100); do
		! grep -q 'listening on' "$TMP/tcpdump.err" || return 0
		sleep 0.1
	done
	return 1
}

# Nothing more is written to it.
captured()
{
	local before
	before=$(stat -c %s "$capture")
	sleep 0.3
	[ "$(stat -c %s "$capture")" = "$before" ]
}

capture_stop()
{
	eventually 10 captured
	kill "$tcpdump"
	wait "$tcpdump"
	grep -q '^0 packets dropped by kernel' "$TMP/tcpdump.err" && return
	cat "$TMP/tcpdump.err"
	return 1
}
