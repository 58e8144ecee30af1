#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# storm.sh PACKETS: so many packets of a hostile peer, half of them over IPv6,
# in a guest with the two hosts up. A part of 85-hostile.sh, for longer.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
# shellcheck source=selftests/lib/beside.sh
. "$TESTS/lib/beside.sh"
must_build peer peer.c rig.c
must_build traffic traffic.c rig.c

export PACKETS=$((${1:-1000000} / 2))
beside 3000 "peer: " "$BIN/peer" "${HOSTS[@]}" storm
beside 3000 "peer, IPv6: " "$BIN/peer" "${HOSTS[@]}" -6 storm
finish
