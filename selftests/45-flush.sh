#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# ATOMIC WRITE and FLUSH through extended queue pairs (verbs/flush.c).

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
must_build flush flush.c rig.c

tap_program 240 "" "$BIN/flush" -a "hosta:$DEVA" -b "hostb:$DEVB" "$@"
finish
