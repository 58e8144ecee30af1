// SPDX-License-Identifier: GPL-2.0
/*
 * Every byte of every operation: what arrives is what was sent, where it was
 * sent, and nothing else is touched.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <arpa/inet.h>
#include <sys/mman.h>
#include "rig.h"

#define POISON 0xa5
#define GUARD 64
#define SRC_OFF 3
#define DST_OFF 5

static int sizes(uint32_t *s, int mtu)
{
	uint32_t all[] = { 0, 1, 2, 3, 4, 5, 7, 8, mtu - 1, mtu, mtu + 1,
			   2 * mtu, 3 * mtu + 7, 65536 + 1,
			   quick ? 200000 : 1 << 20 };

	memcpy(s, all, sizeof(all));
	return ARRAY_SIZE(all);
}

static int mtus(enum ibv_mtu *m)
{
	int n = 0;

	m[n++] = IBV_MTU_256;
	if (pair_mtu() > IBV_MTU_1024)
		m[n++] = IBV_MTU_1024;
	m[n++] = pair_mtu();
	return n;
}

static int dest_check(const struct ep *to, uint32_t len, uint32_t seed)
{
	long bad = check_fill(to->buf + DST_OFF, len, seed);

	if (bad >= 0)
		fail("%u bytes: byte %ld is 0x%02x", len, bad,
		     to->buf[DST_OFF + bad]);
	check(check_byte(to->buf, DST_OFF, POISON) < 0);
	bad = check_byte(to->buf + DST_OFF + len, GUARD, POISON);
	if (bad >= 0)
		fail("%u bytes: the byte %ld after the end was written", len,
		     bad);
	return 0;
}

/*
 * One operation of one size: `from` posts it, `to` is its peer. For a READ
 * the data goes from the peer to the poster.
 */
static int one_op(struct ep *from, struct ep *to, enum ibv_wr_opcode op,
		  uint32_t len, uint32_t seed)
{
	bool read = op == IBV_WR_RDMA_READ;
	bool imm = op == IBV_WR_SEND_WITH_IMM ||
		   op == IBV_WR_RDMA_WRITE_WITH_IMM;
	bool send = op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM;
	struct ep *src = read ? to : from, *dst = read ? from : to;
	struct wr w = {
		.id = 0x5e4d000000000000ull + seed, .op = op,
		.flags = IBV_SEND_SIGNALED, .len = len,
		.off = read ? DST_OFF : SRC_OFF,
		.imm = imm ? 0xfeed0000 ^ seed : 0,
	};
	struct ibv_wc wc;

	fill(src->buf + SRC_OFF, len, seed);
	memset(dst->buf, POISON, DST_OFF + len + GUARD);
	if (send)	/* exactly large enough, or larger: both must do */
		check_ok(post_recv(to, seed, DST_OFF, len + (seed & 1) * 9));
	else if (imm)	/* consumes a receive but does not use its memory */
		check_ok(post_recv(to, seed, 1 << 19, 16));
	check_ok(post_to(from, w, to, read ? SRC_OFF : DST_OFF));
	run_ok(expect_wc(from->scq, w.id, IBV_WC_SUCCESS, 20000, &wc));
	check(wc.qp_num == from->qp->qp_num);
	check(wc.opcode == (read ? IBV_WC_RDMA_READ :
			    send ? IBV_WC_SEND : IBV_WC_RDMA_WRITE));
	if (send || imm) {
		run_ok(expect_wc(to->rcq, seed, IBV_WC_SUCCESS, 20000, &wc));
		if (wc.byte_len != len)
			fail("receive says %u bytes, not %u", wc.byte_len, len);
		check(wc.opcode == (send ? IBV_WC_RECV :
				    IBV_WC_RECV_RDMA_WITH_IMM));
		check(wc.qp_num == to->qp->qp_num);
		check(!(wc.wc_flags & IBV_WC_WITH_IMM) == !imm);
		if (imm && ntohl(wc.imm_data) != w.imm)
			fail("immediate 0x%08x, not 0x%08x",
			     ntohl(wc.imm_data), w.imm);
	}
	run_ok(dest_check(dst, len, seed));
	return 0;
}

static int matrix(enum ibv_qp_type type, const enum ibv_wr_opcode *ops,
		  int nops)
{
	struct opts o = opts_default();
	enum ibv_mtu m[4];
	uint32_t s[32], seed = 1;
	int nm = mtus(m), i, j, k;
	struct pair p;

	o.type = type;
	o.buf = (1 << 20) + 4096;
	for (i = 0; i < nm; i++) {
		int ns = sizes(s, mtu_bytes(m[i]));

		o.mtu = m[i];
		run_ok(pair_up(&p, &o));
		for (j = 0; j < ns; j++)
			for (k = 0; k < nops; k++) {
				int r = one_op(&p.a, &p.b, ops[k], s[j], seed);

				if (!r)
					r = one_op(&p.b, &p.a, ops[k], s[j],
						   seed + 1);
				if (r)
					fail("operation %d of %u bytes at path MTU %d",
					     ops[k], s[j], mtu_bytes(m[i]));
				seed += 3;
			}
		run_ok(expect_no_wc(p.a.rcq, 0));
		run_ok(expect_no_wc(p.b.rcq, 0));
		run_ok(pair_down(&p));
	}
	return 0;
}

#define RC_OP(name, op) \
	static int name(void) \
	{ \
		const enum ibv_wr_opcode ops[] = { op }; \
		return matrix(IBV_QPT_RC, ops, 1); \
	}
RC_OP(rc_send, IBV_WR_SEND)
RC_OP(rc_send_imm, IBV_WR_SEND_WITH_IMM)
RC_OP(rc_write, IBV_WR_RDMA_WRITE)
RC_OP(rc_write_imm, IBV_WR_RDMA_WRITE_WITH_IMM)
RC_OP(rc_read, IBV_WR_RDMA_READ)

static int rc_mixed(void)
{
	const enum ibv_wr_opcode ops[] = {
		IBV_WR_RDMA_READ, IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM,
		IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE, IBV_WR_SEND_WITH_IMM,
	};

	return matrix(IBV_QPT_RC, ops, ARRAY_SIZE(ops));
}

/* Nothing promises delivery here, but nothing loses a packet either. */
static int uc_data(void)
{
	const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
	};
	struct ibv_qp_init_attr ia = {
		.qp_type = IBV_QPT_UC,
		.cap = { 4, 4, 1, 1, 0 },
	};
	struct ibv_qp *qp;

	ia.send_cq = ia.recv_cq = ibv_create_cq(host_a.ctx, 8, NULL, NULL, 0);
	check(ia.send_cq);
	qp = ibv_create_qp(host_a.pd, &ia);
	if (!qp && (errno == EOPNOTSUPP || errno == ENOSYS))
		lacks(&host_a, "the driver has no UC (%s)", strerror(errno));
	check(qp);
	check_ok(ibv_destroy_qp(qp));
	check_ok(ibv_destroy_cq(ia.send_cq));
	return matrix(IBV_QPT_UC, ops, ARRAY_SIZE(ops));
}

static int atomic_op(struct ep *e, struct ep *peer, enum ibv_wr_opcode op,
		     uint64_t add, uint64_t swap, uint64_t *orig)
{
	struct ibv_wc wc;

	memset(e->buf, POISON, 64);
	check_ok(post_to(e, (struct wr){
		.id = 77, .op = op, .flags = IBV_SEND_SIGNALED, .off = 8,
		.len = 8, .add = add, .swap = swap }, peer, 256));
	run_ok(expect_wc(e->scq, 77, IBV_WC_SUCCESS, 5000, &wc));
	check(wc.opcode == (op == IBV_WR_ATOMIC_CMP_AND_SWP ?
			    IBV_WC_COMP_SWAP : IBV_WC_FETCH_ADD));
	check(wc.byte_len == 8);
	memcpy(orig, e->buf + 8, 8);
	check(check_byte(e->buf, 8, POISON) < 0);
	check(check_byte(e->buf + 16, 48, POISON) < 0);
	return 0;
}

static int rc_atomic(void)
{
	struct opts o = opts_default();
	uint64_t *word, orig, expect;
	struct pair p;
	int i;

	if (host_b.attr.atomic_cap == IBV_ATOMIC_NONE)
		lacks(&host_b, "the device has no atomics");
	run_ok(pair_up(&p, &o));
	word = (uint64_t *)(p.b.buf + 256);
	word[-1] = word[1] = 0x1111111111111111ull;

	*word = 0x0123456789abcdefull;
	run_ok(atomic_op(&p.a, &p.b, IBV_WR_ATOMIC_CMP_AND_SWP,
			 0x0123456789abcdefull, 0xfedcba9876543210ull, &orig));
	check(orig == 0x0123456789abcdefull);
	check(*word == 0xfedcba9876543210ull);
	/* does not compare equal: stays */
	run_ok(atomic_op(&p.a, &p.b, IBV_WR_ATOMIC_CMP_AND_SWP,
			 0x0123456789abcdefull, 5, &orig));
	check(orig == 0xfedcba9876543210ull);
	check(*word == 0xfedcba9876543210ull);
	*word = ~0ull;
	run_ok(atomic_op(&p.a, &p.b, IBV_WR_ATOMIC_FETCH_AND_ADD, 2, 0,
			 &orig));
	check(orig == ~0ull);
	check(*word == 1);
	for (i = 0, expect = 1; i < 200; i++, expect += 3) {
		run_ok(atomic_op(&p.a, &p.b, IBV_WR_ATOMIC_FETCH_AND_ADD, 3,
				 0, &orig));
		if (orig != expect)
			fail("round %d: original %llu, not %llu", i,
			     (unsigned long long)orig,
			     (unsigned long long)expect);
	}
	check(*word == expect);
	check(word[-1] == 0x1111111111111111ull);
	check(word[1] == 0x1111111111111111ull);
	run_ok(pair_down(&p));
	return 0;
}

/* Many reads and atomics outstanding: more than the peer takes at a time. */
static int rc_outstanding(void)
{
	const int depths[] = { 1, 4, 16 };
	struct opts o = opts_default();
	struct pair p;
	uint64_t v;
	int d, i;

	for (d = 0; d < 3; d++) {
		o.rd_atomic = depths[d];
		run_ok(pair_up(&p, &o));
		fill(p.b.buf, 65536, d);
		*(uint64_t *)(p.b.buf + 65536) = 1000;
		memset(p.a.buf, 0, 1 << 18);
		for (i = 0; i < 60; i++) {
			struct wr w = { .id = i, .flags = IBV_SEND_SIGNALED };

			if (i % 3 == 2) {
				w.op = IBV_WR_ATOMIC_FETCH_AND_ADD;
				w.off = 131072 + 8 * i;
				w.len = 8;
				w.add = 1;
				check_ok(post_to(&p.a, w, &p.b, 65536));
			} else {
				w.op = IBV_WR_RDMA_READ;
				w.off = i * 1000;
				w.len = 1000;
				check_ok(post_to(&p.a, w, &p.b, i * 1000));
			}
		}
		for (i = 0; i < 60; i++)
			run_ok(expect_wc(p.a.scq, i, IBV_WC_SUCCESS, 10000,
					 NULL));
		for (i = 0; i < 60; i++) {
			if (i % 3 == 2) {
				memcpy(&v, p.a.buf + 131072 + 8 * i, 8);
				if (v != 1000ull + i / 3)
					fail("atomic %d gave %llu", i,
					     (unsigned long long)v);
			} else {
				check(!memcmp(p.a.buf + i * 1000,
					      p.b.buf + i * 1000, 1000));
			}
		}
		check(*(uint64_t *)(p.b.buf + 65536) == 1020);
		run_ok(pair_down(&p));
	}
	return 0;
}

/* Packet sequence numbers pass 2^24 in messages of every kind. */
static int rc_psn_wrap(void)
{
	const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND, IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE,
		IBV_WR_RDMA_WRITE_WITH_IMM,
	};
	struct opts o = opts_default();
	struct pair p;
	uint64_t orig;
	int start, k;

	o.mtu = IBV_MTU_256;
	for (start = 0; start < 5; start++) {
		/* B starts at psn + 0x1000: let each end wrap in turn. */
		o.psn = start & 1 ? 0xffeff0 + start : 0xfffff0 + 3 * start;
		for (k = 0; k < (int)ARRAY_SIZE(ops); k++) {
			run_ok(pair_up(&p, &o));
			run_ok(one_op(&p.a, &p.b, ops[k], 256 * 9 + 1, k));
			run_ok(one_op(&p.b, &p.a, ops[k], 256 * 11 + 1, k));
			run_ok(one_op(&p.a, &p.b, ops[k], 256 * 12, k + 9));
			run_ok(one_op(&p.b, &p.a, ops[k], 256 * 12, k + 9));
			*(uint64_t *)(p.b.buf + 256) = 41;
			run_ok(atomic_op(&p.a, &p.b,
					 IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 0,
					 &orig));
			check(orig == 41);
			run_ok(one_op(&p.a, &p.b, ops[k], 65536, k + 12));
			run_ok(pair_down(&p));
		}
	}
	return 0;
}

/* C9-88: with no byte to move there is no key to check. */
static int rc_zero_bad_key(void)
{
	struct opts o = opts_default();
	const enum ibv_wr_opcode ops[] = { IBV_WR_RDMA_WRITE,
					   IBV_WR_RDMA_READ };
	struct pair p;
	int i;

	run_ok(pair_up(&p, &o));
	for (i = 0; i < 2; i++) {
		check_ok(post(&p.a, &(struct wr){
			.id = i, .op = ops[i], .flags = IBV_SEND_SIGNALED,
			.raddr = 0xdeadbeef000, .rkey = 0x12345 }));
		run_ok(expect_wc(p.a.scq, i, IBV_WC_SUCCESS, 5000, NULL));
	}
	run_ok(one_op(&p.a, &p.b, IBV_WR_SEND, 100, 3));
	run_ok(pair_down(&p));
	return 0;
}

static int rc_multi_sge(void)
{
	const uint32_t lens[] = { 1, 0, 511, 4096, 3, 0, 9000, 64 };
	const uint32_t scatter[] = { 5, 8192, 0, 1, 4000, 2000, 0, 100 };
	struct ibv_sge sg[8], rg[8];
	struct ibv_send_wr wr = { .sg_list = sg, .num_sge = 8,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_recv_wr rr = { .wr_id = 4, .sg_list = rg, .num_sge = 8 };
	struct ibv_recv_wr *rbad;
	struct opts o = opts_default();
	uint32_t total = 0, off, i, done;
	uint8_t *flat;
	struct pair p;
	int op;

	if (host_a.attr.max_sge < 8)
		lacks(&host_a, "max_sge is %d", host_a.attr.max_sge);
	o.sge = 8;
	o.mtu = IBV_MTU_1024;
	run_ok(pair_up(&p, &o));
	flat = malloc(65536);
	check(flat);
	for (i = 0, off = 0; i < 8; i++) {
		sg[i] = (struct ibv_sge){ (uintptr_t)p.a.buf + off + i,
					  lens[i], p.a.mr->lkey };
		off += lens[i] + 100;
		total += lens[i];
	}
	for (i = 0, off = 0; i < 8; i++) {
		rg[i] = (struct ibv_sge){ (uintptr_t)p.b.buf + off + 2 * i,
					  scatter[i], p.b.mr->lkey };
		off += scatter[i] + 64;
	}

	/* gather and scatter */
	for (op = 0; op < 3; op++) {
		fill(p.a.buf, 65536, op);
		memset(p.b.buf, POISON, 65536);
		for (i = 0, off = 0; i < 8; off += lens[i], i++)
			memcpy(flat + off, (void *)(uintptr_t)sg[i].addr,
			       lens[i]);
		wr.wr_id = op;
		wr.opcode = op == 0 ? IBV_WR_SEND : op == 1 ?
			    IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
		wr.wr.rdma.remote_addr = (uintptr_t)p.b.buf + 13;
		wr.wr.rdma.rkey = p.b.mr->rkey;
		if (op == 0)
			check_ok(ibv_post_recv(p.b.qp, &rr, &rbad));
		if (op == 2) {
			fill(p.b.buf, 65536, 99);
			memset(p.a.buf, POISON, 65536);
		}
		check_ok(ibv_post_send(p.a.qp, &wr, &bad));
		run_ok(expect_wc(p.a.scq, op, IBV_WC_SUCCESS, 5000, NULL));
		if (op == 0) {
			struct ibv_wc wc;

			run_ok(expect_wc(p.b.rcq, 4, IBV_WC_SUCCESS, 5000,
					 &wc));
			check(wc.byte_len == total);
			for (i = 0, done = 0; i < 8 && done < total; i++) {
				uint32_t n = scatter[i];

				if (n > total - done)
					n = total - done;
				if (memcmp((void *)(uintptr_t)rg[i].addr,
					   flat + done, n))
					fail("receive element %u differs", i);
				check(((uint8_t *)(uintptr_t)rg[i].addr)[n] ==
				      POISON);
				done += n;
			}
			check(done == total);
		} else if (op == 1) {
			check(!memcmp(p.b.buf + 13, flat, total));
			check(check_byte(p.b.buf + 13 + total, 64, POISON) < 0);
			check(check_byte(p.b.buf, 13, POISON) < 0);
		} else {
			for (i = 0, off = 13; i < 8; off += lens[i], i++) {
				uint8_t *e = (void *)(uintptr_t)sg[i].addr;

				if (memcmp(e, p.b.buf + off, lens[i]))
					fail("read element %u differs", i);
				check(e[lens[i]] == POISON);
			}
		}
	}
	free(flat);
	run_ok(pair_down(&p));
	return 0;
}

static int rc_unsignalled(void)
{
	struct opts o = opts_default();
	struct pair p;
	int i, j;

	o.depth = 16;
	run_ok(pair_up(&p, &o));
	memset(p.b.buf, 0, 65536);
	fill(p.a.buf, 65536, 5);
	for (i = 0; i < 40; i++) {
		/* 12 of 13 without a completion, and the ring goes round */
		for (j = 0; j < 13; j++)
			check_ok(post_to(&p.a, (struct wr){
				.id = i * 100 + j, .op = IBV_WR_RDMA_WRITE,
				.flags = j == 12 ? IBV_SEND_SIGNALED : 0,
				.off = j * 1000, .len = 1000 }, &p.b,
				j * 1000));
		run_ok(expect_wc(p.a.scq, i * 100 + 12, IBV_WC_SUCCESS, 5000,
				 NULL));
	}
	run_ok(expect_no_wc(p.a.scq, 100));
	check(check_fill(p.b.buf, 13000, 5) < 0);
	check(check_byte(p.b.buf + 13000, 1000, 0) < 0);
	run_ok(pair_down(&p));

	/* sq_sig_all asks for all of them, flag or not */
	o.sq_sig_all = 1;
	run_ok(pair_up(&p, &o));
	for (j = 0; j < 10; j++)
		check_ok(post_to(&p.a, (struct wr){
			.id = j, .op = IBV_WR_RDMA_WRITE, .len = 10 }, &p.b, 0));
	for (j = 0; j < 10; j++)
		run_ok(expect_wc(p.a.scq, j, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(pair_down(&p));
	return 0;
}

/* What the peer of rc_one_at_a_time does: it gives a receive, and then sends. */
struct giver {
	struct pair *p;
	atomic_int stop, failed;
};

static int give(struct pair *p, int i)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(p->b.rcq, 1, &wc) > 0)
		check(wc.status == IBV_WC_SUCCESS);
	/* No room as long as the last one was not taken. */
	post_recv(&p->b, i, 0, 64);
	check_ok(post_to(&p->b, (struct wr){
		.id = i, .op = IBV_WR_RDMA_WRITE, .flags = IBV_SEND_SIGNALED,
		.len = 8 }, &p->a, 4096));
	return expect_wc(p->b.scq, i, IBV_WC_SUCCESS, 5000, NULL);
}

static void *giver_thread(void *arg)
{
	struct giver *g = arg;
	int i;

	for (i = 0; !g->stop && !g->failed; i++)
		g->failed = give(g->p, i);
	return NULL;
}

/* The completion is to be seen at once, so there is no pause as in get_wc(). */
static int take_one(struct giver *g, int i)
{
	struct ep *e = &g->p->a;
	struct ibv_wc wc;

	check_ok(post(e, &(struct wr){ .id = i, .op = IBV_WR_SEND,
		.flags = IBV_SEND_SIGNALED, .len = 8 }));
	while (!ibv_poll_cq(e->scq, 1, &wc))
		check(!g->failed);
	check(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t)i);
	return 0;
}

/*
 * A queue with room for one: who sees a completion may post the next at once,
 * also if it was the peer's doing, on another CPU, that it came.
 */
static int rc_one_at_a_time(void)
{
	struct opts o = opts_default();
	int i, n = quick ? 500 : 3000, failed = 0;
	struct giver g = { };
	struct pair p;
	pthread_t th;

	o.depth = 1;
	run_ok(pair_up(&p, &o));
	g.p = &p;
	check_ok(pthread_create(&th, NULL, giver_thread, &g));
	for (i = 0; i < n && !failed; i++)
		failed = take_one(&g, i);
	g.stop = 1;
	pthread_join(th, NULL);
	check(!failed && !g.failed);
	run_ok(pair_down(&p));
	return 0;
}

/* A fenced SEND of what the READ before it brings. */
static int rc_fence(void)
{
	struct opts o = opts_default();
	const uint32_t len = 20000;
	struct pair p;
	int i;

	run_ok(pair_up(&p, &o));
	for (i = 0; i < 30; i++) {
		fill(p.b.buf, len, i);
		memset(p.a.buf, POISON, len);
		memset(p.b.buf + 65536, POISON, len);
		check_ok(post_recv(&p.b, i, 65536, len));
		check_ok(post_to(&p.a, (struct wr){
			.id = 1, .op = IBV_WR_RDMA_READ, .len = len,
			.flags = i & 1 ? IBV_SEND_SIGNALED : 0 }, &p.b, 0));
		check_ok(post(&p.a, &(struct wr){
			.id = 2, .op = IBV_WR_SEND, .len = len,
			.flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE }));
		if (i & 1)
			run_ok(expect_wc(p.a.scq, 1, IBV_WC_SUCCESS, 5000,
					 NULL));
		run_ok(expect_wc(p.a.scq, 2, IBV_WC_SUCCESS, 5000, NULL));
		run_ok(expect_wc(p.b.rcq, i, IBV_WC_SUCCESS, 5000, NULL));
		if (check_fill(p.b.buf + 65536, len, i) >= 0)
			fail("round %d: the fenced send overtook the read", i);
	}
	run_ok(pair_down(&p));
	return 0;
}

/* Inline data is taken at the call: no key, and the buffer is free at once. */
static int rc_inline(void)
{
	const uint32_t lens[] = { 0, 1, 3, 4, 31, 63, 64, 200 };
	const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE };
	struct ibv_qp_init_attr ia;
	struct ibv_qp_attr at;
	struct opts o = opts_default();
	struct pair p;
	int i, k;

	o.inl = 200;
	run_ok(pair_up(&p, &o));
	check_ok(ibv_query_qp(p.a.qp, &at, IBV_QP_CAP, &ia));
	if (at.cap.max_inline_data < 200)
		fail("asked for 200 inline bytes, got %u",
		     at.cap.max_inline_data);
	for (k = 0; k < 2; k++)
		for (i = 0; i < (int)ARRAY_SIZE(lens); i++) {
			uint8_t tmp[256];
			struct ibv_sge sg[2] = {
				{ (uintptr_t)tmp, lens[i] / 2, 0xbad },
				{ (uintptr_t)tmp + lens[i] / 2,
				  lens[i] - lens[i] / 2, 0xbad },
			};
			struct ibv_send_wr wr = {
				.wr_id = i, .sg_list = sg, .num_sge = 2,
				.opcode = ops[k],
				.send_flags = IBV_SEND_SIGNALED |
					      IBV_SEND_INLINE,
				.wr.rdma.remote_addr =
					(uintptr_t)p.b.buf + DST_OFF,
				.wr.rdma.rkey = p.b.mr->rkey,
			}, *bad;

			fill(tmp, lens[i], i);
			memset(p.b.buf, POISON, 1024);
			if (!k)
				check_ok(post_recv(&p.b, i, DST_OFF, lens[i]));
			check_ok(ibv_post_send(p.a.qp, &wr, &bad));
			memset(tmp, 0xee, sizeof(tmp));
			run_ok(expect_wc(p.a.scq, i, IBV_WC_SUCCESS, 5000,
					 NULL));
			if (!k)
				run_ok(expect_wc(p.b.rcq, i, IBV_WC_SUCCESS,
						 5000, NULL));
			run_ok(dest_check(&p.b, lens[i], i));
		}
	run_ok(pair_down(&p));
	return 0;
}

/* Completion events: solicited ones only, all, and none unasked. */
static int rc_solicited(void)
{
	struct opts o = opts_default();
	struct ibv_wc wc;
	struct pair p;
	int i;

	o.channel = true;
	run_ok(pair_up(&p, &o));
	for (i = 0; i < 20; i++)
		check_ok(post_recv(&p.b, i, i * 64, 64));
	struct wr w = { .op = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED,
			.len = 64 };

	/* not asked for: no event */
	check_ok(post(&p.a, &w));
	run_ok(expect_wc(p.b.rcq, 0, IBV_WC_SUCCESS, 5000, NULL));
	check(get_cq_event(&p.b, 100) == 0);

	check_ok(ibv_req_notify_cq(p.b.rcq, 1));
	check_ok(post(&p.a, &w));
	run_ok(expect_wc(p.b.rcq, 1, IBV_WC_SUCCESS, 5000, NULL));
	if (get_cq_event(&p.b, 200))
		fail("an unsolicited message raised a solicited-only event");
	w.flags |= IBV_SEND_SOLICITED;
	check_ok(post(&p.a, &w));
	if (get_cq_event(&p.b, 5000) != 1)
		fail("no event for a solicited message");
	run_ok(expect_wc(p.b.rcq, 2, IBV_WC_SUCCESS, 5000, NULL));
	/* once only until asked again */
	check_ok(post(&p.a, &w));
	run_ok(expect_wc(p.b.rcq, 3, IBV_WC_SUCCESS, 5000, NULL));
	if (get_cq_event(&p.b, 200))
		fail("an event without a request");

	check_ok(ibv_req_notify_cq(p.b.rcq, 0));
	w.flags = IBV_SEND_SIGNALED;
	check_ok(post(&p.a, &w));
	if (get_cq_event(&p.b, 5000) != 1)
		fail("no event for any message when all were asked for");
	run_ok(expect_wc(p.b.rcq, 4, IBV_WC_SUCCESS, 5000, NULL));

	/* A write with immediate and solicited; and an error completion. */
	check_ok(ibv_req_notify_cq(p.b.rcq, 1));
	check_ok(post_to(&p.a, (struct wr){
		.op = IBV_WR_RDMA_WRITE_WITH_IMM, .len = 64,
		.flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED }, &p.b, 4096));
	if (get_cq_event(&p.b, 5000) != 1)
		fail("no event for a solicited write with immediate");
	run_ok(expect_wc(p.b.rcq, 5, IBV_WC_SUCCESS, 5000, NULL));
	check_ok(ibv_req_notify_cq(p.b.rcq, 1));
	run_ok(ep_state(&p.b, IBV_QPS_ERR));
	if (get_cq_event(&p.b, 5000) != 1)
		fail("no solicited-only event for an error completion");
	run_ok(expect_wc(p.b.rcq, 6, IBV_WC_WR_FLUSH_ERR, 5000, &wc));
	run_ok(pair_down(&p));
	return 0;
}

/* No wake-up gets lost when one side sleeps between any two messages. */
struct echo {
	struct pair *p;
	int rounds, result;
};

static int echo_side(struct ep *e, int rounds, bool first)
{
	struct ibv_wc wc;
	int recvd = 0, sent = 0, n;

	if (first) {
		check_ok(post(e, &(struct wr){ .op = IBV_WR_SEND, .len = 8 }));
		sent++;
	}
	while (recvd < rounds) {
		if (get_cq_event(e, 5000) != 1)
			fail("%s: no event after %d messages",
			     first ? "A" : "B", recvd);
		check_ok(ibv_req_notify_cq(e->rcq, 0));
		while ((n = ibv_poll_cq(e->rcq, 1, &wc)) == 1) {
			check(wc.status == IBV_WC_SUCCESS);
			recvd++;
			check_ok(post_recv(e, recvd, 64, 64));
			if (sent < rounds) {
				check_ok(post(e, &(struct wr){
					.op = IBV_WR_SEND, .len = 8,
					.flags = sent % 16 ? 0 :
						 IBV_SEND_SIGNALED }));
				sent++;
			}
		}
		check(n == 0);
		while (ibv_poll_cq(e->scq, 1, &wc) == 1)
			check(wc.status == IBV_WC_SUCCESS);
	}
	return 0;
}

static void *echo_thread(void *arg)
{
	struct echo *ec = arg;

	ec->result = echo_side(&ec->p->b, ec->rounds, false);
	return NULL;
}

static int rc_events(void)
{
	struct opts o = opts_default();
	struct echo ec;
	struct pair p;
	pthread_t th;
	int i, r;

	o.channel = true;
	run_ok(pair_up(&p, &o));
	for (i = 0; i < 8; i++) {
		check_ok(post_recv(&p.a, i, 64, 64));
		check_ok(post_recv(&p.b, i, 64, 64));
	}
	/* Asked for before anything can arrive: else it may go unnoticed. */
	check_ok(ibv_req_notify_cq(p.a.rcq, 0));
	check_ok(ibv_req_notify_cq(p.b.rcq, 0));
	ec = (struct echo){ &p, quick ? 300 : 2000, -1 };
	check_ok(pthread_create(&th, NULL, echo_thread, &ec));
	r = echo_side(&p.a, ec.rounds, true);
	pthread_join(th, NULL);
	check(!r && !ec.result);
	run_ok(pair_down(&p));
	return 0;
}

static int rc_many_qps(void)
{
	enum { N = 100 };
	static struct pair p[N];
	struct opts o = opts_default();
	int i, j;

	o.depth = 4;
	o.buf = 8192;
	for (i = 0; i < N; i++)
		run_ok(pair_up(&p[i], &o));
	for (i = 0; i < N; i++)
		for (j = 0; j < i; j++)
			check(p[i].a.qp->qp_num != p[j].a.qp->qp_num);
	for (i = 0; i < N; i++) {
		fill(p[i].a.buf, 4000, i);
		check_ok(post_recv(&p[i].b, i, 16, 4000));
	}
	for (i = 0; i < N; i++)
		check_ok(post(&p[i].a, &(struct wr){
			.id = i, .op = IBV_WR_SEND, .len = 4000,
			.flags = IBV_SEND_SIGNALED }));
	for (i = N - 1; i >= 0; i--) {
		run_ok(expect_wc(p[i].a.scq, i, IBV_WC_SUCCESS, 10000, NULL));
		run_ok(expect_wc(p[i].b.rcq, i, IBV_WC_SUCCESS, 10000, NULL));
		check(check_fill(p[i].b.buf + 16, 4000, i) < 0);
	}
	for (i = 0; i < N; i++)
		run_ok(pair_down(&p[i]));
	return 0;
}

/* A queue pair that talks to itself. */
static int rc_self(void)
{
	struct opts o = opts_default();
	struct ep e;

	run_ok(ep_create(&e, &host_a, &o));
	run_ok(ep_init(&e, &o));
	run_ok(ep_rtr(&e, &e, &o));
	run_ok(ep_rts(&e, &o));
	fill(e.buf, 10000, 1);
	check_ok(post_recv(&e, 1, 65536, 10000));
	check_ok(post(&e, &(struct wr){ .id = 2, .op = IBV_WR_SEND,
		.flags = IBV_SEND_SIGNALED, .len = 10000 }));
	run_ok(expect_wc(e.scq, 2, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(expect_wc(e.rcq, 1, IBV_WC_SUCCESS, 5000, NULL));
	check(check_fill(e.buf + 65536, 10000, 1) < 0);
	check_ok(post_to(&e, (struct wr){ .id = 3, .op = IBV_WR_RDMA_READ,
		.flags = IBV_SEND_SIGNALED, .off = 131072, .len = 10000 }, &e,
		0));
	run_ok(expect_wc(e.scq, 3, IBV_WC_SUCCESS, 5000, NULL));
	check(check_fill(e.buf + 131072, 10000, 1) < 0);
	run_ok(ep_destroy(&e));
	return 0;
}

/* Regions of every alignment and kind of memory. */
static int mr_memory(void)
{
	struct opts o = opts_default();
	struct ibv_mr *mr;
	struct pair p;
	uint8_t *m;
	int i;

	run_ok(pair_up(&p, &o));
	/* read-only memory can be sent from and read by the peer */
	m = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(m != MAP_FAILED);
	fill(m, 1 << 16, 9);
	check_ok(mprotect(m, 1 << 16, PROT_READ));
	mr = ibv_reg_mr(host_b.pd, m, 1 << 16, IBV_ACCESS_REMOTE_READ);
	if (!mr)
		fail("read-only memory, remote read: %s", strerror(errno));
	check_ok(post(&p.a, &(struct wr){
		.id = 1, .op = IBV_WR_RDMA_READ, .flags = IBV_SEND_SIGNALED,
		.len = 1 << 16, .raddr = (uintptr_t)m, .rkey = mr->rkey }));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_SUCCESS, 5000, NULL));
	check(check_fill(p.a.buf, 1 << 16, 9) < 0);
	check_ok(ibv_dereg_mr(mr));
	munmap(m, 1 << 16);

	/* a region that starts and ends within pages: its bytes only */
	for (i = 0; i < 8; i++) {
		size_t off = 4096 - i * 513, len = 4096 * i + 1 + i;

		memset(p.b.buf, POISON, 65536);
		mr = ibv_reg_mr(host_b.pd, p.b.buf + off, len, ACC_ALL);
		check(mr);
		check(mr->lkey != p.b.mr->lkey && mr->rkey != p.b.mr->rkey);
		fill(p.a.buf, len, i);
		check_ok(post(&p.a, &(struct wr){
			.id = i, .op = IBV_WR_RDMA_WRITE,
			.flags = IBV_SEND_SIGNALED, .len = len,
			.raddr = (uintptr_t)p.b.buf + off,
			.rkey = mr->rkey }));
		run_ok(expect_wc(p.a.scq, i, IBV_WC_SUCCESS, 5000, NULL));
		check(check_fill(p.b.buf + off, len, i) < 0);
		check(check_byte(p.b.buf, off, POISON) < 0);
		check(check_byte(p.b.buf + off + len, 4096, POISON) < 0);
		check_ok(ibv_dereg_mr(mr));
	}

	/* an address of the region's own choice */
	mr = ibv_reg_mr_iova(host_b.pd, p.b.buf + 4096, 8192, 0x7000000000,
			     ACC_ALL);
	if (!mr)
		fail("ibv_reg_mr_iova: %s", strerror(errno));
	fill(p.a.buf, 8192, 77);
	check_ok(post(&p.a, &(struct wr){
		.id = 9, .op = IBV_WR_RDMA_WRITE, .flags = IBV_SEND_SIGNALED,
		.len = 8192, .raddr = 0x7000000000, .rkey = mr->rkey }));
	run_ok(expect_wc(p.a.scq, 9, IBV_WC_SUCCESS, 5000, NULL));
	check(check_fill(p.b.buf + 4096, 8192, 77) < 0);
	check_ok(ibv_dereg_mr(mr));

	mr = ibv_reg_mr(host_b.pd, p.b.buf, 4096,
			ACC_ALL | IBV_ACCESS_RELAXED_ORDERING);
	if (!mr)
		fail("relaxed ordering, an optional flag: %s",
		     strerror(errno));
	check_ok(ibv_dereg_mr(mr));
	run_ok(pair_down(&p));
	return 0;
}

/* Reads and writes a region of the peer's at some places. */
static int touch(struct pair *p, struct ibv_mr *mr, const size_t *offs, int n)
{
	uint8_t *m = mr->addr;
	int i;

	for (i = 0; i < n; i++) {
		memset(p->a.buf, 0, 8192);
		check_ok(post(&p->a, &(struct wr){
			.id = i, .op = IBV_WR_RDMA_READ, .len = 8192,
			.flags = IBV_SEND_SIGNALED, .rkey = mr->rkey,
			.raddr = (uintptr_t)m + offs[i] }));
		run_ok(expect_wc(p->a.scq, i, IBV_WC_SUCCESS, 5000, NULL));
		check(!memcmp(p->a.buf, m + offs[i], 8192));
		fill(p->a.buf, 8192, 100 + i);
		check_ok(post(&p->a, &(struct wr){
			.id = i, .op = IBV_WR_RDMA_WRITE, .len = 8192,
			.flags = IBV_SEND_SIGNALED, .rkey = mr->rkey,
			.raddr = (uintptr_t)m + offs[i] }));
		run_ok(expect_wc(p->a.scq, i, IBV_WC_SUCCESS, 5000, NULL));
		check(check_fill(m + offs[i], 8192, 100 + i) < 0);
	}
	return 0;
}

#define BIG_PAGE (2UL << 20)

/* Memory of pages of 2 MiB, made ready for it. */
static int big_pages(void)
{
	FILE *f = fopen("/proc/sys/vm/nr_hugepages", "w");

	if (f) {
		fprintf(f, "8\n");
		fclose(f);
	}
	return memfd_create("big pages", MFD_HUGETLB);
}

/* More than 32 bits can count: the same memory, over and over. */
static int mr_huge(void)
{
	const size_t part = 4 * BIG_PAGE, len = (4UL << 30) + part, offs[] = {
		0, (4UL << 30) - 4096, (4UL << 30) + 123, len - 8192,
	};
	struct opts o = opts_default();
	int fd = big_pages();
	struct ibv_mr *mr;
	struct pair p;
	uint8_t *map, *m;
	size_t at;

	if (fd < 0 || ftruncate(fd, part))
		skip("no huge pages here");
	run_ok(pair_up(&p, &o));
	map = mmap(NULL, len + BIG_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
		   -1, 0);
	check(map != MAP_FAILED);
	m = map + (-(uintptr_t)map & (BIG_PAGE - 1));
	for (at = 0; at < len; at += part)
		check(mmap(m + at, part, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_FIXED, fd, 0) == m + at);
	fill(m, part, 9);
	mr = ibv_reg_mr(host_b.pd, m, len, ACC_ALL);
	if (!mr)
		fail("more than 4 GiB: %s", strerror(errno));
	run_ok(touch(&p, mr, offs, 4));
	/* not a byte more */
	check_ok(post(&p.a, &(struct wr){
		.id = 9, .op = IBV_WR_RDMA_READ, .flags = IBV_SEND_SIGNALED,
		.len = 8192, .raddr = (uintptr_t)m + len - 8191,
		.rkey = mr->rkey }));
	run_ok(expect_wc(p.a.scq, 9, IBV_WC_REM_ACCESS_ERR, 5000, NULL));
	check_ok(ibv_dereg_mr(mr));
	munmap(map, len + BIG_PAGE);
	close(fd);
	run_ok(pair_down(&p));
	return 0;
}

/* Pages of 2 MiB: reserved ones, and those that the kernel makes by itself. */
static int mr_huge_pages(void)
{
	const size_t len = 4 * BIG_PAGE, offs[] = {
		0, BIG_PAGE - 4097, 3 * BIG_PAGE - 1, len - 8192,
	};
	struct opts o = opts_default();
	int kind, tried = 0, fd;
	struct pair p;

	run_ok(pair_up(&p, &o));
	fd = big_pages();
	for (kind = 0; kind < 2; kind++) {
		size_t room = len + (kind ? BIG_PAGE : 0);
		uint8_t *map, *m;
		struct ibv_mr *mr;

		if (!kind && (fd < 0 || ftruncate(fd, len)))
			continue;
		map = mmap(NULL, room, PROT_READ | PROT_WRITE, kind ?
			   MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED,
			   kind ? -1 : fd, 0);
		check(map != MAP_FAILED);
		m = map + (-(uintptr_t)map & (BIG_PAGE - 1));
		if (kind && madvise(m, len, MADV_HUGEPAGE)) {
			munmap(map, room);
			continue;
		}
		tried++;
		memset(m, 0x33, len);
		mr = ibv_reg_mr(host_b.pd, m, len, ACC_ALL);
		if (!mr)
			fail("%s: %s", kind ? "made" : "reserved",
			     strerror(errno));
		run_ok(touch(&p, mr, offs, 4));
		check_ok(ibv_dereg_mr(mr));
		munmap(map, room);
	}
	if (fd >= 0)
		close(fd);
	run_ok(pair_down(&p));
	if (!tried)
		skip("no huge pages here");
	return 0;
}

static int ud_ah(struct ep *e, struct ep *peer, struct ibv_ah **ah)
{
	struct ibv_ah_attr aa = {
		.is_global = 1, .port_num = 1,
		.grh = { .dgid = peer->h->gid, .sgid_index = e->h->gidx,
			 .hop_limit = 33, .traffic_class = 0x20 },
	};

	*ah = ibv_create_ah(e->h->pd, &aa);
	if (!*ah)
		fail("ibv_create_ah: %s", strerror(errno));
	return 0;
}

static int ud_post(struct ep *e, struct ep *peer, struct ibv_ah *ah,
		   uint64_t id, enum ibv_wr_opcode op, uint32_t len,
		   uint32_t qkey, uint32_t imm)
{
	struct ibv_sge sg = { (uintptr_t)e->buf + SRC_OFF, len, e->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = id, .sg_list = &sg, .num_sge = len ? 1 : 0,
		.opcode = op, .send_flags = IBV_SEND_SIGNALED,
		.imm_data = htonl(imm),
		.wr.ud = { .ah = ah, .remote_qpn = peer->qp->qp_num,
			   .remote_qkey = qkey },
	}, *bad;

	return ibv_post_send(e->qp, &wr, &bad);
}

static int ud_one(struct ep *e, struct ep *peer, struct ibv_ah *ah,
		  uint32_t len, bool imm, uint32_t seed)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	struct ibv_wc wc;
	uint8_t *g = peer->buf + DST_OFF;
	long bad;

	fill(e->buf + SRC_OFF, len, seed);
	memset(peer->buf, POISON, DST_OFF + 40 + len + GUARD);
	check_ok(post_recv(peer, seed, DST_OFF, 40 + len + (seed & 1)));
	check_ok(ud_post(e, peer, ah, seed + 1, imm ? IBV_WR_SEND_WITH_IMM :
			 IBV_WR_SEND, len, QKEY, 0xcafe0000 + seed));
	run_ok(expect_wc(e->scq, seed + 1, IBV_WC_SUCCESS, 5000, &wc));
	check(wc.opcode == IBV_WC_SEND);
	run_ok(expect_wc(peer->rcq, seed, IBV_WC_SUCCESS, 5000, &wc));
	check(wc.opcode == IBV_WC_RECV);
	if (wc.byte_len != len + 40)
		fail("byte_len %u for %u bytes", wc.byte_len, len);
	check(wc.wc_flags & IBV_WC_GRH);
	check(!(wc.wc_flags & IBV_WC_WITH_IMM) == !imm);
	check(!imm || ntohl(wc.imm_data) == 0xcafe0000 + seed);
	if (wc.src_qp != e->qp->qp_num)
		fail("source QP 0x%x, not 0x%x", wc.src_qp, e->qp->qp_num);
	/* the network header: IPv4 in the last 20 of the 40 bytes */
	if (!memcmp(e->h->gid.raw, mapped, 12)) {
		check(g[20] == 0x45);
		check(!memcmp(g + 20 + 12, e->h->gid.raw + 12, 4));
		check(!memcmp(g + 20 + 16, peer->h->gid.raw + 12, 4));
		check(g[20 + 9] == IPPROTO_UDP);
		check(g[21] == 0x20);
		check(g[28] > 0);
	} else {
		check(g[0] >> 4 == 6);
		check(!memcmp(g + 8, e->h->gid.raw, 16));
		check(!memcmp(g + 24, peer->h->gid.raw, 16));
		check(g[7] > 0);
	}
	bad = check_fill(g + 40, len, seed);
	if (bad >= 0)
		fail("%u bytes: byte %ld differs", len, bad);
	check(check_byte(g + 40 + len, GUARD, POISON) < 0);
	check(check_byte(peer->buf, DST_OFF, POISON) < 0);
	return 0;
}

static int ud_pair(struct pair *p, struct ibv_ah **ab, struct ibv_ah **ba)
{
	struct opts o = opts_default();

	o.type = IBV_QPT_UD;
	run_ok(pair_up(p, &o));
	run_ok(ud_ah(&p->a, &p->b, ab));
	run_ok(ud_ah(&p->b, &p->a, ba));
	return 0;
}

static int ud_data(void)
{
	int mtu = mtu_bytes(pair_mtu());
	uint32_t s[] = { 0, 1, 2, 3, 4, 63, 64, 255, 256, 257, mtu / 2 + 1,
			 mtu - 3, mtu - 2, mtu - 1, mtu };
	struct ibv_ah *ab, *ba;
	struct pair p;
	int i, k;

	run_ok(ud_pair(&p, &ab, &ba));
	for (i = 0; i < (int)ARRAY_SIZE(s); i++)
		for (k = 0; k < 2; k++) {
			int r = ud_one(&p.a, &p.b, ab, s[i], k, 10 * i + k);

			if (!r)
				r = ud_one(&p.b, &p.a, ba, s[i], k, 10 * i + k);
			if (r)
				fail("%u bytes, %s immediate", s[i],
				     k ? "with" : "no");
		}
	check_ok(ibv_destroy_ah(ab));
	check_ok(ibv_destroy_ah(ba));
	run_ok(pair_down(&p));
	return 0;
}

/* Dropped by the receiver, for all that the sender knows it went well. */
static int ud_drops(void)
{
	struct ibv_ah *ab, *ba;
	struct ibv_wc wc;
	struct pair p;

	run_ok(ud_pair(&p, &ab, &ba));
	/* no receive posted */
	check_ok(ud_post(&p.a, &p.b, ab, 1, IBV_WR_SEND, 64, QKEY, 0));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(expect_no_wc(p.b.rcq, 100));
	/* wrong Q_Key */
	check_ok(post_recv(&p.b, 5, 0, 4096));
	check_ok(ud_post(&p.a, &p.b, ab, 2, IBV_WR_SEND, 64, QKEY + 1, 0));
	run_ok(expect_wc(p.a.scq, 2, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(expect_no_wc(p.b.rcq, 100));
	/* the receive posted then is still there for a good one */
	check_ok(ud_post(&p.a, &p.b, ab, 3, IBV_WR_SEND, 64, QKEY, 0));
	run_ok(expect_wc(p.a.scq, 3, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(expect_wc(p.b.rcq, 5, IBV_WC_SUCCESS, 5000, &wc));
	check(wc.byte_len == 104);
	check_ok(ibv_destroy_ah(ab));
	check_ok(ibv_destroy_ah(ba));
	run_ok(pair_down(&p));
	return 0;
}

static const struct testcase cases[] = {
	{ "rc_send", rc_send, 120 },
	{ "rc_send_imm", rc_send_imm, 120 },
	{ "rc_write", rc_write, 120 },
	{ "rc_write_imm", rc_write_imm, 120 },
	{ "rc_read", rc_read, 120 },
	{ "rc_mixed", rc_mixed, 240 },
	{ "rc_atomic", rc_atomic },
	{ "rc_outstanding", rc_outstanding },
	{ "rc_psn_wrap", rc_psn_wrap, 60 },
	{ "rc_zero_bad_key", rc_zero_bad_key },
	{ "rc_multi_sge", rc_multi_sge },
	{ "rc_unsignalled", rc_unsignalled },
	{ "rc_one_at_a_time", rc_one_at_a_time, 120 },
	{ "rc_fence", rc_fence },
	{ "rc_inline", rc_inline },
	{ "rc_solicited", rc_solicited },
	{ "rc_events", rc_events, 60 },
	{ "rc_many_qps", rc_many_qps, 60 },
	{ "rc_self", rc_self },
	{ "mr_memory", mr_memory },
	{ "mr_huge", mr_huge, 60 },
	{ "mr_huge_pages", mr_huge_pages },
	{ "ud_data", ud_data },
	{ "ud_drops", ud_drops },
	{ "uc_data", uc_data, 240 },
};

int main(int argc, char **argv)
{
	return rig_main(argc, argv, cases, ARRAY_SIZE(cases));
}
