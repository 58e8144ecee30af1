#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The module comes by itself when a device is added, and goes with modprobe -r.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"

module() { case $RXO_DRIVER in rxe) echo rdma_rxe ;; *) echo "$RXO_DRIVER" ;; esac; }
loaded() { grep -q "^$(module) " /proc/modules; }

alias_there()
{
	modprobe --resolve-alias "rdma-link-$RXO_DRIVER" | grep -x "$(module)"
}

unloaded()
{
	modprobe -r "$(module)" || return 1
	! loaded
}

added()
{
	topo_link_up && loaded && eventually 5 gid_index a "$IPA" && eventually 5 gid_index b "$IPB"
}

# As udev has it on a hotplugged system: the modules of user space come by the
# device alone.
usable()
{
	next_port
	pair 30 tcp $PORT b ibv_rc_pingpong -d "$DEVB" -g "$(gid_index b $IPB)" -p $PORT -c -e -n 20 -- \
		a ibv_rc_pingpong -d "$DEVA" -g "$(gid_index a $IPA)" -p $PORT -c -e -n 20 $IPB
}

# An option in modprobe.d holds for this way too: a blacklisted alias is not
# followed.
blacklisted()
{
	echo "install $(module) /bin/false" >/etc/modprobe.d/rxo-test.conf
	topo_link_down && unloaded || return 1
	! host a rdma link add "$DEVA" type "$RXO_DRIVER" netdev eth0 || return 1
	! loaded || return 1
	rm /etc/modprobe.d/rxo-test.conf
	topo_link_up && loaded && eventually 5 gid_index a "$IPA" && eventually 5 gid_index b "$IPB"
}

# Other options hold for it, too; they are spelled as the parameters are.
options()
{
	[ "$RXO_DRIVER" = rxo ] || { skip "parameters of rxo"; return; }
	local r=0
	echo "options rxo loopback=0 check_local=1 hold=0" >/etc/modprobe.d/rxo-test.conf
	topo_link_down && unloaded && added && here && [ "$(counter a loopback_packets)" = 0 ] || r=1
	rm /etc/modprobe.d/rxo-test.conf
	topo_link_down && unloaded && added && here && [ "$(counter a loopback_packets)" -gt 0 ] || r=1
	return $r
}

# hosta with itself.
here()
{
	local gid
	gid=$(gid_index a $IPA) || return 1
	next_port
	pair 30 tcp $PORT a ibv_rc_pingpong -d "$DEVA" -g "$gid" -p $PORT -c -e -n 20 -- \
		a ibv_rc_pingpong -d "$DEVA" -g "$gid" -p $PORT -c -e -n 20 $IPA
}

t "the alias names the module" alias_there
t "modprobe -r" eval 'topo_link_down && unloaded'
t "rdma link add loads the module" added
t "the device works" usable
t "a modprobe.d that forbids it is obeyed" blacklisted
t "and one with options is" options
t "the device works again" usable
finish
