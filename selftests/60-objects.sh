#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Verbs objects: SRQs, CQs of changing size, CQ overflow, re-registration,
# memory windows (verbs/objects.c).

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=selftests/lib/topology.sh
. "$here/lib/topology.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
gcc -O2 -Wall -o "$tmp/objects" "$here/verbs/objects.c" "$here/verbs/rig.c" -libverbs -lpthread ||
	{ echo "Bail out! objects.c does not compile"; exit 1; }
"$tmp/objects" -a "hosta:$DEVA" -b "hostb:$DEVB" "$@"
