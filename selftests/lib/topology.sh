# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Two hosts in one kernel, to be sourced:
#
#   namespace hosta                        namespace hostb
#   eth0 10.7.0.1/24 fd07::1/64  -- veth --  eth0 10.7.0.2/24 fd07::2/64
#   rxoa                                   rxob
#
# topo_up      makes the hosts and a device on each
# topo_down    takes them away again
# topo_net_up, topo_link_up [ab]    its halves: the network, the devices
# topo_link_down [ab]
#
# RXO_DRIVER   rxo (default), rxe or siw; the devices are called after it:
#              rxoa and rxob, rxea and rxeb, siwa and siwb ($DEVA and $DEVB)
# RXO_NETNS    exclusive: a device is seen in its host's namespace only;
#              shared: in all.  exclusive for rxo; shared for siw, which can't
#              do otherwise, and for rxe, which loses its QP1 (and with it
#              connection management) when it is moved to a namespace
# RXO_MTU      MTU of the veth pair; 4300 carries a path MTU of 4096

RXO_DRIVER=${RXO_DRIVER:-rxo}
RXO_MTU=${RXO_MTU:-4300}
case $RXO_DRIVER in
rxo) RXO_NETNS=${RXO_NETNS:-exclusive} ;;
*) RXO_NETNS=${RXO_NETNS:-shared} ;;
esac
DEVA=${RXO_DRIVER}a
DEVB=${RXO_DRIVER}b
IPA=10.7.0.1
IPB=10.7.0.2
IP6A=fd07::1
IP6B=fd07::2

# Run a command on a host: on a ping hostb
on_a() { ip netns exec hosta "$@"; }
on_b() { ip netns exec hostb "$@"; }

topo_modules()
{
	local m
	for m in ib_uverbs rdma_ucm ib_umad; do
		modprobe "$m" || return 1
	done
	case $RXO_DRIVER in
	rxe) modprobe rdma_rxe ;;
	*) modprobe "$RXO_DRIVER" ;;
	esac
}

# topo_neighbours HOST OTHER NETDEV ADDRESS...: the other's addresses, for good.
topo_neighbours()
{
	local host=$1 dev=$3 mac addr
	mac=$(ip -n "$2" -o link show "$dev" | sed -n 's/.*ether \([0-9a-f:]*\).*/\1/p')
	shift 3
	for addr; do
		ip -n "$host" neigh replace "$addr" lladdr "$mac" nud permanent dev "$dev" || return 1
	done
}

topo_net_up()
{
	# The mode can be changed only while there is no other namespace.
	rdma system show | grep -q "netns $RXO_NETNS" ||
		rdma system set netns "$RXO_NETNS" || return 1
	ip netns add hosta && ip netns add hostb || return 1
	ip link add eth0 netns hosta mtu "$RXO_MTU" type veth \
		peer name eth0 netns hostb mtu "$RXO_MTU" || return 1
	local h a a6
	for h in hosta hostb; do
		case $h in
		hosta) a=$IPA a6=$IP6A ;;
		hostb) a=$IPB a6=$IP6B ;;
		esac
		ip -n $h link set lo up &&
			ip netns exec $h sysctl -qw net.ipv6.conf.eth0.accept_dad=0 &&
			ip -n $h link set eth0 up &&
			ip -n $h addr add $a/24 dev eth0 &&
			ip -n $h addr add $a6/64 dev eth0 nodad || return 1
	done
	# Nothing but RDMA is to be seen on the wire; without link-local
	# addresses no neighbour is found by itself either, over IPv6.
	topo_neighbours hosta hostb eth0 "$IPB" "$IP6B" &&
		topo_neighbours hostb hosta eth0 "$IPA" "$IP6A" || return 1
	local i
	for i in 1 2 3 4 5 6 7 8 9 10; do
		on_a ping -c 1 -W 1 -q $IPB >/dev/null &&
			on_a ping -c 1 -W 1 -q $IP6B >/dev/null && return 0
	done
	echo "topology: hosta can't reach hostb" >&2
	return 1
}

# topo_link_up [HOST]: the device of one host (a or b), or of both.
topo_link_up()
{
	local h dev
	for h in ${1:-a b}; do
		dev=$RXO_DRIVER$h
		ip netns exec "host$h" rdma link add "$dev" type "$RXO_DRIVER" netdev eth0 || return 1
		# rdma_rxe makes its device in the first namespace all the same.
		if [ "$RXO_DRIVER" = rxe ] && [ "$RXO_NETNS" = exclusive ]; then
			rdma dev set "$dev" netns "host$h" || return 1
		fi
	done
}

topo_link_down()
{
	local h
	for h in ${1:-a b}; do
		ip netns exec "host$h" rdma link delete "$RXO_DRIVER$h" || return 1
	done
}

# topo_reload [PARAMETER=VALUE...]: the module of rxo anew.
topo_reload()
{
	topo_link_down && rmmod rxo && modprobe rxo "$@" && topo_link_up
}

topo_up()
{
	topo_modules && topo_net_up && topo_link_up
}

topo_down()
{
	local h
	for h in a b; do
		ip netns exec "host$h" rdma link delete "$RXO_DRIVER$h" 2>/dev/null || :
		ip netns delete "host$h" 2>/dev/null || :
	done
}
