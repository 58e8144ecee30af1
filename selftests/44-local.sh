#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Trains and long packets that never left the machine are not checked for damage on the
# way. Everything else is.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
# shellcheck source=selftests/lib/symptom.sh
. "$(dirname "$0")/lib/symptom.sh"
must_build data data.c rig.c

only_rxo "what never left this machine" "who else checks what"

# Verified messages of many packets between the hosts.
messages()
{
	RXO_QUICK=1 timeout 60 "$BIN/data" -a "$HOSTA" -b "$HOSTB" "$@" rc_mixed >"$TMP/data" 2>&1
	local status=$?

	grep '^not ok\|^#' "$TMP/data"
	return $status
}

# are SKIPPED WRONG COMMAND...: how many packets of hostb are not checked, and how many
# are found wrong, while a command runs that has to succeed.
are()
{
	local skipped=$1 wrong=$2 r=0
	shift 2
	snapshot
	"$@" || r=1
	at_rest b rx_icrc_skipped rx_icrc_errors rx_packets
	after
	echo "# $(counted b rx_trains) trains: rx_icrc_skipped $(counted b rx_icrc_skipped)," \
		"rx_icrc_errors $(counted b rx_icrc_errors)"
	is "$skipped" counted b rx_icrc_skipped && is "$wrong" counted b rx_icrc_errors && return $r
}

# train PACKETS [4|6]: what looks like a train with a wrong ICRC each, by an ordinary socket.
train()
{
	host a python3 - "$@" <<-'END'
		import socket, sys
		n, v6 = int(sys.argv[1]), sys.argv[2] == "6"
		UDP_SEGMENT = 103
		bth = bytes((0x04, 0, 0xff, 0xff, 0, 0, 0, 0x11, 0, 0, 0, 1))
		with socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM) as s:
		    s.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 1024)
		    s.sendto((bth + bytes(1012)) * n, ("fd07::2" if v6 else "10.7.0.2", 4791))
	END
}

# Single ones that are long are known again as well.
long_ones()
{
	next_port
	pair 30 cm $PORT b ib_send_lat -R -F -p $PORT -d "$DEVB" -s 2048 -n 100 -- \
		a ib_send_lat -R -F -p $PORT -d "$DEVA" -s 2048 -n 100 10.7.0.2
}

# As it goes where nobody segments trains.
one_by_one()
{
	local r=0
	no_trains || return 1
	are 0 0 messages || r=1
	trains && return $r
}

# What a firewall rewrites isn't what was sent any more.
rewritten()
{
	local r=0
	host b nft 'table inet rewrite { chain in { type filter hook prerouting priority mangle;
		udp dport 4791 udp sport set 4660; }; }' || return 1
	are 0 1.. fails messages || r=1
	host b nft delete table inet rewrite && return $r
}

fails() { ! "$@" >/dev/null; }

# Nor is what netem damages.
damaged()
{
	local r=0
	netem corrupt 3% || return 1
	are 1.. 1.. messages || r=1
	netem_off && return $r
}

# Queues that tell flows apart by it must not let what is single overtake a train.
one_flow()
{
	local status=0 trains singles
	[ -e /sys/kernel/tracing/events/net/netif_rx_entry ] || { skip "the kernel doesn't tell of hashes"; return; }
	recorded net/netif_rx_entry 0 messages || status=1
	# Only what has a hash that covers ports.
	trains=$(grep 'l4_hash=1 .*gso_size=[1-9]' "$TMP/recorded" | grep -o ' hash=0x[0-9a-f]*' | sort -u)
	singles=$(grep 'l4_hash=1 .*gso_size=0 ' "$TMP/recorded" | grep -o ' hash=0x[0-9a-f]*' | sort -u)
	echo "# $(wc -w <<<"$trains") flows have trains, $(wc -w <<<"$singles") single packets"
	[ -n "$trains" ] && [ -z "$(comm -23 <(echo "$trains") <(echo "$singles"))" ] && return $status
}

t "IPv4: they are not" are 1.. 0 messages
t "IPv6: they are not" are 1.. 0 messages -6
t "nor are long packets" are 100.. 0 long_ones
t "where trains are impossible all are" one_by_one
t "IPv4: trains of other senders are" are 0 40 train 40 4
t "IPv6: trains of other senders are" are 0 40 train 40 6
t "trains that were rewritten are" rewritten
t "packets of trains that were taken apart are" damaged
t "trains and single packets are one flow" one_flow
t "check_local=1" topo_reload check_local=1
t "then all are" are 0 0 messages
t "check_local=0" topo_reload
t "they are not again" are 1.. 0 messages
finish
