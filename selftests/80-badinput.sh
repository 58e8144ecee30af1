#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Bad input gets the documented error, and nothing is lost.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
must_build badattr badattr.c rig.c
must_build hostile hostile.c rings.c rig.c

# What is said of a netdev that can't have a device.
NOT_THAT="Invalid argument"
[ "$RXO_DRIVER" = rxo ] || NOT_THAT="Operation not supported|Invalid argument|Operation not permitted"

# refused ERROR NAME NETDEV: adding a device fails so, and leaves none.
refused()
{
	if host a rdma link add "$2" type "$RXO_DRIVER" netdev "$3" >"$TMP/o" 2>&1; then
		echo "added $2 on $3"
		host a rdma link delete "$2"
		return 1
	fi
	cat "$TMP/o"
	grep -qE "$1" "$TMP/o" || { echo "the error should be: $1"; return 1; }
	[ "$(host a rdma link show | grep -c "^link $2/")" = "${4:-0}" ]
}

# Names are a namespace's own where devices are.
same_name_elsewhere()
{
	[ "$RXO_NETNS" = exclusive ] || { skip "devices are shared between namespaces"; return; }
	local r=0
	ip -n hosta link add spare type dummy && ip -n hosta link set spare up || return 1
	host a rdma link add "$DEVB" type "$RXO_DRIVER" netdev spare || r=1
	host a rdma link show "$DEVB/1" | grep "netdev spare" || r=1
	host b rdma link show "$DEVB/1" | grep "netdev eth0" || r=1
	host a rdma link delete "$DEVB" || r=1
	host b rdma link show "$DEVB/1" | grep "netdev eth0" || r=1
	ip -n hosta link delete spare
	return $r
}

same_name()
{
	ip -n hosta link add spare type dummy && ip -n hosta link set spare up || return 1
	refused "File exists|Too many open files in system" "$DEVA" spare 1	# the core says ENFILE
	local r=$?
	ip -n hosta link delete spare
	return $r
}

# on_odd: adding a device on the netdev "odd" is refused.
on_odd()
{
	ip -n hosta link set odd up && refused "$NOT_THAT" odd1 odd
}

# other_kind IP-LINK-ARGS...: a netdev of another kind than Ethernet. All test kernels
# make it.
other_kind()
{
	local r=0
	ip -n hosta link add odd "$@" || return 1
	on_odd || r=1
	ip -n hosta link delete odd
	return $r
}

tun()
{
	local r=0
	host a ip tuntap add dev odd mode tun || return 1
	on_odd || r=1
	host a ip tuntap del dev odd mode tun
	return $r
}

# vlan_on TYPE COMMAND...: succeeds with a VLAN, "odd", of such a netdev.
vlan_on()
{
	local r=0
	ip -n hosta link add lower type "$1" && ip -n hosta link set lower up || return 1
	ip -n hosta link add odd link lower type vlan id 7 && "${@:2}" || r=1
	ip -n hosta link delete lower
	return $r
}

# above_odd IP-LINK-ARGS...: Ethernet is Ethernet, whatever is below it.
above_odd()
{
	local r=0
	ip -n hosta link set odd up && ip -n hosta link add above "$@" && ip -n hosta link set above up || return 1
	[ "$2" != bridge ] || ip -n hosta link set odd master above || r=1
	host a rdma link add odd1 type "$RXO_DRIVER" netdev above && host a rdma link delete odd1 || r=1
	ip -n hosta link delete above
	return $r
}

delete_unknown()
{
	! host a rdma link delete nosuch >"$TMP/o" 2>&1 || return 1
	cat "$TMP/o"
	# another namespace's
	if [ "$RXO_NETNS" = exclusive ]; then
		! host a rdma link delete "$DEVB" >"$TMP/o" 2>&1 || return 1
		host b rdma dev show "$DEVB"
	fi
}

two_on_dummies()
{
	local i r=0
	for i in 1 2 3; do
		ip -n hosta link add spare$i type dummy && ip -n hosta link set spare$i up &&
			host a rdma link add extra$i type "$RXO_DRIVER" netdev spare$i || r=1
	done
	[ "$(host a rdma link show | grep -c "^link extra")" = 3 ] || r=1
	for i in 1 2 3; do
		ip -n hosta link delete spare$i
	done
	eventually 5 no_extra || r=1
	return $r
}
no_extra() { [ "$(host a rdma link show | grep -c "^link extra")" = 0 ]; }

t "a netdev that does not exist" refused "No such device" odd1 nosuch
t "a netdev that has a device already" refused "File exists" odd1 eth0
t "the loopback device" refused "$NOT_THAT" odd1 lo
t "an ipip tunnel" other_kind type ipip local 10.7.0.1 remote 10.7.0.9
t "an IPv6 tunnel" other_kind type ip6tnl local fd07::1 remote fd07::9
t "a tun device" tun
t "a VLAN device" vlan_on dummy on_odd
t "a VLAN device of a bridge" vlan_on bridge on_odd
t "a bridge that a VLAN is a port of" vlan_on dummy above_odd type bridge
t "a macvlan above a VLAN" vlan_on dummy above_odd link odd type macvlan
t "a name that is taken" same_name
t "a name that another host uses" same_name_elsewhere
t "a name too long" refused "Invalid argument|Numerical result|too long|File name|Error" \
	"name0123456789012345678901234567890123456789012345678901234567890123456789" eth0
t "deleting what is not there" delete_unknown
t "three devices more, and their netdevs go" two_on_dummies

tap_program 300 "" "$BIN/badattr" -a "hosta:$DEVA" -b "hostb:$DEVB"

small_mtu()
{
	ip -n hosta link set eth0 mtu 1500
	"$BIN/badattr" -a "hosta:$DEVA" -b "hostb:$DEVB" attr_mtu >"$TMP/o" 2>&1
	local r=$?
	ip -n hosta link set eth0 mtu "$RXO_MTU"
	cat "$TMP/o"
	! grep SKIP "$TMP/o" || return 1
	return $r
}
t "a path MTU larger than the active one" small_mtu

hostile=1
if [ "$RXO_DRIVER" = rxe ] && [ "${RXO_HOSTILE:-0}" = 0 ]; then
	hostile=0
	t "hostile" skip "rdma_rxe of 7.3.4 takes the kernel down (rxe_requester follows a producer index out of range)"
fi
[ $hostile = 0 ] || tap_program 900 "hostile: " "$BIN/hostile" -a "hosta:$DEVA" -b "hostb:$DEVB"

# After all that the ordinary still works.
still_works()
{
	next_port
	pair 60 tcp $PORT b ibv_rc_pingpong -d "$DEVB" -g "$(gid_index b $IPB)" -p $PORT -c -e -n 100 -- \
		a ibv_rc_pingpong -d "$DEVA" -g "$(gid_index a $IPA)" -p $PORT -c -e -n 100 $IPB
}
t "ibv_rc_pingpong after all that" still_works
finish
