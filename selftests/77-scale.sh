#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Up to 10000 RC queue pairs, all connected and carrying data (verbs/scale.c).

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
must_build scale scale.c rig.c

if [ "$RXO_DRIVER" = siw ]; then
	t "many queue pairs" skip "siw makes connections by rdma_cm only"
else
	tap_program 900 "" "$BIN/scale" -a "hosta:$DEVA" -b "hostb:$DEVB" "$@"
fi
finish
