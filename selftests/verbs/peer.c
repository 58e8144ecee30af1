// SPDX-License-Identifier: GPL-2.0
/*
 * A peer that sends what it likes: packets of host B, with a valid ICRC most of
 * the time, to queue pairs of host A in every state. Some continue what the
 * queue pair expects, some nearly so, some are old ones, some are noise.
 *
 * What no key grants must stay as it is, each work request must complete once
 * at most and in order, and queue pairs between the hosts must work meanwhile.
 *
 * PACKETS=n    how many
 * RXO_SEED=n   to have the same again
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include "rig.h"

#define POISON 0xa5
#define PAGE 4096
#define FAKE_QPN 0xf00000	/* at host B, where no queue pair is */

static uint64_t rng;

static uint64_t rnd(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

static bool one_in(unsigned int n)
{
	return rnd() % n == 0;
}

/* ---- packets -------------------------------------------------------------- */

static uint32_t crc_table[256];

static void crc_init(void)
{
	uint32_t i, k, c;

	for (i = 0; i < 256; i++) {
		for (c = i, k = 0; k < 8; k++)
			c = c & 1 ? c >> 1 ^ 0xedb88320 : c >> 1;
		crc_table[i] = c;
	}
}

static uint32_t crc(uint32_t c, const uint8_t *p, size_t n)
{
	while (n--)
		c = crc_table[(c ^ *p++) & 0xff] ^ c >> 8;
	return c;
}

struct packet {
	uint8_t b[4800];
	size_t len;	/* all of it, from the IP header on */
};

static size_t ip_len(void)
{
	return ip_version == 4 ? 20 : 40;
}

static uint8_t *bth(struct packet *p)
{
	return p->b + ip_len() + 8;
}

static void put16(uint8_t *p, uint32_t v)
{
	p[0] = v >> 8;
	p[1] = v;
}

static void put24(uint8_t *p, uint32_t v)
{
	p[0] = v >> 16;
	put16(p + 1, v);
}

static void put32(uint8_t *p, uint32_t v)
{
	put16(p, v >> 16);
	put16(p + 2, v);
}

static void put64(uint8_t *p, uint64_t v)
{
	put32(p, v >> 32);
	put32(p + 4, v);
}

/* IP and UDP headers before a payload of n bytes, its ICRC included. */
static void envelope(struct packet *p, size_t n)
{
	uint8_t *ip = p->b, *udp = ip + ip_len();

	memset(ip, 0, ip_len() + 8);
	p->len = ip_len() + 8 + n;
	if (ip_version == 4) {
		ip[0] = 0x45;
		put16(ip + 2, p->len);
		put16(ip + 4, 1 + rnd() % 65535);
		ip[6] = 0x40;
		ip[8] = 64;
		ip[9] = IPPROTO_UDP;
		memcpy(ip + 12, host_b.gid.raw + 12, 4);
		memcpy(ip + 16, host_a.gid.raw + 12, 4);
	} else {
		ip[0] = 0x60;
		put16(ip + 4, 8 + n);
		ip[6] = IPPROTO_UDP;
		ip[7] = 64;
		memcpy(ip + 8, host_b.gid.raw, 16);
		memcpy(ip + 24, host_a.gid.raw, 16);
	}
	put16(udp, 0xc000 | (rnd() & 0x3fff));
	put16(udp + 2, 4791);
	put16(udp + 4, 8 + n);
}

/* The ICRC over what is there (A17.3.2), and the UDP checksum that IPv6 wants. */
static void seal(struct packet *p, bool good)
{
	static const uint8_t ones[8] = { 255, 255, 255, 255, 255, 255, 255,
					 255 };
	size_t end = p->len - 4, at = ip_len() + 8;
	uint8_t h[60];
	uint32_t c = ~0u;

	memcpy(h, p->b, at + 12 < p->len ? at + 12 : p->len);
	if (ip_version == 4) {
		h[1] = h[8] = 255;
		put16(h + 10, 0xffff);
	} else {
		h[0] |= 0x0f;
		h[1] = h[2] = h[3] = h[7] = 255;
	}
	put16(h + ip_len() + 6, 0xffff);
	if (at + 4 < end)
		h[at + 4] = 255;
	c = crc(c, ones, 8);
	c = crc(c, h, end < at + 12 ? end : at + 12);
	if (end > at + 12)
		c = crc(c, p->b + at + 12, end - at - 12);
	c = ~c;
	if (!good)
		c ^= 1u << rnd() % 32;
	p->b[end] = c;
	p->b[end + 1] = c >> 8;
	p->b[end + 2] = c >> 16;
	p->b[end + 3] = c >> 24;
	if (ip_version == 6) {
		uint8_t *udp = p->b + 40;
		uint32_t sum = IPPROTO_UDP + (p->len - 40);
		size_t i;

		put16(udp + 6, 0);
		for (i = 8; i < 40; i += 2)
			sum += p->b[i] << 8 | p->b[i + 1];
		for (i = 40; i < p->len; i++)
			sum += i & 1 ? p->b[i] : p->b[i] << 8;
		while (sum >> 16)
			sum = (sum & 0xffff) + (sum >> 16);
		sum = ~sum & 0xffff;
		put16(udp + 6, sum ? sum : 0xffff);
	}
}

static int raw_fd = -1;
static uint64_t sent;
/* Only what UDP takes, so that it can be counted at the other end. */
static bool whole;
/* For packets that travel as one, over IPv6: the ICRC covers nothing there that
 * a process doesn't know. */
static int train_fd = -1;
static uint16_t train_port;
static uint64_t trains;

/* A socket of host B's namespace. */
static int open_there(int *out, int family, int type, int protocol)
{
	char path[128];
	int fd, old = open("/proc/self/ns/net", O_RDONLY);

	snprintf(path, sizeof(path), "/run/netns/%s", host_b.ns);
	fd = open(path, O_RDONLY);
	check(old >= 0 && fd >= 0);
	check_ok(setns(fd, CLONE_NEWNET));
	*out = socket(family, type, protocol);
	check_ok(setns(old, CLONE_NEWNET));
	close(fd);
	close(old);
	if (*out < 0)
		fail("no socket: %s", strerror(errno));
	return 0;
}

/* One of UDP over IPv6, from a port of host B (0: any) to the device of A. */
static int open_udp6(int *out, uint16_t *port)
{
	struct sockaddr_in6 to = { .sin6_family = AF_INET6,
				   .sin6_port = htons(4791) },
			    from = { .sin6_family = AF_INET6,
				     .sin6_port = htons(*port) };
	socklen_t n = sizeof(from);

	run_ok(open_there(out, AF_INET6, SOCK_DGRAM, 0));
	memcpy(&from.sin6_addr, host_b.gid.raw, 16);
	memcpy(&to.sin6_addr, host_a.gid.raw, 16);
	check_ok(bind(*out, (void *)&from, n));
	check_ok(connect(*out, (void *)&to, sizeof(to)));
	check_ok(getsockname(*out, (void *)&from, &n));
	*port = ntohs(from.sin6_port);
	return 0;
}

static int raw_open(void)
{
	run_ok(open_there(&raw_fd, ip_version == 4 ? AF_INET : AF_INET6,
			  SOCK_RAW, IPPROTO_RAW));
	return ip_version == 4 ? 0 : open_udp6(&train_fd, &train_port);
}

static void transmit(struct packet *p)
{
	struct sockaddr_in a4 = { .sin_family = AF_INET };
	struct sockaddr_in6 a6 = { .sin6_family = AF_INET6 };
	ssize_t n;

	memcpy(&a4.sin_addr, host_a.gid.raw + 12, 4);
	memcpy(&a6.sin6_addr, host_a.gid.raw, 16);
	if (ip_version == 4)
		n = sendto(raw_fd, p->b, p->len, 0, (void *)&a4, sizeof(a4));
	else
		n = sendto(raw_fd, p->b, p->len, 0, (void *)&a6, sizeof(a6));
	sent += n == (ssize_t)p->len;
}

/* ---- memory --------------------------------------------------------------- */

/*
 * Pages: 8 that the peer may access, 8 that it may read, 8 of another
 * protection domain, 24 where receives and results of READs go, with gaps;
 * pages of canaries before, between and behind.
 */
enum { OPEN, READABLE, FOREIGN, LOCAL, AREAS };

static const int area_pages[AREAS] = { 8, 8, 8, 24 };
static uint8_t *memory, *area[AREAS];
static size_t memory_len;
static struct ibv_mr *key[AREAS];
static struct ibv_pd *foreign_pd;

#define SLOT 2048
#define STRIDE (SLOT + 64)
#define SLOTS (24 * PAGE / STRIDE)

static int memory_make(void)
{
	static const int access[AREAS] = {
		ACC_ALL, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
		ACC_ALL, IBV_ACCESS_LOCAL_WRITE,
	};
	size_t at = 2 * PAGE;
	int i;

	for (i = 0; i < AREAS; i++)
		memory_len += (area_pages[i] + 2) * PAGE;
	memory_len += 2 * PAGE;
	memory = mmap(NULL, memory_len, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(memory != MAP_FAILED);
	memset(memory, POISON, memory_len);
	foreign_pd = ibv_alloc_pd(host_a.ctx);
	check(foreign_pd);
	for (i = 0; i < AREAS; i++) {
		area[i] = memory + at;
		at += (area_pages[i] + 2) * PAGE;
		key[i] = ibv_reg_mr(i == FOREIGN ? foreign_pd : host_a.pd,
				    area[i], area_pages[i] * PAGE, access[i]);
		check(key[i]);
	}
	return 0;
}

static int memory_check(void)
{
	uint8_t *p = memory;
	int i;

	for (i = 0; i < AREAS; i++) {
		long bad = check_byte(p, area[i] - p, POISON);

		if (bad >= 0)
			fail("a canary before area %d, byte %ld", i, bad);
		p = area[i] + area_pages[i] * PAGE;
	}
	check(check_byte(p, memory + memory_len - p, POISON) < 0);
	check(check_byte(area[READABLE], 8 * PAGE, POISON) < 0);
	check(check_byte(area[FOREIGN], 8 * PAGE, POISON) < 0);
	for (i = 0; i < SLOTS; i++)
		if (check_byte(area[LOCAL] + i * STRIDE + SLOT, 64, POISON) >= 0)
			fail("behind slot %d", i);
	return 0;
}

/* ---- targets -------------------------------------------------------------- */

#define DEPTH 8

/* RTS with work requests under way is a state of its own here. */
enum { BUSY = 20 };

static struct target {
	enum ibv_qp_type type;
	int state;
	struct ep e;
	int first;		/* of its slots: DEPTH for receives, 1 more */
	bool posted[DEPTH];
	uint64_t next_send, done_send;
	uint32_t rq_psn, sq_psn, ticks;
	int in_message;		/* the opcode to go on with, 0: none */
	uint32_t left;		/* of that message */
} targets[] = {
	{ IBV_QPT_RC, IBV_QPS_RESET }, { IBV_QPT_RC, IBV_QPS_INIT },
	{ IBV_QPT_RC, IBV_QPS_RTR }, { IBV_QPT_RC, IBV_QPS_RTS },
	{ IBV_QPT_RC, IBV_QPS_SQD }, { IBV_QPT_RC, IBV_QPS_ERR },
	{ IBV_QPT_RC, BUSY }, { IBV_QPT_UC, BUSY }, { IBV_QPT_UD, BUSY },
	{ IBV_QPT_UC, IBV_QPS_RTR }, { IBV_QPT_UD, IBV_QPS_RTR },
};
#define TARGETS (sizeof(targets) / sizeof(targets[0]))

static struct ibv_ah *ah;
static struct opts o;
static uint64_t completions, revivals;

static int fill_receives(struct target *t)
{
	int i;

	if (t->state == IBV_QPS_RESET)
		return 0;
	for (i = 0; i < DEPTH; i++) {
		struct ibv_sge sge = {
			(uintptr_t)area[LOCAL] +
			(t->first + i) % SLOTS * STRIDE, SLOT,
			key[LOCAL]->lkey };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge,
					  .num_sge = 1 }, *bad;

		if (t->posted[i])
			continue;
		check_ok(ibv_post_recv(t->e.qp, &wr, &bad));
		t->posted[i] = true;
	}
	return 0;
}

/* Work for a peer that isn't there: it waits for what others answer. */
static int fill_sends(struct target *t)
{
	static const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
		IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
		IBV_WR_SEND_WITH_IMM,
	};

	while (t->state == BUSY && t->next_send - t->done_send < 4) {
		struct ibv_sge sge = {
			(uintptr_t)area[LOCAL] +
			(t->first + DEPTH) % SLOTS * STRIDE,
			1 + rnd() % SLOT, key[LOCAL]->lkey };
		struct ibv_send_wr wr = {
			.wr_id = t->next_send, .sg_list = &sge, .num_sge = 1,
			.send_flags = IBV_SEND_SIGNALED,
		}, *bad;

		wr.opcode = ops[rnd() % ARRAY_SIZE(ops)];
		if (t->type == IBV_QPT_UC && wr.opcode != IBV_WR_RDMA_WRITE)
			wr.opcode = IBV_WR_SEND;
		if (t->type == IBV_QPT_UD) {
			wr.opcode = IBV_WR_SEND;
			wr.wr.ud.ah = ah;
			wr.wr.ud.remote_qpn = FAKE_QPN;
			wr.wr.ud.remote_qkey = QKEY;
		} else if (wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
			   wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
			sge.length = 8;
			wr.wr.atomic.remote_addr = 4096;
		}
		if (ibv_post_send(t->e.qp, &wr, &bad))
			break;
		t->next_send++;
	}
	return 0;
}

static int revive(struct target *t)
{
	struct ep fake = { .h = &host_b, .psn = rnd() & 0xffffff };
	struct ibv_qp fake_qp = { .qp_num = FAKE_QPN + (t - targets) };
	struct ibv_wc wc;
	int to = t->state == BUSY ? IBV_QPS_RTS : t->state;

	fake.qp = &fake_qp;
	if (one_in(4))
		fake.psn = 0xfffffc + rnd() % 4;
	o.type = t->type;
	o.psn = t->e.psn = rnd() & 0xffffff;
	run_ok(ep_state(&t->e, IBV_QPS_RESET));
	/* what was posted is forgotten, what completed is still there */
	while (ibv_poll_cq(t->e.scq, 1, &wc) == 1 ||
	       ibv_poll_cq(t->e.rcq, 1, &wc) == 1)
		;
	memset(t->posted, 0, sizeof(t->posted));
	t->done_send = t->next_send;
	t->in_message = 0;
	t->rq_psn = fake.psn;
	t->sq_psn = t->e.psn;
	revivals++;
	if (to == IBV_QPS_RESET)
		return 0;
	run_ok(ep_init(&t->e, &o));
	run_ok(fill_receives(t));
	if (to == IBV_QPS_INIT)
		return 0;
	run_ok(ep_rtr(&t->e, &fake, &o));
	if (to == IBV_QPS_RTR)
		return 0;
	run_ok(ep_rts(&t->e, &o));
	if (to == IBV_QPS_SQD || to == IBV_QPS_ERR)
		run_ok(ep_state(&t->e, to));
	return fill_sends(t);
}

static int targets_make(void)
{
	struct ibv_ah_attr aa = {
		.is_global = 1, .port_num = 1,
		.grh = { .sgid_index = host_a.gidx, .hop_limit = 64,
			 .dgid = host_b.gid } };
	size_t i;

	ah = ibv_create_ah(host_a.pd, &aa);
	check(ah);
	o = opts_default();
	o.depth = DEPTH;
	o.cqe = 256;
	o.buf = PAGE;
	o.mtu = IBV_MTU_1024;
	o.timeout = 0;
	for (i = 0; i < TARGETS; i++) {
		o.type = targets[i].type;
		run_ok(ep_create(&targets[i].e, &host_a, &o));
		targets[i].first = i * (DEPTH + 1);
		run_ok(revive(&targets[i]));
	}
	return 0;
}

static int targets_unmake(void)
{
	size_t i;

	for (i = 0; i < TARGETS; i++)
		run_ok(ep_destroy(&targets[i].e));
	check_ok(ibv_destroy_ah(ah));
	for (i = 0; i < AREAS; i++)
		check_ok(ibv_dereg_mr(key[i]));
	check_ok(ibv_dealloc_pd(foreign_pd));
	return 0;
}

/* Each work request once at most; sends in order. */
static int collect(struct target *t)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(t->e.rcq, 1, &wc) == 1) {
		completions++;
		if (wc.wr_id >= DEPTH || !t->posted[wc.wr_id])
			fail("a receive that was not posted, or twice: %llu",
			     (unsigned long long)wc.wr_id);
		t->posted[wc.wr_id] = false;
		if (wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_RECV &&
		    wc.byte_len > SLOT)
			fail("%u bytes in a receive of %d", wc.byte_len, SLOT);
		check(wc.qp_num == t->e.qp->qp_num);
	}
	while (ibv_poll_cq(t->e.scq, 1, &wc) == 1) {
		completions++;
		if (wc.wr_id != t->done_send || wc.wr_id >= t->next_send)
			fail("send %llu completes, not %llu",
			     (unsigned long long)wc.wr_id,
			     (unsigned long long)t->done_send);
		t->done_send++;
	}
	return 0;
}

static int tend(struct target *t)
{
	struct ibv_qp_init_attr ia;
	struct ibv_qp_attr at;
	int to = t->state == BUSY ? IBV_QPS_RTS : t->state;

	run_ok(collect(t));
	check_ok(ibv_query_qp(t->e.qp, &at, IBV_QP_STATE | IBV_QP_RQ_PSN |
			      IBV_QP_SQ_PSN, &ia));
	t->rq_psn = at.rq_psn;
	t->sq_psn = at.sq_psn;
	if ((int)at.qp_state != to || one_in(60)) {
		if (at.qp_state != IBV_QPS_ERR && (int)at.qp_state != to)
			fail("state %d, which should be %d", at.qp_state, to);
		return revive(t);
	}
	run_ok(fill_receives(t));
	return fill_sends(t);
}

static void swallow_events(struct host *h)
{
	struct pollfd pf = { .fd = h->ctx->async_fd, .events = POLLIN };
	struct ibv_async_event ev;

	while (poll(&pf, 1, 0) == 1 && !ibv_get_async_event(h->ctx, &ev))
		ibv_ack_async_event(&ev);
}

/* ---- what is sent --------------------------------------------------------- */

enum { H_DETH = 1, H_FETH = 2, H_RETH = 4, H_ATOMIC = 8, H_AETH = 16,
       H_ATOMIC_ACK = 32, H_IMM = 64, H_IETH = 128 };

/* By the low bits of the opcode (table 38); -1: reserved. */
static const int headers_of[32] = {
	0, 0, 0, H_IMM, 0, H_IMM, H_RETH, 0, 0, H_IMM, H_RETH, H_RETH | H_IMM,
	H_RETH, H_AETH, 0, H_AETH, H_AETH, H_AETH, H_AETH | H_ATOMIC_ACK,
	H_ATOMIC, H_ATOMIC, 0, H_IETH, H_IETH, -1, -1, -1, -1,
	H_FETH | H_RETH, H_RETH, -1, -1,
};

static uint64_t some_address(void)
{
	uint8_t *a = area[rnd() % AREAS];

	switch (rnd() % 10) {
	case 0: return rnd();
	case 1: return ~0ull - rnd() % 5000;
	case 2: return (uintptr_t)area[OPEN] + 8 * PAGE - rnd() % 64 * 8;
	case 3: return (uintptr_t)area[OPEN] - rnd() % 64 * 8;
	case 4: return (uintptr_t)a + rnd() % (8 * PAGE);
	default: return (uintptr_t)area[OPEN] + rnd() % 512 * 8;
	}
}

static uint32_t some_key(void)
{
	switch (rnd() % 16) {
	case 0: return rnd();
	case 1: return key[OPEN]->rkey ^ (1 << rnd() % 32);
	case 2: return key[READABLE]->rkey;
	case 3: return key[FOREIGN]->rkey;
	case 4: return key[LOCAL]->rkey;
	default: return key[OPEN]->rkey;
	}
}

/* Headers and payload of an opcode behind the BTH; returns their length. */
static size_t content(struct target *t, uint8_t *p, uint8_t opcode,
		      uint8_t *pad)
{
	int h = headers_of[opcode & 31], low = opcode & 31;
	uint32_t mtu = 1024, len, total;
	uint8_t *at = p;

	if (h < 0)
		h = rnd() & 255;
	if (opcode >> 5 == 3)
		h |= H_DETH;
	/* first and middle packets are full, others aren't always */
	if (low == 0 || low == 1 || low == 6 || low == 7 || low == 13 ||
	    low == 14)
		len = mtu;
	else if (low == 0x1d)
		len = 8;
	else if (low == 0x0c || (low >= 0x11 && low <= 0x14) || low == 0x1c)
		len = 0;
	else
		len = rnd() % (mtu + 1);
	if (t->in_message && (low == 8 || low == 9) && t->left <= mtu)
		len = t->left;
	if (one_in(20))
		len = rnd() % 4200;
	total = low == 6 ? mtu * (1 + rnd() % 3) + 1 + rnd() % mtu : len;
	if (low == 0x0c || low == 0x1c)
		total = rnd() % (one_in(4) ? 40000 : 2000);
	if (one_in(20))
		total = rnd();
	if (low == 6)
		t->left = total;
	if (h & H_DETH) {
		put32(at, one_in(10) ? rnd() : QKEY);
		put32(at + 4, rnd() & 0xffffff);
		at += 8;
	}
	if (h & H_FETH) {
		put32(at, one_in(4) ? rnd() : 1 + rnd() % 3 +
		      16 * (rnd() & 1));
		at += 4;
	}
	if (h & (H_RETH | H_ATOMIC)) {
		put64(at, some_address());
		put32(at + 8, some_key());
		put32(at + 12, total);
		at += 16;
	}
	if (h & H_ATOMIC) {
		put64(at - 4, rnd());
		put64(at + 4, rnd() & 1);
		at += 12;
	}
	if (h & H_AETH) {
		static const uint8_t syn[] = { 0, 31, 0x20, 0x2e, 0x60, 0x61,
					       0x62, 0x63, 0x64, 0xff };

		put32(at, rnd());
		at[0] = one_in(3) ? syn[rnd() % sizeof(syn)] : rnd() & 31;
		at += 4;
	}
	if (h & H_ATOMIC_ACK) {
		put64(at, rnd());
		at += 8;
	}
	if (h & H_IMM) {
		put32(at, rnd());
		at += 4;
	}
	if (h & H_IETH) {
		put32(at, some_key());
		at += 4;
	}
	memset(at, rnd(), len);
	*pad = -len & 3;
	return at - p + len + *pad;
}

static uint8_t some_opcode(struct target *t)
{
	static const uint8_t requests[] = { 0, 3, 4, 4, 5, 6, 6, 10, 10, 11, 12,
					    12, 19, 20, 22, 23, 28, 29 };
	static const uint8_t responses[] = { 13, 14, 15, 16, 17, 17, 17, 18 };
	uint8_t base = t->type == IBV_QPT_RC ? 0 : t->type == IBV_QPT_UC ? 0x20 :
		       0x60;

	if (t->in_message && !one_in(5))
		return base | t->in_message;
	if (one_in(12))
		return rnd();
	if (base == 0x60)
		return 0x64 + (rnd() & 1);
	if (base == 0 && t->state == BUSY && rnd() & 1)
		return responses[rnd() % sizeof(responses)];
	return base | requests[rnd() % sizeof(requests)];
}

/* What follows a first or middle packet. */
static void follow(struct target *t, uint8_t opcode)
{
	uint8_t low = opcode & 31;

	if (low == 0 || low == 1) {
		t->in_message = one_in(2) ? 1 : one_in(2) ? 2 : 3;
	} else if (low == 6 || low == 7) {
		t->left -= t->left > 1024 ? 1024 : t->left;
		t->in_message = t->left > 1024 ? 7 : one_in(2) ? 8 : 9;
	} else {
		t->in_message = 0;
	}
}

static void build(struct packet *p, struct target *t)
{
	uint8_t *b = bth(p), opcode = some_opcode(t), pad;
	uint32_t psn = t->rq_psn;
	size_t n = content(t, b + 12, opcode, &pad);
	bool response = opcode < 0x20 && headers_of[opcode] >= 0 &&
			(headers_of[opcode] & H_AETH || opcode == 14);
	bool in_turn = !one_in(6);

	if (response)
		psn = t->sq_psn - 1 - rnd() % 8;
	if (!in_turn)
		psn += one_in(3) ? rnd() : rnd() % 9 - 4;
	envelope(p, 12 + n + 4);
	b[0] = opcode;
	b[1] = (rnd() & 0xc0) | pad << 4 | (one_in(50) ? rnd() & 15 : 0);
	put16(b + 2, one_in(30) ? rnd() : 0xffff);
	b[4] = one_in(10) ? rnd() : 0;
	put24(b + 5, one_in(50) ? rnd() : t->e.qp->qp_num);
	if (opcode == 0x64 && one_in(4)) {
		/* whoever serves QP 1 */
		put24(b + 5, 1);
		put32(b + 12, 0x80010000);
	}
	b[8] = rnd() & 0x80;
	put24(b + 9, psn);
	if (in_turn && !response && opcode >> 5 < 2) {
		t->rq_psn = (t->rq_psn + 1) & 0xffffff;
		follow(t, opcode);
	}
}

/* Not for the queue pairs of others: what comes from the right address with
 * the right number would rightly be taken for their peer's. */
static bool hits_bystander(struct packet *p)
{
	uint8_t *b = bth(p);
	uint32_t n = b[5] << 16 | b[6] << 8 | b[7];
	size_t i;

	for (i = 0; i < TARGETS; i++)
		if (n == targets[i].e.qp->qp_num)
			return false;
	return n < FAKE_QPN && n > 1;
}

static void mutate(struct packet *p)
{
	size_t at = ip_len() + 8, n = p->len - at, i;
	int k = 1 + rnd() % 4;

	switch (rnd() % 4) {
	case 0:	/* shorter or longer */
		n = rnd() % (one_in(3) ? 60 : 1500);
		envelope(p, n < 4 ? 4 : n);
		break;
	default:
		while (k--) {
			i = at + rnd() % (n > 60 ? 60 : n);
			p->b[i] ^= one_in(2) ? rnd() : 1u << rnd() % 8;
		}
	}
}

#define TRAIN 24
#define FULL (12 + 1024 + 4)

/* The beginning of a message of n bytes, by itself. */
static void begin_message(struct target *t, uint8_t first, uint32_t n)
{
	struct packet p;
	uint8_t *b = bth(&p);
	size_t head = 12 + (first & 4 ? 16 : 0);

	envelope(&p, head + 1024 + 4);
	memset(b, 0, head);
	b[0] = first;
	put16(b + 2, 0xffff);
	put24(b + 5, t->e.qp->qp_num);
	put24(b + 9, t->rq_psn);
	if (first & 4) {
		put64(b + 12, one_in(4) ? some_address() :
					  (uintptr_t)area[OPEN]);
		put32(b + 20, one_in(8) ? some_key() : key[OPEN]->rkey);
		put32(b + 24, n);
	}
	memset(b + head, rnd(), 1024);
	seal(&p, true);
	transmit(&p);
	t->rq_psn = (t->rq_psn + 1) & 0xffffff;
}

/*
 * Packets that go through the stack as one: the middle of a message as a rule,
 * with something wrong now and then.
 */
static int strike_train(struct target *t)
{
	static uint8_t buf[TRAIN * FULL];
	int n = 2 + rnd() % (TRAIN - 1), i, size = FULL;
	uint8_t service = t->type == IBV_QPT_RC ? 0 : 0x20;
	bool write = !one_in(4);
	size_t len = 0;

	if (one_in(6))
		size = 16 + rnd() % 256 * 4;
	if (t->type != IBV_QPT_UD && !one_in(6))
		begin_message(t, service | (write ? 6 : 0),
			      one_in(8) ? (int)(rnd() % 30000) :
					  (n + 1) * 1024 + 5);
	for (i = 0; i < n; i++) {
		struct packet p;
		uint8_t *b = bth(&p);
		struct target *to = one_in(40) ? &targets[rnd() % TARGETS] : t;
		int n4 = size;

		if (i == n - 1 && one_in(2))
			n4 -= rnd() % ((size - 16) / 4 + 1) * 4;
		envelope(&p, n4);
		put16(p.b + ip_len(), train_port);
		memset(b, 0, 12);
		b[0] = one_in(40) ? some_opcode(t) : service | (write ? 7 : 1);
		b[1] = one_in(60) ? rnd() : 0;
		put16(b + 2, one_in(60) ? rnd() : 0xffff);
		b[4] = one_in(20) ? rnd() : 0;
		put24(b + 5, to->e.qp->qp_num);
		b[8] = one_in(4) ? 0x80 : 0;
		put24(b + 9, t->rq_psn + (one_in(40) ? rnd() % 9 - 4 : 0));
		memset(b + 12, rnd(), n4 - 16);
		seal(&p, !one_in(60));
		memcpy(buf + len, b, n4);
		len += n4;
		t->rq_psn = (t->rq_psn + 1) & 0xffffff;
	}
	t->in_message = 0;
	check_ok(setsockopt(train_fd, IPPROTO_UDP, UDP_SEGMENT, &size,
			    sizeof(size)));
	if (send(train_fd, buf, len, 0) == (ssize_t)len) {
		trains++;
		sent += n;
	}
	return tend(t);
}

#define OLD 64
static struct packet old[OLD];
static unsigned int nold;

static int strike(void)
{
	struct target *t = &targets[rnd() % TARGETS];
	static struct packet p;
	bool icrc = !one_in(12);
	unsigned int what = rnd() % 100;

	if (train_fd >= 0 && one_in(12))
		return strike_train(t);
	if (what < 70 || !nold) {
		build(&p, t);
	} else if (what < 85) {
		p = old[rnd() % nold];
		if (one_in(2)) {
			/* to another, or at another time */
			put24(bth(&p) + 5, t->e.qp->qp_num);
			if (one_in(2))
				put24(bth(&p) + 9, t->rq_psn);
		}
	} else if (what < 95) {
		build(&p, t);
		mutate(&p);
	} else {
		size_t i, n = 4 + rnd() % 200;

		envelope(&p, n);
		for (i = 0; i < n; i++)
			bth(&p)[i] = rnd();
	}
	if (p.len < ip_len() + 8 + 12 + 4 ? false : hits_bystander(&p))
		put24(bth(&p) + 5, t->e.qp->qp_num);
	if (!whole && one_in(100) && ip_version == 4)
		p.b[12 + rnd() % 4] ^= 1 + rnd() % 4;	/* from another */
	seal(&p, icrc);
	if (!whole && one_in(300))
		put16(p.b + ip_len() + 4, rnd());	/* not UDP's length */
	old[one_in(4) || nold < OLD ? nold % OLD : rnd() % OLD] = p;
	nold = nold < OLD ? nold + 1 : OLD;
	transmit(&p);
	if (++t->ticks % 16 == 0)
		return tend(t);
	return collect(t);
}

static int storm(uint64_t packets, bool alone)
{
	uint64_t i, begin = now_us();
	size_t k;

	whole = alone;
	rng = getenv("RXO_SEED") ? strtoull(getenv("RXO_SEED"), NULL, 0) :
				   begin;
	rng = rng * 0x9e3779b97f4a7c15ull | 1;
	printf("# RXO_SEED=%llu\n", (unsigned long long)
	       (getenv("RXO_SEED") ? strtoull(getenv("RXO_SEED"), NULL, 0) :
				     begin));
	crc_init();
	run_ok(raw_open());
	run_ok(memory_make());
	run_ok(targets_make());
	for (i = 0; i < packets; i++) {
		if (strike())
			fail("after %llu packets", (unsigned long long)i);
		if (i % 1024 == 1023) {
			run_ok(memory_check());
			swallow_events(&host_a);
		}
		if (!alone && i % 8192 == 8191)
			run_ok(sanity());
	}
	usleep(20000);
	for (k = 0; k < TARGETS; k++)
		run_ok(collect(&targets[k]));
	run_ok(memory_check());
	run_ok(targets_unmake());
	swallow_events(&host_a);
	printf("# %llu packets sent, %llu times several at once, %llu completions, %llu lives, %llu ms\n",
	       (unsigned long long)sent, (unsigned long long)trains,
	       (unsigned long long)completions, (unsigned long long)revivals,
	       (unsigned long long)(now_us() - begin) / 1000);
	check(sent > packets * 9 / 10);
	check(train_fd < 0 || trains > packets / 20);
	check(completions > packets / 100);
	return alone ? 0 : sanity();
}

/* ---- packets that change while they are looked at -------------------------- */

static uint8_t *page;
static volatile bool stop;
static volatile uint32_t turn;

/* A while after a packet was sent, its opcode becomes one that isn't, or it
 * goes to another queue pair. */
static void *changer(void *arg)
{
	uint32_t seen = 0, i, wait = 0;

	while (!stop) {
		if (turn == seen)
			continue;
		seen = turn;
		wait = (wait * 5 + 7) & 0xffff;
		for (i = 0; i < wait && turn == seen; i++)
			__asm__ volatile("" ::: "memory");
		page[seen & 1 ? 0 : 7] ^= 0xff;
	}
	return NULL;
}

/*
 * A process can give its pages to the network stack and write to them still.
 * Over IPv6 it knows all that the ICRC covers. (The other end sees each packet
 * as it was once, whenever that was.)
 */
static int shifty(void)
{
	uint16_t port = 0xc123;
	uint64_t end = now_us() + (quick ? 3000000 : 10000000), n = 0;
	int fd, pipes[2];
	struct packet p;
	pthread_t th;

	rng = now_us() | 1;
	ip_version = 6;
	crc_init();
	run_ok(memory_make());
	run_ok(targets_make());
	run_ok(open_udp6(&fd, &port));
	check_ok(pipe(pipes));
	page = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(page != MAP_FAILED);
	check_ok(pthread_create(&th, NULL, changer, NULL));
	while (now_us() < end) {
		struct target *t = &targets[rnd() % TARGETS];
		struct iovec v = { .iov_base = page };
		size_t head = ip_len() + 8;

		build(&p, t);
		put16(p.b + 40, port);
		seal(&p, true);
		v.iov_len = p.len - head;
		memcpy(page, p.b + head, v.iov_len);
		if (vmsplice(pipes[1], &v, 1, 0) != (ssize_t)v.iov_len)
			fail("vmsplice: %s", strerror(errno));
		turn++;
		if (splice(pipes[0], NULL, fd, NULL, v.iov_len, 0) < 0)
			fail("splice: %s", strerror(errno));
		if (++n % 16 == 0)
			run_ok(tend(t));
		else
			run_ok(collect(t));
	}
	stop = true;
	pthread_join(th, NULL);
	close(fd);
	run_ok(memory_check());
	run_ok(targets_unmake());
	swallow_events(&host_a);
	printf("# %llu packets\n", (unsigned long long)n);
	check(n > 100);
	return sanity();
}

static uint64_t packets(uint64_t otherwise)
{
	const char *s = getenv("PACKETS");

	return s && *s ? strtoull(s, NULL, 0) : otherwise;
}

static int storm_all(void) { return storm(packets(quick ? 20000 : 100000), false); }
static int storm_alone(void) { return storm(packets(5000), true); }

static const struct testcase cases[] = {
	{ "storm", storm_all, 1700 },
	{ "alone", storm_alone, 120 },
	{ "shifty", shifty, 120 },
};

int main(int argc, char **argv)
{
	return rig_main(argc, argv, cases, ARRAY_SIZE(cases));
}
