// SPDX-License-Identifier: GPL-2.0
/* What the net crate needs of static inlines and macros. */

#include <linux/crc32.h>
#include <linux/hash.h>
#include <linux/if_arp.h>
#include <linux/if_vlan.h>
#include <linux/igmp.h>
#include <linux/ipv6.h>
#include <linux/module.h>
#include <linux/once.h>
#include <linux/slab.h>
#include <linux/netdevice.h>
#include <linux/rcupdate.h>
#include <linux/rtnetlink.h>
#include <linux/skbuff.h>
#include <linux/unaligned.h>
#include <net/dst.h>
#include <net/inet_dscp.h>
#include <net/ip.h>
#include <net/ip6_fib.h>
#include <net/ip6_route.h>
#include <net/ipv6.h>
#include <net/l3mdev.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>
#include <net/route.h>
#include <net/ip6_checksum.h>
#include <net/udp.h>
#include <net/udp_tunnel.h>

#include "net.h"

/* ---- namespaces --------------------------------------------------------- */

struct net *rust_helper_initial_net(void)
{
	return &init_net;
}

struct net *rust_helper_maybe_get_net(struct net *net)
{
	return maybe_get_net(net);
}

void rust_helper_get_net(struct net *net)
{
	get_net(net);
}

void rust_helper_put_net(struct net *net)
{
	put_net(net);
}

unsigned int rust_helper_net_inum(const struct net *net)
{
	return net->ns.inum;
}

/* NULL, unlike the original, if the namespace has not got that far. */
void *rust_helper_net_generic(const struct net *net, unsigned int id)
{
	struct net_generic *ng;
	void *ptr = NULL;

	rcu_read_lock();
	ng = rcu_dereference(net->gen);
	if (id < ng->s.len)
		ptr = ng->ptr[id];
	rcu_read_unlock();
	return ptr;
}

/* ---- devices ------------------------------------------------------------ */

void rust_helper_dev_hold(struct net_device *dev)
{
	dev_hold(dev);
}

void rust_helper_dev_put(struct net_device *dev)
{
	dev_put(dev);
}

/* Only for as long as the caller is in an RCU read-side critical section. */
struct net *rust_helper_dev_net_rcu(const struct net_device *dev)
{
	return dev_net_rcu(dev);
}

/* For comparison only. */
const void *rust_helper_dev_net_id(const struct net_device *dev)
{
	return read_pnet(&dev->nd_net);
}

/* @name has room for IFNAMSIZ bytes. */
void rust_helper_dev_name_copy(const struct net_device *dev, u8 *name)
{
	strscpy(name, dev->name, IFNAMSIZ);
}

int rust_helper_dev_ifindex(const struct net_device *dev)
{
	return READ_ONCE(dev->ifindex);
}

unsigned int rust_helper_dev_mtu(const struct net_device *dev)
{
	return READ_ONCE(dev->mtu);
}

unsigned short rust_helper_dev_type(const struct net_device *dev)
{
	return READ_ONCE(dev->type);
}

unsigned int rust_helper_dev_flags(const struct net_device *dev)
{
	return READ_ONCE(dev->flags);
}

bool rust_helper_netif_running(const struct net_device *dev)
{
	return netif_running(dev);
}

bool rust_helper_netif_carrier_ok(const struct net_device *dev)
{
	return netif_carrier_ok(dev);
}

bool rust_helper_dev_registered(const struct net_device *dev)
{
	return READ_ONCE(dev->reg_state) == NETREG_REGISTERED;
}

bool rust_helper_dev_eth_addr(const struct net_device *dev, u8 *addr)
{
	if (dev->addr_len != ETH_ALEN)
		return false;
	memcpy(addr, dev->dev_addr, ETH_ALEN);
	return true;
}

bool rust_helper_is_vlan_dev(const struct net_device *dev)
{
	return is_vlan_dev(dev);
}

/* With a reference, unlike the original. */
struct net_device *rust_helper_vlan_real_dev_get(const struct net_device *dev)
{
	struct net_device *real;

	if (!is_vlan_dev(dev))
		return NULL;
	real = vlan_dev_real_dev(dev);
	dev_hold(real);
	return real;
}

u16 rust_helper_vlan_dev_vlan_id(const struct net_device *dev)
{
	return is_vlan_dev(dev) ? vlan_dev_vlan_id(dev) : 0;
}

/* With a reference, unlike the original. */
struct net_device *rust_helper_dev_master_get(struct net_device *dev)
{
	struct net_device *master;

	rcu_read_lock();
	master = netdev_master_upper_dev_get_rcu(dev);
	dev_hold(master);
	rcu_read_unlock();
	return master;
}

struct net_device *rust_helper_netdev_notifier_dev(void *info)
{
	return netdev_notifier_info_to_dev(info);
}

/* ---- flows ---------------------------------------------------------------- */

static u64 flow_key __read_mostly;

/*
 * The flow hash of a packet that is sent, which stays with it for as long as it is
 * in the memory of this machine. All packets between two ports have the same, so
 * that no queue lets one overtake another. Who else sends can't know it; should it
 * be guessed, that is as good as to compute an ICRC.
 */
static u32 flow_hash(const struct sk_buff *skb)
{
	u64 sum = flow_key + get_unaligned((u32 *)udp_hdr(skb));
	bool v6 = skb->protocol == htons(ETH_P_IPV6);
	const void *addrs = v6 ? (void *)&ipv6_hdr(skb)->saddr :
				 (void *)&ip_hdr(skb)->saddr;
	const void *end = addrs + 2 * (v6 ? sizeof(struct in6_addr) :
					    sizeof(struct in_addr));

	for (; addrs < end; addrs += sizeof(u64))
		sum = sum * GOLDEN_RATIO_64 + get_unaligned((u64 *)addrs);
	return hash_64(sum, 32);
}

/*
 * Whether a packet was sent with rust_helper_tx_skb_defer_checksum() and has not been
 * out of memory since: no device has needed its checksum, and nothing has damaged
 * it, as who does that on purpose completes the checksum before.
 */
static bool packet_is_local(const struct sk_buff *skb)
{
	return skb->ip_summed == CHECKSUM_PARTIAL && skb->sw_hash &&
	       skb->l4_hash && skb->hash == flow_hash(skb);
}

/* ---- UDP sockets -------------------------------------------------------- */

#ifdef CONFIG_DEBUG_LOCK_ALLOC
static struct lock_class_key udp_encap_lock_keys[2], udp_encap_slock_keys[2];

/*
 * The locks of these sockets are taken with locks of the driver held, which
 * other users of kernel sockets take with locks of theirs held: a class of
 * their own keeps lockdep from seeing a circle. As the keys are in this
 * module, the socket holds a reference to the module, which would keep it from
 * being unloaded. But the module closes its sockets itself.
 */
static void udp_encap_reclassify(struct sock *sk, bool v6)
{
	if (WARN_ON_ONCE(!sock_allow_reclassification(sk)))
		return;
	if (v6)
		sock_lock_init_class_and_name(sk, "slock-AF_INET6-ENCAP",
					      &udp_encap_slock_keys[1],
					      "sk_lock-AF_INET6-ENCAP",
					      &udp_encap_lock_keys[1]);
	else
		sock_lock_init_class_and_name(sk, "slock-AF_INET-ENCAP",
					      &udp_encap_slock_keys[0],
					      "sk_lock-AF_INET-ENCAP",
					      &udp_encap_lock_keys[0]);
	sk_owner_put(sk);
	sk_owner_clear(sk);
}
#else
static void udp_encap_reclassify(struct sock *sk, bool v6)
{
}
#endif

/*
 * -EAFNOSUPPORT: no IPv6, whether it was left out or switched off.
 */
int rust_helper_udp_encap_open(struct net *net, bool v6, u16 port,
			       void *user_data, udp_tunnel_encap_rcv_t rcv,
			       struct sock **sk)
{
	struct udp_tunnel_sock_cfg tunnel = {
		.sk_user_data = user_data,
		.encap_type = 1,
		.encap_rcv = rcv,
	};
	struct udp_port_cfg cfg = {
		.family = v6 ? AF_INET6 : AF_INET,
		.local_udp_port = htons(port),
		.ipv6_v6only = v6,
	};
	struct socket *sock;
	int err;

	if (v6 && !ipv6_mod_enabled())
		return -EAFNOSUPPORT;
	/* Nothing is sent before that. */
	get_random_once(&flow_key, sizeof(flow_key));
	err = udp_sock_create(net, &cfg, &sock);
	if (err < 0)
		return err;
	udp_encap_reclassify(sock->sk, v6);
	setup_udp_tunnel_sock(net, sock->sk, &tunnel);
	*sk = sock->sk;
	return 0;
}

/* Joins or leaves a group on a device. */
int rust_helper_udp_mc_member(struct sock *sk, bool join, int ifindex,
			      const u8 *group)
{
	int err;

	rtnl_lock();
	lock_sock(sk);
	if (sk->sk_family == AF_INET) {
		struct ip_mreqn mreq = {
			.imr_multiaddr.s_addr =
				get_unaligned((__be32 *)group),
			.imr_ifindex = ifindex,
		};

		err = join ? ip_mc_join_group(sk, &mreq) :
			     ip_mc_leave_group(sk, &mreq);
	} else {
#if IS_ENABLED(CONFIG_IPV6)
		struct in6_addr addr;

		memcpy(&addr, group, sizeof(addr));
		err = join ? ipv6_sock_mc_join(sk, ifindex, &addr) :
			     ipv6_sock_mc_drop(sk, ifindex, &addr);
#else
		err = -EAFNOSUPPORT;
#endif
	}
	release_sock(sk);
	rtnl_unlock();
	return err;
}

void *rust_helper_sk_user_data(struct sock *sk)
{
	return rcu_dereference_sk_user_data(sk);
}

/* ---- receiving ---------------------------------------------------------- */

void rust_helper_rx_skb_view(const struct sk_buff *skb, struct rx_view *view)
{
	*view = (struct rx_view) {
		.ip = skb_network_header(skb),
		.data = skb->data,
		.linear = skb_headlen(skb),
		.settled = !skb_has_shared_frag(skb) && !skb_has_frag_list(skb),
	};
}

/*
 * Takes a packet over from UDP, with the data at the UDP header. Afterwards
 * they begin at its payload, and the packet has no ties to what is valid for
 * the RCU read-side critical section only.
 */
void rust_helper_rx_skb_take(struct sk_buff *skb, struct rx_taken *taken)
{
	unsigned int len = udp_get_len_short(udp_hdr(skb));

	taken->dev = skb->dev;
	taken->segment = skb_is_gso(skb) ? skb_shinfo(skb)->gso_size : 0;
	taken->eth = skb->dev->type == ARPHRD_ETHER &&
		     skb_mac_header_was_set(skb) &&
		     skb_network_header(skb) - skb_mac_header(skb) >= ETH_HLEN;
	taken->local = packet_is_local(skb);
	/* What UDP made of a GSO packet is still on a list. */
	skb_mark_not_on_list(skb);
	skb_orphan(skb);
	skb_dst_drop(skb);
	skb->dev = NULL;
	/* Zero stands for a length that sixteen bits can't express. */
	if (!len || taken->segment)
		len = skb->len;
	__skb_pull(skb, sizeof(struct udphdr));
	len -= min_t(unsigned int, len, sizeof(struct udphdr));
	taken->len = min(len, skb->len);
	rust_helper_rx_skb_view(skb, &taken->view);
}

void rust_helper_skb_discard(struct sk_buff *skb)
{
	kfree_skb(skb);
}

struct sk_buff *rust_helper_skb_share(struct sk_buff *skb)
{
	return skb_clone(skb, GFP_ATOMIC);
}

void rust_helper_skb_consume(struct sk_buff *skb)
{
	consume_skb(skb);
}

const u8 *rust_helper_skb_mac_header(const struct sk_buff *skb)
{
	return skb_mac_header(skb);
}

bool rust_helper_skb_vlan_tag(const struct sk_buff *skb, u16 *tci)
{
	if (!skb_vlan_tag_present(skb))
		return false;
	*tci = skb_vlan_tag_get(skb);
	return true;
}

/* Makes the data linear. */
int rust_helper_skb_linearize(struct sk_buff *skb)
{
	return skb_linearize(skb);
}

/*
 * Looks the piece of memory up that byte @offset of the data is in. Returns whether
 * there is one that can be read.
 */
bool rust_helper_skb_piece(const struct sk_buff *skb, unsigned int offset,
			   struct rx_piece *piece)
{
	const struct skb_shared_info *shinfo = skb_shinfo(skb);
	unsigned int from = skb_headlen(skb), i;

	if (offset < from) {
		*piece = (struct rx_piece){ .data = skb->data, .len = from };
		return true;
	}
	if (!skb_frags_readable(skb))
		return false;
	for (i = 0; i < shinfo->nr_frags; i++) {
		const skb_frag_t *frag = &shinfo->frags[i];
		unsigned int size = skb_frag_size(frag);
		const u8 *data;

		if (offset - from >= size) {
			from += size;
			continue;
		}
		data = skb_frag_address_safe(frag);
		if (data)
			*piece = (struct rx_piece){ data, from, size };
		return data;
	}
	return false;
}

/* ---- routes ------------------------------------------------------------- */

static int flow_oif(struct net_device *dev, bool bind)
{
	return bind ? dev->ifindex : l3mdev_master_ifindex_rcu(dev);
}

struct dst_entry *rust_helper_route_lookup4(struct net_device *dev, bool bind,
					    const u8 *saddr, const u8 *daddr,
					    u8 tos, u16 sport, u16 dport,
					    u32 mark)
{
	struct flowi4 fl4 = {
		.flowi4_proto = IPPROTO_UDP,
		.flowi4_dscp = inet_dsfield_to_dscp(tos),
		.flowi4_mark = mark,
		.saddr = get_unaligned((__be32 *)saddr),
		.daddr = get_unaligned((__be32 *)daddr),
		.fl4_sport = htons(sport),
		.fl4_dport = htons(dport),
	};
	struct rtable *rt;
	struct net *net;

	rcu_read_lock();
	net = dev_net_rcu(dev);
	fl4.flowi4_oif = flow_oif(dev, bind);
	fl4.flowi4_uid = sock_net_uid(net, NULL);
	rt = ip_route_output_flow(net, &fl4, NULL);
	rcu_read_unlock();
	return IS_ERR(rt) ? ERR_CAST(rt) : &rt->dst;
}

struct dst_entry *rust_helper_route_lookup6(struct net_device *dev, bool bind,
					    const u8 *saddr, const u8 *daddr,
					    u8 tos, u32 flow_label, u16 sport,
					    u16 dport, u32 mark, u32 *cookie)
{
#if IS_ENABLED(CONFIG_IPV6)
	struct flowi6 fl6 = {
		.flowi6_proto = IPPROTO_UDP,
		.flowi6_mark = mark,
		.flowlabel = ip6_make_flowinfo(tos, htonl(flow_label) &
						    IPV6_FLOWLABEL_MASK),
		.fl6_sport = htons(sport),
		.fl6_dport = htons(dport),
	};
	struct dst_entry *dst;
	struct net *net;

	memcpy(&fl6.saddr, saddr, sizeof(fl6.saddr));
	memcpy(&fl6.daddr, daddr, sizeof(fl6.daddr));
	rcu_read_lock();
	net = dev_net_rcu(dev);
	fl6.flowi6_oif = flow_oif(dev, bind);
	fl6.flowi6_uid = sock_net_uid(net, NULL);
	dst = ip6_dst_lookup_flow(net, NULL, &fl6, NULL);
	if (!IS_ERR(dst))
		*cookie = rt6_get_cookie(dst_rt6_info(dst));
	rcu_read_unlock();
	return dst;
#else
	return ERR_PTR(-EAFNOSUPPORT);
#endif
}

void rust_helper_dst_hold(struct dst_entry *dst)
{
	dst_hold(dst);
}

bool rust_helper_dst_valid(struct dst_entry *dst, u32 cookie)
{
	bool valid;

	rcu_read_lock();
	valid = dst_check(dst, cookie);
	rcu_read_unlock();
	return valid;
}

unsigned int rust_helper_dst_mtu(const struct dst_entry *dst)
{
	unsigned int mtu;

	rcu_read_lock();
	mtu = dst_mtu(dst);
	rcu_read_unlock();
	return mtu;
}

/* With a reference. */
struct net_device *rust_helper_dst_dev_get(const struct dst_entry *dst)
{
	struct net_device *dev;

	rcu_read_lock();
	dev = dst_dev_rcu(dst);
	dev_hold(dev);
	rcu_read_unlock();
	return dev;
}

bool rust_helper_dst_dev_is(const struct dst_entry *dst,
			    const struct net_device *dev)
{
	return rcu_access_pointer(dst->dev_rcu) == dev;
}

bool rust_helper_dst_is_local(const struct dst_entry *dst, bool v6)
{
#if IS_ENABLED(CONFIG_IPV6)
	if (v6)
		return dst_rt6_info(dst)->rt6i_flags & RTF_LOCAL;
#endif
	return dst_rtable(dst)->rt_flags & RTCF_LOCAL;
}

/* What lower layers want in front of the IP header. */
unsigned int rust_helper_dst_link_room(const struct dst_entry *dst)
{
	unsigned int room;

	rcu_read_lock();
	room = LL_RESERVED_SPACE(dst_dev_rcu(dst)) + dst->header_len;
	rcu_read_unlock();
	return room;
}

/*
 * The most bytes, headers included, that the device takes as a train to be
 * segmented by itself or by whoever gets it; 0 if it doesn't.
 */
unsigned int rust_helper_dst_train_room(const struct dst_entry *dst, bool v6)
{
	unsigned int room = 0;
	struct net_device *dev;

	rcu_read_lock();
	dev = dst_dev_rcu(dst);
	if (dev->features & NETIF_F_GSO_UDP_L4)
		room = v6 ? READ_ONCE(dev->gso_max_size) :
			    READ_ONCE(dev->gso_ipv4_max_size);
	rcu_read_unlock();
	return room;
}

/* ---- transmitting ------------------------------------------------------- */

struct sk_buff *rust_helper_tx_skb_alloc(unsigned int link_room,
					 unsigned int headers,
					 unsigned int payload, gfp_t gfp)
{
	unsigned int room = (link_room ?: LL_MAX_HEADER) + headers;
	struct sk_buff *skb = alloc_skb(room + payload, gfp);

	if (skb)
		skb_reserve(skb, room);
	return skb;
}

/* NULL if it doesn't fit. */
u8 *rust_helper_tx_skb_put(struct sk_buff *skb, unsigned int n)
{
	if (n > skb_tailroom(skb))
		return NULL;
	return skb_put(skb, n);
}

unsigned int rust_helper_skb_tailroom(const struct sk_buff *skb)
{
	return skb_tailroom(skb);
}

void rust_helper_tx_skb_set_priority(struct sk_buff *skb, u32 priority)
{
	skb->priority = priority;
}

void rust_helper_tx_skb_set_mark(struct sk_buff *skb, u32 mark)
{
	skb->mark = mark;
}

/* The order of the pages that trains are made in: as large as are cached a CPU. */
#define TRAIN_ORDER min(get_order(SZ_32K), PAGE_ALLOC_COSTLY_ORDER)

/*
 * Room for @n more bytes behind what is there, in pages unless it was allocated
 * with room for them; NULL if there is none. A packet is never spread over several.
 */
u8 *rust_helper_tx_skb_reserve(struct sk_buff *skb, unsigned int n)
{
	struct skb_shared_info *shinfo = skb_shinfo(skb);
	unsigned int i = shinfo->nr_frags, order = TRAIN_ORDER;
	struct page *page;

	if (!i && n <= skb_tailroom(skb))
		return skb_tail_pointer(skb);
	if (i) {
		const skb_frag_t *frag = &shinfo->frags[i - 1];
		unsigned int used = skb_frag_off(frag) + skb_frag_size(frag);

		page = skb_frag_page(frag);
		if (n <= page_size(page) - used)
			return (u8 *)page_address(page) + used;
	}
	if (i >= MAX_SKB_FRAGS || n > PAGE_SIZE << order)
		return NULL;
	page = alloc_pages(GFP_ATOMIC | __GFP_COMP | __GFP_NOWARN | __GFP_NORETRY,
			   order);
	if (!page) {
		order = get_order(n);
		page = alloc_pages(GFP_ATOMIC | __GFP_COMP | __GFP_NOWARN,
				   order);
	}
	if (!page)
		return NULL;
	skb_fill_page_desc(skb, i, page, 0, 0);
	skb->truesize += page_size(page);
	return page_address(page);
}

/* What was reserved is not used. */
void rust_helper_tx_skb_cancel(struct sk_buff *skb)
{
	struct skb_shared_info *shinfo = skb_shinfo(skb);
	const skb_frag_t *frag;
	struct page *page;

	if (!shinfo->nr_frags)
		return;
	frag = &shinfo->frags[shinfo->nr_frags - 1];
	if (skb_frag_size(frag))
		return;
	page = skb_frag_page(frag);
	shinfo->nr_frags--;
	skb->truesize -= page_size(page);
	put_page(page);
}

/* What was reserved is used. */
void rust_helper_tx_skb_commit(struct sk_buff *skb, unsigned int n)
{
	struct skb_shared_info *shinfo = skb_shinfo(skb);

	if (!shinfo->nr_frags) {
		__skb_put(skb, n);
		return;
	}
	skb_frag_size_add(&shinfo->frags[shinfo->nr_frags - 1], n);
	skb->len += n;
	skb->data_len += n;
}

/*
 * Puts IP and UDP headers in front. The caller has seen to it that there is
 * room for them and that the length of the packet fits in 16 bits.
 */
void rust_helper_tx_skb_finish(struct sk_buff *skb, struct dst_entry *dst,
			       const u8 *headers, bool v6)
{
	const unsigned int len4 = sizeof(struct iphdr) + sizeof(struct udphdr);
	const unsigned int len6 = sizeof(struct ipv6hdr) + sizeof(struct udphdr);

	/* In either case the compiler knows how long the copy is. */
	if (v6) {
		memcpy(skb_push(skb, len6), headers, len6);
		skb_set_transport_header(skb, sizeof(struct ipv6hdr));
		memset(IP6CB(skb), 0, sizeof(*IP6CB(skb)));
		skb->protocol = htons(ETH_P_IPV6);
	} else {
		memcpy(skb_push(skb, len4), headers, len4);
		skb_set_transport_header(skb, sizeof(struct iphdr));
		memset(IPCB(skb), 0, sizeof(*IPCB(skb)));
		skb->protocol = htons(ETH_P_IP);
	}
	skb_reset_network_header(skb);
	__skb_set_sw_hash(skb, flow_hash(skb), true);
	skb_dst_set(skb, dst_clone(dst));
}

/* Lets a finished packet have a checksum that is computed when it leaves memory. */
void rust_helper_tx_skb_defer_checksum(struct sk_buff *skb, bool v6)
{
	unsigned int len = skb->len - skb_transport_offset(skb);
	struct udphdr *udp = udp_hdr(skb);

	skb->ip_summed = CHECKSUM_PARTIAL;
	skb->csum_start = skb_transport_header(skb) - skb->head;
	skb->csum_offset = offsetof(struct udphdr, check);
	if (v6)
		udp->check = ~udp_v6_check(len, &ipv6_hdr(skb)->saddr,
					   &ipv6_hdr(skb)->daddr, 0);
	else
		udp->check = ~udp_v4_check(len, ip_hdr(skb)->saddr,
					   ip_hdr(skb)->daddr, 0);
}

/*
 * Lets the payload of a finished packet be @count packets of @size bytes, the
 * last of them perhaps of fewer. Segmentation offload wants the checksum to be
 * an offload as well.
 */
void rust_helper_tx_skb_make_train(struct sk_buff *skb, unsigned int size,
				   unsigned int count, bool v6)
{
	struct skb_shared_info *shinfo = skb_shinfo(skb);

	shinfo->gso_size = size;
	shinfo->gso_segs = count;
	shinfo->gso_type = SKB_GSO_UDP_L4;
	rust_helper_tx_skb_defer_checksum(skb, v6);
}

/* Consumes the packet. */
int rust_helper_tx_skb_send(struct sk_buff *skb)
{
	struct net *net;
	int ret;

	rcu_read_lock();
	net = dev_net_rcu(skb_dst_dev_rcu(skb));
#if IS_ENABLED(CONFIG_IPV6)
	if (skb->protocol == htons(ETH_P_IPV6))
		ret = ip6_local_out(net, NULL, skb);
	else
#endif
		ret = ip_local_out(net, NULL, skb);
	rcu_read_unlock();
	return ret;
}

/* ---- CRC-32 --------------------------------------------------------------- */

#ifdef RXO_UML_CRC
/*
 * User Mode Linux has the machine's instructions and may use them at any time,
 * but is built without the functions of x86 that do.
 */
#include <asm/cpufeature.h>
#include "crc-pclmul-consts.h"

typedef u32 (*uml_crc_fn)(u32 crc, const u8 *p, size_t len, const void *consts);
u32 crc32_lsb_pclmul_sse(u32 crc, const u8 *p, size_t len, const void *consts);
u32 crc32_lsb_vpclmul_avx2(u32 crc, const u8 *p, size_t len, const void *consts);
u32 crc32_lsb_vpclmul_avx512(u32 crc, const u8 *p, size_t len, const void *consts);

static uml_crc_fn uml_crc(void)
{
	bool wide = boot_cpu_has(X86_FEATURE_VPCLMULQDQ);

	if (wide && boot_cpu_has(X86_FEATURE_AVX512BW) &&
	    boot_cpu_has(X86_FEATURE_AVX512VL))
		return crc32_lsb_vpclmul_avx512;
	if (wide && boot_cpu_has(X86_FEATURE_AVX2))
		return crc32_lsb_vpclmul_avx2;
	if (boot_cpu_has(X86_FEATURE_PCLMULQDQ) &&
	    boot_cpu_has(X86_FEATURE_XMM4_1))
		return crc32_lsb_pclmul_sse;
	return NULL;
}
#endif

bool rust_helper_crc32_has_fast_le(void)
{
#ifdef RXO_UML_CRC
	if (uml_crc())
		return true;
#endif
	return crc32_optimizations() & CRC32_LE_OPTIMIZATION;
}

u32 rust_helper_crc32_fast_le(u32 crc, const u8 *p, size_t len)
{
#ifdef RXO_UML_CRC
	uml_crc_fn fast = uml_crc();

	/* They take no less. */
	if (fast && len >= 16)
		return fast(crc, p, len,
			    crc32_lsb_0xedb88320_consts.fold_across_128_bits_consts);
#endif
	return crc32_le(crc, p, len);
}
