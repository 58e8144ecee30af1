// SPDX-License-Identifier: GPL-2.0
/* Out-of-line forms, for Rust, of what the kernel has only inline. */

#include "softirq.c"
#include "net.c"
#include "udp_tap.c"
#include "rdma.c"
