#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What the stock tools say about the devices, and that it follows the netdev.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
must_build hold hold.c rig.c

case_ibv_devices()
{
	local h
	for h in a b; do
		host $h ibv_devices >"$TMP/o" || return 1
		expect_line "$TMP/o" ibv_devices "^ +$(dev_of $h)[[:space:]]+[0-9a-f]{16}$" 1 || return 1
		! grep -E "$(dev_of $h).*0000000000000000" "$TMP/o" || return 1
	done
}

case_netns()
{
	[ "$RXO_NETNS" = exclusive ] || { skip "devices are shared between namespaces"; return; }
	! host b ibv_devices | grep "$DEVA" || return 1
	! host a ibv_devices | grep "$DEVB" || return 1
	! host b rdma link show | grep "$DEVA" || return 1
	! rdma link show | grep -E "$DEVA|$DEVB" || return 1
	! host b ls /sys/class/infiniband | grep "$DEVA" || return 1
	if host b ibv_devinfo -d "$DEVA"; then
		echo "hostb opened $DEVA"
		return 1
	fi
}

case_devinfo()
{
	host a ibv_devinfo -v -d "$DEVA" >"$TMP/o" || return 1
	local f
	for f in 'hca_id:.'"$DEVA" 'transport:.*InfiniBand' 'node_guid:.*[1-9a-f]' \
		'phys_port_cnt:[[:space:]]+1$' 'state:.*PORT_ACTIVE \(4\)' 'link_layer:[[:space:]]+Ethernet' \
		'max_qp:[[:space:]]+[1-9]' 'max_cqe:[[:space:]]+[1-9]' 'max_sge:[[:space:]]+[1-9]' \
		'max_mr_size:[[:space:]]+0x[1-9a-f]' 'max_msg_sz:[[:space:]]+0x(80000000|40000000)' \
		'GID\[.*::ffff:10\.7\.0\.1, RoCE v2' 'GID\[.*fd07::1, RoCE v2'; do
		expect_line "$TMP/o" ibv_devinfo "$f" || return 1
	done
	# The node's GUID is as the kernel has it.
	local guid
	guid=$(devinfo a node_guid)
	host a rdma dev show "$DEVA" | grep -F "node_guid $guid" || { host a rdma dev show "$DEVA"; return 1; }
	[ "$guid" != "$(devinfo b node_guid)" ]
}

case_link()
{
	host a rdma link show "$DEVA/1" >"$TMP/o" || return 1
	expect_line "$TMP/o" "rdma link" "link $DEVA/1 state ACTIVE physical_state LINK_UP netdev eth0" 1
}

case_gids()
{
	gids a >"$TMP/o"
	expect_line "$TMP/o" GIDs "^[0-9]+ RoCE v2 $(gid_text $IPA)$" 1 &&
		expect_line "$TMP/o" GIDs "^[0-9]+ RoCE v2 $(gid_text $IP6A)$" 1
}

# A program holds objects; the kernel must list exactly those, and its pid.
case_resources()
{
	local pid qpn dev=$DEVA n i
	mkfifo "$TMP/hold.in"
	(in_host a "$BIN/hold" -a "hosta:$dev") <"$TMP/hold.in" >"$TMP/hold" 2>&1 &
	pid=$!
	PIDS+=($pid)
	exec 6>"$TMP/hold.in"
	rm "$TMP/hold.in"
	eventually 10 grep -q '^ready' "$TMP/hold" || { cat "$TMP/hold"; exec 6>&-; return 1; }
	host a rdma resource show qp link "$dev/1" >"$TMP/qp"
	host a rdma resource show cq dev "$dev" >"$TMP/cq"
	host a rdma resource show mr dev "$dev" >"$TMP/mr"
	host a rdma resource show pd dev "$dev" >"$TMP/pd"
	host a rdma resource show ctx dev "$dev" >"$TMP/ctx"
	exec 6>&-
	ended $pid 5 || return 1
	wait $pid || { cat "$TMP/hold"; return 1; }
	n=$(grep -c '^qp ' "$TMP/hold")
	expect_line "$TMP/qp" "rdma resource show qp" " pid $pid comm hold" "$n" || return 1
	while read -r _ qpn i; do
		expect_line "$TMP/qp" "rdma resource show qp" " lqpn $((qpn)) .*type .* state $i .* pid $pid comm hold" 1 || return 1
	done < <(grep '^qp ' "$TMP/hold")
	expect_line "$TMP/qp" "connected QP" "rqpn [1-9][0-9]* type RC state RTS" 2 || return 1
	expect_line "$TMP/cq" "rdma resource show cq" "cqe [1-9][0-9]* .*pid $pid comm hold" "$(grep -c '^cq ' "$TMP/hold")" || return 1
	expect_line "$TMP/mr" "rdma resource show mr" "mrlen 12288 .*pid $pid comm hold" 1 || return 1
	expect_line "$TMP/mr" "rdma resource show mr" "pid $pid comm hold" "$(grep -c '^mr ' "$TMP/hold")" || return 1
	expect_line "$TMP/pd" "rdma resource show pd" "pid $pid comm hold" || return 1
	expect_line "$TMP/ctx" "rdma resource show ctx" "pid $pid comm hold" || return 1
	host a rdma resource show qp link "$dev/1" >"$TMP/qp"
	expect_line "$TMP/qp" "after its end" "comm hold" 0
}

state_is() { devinfo a state | grep -q "$1"; }

case_port_state()
{
	local r=0
	ip -n hosta link set eth0 down || return 1
	eventually 5 state_is PORT_DOWN || r=1
	host a rdma link show "$DEVA/1"
	host a rdma link show "$DEVA/1" | grep -q 'state DOWN' || r=1
	ip -n hosta link set eth0 up || return 1
	eventually 5 state_is PORT_ACTIVE || r=1
	# Without carrier: the other end is down.
	ip -n hostb link set eth0 down || return 1
	eventually 5 state_is PORT_DOWN || r=1
	ip -n hostb link set eth0 up || return 1
	eventually 5 state_is PORT_ACTIVE || r=1
	readd_v6
	return $r
}

# IPv6 addresses go when the interface goes down.
readd_v6()
{
	link_local
	ip -n hosta addr replace $IP6A/64 dev eth0 nodad
	ip -n hostb addr replace $IP6B/64 dev eth0 nodad
	eventually 5 gid_index a $IP6A && eventually 5 gid_index b $IP6B &&
		eventually 5 host a ping -c 1 -W 1 -q $IP6B &&
		eventually 5 host a ping -c 1 -W 1 -q $IPB
}

case_port_events()
{
	local r=0
	start events a 20 ibv_asyncwatch -d "$DEVA"
	eventually 10 grep -q 'async event FD' "$TMP/events" || return 1
	ip -n hosta link set eth0 down
	eventually 5 state_is PORT_DOWN
	ip -n hosta link set eth0 up
	eventually 5 state_is PORT_ACTIVE
	eventually 5 grep -qiE 'port[ _]err' "$TMP/events" && eventually 5 grep -qiE 'port[ _]active' "$TMP/events" || r=1
	leftovers_kill
	readd_v6
	[ $r = 0 ] || show_end "$TMP/events"
	return $r
}

mtu_is() { devinfo a active_mtu | grep -q "^$1 "; }

case_mtu()
{
	local m r=0
	# netdev MTU and the path MTU that it carries
	for m in 400:256 700:512 1500:1024 2200:2048 4300:4096; do
		ip -n hosta link set eth0 mtu ${m%:*}
		eventually 5 mtu_is ${m#*:} || { echo "netdev MTU ${m%:*}: $(devinfo a active_mtu)"; r=1; }
	done
	ip -n hosta link set eth0 mtu "$RXO_MTU"
	readd_v6	# gone below 1280
	return $r
}

case_mtu_core()
{
	local m r=0
	# The boundaries: 96 bytes for headers as ib_core has it, which rdma_rxe
	# counts as 80. What is in between is the driver's choice.
	for m in 1119:1024:512 4191:4096:2048; do
		local mtu want less
		IFS=: read -r mtu want less <<<"$m"
		ip -n hosta link set eth0 mtu $((mtu + 1))
		eventually 5 mtu_is "$want" || { echo "netdev MTU $((mtu + 1)): $(devinfo a active_mtu)"; r=1; }
		ip -n hosta link set eth0 mtu $((mtu - 16))
		eventually 5 mtu_is "$less" || { echo "netdev MTU $((mtu - 16)): $(devinfo a active_mtu)"; r=1; }
	done
	ip -n hosta link set eth0 mtu "$RXO_MTU"
	readd_v6
	return $r
}

netdev_is() { host a rdma link show "$DEVA/1" | grep -q "netdev $1 *$"; }

case_rename()
{
	local r=0
	ip -n hosta link set eth0 down
	ip -n hosta link set eth0 name wire7 || return 1
	ip -n hosta link set wire7 up
	eventually 5 netdev_is wire7 || r=1
	ip -n hosta link set wire7 down
	ip -n hosta link set wire7 name eth0
	ip -n hosta link set eth0 up
	eventually 5 netdev_is eth0 || r=1
	eventually 5 state_is PORT_ACTIVE || r=1
	readd_v6
	return $r
}

no_gid() { ! gid_index a "$1"; }

case_gid_follow()
{
	local r=0 a
	for a in 10.7.0.77/24 fd07::77/64; do
		ip -n hosta addr add $a dev eth0 nodad 2>/dev/null || ip -n hosta addr add $a dev eth0
		eventually 5 gid_index a ${a%/*} || { echo "no GID for $a"; gids a; r=1; }
		ip -n hosta addr del $a dev eth0
		eventually 5 no_gid ${a%/*} || { echo "the GID of $a stays"; gids a; r=1; }
	done
	gid_index a $IPA && gid_index a $IP6A || r=1
	return $r
}

# Only addresses that the netdev has: each GID can be used.
case_gids_usable()
{
	local type gid addr r=0
	while read -r _ type; do
		gid=${type##* }
		case $gid in
		0000:0000:0000:0000:0000:ffff:*) continue ;;
		0000:0000:0000:0000:0000:0000:0000:0000) continue ;;
		esac
		addr=$(host a ip -6 -o addr show dev eth0 | awk '{ print $4 }' | cut -d/ -f1)
		for a in $addr; do
			[ "$(gid_text "$a")" != "$gid" ] || continue 2
		done
		echo "GID $gid is no address of eth0: $addr"
		r=1
	done < <(gids a)
	return $r
}

case_name_sysfs()
{
	local d=/sys/class/infiniband/$DEVA
	[ "$(host a cat "$d/node_type")" = "1: CA" ] || return 1
	[ "$(host a cat "$d/ports/1/link_layer")" = Ethernet ] || return 1
	[ "$(host a cat "$d/ports/1/gid_attrs/ndevs/$(gid_index a $IPA)")" = eth0 ] || return 1
	[ "$(host a cat "$d/ports/1/pkeys/0")" = 0xffff ]
}

case_statistics()
{
	host a rdma statistic show link "$DEVA/1" >"$TMP/o" || return 1
	expect_line "$TMP/o" "rdma statistic" '[a-z_]+ [0-9]+' || return 1
	# They count.
	local key
	case $RXO_DRIVER in
	rxo) key=tx_packets ;;
	*) key=sent_pkts ;;
	esac
	local before after
	before=$(counter a $key)
	next_port
	pair 20 tcp $PORT b ibv_rc_pingpong -d "$DEVB" -g "$(gid_index b $IPB)" -p $PORT -n 10 -- \
		a ibv_rc_pingpong -d "$DEVA" -g "$(gid_index a $IPA)" -p $PORT -n 10 $IPB || return 1
	after=$(counter a $key)
	echo "$key: $before, then $after"
	[ $((after - before)) -ge 10 ]
}

t "ibv_devices" case_ibv_devices
t "a device is seen in its namespace only" case_netns
t "ibv_devinfo -v" case_devinfo
t "rdma link" case_link
t "GIDs of the addresses" case_gids
t "sysfs" case_name_sysfs
t "rdma resource show qp, cq, mr, pd, ctx" case_resources
t "rdma statistic" case_statistics
t "port state follows the link" case_port_state
t "port events" case_port_events
t "active MTU follows the netdev" case_mtu
t "active MTU at the boundaries" case_mtu_core
t "the netdev may be renamed" case_rename
t "GIDs follow the addresses" case_gid_follow
t "every GID is an address" case_gids_usable
finish
