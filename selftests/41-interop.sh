#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# rxo in hosta and rdma_rxe in hostb: every operation that both have, from
# either end, at each path MTU, over IPv4 and IPv6, over a good link and a bad
# one, every byte verified; and the distribution's programs between them.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
# shellcheck source=selftests/lib/wire.sh
. "$TESTS/lib/wire.sh"
# shellcheck source=selftests/lib/cm.sh
. "$TESTS/lib/cm.sh"

only_rxo "with rdma_rxe" "this is for rxo"
must_build link link.c rig.c
LIBS=-lrdmacm must_build cm cm.c

# rdma_rxe allocates its device in the first namespace and must be moved.
peer_is_rxe()
{
	modprobe rdma_rxe && host b rdma link delete rxob &&
		host b rdma link add rxeb type rxe netdev eth0 &&
		rdma dev set rxeb netns hostb
}

peer_is_rxo()
{
	# The module stays: unloaded, it takes all devices of its driver ID along,
	# and rxo's have the same for the sake of the provider.
	host b rdma link delete rxeb && topo_link_up b
}

t "rdma_rxe beside rxo" peer_is_rxe
DEVB=rxeb
HOSTB=hostb:rxeb
export LINK_MTUS="256 512 1024 2048 4096"

for v in 4 6; do
	o=()
	[ $v = 4 ] || o=(-6)
	link_tests 240 "IPv$v" "${o[@]}" 'ops_*' uc_write send_inv
done

# ATOMIC WRITE, from either end.
gcc -O2 -Wall -o "$TMP/flush" "$TESTS"/verbs/{flush,rig}.c -libverbs -lpthread
tap_program 60 "rxo asks: " "$TMP/flush" -a "$HOSTA" -b "$HOSTB" "ATOMIC WRITE:*" "ATOMIC WRITE [it]*"
tap_program 60 "rxe asks: " "$TMP/flush" -a "$HOSTB" -b "$HOSTA" "ATOMIC WRITE:*" "ATOMIC WRITE [it]*"
# rdma_rxe answers, too, where rxo asks for what was not signalled.
must_build errors errors.c rig.c
tap_program 60 "rxo asks: " "$BIN/errors" -a "$HOSTA" -b "$HOSTB" sqd_unawaited
# A responder's own fault is told on the wire as what it is. The syndrome is what
# is counted; rdma_rxe tells its consumer by another status (LOC_QP_OP_ERR, 2).
told_on_wire() # HOST-THAT-HEARS SERVER CLIENT
{
	local n
	watch "$1" @th,64,8 0x11 @th,160,8 0x63 || return 1
	HOSTA=$2 HOSTB=$3 link bad_receive
	local status=$?
	n=$(watched "$1")
	[ "$status" = 0 ] && [ "$n" = 3 ] && return
	echo "$n NAKs with syndrome 0x63, not 3"
	return 1
}
rxo_refuses() { told_on_wire b hostb:rxeb hosta:rxoa; }
rxe_refuses() { LINK_RECV_STATUS=2 told_on_wire a hosta:rxoa hostb:rxeb; }
t "a receive that does not serve: rxe hears a remote operational error of rxo" rxo_refuses
t "a receive that does not serve: rxo hears a remote operational error of rxe" rxe_refuses

t "FLUSH" skip "the invariant CRC of rdma_rxe's covers the headers twice: no other end can take it"

# Between programs: a bandwidth test, the client on $2.
bw() # PROGRAM CLIENT-HOST ARGS...
{
	local prog=$1 client=$2 server=a gs gc
	shift 2
	[ "$client" = b ] || server=b
	gs=$(gid_index $server "$(ip_of $server 4)") && gc=$(gid_index "$client" "$(ip_of "$client" 4)") ||
		return 1
	next_port
	pair 60 tcp $PORT $server "$prog" -F -p $PORT -d "$(dev_of $server)" -x "$gs" "$@" -- \
		"$client" "$prog" -F -p $PORT -d "$(dev_of "$client")" -x "$gc" "$@" "$(ip_of $server 4)"
}

# With events: polling would take the CPUs from rdma_rxe's workers.
n=200
[ "$QUICK" = 0 ] || n=50
for client in a b; do
	[ $client = a ] && who="rxo to rxe" || who="rxe to rxo"
	# Few receives: rdma_rxe announces no credits, and says that it wasn't ready.
	t "ib_send_bw, 4 receives, $who" bw ib_send_bw $client -e -n $n -s 4096 -r 4 -t 64
done

# Runs what sends on one CPU, so that no packet overtakes another. An ACK that
# comes late, amid the responses to a READ, ends that READ of rdma_rxe's before
# its time, with success, and the QP with it (rxe_completer() warns).  So its
# workers must not run on two CPUs where ACKs and READs mix.
on_one_cpu()
{
	local workers=/sys/devices/virtual/workqueue/cpumask were mine
	were=$(<$workers) && mine=$(taskset -p $$) && echo 1 >$workers && taskset -p 1 $$ >/dev/null ||
		{ t "one CPU" false; return; }
	"$@"
	echo "$were" >$workers && taskset -p "${mine##* }" $$ >/dev/null
}

streams() # WHO OPTION...
{
	link_tests 240 "$1" "${@:2}" stream_{send,write,read,fadd,cswap}
	on_one_cpu link_tests 240 "$1" "${@:2}" stream_mixed
}

bad_link() # IP-VERSION NETEM...
{
	local v=$1 o=()
	shift
	[ "$v" = 4 ] || o=(-6)
	t "$* on the link" netem "$@"
	# rdma_rxe rounds timeouts up to ticks; it can wait for ever, too.
	LINK_TIMEOUT=12 LINK_ROUNDS=$rounds streams "IPv$v, $*: rxo asks" "${o[@]}"
	HOSTA=hostb:rxeb HOSTB=hosta:rxoa LINK_TIMEOUT=12 LINK_ROUNDS=$rounds \
		streams "IPv$v, $*: rxe asks" "${o[@]}"
	netem_off
}
rounds=6
[ "$QUICK" = 0 ] || rounds=2
bad_link 4 loss 1%
bad_link 6 loss 1%
bad_link 4 duplicate 5%
bad_link 4 corrupt 1%

t "rxo again" peer_is_rxo
DEVB=rxob

# Connection management. rdma_rxe has lost its QP 1 in a namespace that it was
# moved to: it stays in the first one, which is host c here.
dev_of() { case $1 in a) echo rxoc ;; c) echo rxec ;; esac; }
ip_of() { case $1$2 in a4) echo 10.8.0.1 ;; c4) echo 10.8.0.2 ;; a6) echo fd08::1 ;; c6) echo fd08::2 ;; esac; }

cm_up()
{
	local h

	ip netns attach hostc $$ && ip link add cm0 mtu 4300 type veth peer name cm0 netns hosta mtu 4300 || return 1
	for h in a c; do
		ip -n host$h link set cm0 up && ip -n host$h addr add "$(ip_of $h 4)/24" dev cm0 &&
			ip -n host$h addr add "$(ip_of $h 6)/64" dev cm0 nodad || return 1
	done
	topo_neighbours hosta hostc cm0 "$(ip_of c 4)" "$(ip_of c 6)" &&
		topo_neighbours hostc hosta cm0 "$(ip_of a 4)" "$(ip_of a 6)" &&
		host a rdma link add rxoc type rxo netdev cm0 &&
		host c rdma link add rxec type rxe netdev cm0
}

# All of it was on the wire, of which rxo's device saw both directions.
cm_down()
{
	local n
	for n in tx_packets rx_packets; do
		[ "$(counter a $n)" -gt 1000 ] || { echo "rxoc: $n $(counter a $n)"; return 1; }
	done
	host c rdma link delete rxec && host a rdma link delete rxoc && ip link del cm0 && ip netns delete hostc
}

# cm_bw CLIENT-HOST PROGRAM ARGS...: the connection by rdma_cm.
cm_bw()
{
	local client=$1 prog=$2
	shift 2
	next_port
	pair 60 cm $PORT $SERVER "$prog" -F -R -p $PORT -d "$(dev_of $SERVER)" "$@" -- \
		"$client" "$prog" -F -R -p $PORT -d "$(dev_of "$client")" "$@" "$(ip_of $SERVER 4)"
}

t "rdma_cm: rdma_rxe in the first namespace" cm_up
for client in a c; do
	[ $client = a ] && SERVER=c who="rxo to rxe" || SERVER=a who="rxe to rxo"
	for v in 4 6; do
		t "rping -V IPv$v, $who" cm_rping $v $client 50 1000
		t "ucmatose IPv$v, $who" cm_ucmatose $client $v
		t "udaddy IPv$v, $who" cm_udaddy $client $v
		t "private data, refusal IPv$v, $who" cm_private $client $v
	done
	t "rping -V 65535 bytes, $who" cm_rping 4 $client 10 65535
	t "nobody listens, $who" cm_nobody $client
	t "ib_send_bw -R, $who" cm_bw $client ib_send_bw -e -n $n -s 4096 -t 64
	t "ib_write_bw -R, $who" cm_bw $client ib_write_bw -n $n -s 65536
done
t "rdma_cm: over" cm_down
finish
