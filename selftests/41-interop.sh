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

only_rxo "with rdma_rxe" "this is for rxo"
must_build link link.c rig.c

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

bad_link() # IP-VERSION NETEM...
{
	local v=$1 o=()
	shift
	[ "$v" = 4 ] || o=(-6)
	netem "$@" || return 1
	# rdma_rxe rounds timeouts up to ticks; it can wait for ever, too.
	LINK_TIMEOUT=12 LINK_ROUNDS=$rounds link_tests 240 "IPv$v, $*: rxo asks" "${o[@]}" 'stream_*'
	HOSTA=hostb:rxeb HOSTB=hosta:rxoa LINK_TIMEOUT=12 LINK_ROUNDS=$rounds \
		link_tests 240 "IPv$v, $*: rxe asks" "${o[@]}" 'stream_*'
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
finish
