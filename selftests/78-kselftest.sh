#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The kernel's own RDMA selftests (tools/testing/selftests/rdma), from its source
# tree, with the type of the link replaced by that of the driver under test, and
# tun devices, which are not Ethernet, by tap devices.

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=selftests/lib/topology.sh
. "$here/lib/topology.sh"

TREE=${RXO_CACHE:-/root/.cache/rxo}/linux/tools/testing/selftests
[ -d "$TREE/rdma" ] || { echo "1..0 # SKIP no kernel source with such tests"; exit 0; }
module=$RXO_DRIVER
[ "$RXO_DRIVER" != rxe ] || module=rdma_rxe
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# They make their own namespaces and set the mode, unload and load the module.
topo_down
cp -r "$TREE/rdma" "$TREE/kselftest" "$work/" || exit 1
if [ "$RXO_DRIVER" != rxe ]; then
	sed -i -e "s/type rxe/type $RXO_DRIVER/g; s/rdma_rxe/$module/g" \
		-e 's/tuntap add mode tun/tuntap add mode tap/' "$work"/rdma/*.sh
	# What it is done for must have been done.
	grep -q "type $RXO_DRIVER netdev" "$work"/rdma/*.sh || exit 1
fi

# tap devices have no carrier until somebody opens them; dummies and tun devices
# need nobody. Each file is a test; one that prints TAP itself has its cases.
n=0 bad=0
for f in "$work"/rdma/*.sh; do
	name=$(basename "$f" .sh)
	name=${name#rxe_}
	modprobe -q "$module"
	rdma system set netns shared 2>/dev/null
	(cd "$work/rdma" && timeout 120 bash "$f") >"$work/out" 2>&1 </dev/null
	status=$?
	if grep -q '^1\.\.[1-9]' "$work/out"; then
		while read -r line; do
			n=$((n + 1))
			verdict=ok
			[[ $line = ok* ]] || { verdict="not ok"; bad=1; }
			line=${line#*ok }
			echo "$verdict $n - $name: ${line#* }"
		done < <(grep -E '^(ok|not ok) ' "$work/out")
		[ "$status" = 0 ] || sed 's/^/# /' "$work/out"
		continue
	fi
	n=$((n + 1))
	case $status in
	0) echo "ok $n - $name" ;;
	4) echo "ok $n - $name # SKIP $(head -n 1 "$work/out")" ;;
	*)
		sed 's/^/# /' "$work/out" | tail -n 20
		echo "not ok $n - $name"
		bad=1
		;;
	esac
done
topo_up >/dev/null || { echo "# the hosts are not up again"; bad=1; }
echo "1..$n"
exit $bad
