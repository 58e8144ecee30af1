#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Devices come and go, also while programs use them: these get an error
# completion or a fatal event, and nothing hangs or stays behind.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
must_build traffic traffic.c rig.c
must_build outlive outlive.c rig.c

case $RXO_DRIVER in
rxe) MODULE=rdma_rxe ;;
*) MODULE=$RXO_DRIVER ;;
esac
ROUNDS=20
[ "$QUICK" = 0 ] || ROUNDS=8

wire_again()
{
	ip link add eth0 netns hosta mtu "$RXO_MTU" type veth peer name eth0 netns hostb mtu "$RXO_MTU" || return 1
	local h
	for h in hosta hostb; do
		ip -n $h link set eth0 addrgenmode none && ip -n $h link set eth0 up || return 1
	done
	ip -n hosta addr add $IPA/24 dev eth0 && ip -n hostb addr add $IPB/24 dev eth0 &&
		ip -n hosta addr add $IP6A/64 dev eth0 nodad && ip -n hostb addr add $IP6B/64 dev eth0 nodad &&
		link_local && eventually 5 host a ping -c 1 -W 1 -q $IPB
}

device_there() { host "$1" rdma dev show "$(dev_of "$1")"; }
device_gone() { ! device_there "$1"; }

remove()
{
	case $1 in
	"link a") topo_link_down a ;;
	"link b") topo_link_down b ;;
	netdev) ip -n hosta link delete eth0 ;;
	module) timeout 20 modprobe -r $MODULE ;;
	esac
}

gone()
{
	case $1 in
	"link a") eventually 5 device_gone a ;;
	"link b") eventually 5 device_gone b ;;
	netdev) eventually 5 device_gone a && eventually 5 device_gone b ;;
	module)
		eventually 5 device_gone a && eventually 5 device_gone b || return 1
		! lsmod | grep -q "^$MODULE " || { lsmod | grep "^$MODULE "; return 1; }
		;;
	esac
}

again()
{
	case $1 in
	"link a") topo_link_up a ;;
	"link b") topo_link_up b ;;
	netdev) wire_again && topo_link_up ;;
	module) topo_modules && topo_link_up ;;
	esac
}

unused() { [ "$(cat /sys/module/$MODULE/refcnt)" = 0 ]; }

# traffic_and_remove HOW: under verified traffic of a program that watches
traffic_and_remove()
{
	local how=$1 pid s r=0
	start traffic a 100 "$BIN/traffic" -a "hosta:$DEVA" -b "hostb:$DEVB"
	pid=$!
	eventually 20 grep -q '^going' "$TMP/traffic" || { show_end "$TMP/traffic"; return 1; }
	sleep "0.0$((RANDOM % 10))"
	remove "$how" || { echo "removal ($how) fails"; r=1; }
	if ! ended $pid 20; then
		echo "removed ($how), the program still runs:"
		show_end "$TMP/traffic"
		leftovers_kill
		r=1
	else
		wait $pid
		s=$?
		[ $s = 3 ] || { echo "removed ($how), the program's status is $s:"; show_end "$TMP/traffic"; r=1; }
	fi
	gone "$how" || r=1
	again "$how" || { echo "coming again ($how) fails"; r=1; }
	eventually 5 device_there a && eventually 5 device_there b || r=1
	eventually 5 gid_index a $IPA && eventually 5 gid_index b $IPB || r=1
	return $r
}

rounds()
{
	local i how
	local -a ways=("link a" netdev "link b" module)
	for ((i = 0; i < ROUNDS; i++)); do
		how=${ways[$((i % 4))]}
		traffic_and_remove "$how" || { echo "round $i"; return 1; }
		check_kernel_log || { echo "round $i ($how)"; return 1; }
	done
	eventually 5 unused
}

# Two namespaces go with the devices that a process elsewhere uses, one of which can't
# go yet: the process prefetches memory that is long in coming. What its queue pairs and address
# handles know of the way must not be used when they are given up in the end.
outlived()
{
	local h p r=0 img=$TMP/outlive.img mnt=$TMP/outlive.d
	[ "$RXO_NETNS" = exclusive ] || { skip "devices are shared between namespaces"; return; }
	command -v mkfs.ext4 >/dev/null && modprobe -q ext4 || { skip "no ext4 here"; return; }
	truncate -s 16M "$img" && mkfs.ext4 -qF "$img" && mkdir -p "$mnt" && mount "$img" "$mnt" &&
		truncate -s 4096 "$mnt/file" || return 1
	for h in 1 2; do
		ip netns add gone$h || return 1
	done
	ip link add eth0 netns gone1 type veth peer name eth0 netns gone2 || return 1
	for h in 1 2; do
		ip -n gone$h link set eth0 up && ip -n gone$h addr add 10.6.0.$h/24 dev eth0 &&
			ip -n gone$h addr add fd06::$h/64 dev eth0 nodad &&
			ip netns exec gone$h rdma link add gone$h type "$RXO_DRIVER" netdev eth0 || return 1
	done
	topo_neighbours gone1 gone2 eth0 fd06::2 && topo_neighbours gone2 gone1 eth0 fd06::1 || return 1
	"$BIN/outlive" -a gone1:gone1 -b gone2:gone2 -6 "$mnt/file" >"$TMP/outlive" 2>&1 &
	p=$!
	PIDS+=($p)
	eventually 30 grep -q '^going' "$TMP/outlive" || { show_end "$TMP/outlive"; r=1; }
	fsfreeze -f "$mnt" && kill -USR1 $p && eventually 5 waits_in $p || r=1
	ip netns del gone1
	ip netns del gone2
	# Some grace periods.
	sleep 3
	waits_in $p || { echo "it did not wait all the time"; r=1; }
	fsfreeze -u "$mnt"
	eventually 10 grep -q '^prefetched' "$TMP/outlive" || r=1
	kill $p
	ended $p 10 || r=1
	umount "$mnt" || r=1
	return $r
}
waits_in() { grep -q '^State:.*D' "/proc/$1/status"; }

# hosta has a connection that is ready to send.
under_way()
{
	host a rdma resource show qp link "$DEVA/1" | grep -q ' type RC state RTS '
}

# with_stock HOW SERVER CLIENT...: distributions' programs end by themselves
with_stock()
{
	local how=$1 kind=$2 server=$3 client=$4 sp cp r=0
	next_port
	# shellcheck disable=SC2086
	start server b 60 ${server//PORT/$PORT}
	sp=$!
	listening b "$kind" $PORT $sp || return 1
	# shellcheck disable=SC2086
	start client a 60 ${client//PORT/$PORT}
	cp=$!
	eventually 20 under_way
	kill -0 $cp || { echo "too early:"; show_end "$TMP/client"; return 1; }
	remove "$how" || { echo "removal ($how) fails"; r=1; }
	ended $cp 25 || { echo "the client still runs:"; show_end "$TMP/client"; r=1; }
	ended $sp 25 || { echo "the server still runs:"; show_end "$TMP/server"; r=1; }
	leftovers_kill
	gone "$how" || r=1
	again "$how" || r=1
	return $r
}

# The device goes at once though somebody sits on it.
open_file()
{
	local pid dev start
	dev=$(host a sh -c "grep -lx $DEVA /sys/class/infiniband_verbs/uverbs*/ibdev" | sed 's|/ibdev||; s|.*/||')
	echo "$DEVA is $dev"
	start open a 60 sh -c "exec 5<>/dev/infiniband/$dev && echo open && exec sleep 60"
	pid=$!
	eventually 5 grep -q open "$TMP/open" || { cat "$TMP/open"; return 1; }
	start=$SECONDS
	timeout 10 ip netns exec hosta rdma link delete "$DEVA" || { echo "status $?"; return 1; }
	[ $((SECONDS - start)) -lt 3 ] || { echo "took $((SECONDS - start)) s"; return 1; }
	kill -0 $pid || return 1
	leftovers_kill
	topo_link_up a
}

killed()
{
	local i pid
	resources >"$TMP/r0"
	for i in 1 2 3 4 5 6; do
		start traffic a 100 "$BIN/traffic" -a "hosta:$DEVA" -b "hostb:$DEVB"
		pid=$!
		eventually 20 grep -q '^going' "$TMP/traffic" || { show_end "$TMP/traffic"; return 1; }
		pkill -KILL -P $pid
		ended $pid 10 || return 1
	done
	resources >"$TMP/r1"
	diff "$TMP/r0" "$TMP/r1"
}

# The peer's process dies: this one hears of it.
peer_killed()
{
	local sp cp
	next_port
	start server b 60 ib_send_bw -d "$DEVB" -F -x "$(gid_index b $IPB)" -p $PORT -D 50 -s 4096
	sp=$!
	listening b tcp $PORT $sp || return 1
	start client a 60 ib_send_bw -d "$DEVA" -F -x "$(gid_index a $IPA)" -p $PORT -D 50 -s 4096 $IPB
	cp=$!
	eventually 20 under_way || { show_end "$TMP/client"; return 1; }
	pkill -KILL -P $sp
	ended $cp 20 || { echo "the client still runs:"; show_end "$TMP/client"; return 1; }
	wait $cp && { echo "the client thinks all went well"; show_end "$TMP/client"; return 1; }
	return 0
}

quick_cycles()
{
	local i
	for ((i = 0; i < 3 * ROUNDS; i++)); do
		topo_link_down && topo_link_up || { echo "cycle $i"; return 1; }
	done
	eventually 5 unused
}

# Two at a time; one of them wins, and the device is there or not.
racing()
{
	local i
	for ((i = 0; i < ROUNDS; i++)); do
		(host a rdma link delete "$DEVA") >/dev/null 2>&1 &
		(host a rdma link delete "$DEVA") >/dev/null 2>&1 &
		ip -n hosta addr add 10.7.0.99/24 dev eth0
		ip -n hosta addr del 10.7.0.99/24 dev eth0
		wait
		device_gone a || return 1
		(host a rdma link add "$DEVA" type "$RXO_DRIVER" netdev eth0) >/dev/null 2>&1 &
		(host a rdma link add "$DEVA" type "$RXO_DRIVER" netdev eth0) >/dev/null 2>&1 &
		wait
		device_there a || return 1
	done
}

third_gone() { ! rdma dev show "${RXO_DRIVER}c" && ! ip link show eth7; }

namespace_goes()
{
	[ "$RXO_NETNS" = exclusive ] || { skip "devices are shared between namespaces"; return; }
	local i
	for i in 1 2 3 4 5 6 7 8; do
		ip netns add hostc && ip link add eth7 type dummy && ip link set eth7 netns hostc || return 1
		ip -n hostc link set eth7 up && ip -n hostc addr add 10.9.0.1/24 dev eth7 || return 1
		ip netns exec hostc rdma link add "${RXO_DRIVER}c" type "$RXO_DRIVER" netdev eth7 || return 1
		ip netns exec hostc ibv_devinfo -d "${RXO_DRIVER}c" >/dev/null || return 1
		ip netns delete hostc
		eventually 10 third_gone || { rdma dev; ip link; return 1; }
	done
}

unload()
{
	topo_link_down || return 1
	eventually 5 unused || { lsmod | grep "^$MODULE"; return 1; }
	timeout 20 modprobe -r $MODULE || return 1
	! lsmod | grep "^$MODULE " || return 1
	topo_modules && topo_link_up
}

t "$ROUNDS rounds of add, traffic, remove under traffic" rounds
t "rping, the device goes" with_stock "link a" cm \
	"rping -s -a $IPB -p PORT -V" "rping -c -a $IPB -p PORT -V -C 100000000"
t "rping, the server's device goes" with_stock "link b" cm \
	"rping -s -a $IPB -p PORT -V" "rping -c -a $IPB -p PORT -V -C 100000000"
t "ib_send_bw, the device goes" with_stock "link a" tcp \
	"ib_send_bw -d $DEVB -F -x 1 -p PORT -D 4 -s 4096" "ib_send_bw -d $DEVA -F -x 1 -p PORT -D 4 -s 4096 $IPB"
t "rping, the module goes" with_stock module cm \
	"rping -s -a $IPB -p PORT -V" "rping -c -a $IPB -p PORT -V -C 100000000"
t "the device goes though its file is open" open_file
t "programs killed in the midst of traffic" killed
t "the peer's program is killed" peer_killed
t "added and deleted quickly" quick_cycles
t "added and deleted twice at a time" racing
t "the namespace goes" namespace_goes
t "a process outlives its devices' namespaces" outlived
t "the module is unused and goes" unload
finish
