#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# ATOMIC WRITE and FLUSH through extended queue pairs (verbs/flush.c).

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=selftests/lib/topology.sh
. "$here/lib/topology.sh"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
gcc -O2 -Wall -o "$tmp/flush" "$here/verbs/flush.c" "$here/verbs/rig.c" -libverbs -lpthread ||
	{ echo "Bail out! flush.c does not compile"; exit 1; }
"$tmp/flush" -a "hosta:$DEVA" -b "hostb:$DEVB" "$@"
