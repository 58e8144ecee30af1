// SPDX-License-Identifier: GPL-2.0
/* How the net crate takes packets before UDP does. */

#include <linux/jiffies.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/percpu.h>
#include <linux/skbuff.h>
#include <linux/slab.h>
#include <net/dst.h>
#include <net/ip.h>
#include <net/ip6_fib.h>
#include <net/ip_fib.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <net/udp.h>
#include <net/xfrm.h>

/*
 * The route of packets that came before, as IP has it for connected sockets (early
 * demultiplexing): a socket of a port gets them from everyone. It is of use for a
 * second, so that what routes don't tell of is looked at again, such as a filter of
 * sources that was switched on.
 */
struct tap_route {
	struct dst_entry *dst;
	unsigned long until;
	struct in6_addr saddr, daddr;
	u32 cookie;
	int iif;
	u8 tos;
};

#define TAP_ROUTES 16
#define TAP_ROUTE_LIFE HZ

/*
 * Those that a CPU has seen: bottom halves are disabled for who uses them.
 *
 * @missed: the packet that none was there for last
 * @key: what that one's would say
 */
struct tap_routes {
	const struct sk_buff *missed;
	struct tap_route key;
	struct tap_route of[TAP_ROUTES];
};

struct udp_tap {
	struct nf_hook_ops ops[2];
	struct net *net;
	void *user_data;
	int (*rcv)(void *user_data, struct sk_buff *skb);
	struct tap_routes __percpu *routes;
	__be16 port;
};

#if IS_ENABLED(CONFIG_NETFILTER)
/* Whether the route of a packet depends on no more than a tap_route tells. */
static bool tap_keeps(const struct udp_tap *tap, const struct sk_buff *skb,
		      bool v6)
{
	const struct net *net = tap->net;

	/* On a preemptible kernel bottom halves don't exclude each other. */
	return !IS_ENABLED(CONFIG_PREEMPT_RT) && in_softirq() &&
	       READ_ONCE(net->ipv4.sysctl_ip_early_demux) &&
	       READ_ONCE(net->ipv4.sysctl_udp_early_demux) &&
	       !netif_is_l3_master(skb->dev) && !netif_is_l3_slave(skb->dev) &&
	       !(v6 ? fib6_has_custom_rules(net) : fib4_has_custom_rules(net));
}

/* Where that of a packet with a complete IP header is. */
static struct tap_route *tap_route_of(struct tap_routes *routes,
				      const struct sk_buff *skb, bool v6)
{
	__be32 hash;

	if (v6)
		hash = ipv6_hdr(skb)->saddr.s6_addr32[3] ^
		       ipv6_hdr(skb)->daddr.s6_addr32[3];
	else
		hash = ip_hdr(skb)->saddr ^ ip_hdr(skb)->daddr;
	return &routes->of[ntohl(hash) % TAP_ROUTES];
}

static void tap_route_fill(struct tap_route *route, const struct sk_buff *skb,
			   bool v6)
{
	route->iif = skb->dev->ifindex;
	if (v6) {
		route->tos = ipv6_get_dsfield(ipv6_hdr(skb));
		route->saddr = ipv6_hdr(skb)->saddr;
		route->daddr = ipv6_hdr(skb)->daddr;
	} else {
		route->tos = ip_hdr(skb)->tos;
		route->saddr.s6_addr32[3] = ip_hdr(skb)->saddr;
		route->daddr.s6_addr32[3] = ip_hdr(skb)->daddr;
	}
}

static bool tap_route_fits(const struct tap_route *route,
			   const struct sk_buff *skb, bool v6)
{
	if (route->iif != skb->dev->ifindex)
		return false;
	if (v6) {
		const struct ipv6hdr *ip6 = ipv6_hdr(skb);

		return route->tos == ipv6_get_dsfield(ip6) &&
		       ipv6_addr_equal(&route->saddr, &ip6->saddr) &&
		       ipv6_addr_equal(&route->daddr, &ip6->daddr);
	} else {
		const struct iphdr *ip = ip_hdr(skb);

		return route->tos == ip->tos &&
		       route->saddr.s6_addr32[3] == ip->saddr &&
		       route->daddr.s6_addr32[3] == ip->daddr;
	}
}

/* Before IP looks the route of a packet up. */
static unsigned int udp_tap_early(void *priv, struct sk_buff *skb,
				  const struct nf_hook_state *state)
{
	bool v6 = state->pf != NFPROTO_IPV4;
	const struct udp_tap *tap = priv;
	struct tap_routes *routes;
	struct tap_route *route;
	unsigned int ip_len;

	if (skb->_skb_refdst || skb->sk || skb->pkt_type != PACKET_HOST)
		return NF_ACCEPT;
	if (v6) {
		if (ipv6_hdr(skb)->nexthdr != IPPROTO_UDP)
			return NF_ACCEPT;
		ip_len = sizeof(struct ipv6hdr);
	} else {
		const struct iphdr *ip = ip_hdr(skb);

		if (ip->protocol != IPPROTO_UDP || ip->ihl != 5 ||
		    ip_is_fragment(ip))
			return NF_ACCEPT;
		ip_len = sizeof(*ip);
	}
	if (skb_headlen(skb) < ip_len + sizeof(struct udphdr) ||
	    ((struct udphdr *)(skb_network_header(skb) + ip_len))->dest != tap->port ||
	    !tap_keeps(tap, skb, v6))
		return NF_ACCEPT;
	routes = this_cpu_ptr(tap->routes);
	route = tap_route_of(routes, skb, v6);
	if (route->dst && time_before(jiffies, route->until) &&
	    tap_route_fits(route, skb, v6) &&
	    dst_check(route->dst, route->cookie)) {
		skb_dst_set_noref(skb, route->dst);
		return NF_ACCEPT;
	}
	routes->missed = skb;
	tap_route_fill(&routes->key, skb, v6);
	return NF_ACCEPT;
}

/* A packet that there was no route for has come by its own; what it says may be new. */
static void tap_learn(const struct udp_tap *tap, const struct sk_buff *skb,
		      bool v6)
{
	struct dst_entry *dst = skb_dst(skb);
	struct tap_routes *routes;
	struct tap_route *route;

	if (!tap_keeps(tap, skb, v6))
		return;
	routes = this_cpu_ptr(tap->routes);
	routes->missed = NULL;
	if (!tap_route_fits(&routes->key, skb, v6) || !dst || dst->lwtstate ||
	    dst->error || !dst_hold_safe(dst))
		return;
	route = tap_route_of(routes, skb, v6);
	dst_release(route->dst);
	*route = routes->key;
	route->dst = dst;
	route->until = jiffies + TAP_ROUTE_LIFE;
#if IS_ENABLED(CONFIG_IPV6)
	if (v6)
		route->cookie = rt6_get_cookie(dst_rt6_info(dst));
#endif
}

/*
 * UDP takes a train apart before a socket with an encapsulation callback gets
 * it, so such trains, and for speed also what else is for this host alone, are
 * taken from IP after the last hook of a firewall, and with the checks that UDP
 * makes for encapsulation. The rest goes to the socket: packets of a group, of
 * which it is to be a member, and what is unusual.
 */
static unsigned int udp_tap_hook(void *priv, struct sk_buff *skb,
				 const struct nf_hook_state *state)
{
	const struct udp_tap *tap = priv;
	unsigned int ip_len;
	struct udphdr *udp;

	if (skb->pkt_type != PACKET_HOST && skb->pkt_type != PACKET_LOOPBACK)
		return NF_ACCEPT;
	if (skb_is_gso(skb) &&
	    (skb_shinfo(skb)->gso_type & (SKB_GSO_UDP_L4 | SKB_GSO_FRAGLIST)) !=
		    SKB_GSO_UDP_L4)
		return NF_ACCEPT;
	if (state->pf == NFPROTO_IPV4) {
		const struct iphdr *ip = ip_hdr(skb);

		if (ip->protocol != IPPROTO_UDP ||
		    ipv4_is_multicast(ip->daddr) || ipv4_is_lbcast(ip->daddr))
			return NF_ACCEPT;
		ip_len = ip->ihl * 4;
	} else {
		const struct ipv6hdr *ip6 = ipv6_hdr(skb);

		if (ip6->nexthdr != IPPROTO_UDP ||
		    ipv6_addr_is_multicast(&ip6->daddr))
			return NF_ACCEPT;
		ip_len = sizeof(*ip6);
	}
	if (skb_network_offset(skb) ||
	    !pskb_may_pull(skb, ip_len + sizeof(struct udphdr)))
		return NF_ACCEPT;
	udp = (struct udphdr *)(skb_network_header(skb) + ip_len);
	if (udp->dest != tap->port)
		return NF_ACCEPT;
	if (state->pf == NFPROTO_IPV4) {
		if (!xfrm4_policy_check(NULL, XFRM_POLICY_IN, skb))
			return NF_DROP;
	} else {
#if IS_ENABLED(CONFIG_IPV6)
		if (!xfrm6_policy_check(NULL, XFRM_POLICY_IN, skb))
			return NF_DROP;
#endif
	}
	if (unlikely(raw_cpu_read(tap->routes->missed) == skb))
		tap_learn(tap, skb, state->pf != NFPROTO_IPV4);
	nf_reset_ct(skb);
	skb_set_transport_header(skb, ip_len);
	__skb_pull(skb, ip_len);
	tap->rcv(tap->user_data, skb);
	return NF_STOLEN;
}
#endif

/* Context: process. NULL if there is no netfilter. */
int rust_helper_udp_tap_open(struct sock *sk, void *user_data,
			     int (*rcv)(void *user_data, struct sk_buff *skb),
			     void **out)
{
#if IS_ENABLED(CONFIG_NETFILTER)
	struct udp_tap *tap = kzalloc(sizeof(*tap), GFP_KERNEL);
	unsigned int i;
	int err;

	if (!tap)
		return -ENOMEM;
	tap->routes = alloc_percpu(struct tap_routes);
	if (!tap->routes) {
		kfree(tap);
		return -ENOMEM;
	}
	tap->net = sock_net(sk);
	tap->user_data = user_data;
	tap->rcv = rcv;
	tap->port = inet_sk(sk)->inet_sport;
	tap->ops[0].hook = udp_tap_hook;
	tap->ops[0].hooknum = NF_INET_LOCAL_IN;
	tap->ops[1].hook = udp_tap_early;
	tap->ops[1].hooknum = NF_INET_PRE_ROUTING;
	for (i = 0; i < ARRAY_SIZE(tap->ops); i++) {
		tap->ops[i].priv = tap;
		tap->ops[i].pf = sk->sk_family == AF_INET ? NFPROTO_IPV4 :
							    NFPROTO_IPV6;
		tap->ops[i].priority = INT_MAX;
	}
	err = nf_register_net_hooks(tap->net, tap->ops, ARRAY_SIZE(tap->ops));
	if (err) {
		free_percpu(tap->routes);
		kfree(tap);
		return err;
	}
	*out = tap;
#else
	*out = NULL;
#endif
	return 0;
}

/* The callback may still be called for a grace period. */
void rust_helper_udp_tap_close(void *priv)
{
#if IS_ENABLED(CONFIG_NETFILTER)
	struct udp_tap *tap = priv;

	nf_unregister_net_hooks(tap->net, tap->ops, ARRAY_SIZE(tap->ops));
#endif
}

/* A grace period after it was closed. */
void rust_helper_udp_tap_free(void *priv)
{
	struct udp_tap *tap = priv;
	unsigned int i;
	int cpu;

	for_each_possible_cpu(cpu)
		for (i = 0; i < TAP_ROUTES; i++)
			dst_release(per_cpu_ptr(tap->routes, cpu)->of[i].dst);
	free_percpu(tap->routes);
	kfree(tap);
}
