#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The kernel's own RDMA selftests (tools/testing/selftests/rdma), from its source
# tree, with the type of the link replaced by that of the driver under test, and
# tun devices, which are not Ethernet, by tap devices.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"

TREE=${RXO_CACHE:-/root/.cache/rxo}/linux/tools/testing/selftests
[ -d "$TREE/rdma" ] || skip_all "no kernel source with such tests"
module=$RXO_DRIVER
[ "$RXO_DRIVER" != rxe ] || module=rdma_rxe

# Their programs for this driver, with what they keep to themselves (exec). tap
# devices have no carrier until somebody opens them; dummies and tun devices need
# nobody. A netdev of rxo's does not wait for the device, which goes a moment later.
programs()
{
	cp -r "$TREE/rdma" "$TREE/kselftest" "$TMP/" || return 1
	sed -i '/^exec > *\/dev\/null$/d' "$TMP"/rdma/*.sh
	[ "$RXO_DRIVER" != rxe ] || return 0
	sed -i -e "s/type rxe/type $RXO_DRIVER/g; s/rdma_rxe/$module/g" \
		-e 's/tuntap add mode tun/tuntap add mode tap/' "$TMP"/rdma/*.sh
	# shellcheck disable=SC2016
	sed -i '/^ip link del "$DEV_NAME"$/a\
for _ in $(seq 100); do ss -Huln sport == :$RDMA_PORT | grep -q . || break; sleep 0.05; done' \
		"$TMP/rdma/rxe_test_NETDEV_UNREGISTER.sh"
	# What it is done for must have been done.
	grep -q "type $RXO_DRIVER netdev" "$TMP"/rdma/*.sh &&
		grep -q "seq 100" "$TMP/rdma/rxe_test_NETDEV_UNREGISTER.sh"
}

# verdict STATUS: of one that prints no TAP.
verdict()
{
	case $1 in
	0) return 0 ;;
	4) skip "$(grep SKIP "$TMP/tap" | head -n 1)" ;;
	*) show_end "$TMP/tap" 20; return 1 ;;
	esac
}

# They make their own namespaces and set the mode, unload and load the module.
topo_down
t "the programs fit the driver" programs
for f in "$TMP"/rdma/*.sh; do
	name=$(basename "$f" .sh)
	name=${name#rxe_}
	modprobe -q "$module"
	rdma system set netns shared 2>/dev/null
	(cd "$TMP/rdma" && timeout 120 bash "$f") >"$TMP/tap" 2>&1 </dev/null
	status=$?
	if grep -qE '^(TAP version|KTAP version|1\.\.|ok |not ok )' "$TMP/tap"; then
		tap_results "$name: " "$name" $status
	else
		t "$name" verdict $status
	fi
done
t "the hosts are up again" topo_up
finish
