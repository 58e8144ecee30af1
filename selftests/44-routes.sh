#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The ways that packets came are kept, for a while: what they depend on may change
# meanwhile.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
# shellcheck source=selftests/lib/wire.sh
. "$TESTS/lib/wire.sh"

only_rxo "ways that are kept" "who else looks up each"

STRANGER=10.99.0.1

# junk N FROM TO: so many datagrams for the port, each of which counts as malformed.
junk()
{
	host a python3 - "$@" <<-'END'
		import socket, sys
		n, source, to = sys.argv[1:]
		family = socket.AF_INET6 if ":" in to else socket.AF_INET
		with socket.socket(family, socket.SOCK_DGRAM) as s:
		    s.bind((source, 0))
		    for _ in range(int(n)):
		        s.sendto(b"no BTH", (to, 4791))
	END
}

# come N COMMAND...: so many of its packets get as far as rxo.
come()
{
	local want=$1 before after
	shift
	before=$(counter b rx_malformed)
	"$@" || return 1
	at_rest b rx_malformed
	after=$(counter b rx_malformed)
	echo "# $*: $((after - before)) came"
	[ $((after - before)) -eq "$want" ]
}

# looked_up COMMAND...: counts the input routes that hostb looks up meanwhile.
looked_up()
{
	local status=0
	recorded fib/fib_table_lookup "iif == $(host b cat /sys/class/net/eth0/ifindex)" "$@" || status=1
	LOOKUPS=$(grep -c "fib_table_lookup: .* 10.7.0.1/[0-9]* -> 10.7.0.2/" "$TMP/recorded")
	return $status
}

is_kept()
{
	[ -e /sys/kernel/tracing/events/fib ] || { skip "the kernel doesn't tell of lookups"; return; }
	looked_up come 100 junk 100 10.7.0.1 10.7.0.2 || return 1
	echo "# $LOOKUPS lookups for 100 packets"
	[ "$LOOKUPS" -lt 50 ] || return 1
	# As an administrator wants it; so they can be seen, too.
	host b sysctl -qw net.ipv4.udp_early_demux=0
	looked_up come 100 junk 100 10.7.0.1 10.7.0.2 || return 1
	host b sysctl -qw net.ipv4.udp_early_demux=1
	echo "# $LOOKUPS without early demultiplexing"
	[ "$LOOKUPS" -ge 100 ]
}

# gone FROM TO LENGTH: nothing comes to an address that was taken away.
gone()
{
	local nodad=
	[[ $2 != *:* ]] || nodad=nodad
	come 10 junk 10 "$1" "$2" || return 1
	ip -n hostb addr del "$2/$3" dev eth0 || return 1
	come 0 junk 10 "$1" "$2" || return 1
	# shellcheck disable=SC2086
	ip -n hostb addr add "$2/$3" dev eth0 $nodad || return 1
	come 10 junk 10 "$1" "$2"
}

# A filter of sources tells nobody that it was switched on.
filtered()
{
	local status=0
	host b sysctl -qw net.ipv4.conf.eth0.rp_filter=0 net.ipv4.conf.all.rp_filter=0 || return 1
	ip -n hosta addr add $STRANGER/32 dev eth0 || return 1
	come 10 junk 10 $STRANGER 10.7.0.2 && come 10 junk 10 10.7.0.1 10.7.0.2 || status=1
	host b sysctl -qw net.ipv4.conf.eth0.rp_filter=1
	sleep 1.2
	come 0 junk 10 $STRANGER 10.7.0.2 && come 10 junk 10 10.7.0.1 10.7.0.2 || status=1
	host b sysctl -qw net.ipv4.conf.eth0.rp_filter=0
	come 10 junk 10 $STRANGER 10.7.0.2 || status=1
	ip -n hosta addr del $STRANGER/32 dev eth0
	return $status
}

# What a firewall drops it drops however often the way was taken.
dropped()
{
	local status=0
	come 10 junk 10 10.7.0.1 10.7.0.2 || return 1
	host b nft 'table ip keep { chain in { type filter hook input priority 0; udp dport 4791 drop; }; }' || return 1
	come 0 junk 10 10.7.0.1 10.7.0.2 || status=1
	host b nft delete table ip keep || return 1
	come 10 junk 10 10.7.0.1 10.7.0.2 && return $status
}

# Where rules may choose by other things, each packet is looked up.
ruled()
{
	local status=0
	come 10 junk 10 10.7.0.1 10.7.0.2 || return 1
	# The table of local addresses, but not for what comes from here.
	ip -n hostb rule add pref 5 lookup local && ip -n hostb rule add pref 4 from 10.7.0.1 blackhole &&
		ip -n hostb rule del pref 0 lookup local || return 1
	come 0 junk 10 10.7.0.1 10.7.0.2 || status=1
	ip -n hostb rule add pref 0 lookup local && ip -n hostb rule del pref 4 && ip -n hostb rule del pref 5 || return 1
	come 10 junk 10 10.7.0.1 10.7.0.2 && return $status
}

t "the way of IPv4 packets is kept" is_kept
t "not after the address is gone: IPv4" gone 10.7.0.1 10.7.0.2 24
t "not after the address is gone: IPv6" gone fd07::1 fd07::2 64
t "not for long after sources are filtered" filtered
t "a firewall sees them all the same" dropped
t "not where rules choose" ruled
finish
