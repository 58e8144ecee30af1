/* SPDX-License-Identifier: GPL-2.0 */
/* What `rdma_bindings` is generated from. */
#include <linux/crc32.h>
#include <linux/hrtimer_types.h>
#include <linux/if_arp.h>
#include <linux/netdevice.h>
#include <linux/skbuff.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/route.h>
#include <net/udp_tunnel.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>
#include <rdma/ib_verbs.h>
#include <rdma/ib_umem.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_addr.h>
#include <rdma/uverbs_ioctl.h>
#include <rdma/rdma_netlink.h>
#include <rdma/ib_pack.h>
#include <rdma/ib_mad.h>
#include <rdma/rdma_user_rxe.h>

#include "../helpers/net.h"

const unsigned long RUST_CONST_HELPER_SIZEOF_IB_DEVICE = sizeof(struct ib_device);
const unsigned long RUST_CONST_HELPER_SIZEOF_IB_DEVICE_OPS = sizeof(struct ib_device_ops);
const unsigned long RUST_CONST_HELPER_SIZEOF_IB_QP = sizeof(struct ib_qp);
const unsigned int RUST_CONST_HELPER_PORT_CAP_ROCE_V2 = RDMA_CORE_PORT_IBA_ROCE_UDP_ENCAP;
const unsigned int RUST_CONST_HELPER_MAD_SIZE = IB_MGMT_MAD_SIZE;
