#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Regions of dma-bufs (verbs/dmabuf.c).

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
must_build dmabuf dmabuf.c rig.c

tap_program 120 "" "$BIN/dmabuf" -a "hosta:$DEVA" -b "hostb:$DEVB"
finish
