#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Up to 10000 RC queue pairs, all connected and carrying data (verbs/scale.c).

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
must_build scale scale.c rig.c

# No connections of siw's without rdma_cm.
[ "$RXO_DRIVER" != siw ] || set -- idle_1000
tap_program 900 "" "$BIN/scale" -a "hosta:$DEVA" -b "hostb:$DEVB" "$@"
finish
