// SPDX-License-Identifier: GPL-2.0
/*
 * What goes wrong ends in the completion that the specification gives it, on
 * both sides, and in nothing else.
 */
#include <pthread.h>
#include <poll.h>
#include <sys/mman.h>
#include "rig.h"

#define POISON 0xa5

/* Both ends are in the error state when all is over. */
static int both_in_error(struct pair *p)
{
	uint64_t start = now_us();

	/* the responder's end follows when it has sent its NAK */
	while (ep_query_state(&p->b) != IBV_QPS_ERR &&
	       now_us() - start < 1000000)
		usleep(1000);
	check(ep_query_state(&p->a) == IBV_QPS_ERR);
	check(ep_query_state(&p->b) == IBV_QPS_ERR);
	return 0;
}

/*
 * A request that the responder refuses: posted with two good ones behind it,
 * which must be flushed. Optionally the responder tells of it.
 */
static int refused(struct pair *p, struct wr w, enum ibv_wc_status st,
		   bool event)
{
	uint64_t start;

	w.id = 1;
	w.flags = IBV_SEND_SIGNALED;
	start = now_us();
	check_ok(post(&p->a, &w));
	check_ok(post_to(&p->a, (struct wr){ .id = 2, .len = 64,
		.op = IBV_WR_RDMA_WRITE }, &p->b, 4096));
	check_ok(post(&p->a, &(struct wr){ .id = 3, .op = IBV_WR_SEND,
		.len = 8, .flags = IBV_SEND_SIGNALED }));
	run_ok(expect_wc(p->a.scq, 1, st, 10000, NULL));
	/* by a NAK: not by waiting for one */
	if (now_us() - start > 5000000)
		printf("# refused after %llu ms\n", (unsigned long long)
		       (now_us() - start) / 1000);
	/* in error even unsignalled ones complete */
	run_ok(expect_wc(p->a.scq, 2, IBV_WC_WR_FLUSH_ERR, 5000, NULL));
	run_ok(expect_wc(p->a.scq, 3, IBV_WC_WR_FLUSH_ERR, 5000, NULL));
	run_ok(expect_no_wc(p->a.scq, 20));
	if (event)
		run_ok(expect_event(&host_b, IBV_EVENT_QP_ACCESS_ERR, p->b.qp,
				    5000));
	return both_in_error(p);
}

static const enum ibv_wr_opcode remote_ops[] = {
	IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD,
};

/* Each operation with something wrong about the remote key. */
static int bad_remote(void (*spoil)(struct wr *, struct pair *))
{
	struct opts o = opts_default();
	struct pair p;
	int i;

	for (i = 0; i < (int)ARRAY_SIZE(remote_ops); i++) {
		struct wr w = { .op = remote_ops[i] };

		run_ok(pair_up(&p, &o));
		memset(p.b.buf, POISON, p.b.len);
		w.len = i == 2 ? 8 : 20000;
		w.raddr = (uintptr_t)p.b.buf;
		w.rkey = p.b.mr->rkey;
		spoil(&w, &p);
		if (refused(&p, w, IBV_WC_REM_ACCESS_ERR, true))
			fail("operation %d", w.op);
		check(check_byte(p.b.buf, p.b.len, POISON) < 0);
		run_ok(pair_down(&p));
	}
	return 0;
}

static void unknown_rkey(struct wr *w, struct pair *p)
{
	w->rkey ^= 0x5500;
}

static void wrong_key_tag(struct wr *w, struct pair *p)
{
	w->rkey ^= 1;
}

static void beyond_end(struct wr *w, struct pair *p)
{
	w->raddr = (uintptr_t)p->b.buf + p->b.len - w->len + 8;
}

static void before_start(struct wr *w, struct pair *p)
{
	w->raddr = (uintptr_t)p->b.buf - 8;
}

static void wraps(struct wr *w, struct pair *p)
{
	w->raddr = 0 - (uint64_t)8;
}

static int rem_unknown_rkey(void) { return bad_remote(unknown_rkey); }
static int rem_wrong_key_tag(void) { return bad_remote(wrong_key_tag); }
static int rem_beyond_end(void) { return bad_remote(beyond_end); }
static int rem_before_start(void) { return bad_remote(before_start); }
static int rem_address_wraps(void) { return bad_remote(wraps); }

/* The region lacks the right. */
static int rem_mr_rights(void)
{
	const int need[] = { IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ,
			     IBV_ACCESS_REMOTE_ATOMIC };
	struct opts o = opts_default();
	struct ibv_mr *mr;
	struct pair p;
	int i;

	for (i = 0; i < 3; i++) {
		run_ok(pair_up(&p, &o));
		mr = ibv_reg_mr(host_b.pd, p.b.buf, 65536, ACC_ALL & ~need[i]);
		check(mr);
		if (refused(&p, (struct wr){ .op = remote_ops[i],
				.len = i == 2 ? 8 : 5000,
				.raddr = (uintptr_t)p.b.buf,
				.rkey = mr->rkey }, IBV_WC_REM_ACCESS_ERR,
			    true))
			fail("without access flag 0x%x", need[i]);
		check_ok(ibv_dereg_mr(mr));
		run_ok(pair_down(&p));
	}
	return 0;
}

/* The queue pair lacks the right: the request is not one it takes. */
static int rem_qp_rights(void)
{
	const int need[] = { IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ,
			     IBV_ACCESS_REMOTE_ATOMIC };
	struct opts o;
	struct pair p;
	int i;

	for (i = 0; i < 3; i++) {
		o = opts_default();
		o.qp_access &= ~need[i];
		run_ok(pair_up(&p, &o));
		check_ok(post_to(&p.a, (struct wr){ .id = 1,
			.op = remote_ops[i], .len = i == 2 ? 8 : 5000,
			.flags = IBV_SEND_SIGNALED }, &p.b, 0));
		if (expect_wc(p.a.scq, 1, IBV_WC_REM_INV_REQ_ERR, 5000, NULL))
			fail("without access flag 0x%x", need[i]);
		run_ok(both_in_error(&p));
		run_ok(pair_down(&p));
	}
	return 0;
}

static int rem_other_pd(void)
{
	struct opts o = opts_default();
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct pair p;

	run_ok(pair_up(&p, &o));
	pd = ibv_alloc_pd(host_b.ctx);
	check(pd);
	mr = ibv_reg_mr(pd, p.b.buf, 65536, ACC_ALL);
	check(mr);
	run_ok(refused(&p, (struct wr){ .op = IBV_WR_RDMA_WRITE, .len = 100,
		.raddr = (uintptr_t)p.b.buf, .rkey = mr->rkey },
		IBV_WC_REM_ACCESS_ERR, true));
	check_ok(ibv_dereg_mr(mr));
	check_ok(ibv_dealloc_pd(pd));
	run_ok(pair_down(&p));
	return 0;
}

static int rem_deregistered(void)
{
	struct opts o = opts_default();
	struct ibv_mr *mr;
	struct pair p;
	uint32_t rkey;

	run_ok(pair_up(&p, &o));
	mr = ibv_reg_mr(host_b.pd, p.b.buf, 65536, ACC_ALL);
	check(mr);
	rkey = mr->rkey;
	check_ok(post(&p.a, &(struct wr){ .id = 9, .op = IBV_WR_RDMA_WRITE,
		.flags = IBV_SEND_SIGNALED, .len = 100, .rkey = rkey,
		.raddr = (uintptr_t)p.b.buf }));
	run_ok(expect_wc(p.a.scq, 9, IBV_WC_SUCCESS, 5000, NULL));
	check_ok(ibv_dereg_mr(mr));
	run_ok(refused(&p, (struct wr){ .op = IBV_WR_RDMA_WRITE, .len = 100,
		.raddr = (uintptr_t)p.b.buf, .rkey = rkey },
		IBV_WC_REM_ACCESS_ERR, true));
	run_ok(pair_down(&p));
	return 0;
}

/* A write with immediate: no receive must say that it came. */
static int rem_write_imm(void)
{
	struct opts o = opts_default();
	struct ibv_wc wc;
	struct pair p;
	int n;

	run_ok(pair_up(&p, &o));
	check_ok(post_recv(&p.b, 5, 0, 64));
	check_ok(post(&p.a, &(struct wr){ .id = 1, .len = 5000,
		.op = IBV_WR_RDMA_WRITE_WITH_IMM, .flags = IBV_SEND_SIGNALED,
		.raddr = (uintptr_t)p.b.buf, .rkey = p.b.mr->rkey ^ 0x100 }));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR, 5000, NULL));
	n = get_wc(p.b.rcq, &wc, 2000);
	if (n != 1 || wc.wr_id != 5 || wc.status == IBV_WC_SUCCESS)
		fail("the receive: poll %d, %s", n,
		     n == 1 ? ibv_wc_status_str(wc.status) : "-");
	run_ok(both_in_error(&p));
	run_ok(pair_down(&p));
	return 0;
}

/* Local keys. */
static int loc_bad(const struct wr *w)
{
	struct opts o = opts_default();
	struct pair p;
	struct wr v = *w;

	run_ok(pair_up(&p, &o));
	check_ok(post_recv(&p.b, 5, 0, 65536));
	v.id = 1;
	v.flags = IBV_SEND_SIGNALED;
	if (!v.raddr)
		v.raddr = (uintptr_t)p.b.buf;
	v.rkey = p.b.mr->rkey;
	if (!v.lkey)
		v.lkey = p.a.mr->lkey ^ 0x100;
	check_ok(post(&p.a, &v));
	/*
	 * The key of what is to hold a response is needed when that comes: not
	 * before is this one under way.
	 */
	check_ok(post(&p.a, &(struct wr){ .id = 2, .op = IBV_WR_SEND,
		.flags = IBV_SEND_FENCE, .len = 8 }));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_LOC_PROT_ERR, 5000, NULL));
	run_ok(expect_wc(p.a.scq, 2, IBV_WC_WR_FLUSH_ERR, 5000, NULL));
	check(ep_query_state(&p.a) == IBV_QPS_ERR);
	run_ok(expect_no_wc(p.b.rcq, 50));
	run_ok(pair_down(&p));
	return 0;
}

static int loc_bad_lkey(void)
{
	run_ok(loc_bad(&(struct wr){ .op = IBV_WR_SEND, .len = 100 }));
	run_ok(loc_bad(&(struct wr){ .op = IBV_WR_SEND, .len = 20000 }));
	run_ok(loc_bad(&(struct wr){ .op = IBV_WR_RDMA_WRITE, .len = 100 }));
	run_ok(loc_bad(&(struct wr){ .op = IBV_WR_RDMA_READ, .len = 100 }));
	run_ok(loc_bad(&(struct wr){ .op = IBV_WR_ATOMIC_FETCH_AND_ADD,
				     .len = 8 }));
	return 0;
}

static int loc_range(void)
{
	struct opts o = opts_default();
	const enum ibv_wr_opcode ops[] = { IBV_WR_SEND, IBV_WR_RDMA_WRITE,
					   IBV_WR_RDMA_READ };
	struct pair p;
	int i;

	for (i = 0; i < 3; i++) {
		run_ok(pair_up(&p, &o));
		check_ok(post_recv(&p.b, 5, 0, 65536));
		check_ok(post_to(&p.a, (struct wr){ .id = 1, .op = ops[i],
			.flags = IBV_SEND_SIGNALED, .off = p.a.len - 100,
			.len = 101 }, &p.b, 0));
		run_ok(expect_wc(p.a.scq, 1, IBV_WC_LOC_PROT_ERR, 5000, NULL));
		run_ok(pair_down(&p));
	}
	return 0;
}

/* A READ into a region, and a receive, that must not be written. */
static int loc_no_write(void)
{
	struct opts o = opts_default();
	struct ibv_recv_wr *bad;
	struct ibv_recv_wr rr;
	struct ibv_sge sg;
	struct ibv_mr *mr;
	struct pair p;

	run_ok(pair_up(&p, &o));
	mr = ibv_reg_mr(host_a.pd, p.a.buf, 65536, 0);
	check(mr);
	memset(p.a.buf, POISON, 4096);
	check_ok(post_to(&p.a, (struct wr){ .id = 1, .op = IBV_WR_RDMA_READ,
		.flags = IBV_SEND_SIGNALED, .len = 100, .lkey = mr->lkey },
		&p.b, 0));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_LOC_PROT_ERR, 5000, NULL));
	check(check_byte(p.a.buf, 4096, POISON) < 0);
	check_ok(ibv_dereg_mr(mr));
	run_ok(pair_down(&p));

	run_ok(pair_up(&p, &o));
	mr = ibv_reg_mr(host_b.pd, p.b.buf, 65536, 0);
	check(mr);
	memset(p.b.buf, POISON, 4096);
	sg = (struct ibv_sge){ (uintptr_t)p.b.buf, 4096, mr->lkey };
	rr = (struct ibv_recv_wr){ .wr_id = 5, .sg_list = &sg, .num_sge = 1 };
	check_ok(ibv_post_recv(p.b.qp, &rr, &bad));
	check_ok(post(&p.a, &(struct wr){ .id = 1, .op = IBV_WR_SEND,
		.flags = IBV_SEND_SIGNALED, .len = 100 }));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_REM_OP_ERR, 5000, NULL));
	run_ok(expect_wc(p.b.rcq, 5, IBV_WC_LOC_PROT_ERR, 5000, NULL));
	check(check_byte(p.b.buf, 4096, POISON) < 0);
	run_ok(both_in_error(&p));
	check_ok(ibv_dereg_mr(mr));
	run_ok(pair_down(&p));
	return 0;
}

static int recv_too_small(void)
{
	const uint32_t len[] = { 100, 101, 20000 };
	const uint32_t room[] = { 99, 0, 19999 };
	struct opts o = opts_default();
	struct pair p;
	int i;

	for (i = 0; i < 3; i++) {
		run_ok(pair_up(&p, &o));
		memset(p.b.buf, POISON, 65536);
		check_ok(post_recv(&p.b, 5, 64, room[i]));
		check_ok(post_recv(&p.b, 6, 64, 65536));
		check_ok(post(&p.a, &(struct wr){ .id = 1, .op = IBV_WR_SEND,
			.flags = IBV_SEND_SIGNALED, .len = len[i] }));
		run_ok(expect_wc(p.a.scq, 1, IBV_WC_REM_INV_REQ_ERR, 5000,
				 NULL));
		run_ok(expect_wc(p.b.rcq, 5, IBV_WC_LOC_LEN_ERR, 5000, NULL));
		run_ok(expect_wc(p.b.rcq, 6, IBV_WC_WR_FLUSH_ERR, 5000, NULL));
		check(check_byte(p.b.buf + 64 + room[i], 256, POISON) < 0);
		check(check_byte(p.b.buf, 64, POISON) < 0);
		run_ok(both_in_error(&p));
		run_ok(pair_down(&p));
	}
	return 0;
}

/* No receive, some retries: not earlier than they take. */
static int rnr_exhausted(void)
{
	struct opts o = opts_default();
	uint64_t start, us;
	struct pair p;

	o.rnr_retry = 3;
	o.rnr_timer = 18;	/* 5.12 ms */
	run_ok(pair_up(&p, &o));
	start = now_us();
	check_ok(post(&p.a, &(struct wr){ .id = 1, .op = IBV_WR_SEND,
		.flags = IBV_SEND_SIGNALED, .len = 100 }));
	check_ok(post(&p.a, &(struct wr){ .id = 2, .op = IBV_WR_SEND,
		.len = 100 }));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR, 10000, NULL));
	us = now_us() - start;
	run_ok(expect_wc(p.a.scq, 2, IBV_WC_WR_FLUSH_ERR, 5000, NULL));
	printf("# %llu us; 3 retries at 5120 us\n", (unsigned long long)us);
	check(us >= 3 * 5120);
	check(us < 3 * 5120 + 3000000);
	check(ep_query_state(&p.a) == IBV_QPS_ERR);
	/* the other side has seen nothing wrong */
	check(ep_query_state(&p.b) == IBV_QPS_RTS);
	run_ok(pair_down(&p));
	return 0;
}

/* A receive that comes late, and rnr_retry 7 means for ever. */
static int rnr_late(void)
{
	struct opts o = opts_default();
	struct pair p;
	int i;

	o.rnr_timer = 14;	/* 1.28 ms: far more than 7 retries */
	run_ok(pair_up(&p, &o));
	for (i = 0; i < 5; i++) {
		fill(p.a.buf, 9000, i);
		check_ok(post(&p.a, &(struct wr){ .id = i, .op = IBV_WR_SEND,
			.flags = IBV_SEND_SIGNALED, .len = 9000 }));
		run_ok(expect_no_wc(p.a.scq, 60));
		check_ok(post_recv(&p.b, i, 4096, 9000));
		run_ok(expect_wc(p.b.rcq, i, IBV_WC_SUCCESS, 5000, NULL));
		run_ok(expect_wc(p.a.scq, i, IBV_WC_SUCCESS, 5000, NULL));
		check(check_fill(p.b.buf + 4096, 9000, i) < 0);
	}
	run_ok(pair_down(&p));
	return 0;
}

/* The peer is gone: 4.096 us * 2^timeout, up to four times that, a try. */
static int gone(int timeout, int retry)
{
	struct opts o = opts_default();
	uint64_t t = 4096ull << timeout, start, us;
	struct pair p;

	o.timeout = timeout;
	o.retry = retry;
	run_ok(pair_up(&p, &o));
	check_ok(ibv_destroy_qp(p.b.qp));
	p.b.qp = NULL;
	start = now_us();
	check_ok(post(&p.a, &(struct wr){ .id = 1, .op = IBV_WR_SEND,
		.flags = IBV_SEND_SIGNALED, .len = 100 }));
	check_ok(post(&p.a, &(struct wr){ .id = 2, .op = IBV_WR_SEND,
		.len = 100 }));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_RETRY_EXC_ERR, 10000, NULL));
	us = now_us() - start;
	run_ok(expect_wc(p.a.scq, 2, IBV_WC_WR_FLUSH_ERR, 5000, NULL));
	printf("# timeout %d, retry_cnt %d: %llu us; the formula says %llu to %llu\n",
	       timeout, retry, (unsigned long long)us,
	       (unsigned long long)((retry + 1) * t / 1000),
	       (unsigned long long)((retry + 1) * 4 * t / 1000));
	check(us >= (retry + 1) * t / 1000);
	check(us < (retry + 1) * 4 * t / 1000 + 2000000);
	check(ep_query_state(&p.a) == IBV_QPS_ERR);
	run_ok(pair_down(&p));
	return 0;
}

static int retry_exhausted(void)
{
	run_ok(gone(12, 0));
	run_ok(gone(12, 3));
	run_ok(gone(14, 1));
	return 0;
}

static int retry_seven(void)
{
	return gone(10, 7);
}

/* Timeout 0 waits for ever. */
static int timeout_zero(void)
{
	struct opts o = opts_default();
	struct pair p;

	o.timeout = 0;
	run_ok(pair_up(&p, &o));
	check_ok(ibv_destroy_qp(p.b.qp));
	p.b.qp = NULL;
	check_ok(post(&p.a, &(struct wr){ .id = 1, .op = IBV_WR_SEND,
		.flags = IBV_SEND_SIGNALED, .len = 100 }));
	run_ok(expect_no_wc(p.a.scq, 1000));
	check(ep_query_state(&p.a) == IBV_QPS_RTS);
	run_ok(ep_state(&p.a, IBV_QPS_ERR));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_WR_FLUSH_ERR, 5000, NULL));
	run_ok(pair_down(&p));
	return 0;
}

/* Everything posted is flushed, in its order, once; also what comes later. */
static int flush_order(void)
{
	struct opts o = opts_default();
	struct ibv_wc wc;
	struct pair p;
	int i;

	o.timeout = 0;
	run_ok(pair_up(&p, &o));
	check_ok(ibv_destroy_qp(p.b.qp));
	p.b.qp = NULL;
	for (i = 0; i < 20; i++) {
		check_ok(post_recv(&p.a, 100 + i, 0, 64));
		check_ok(post(&p.a, &(struct wr){ .id = i, .op = IBV_WR_SEND,
			.len = 3000, .flags = i % 3 ? IBV_SEND_SIGNALED : 0 }));
	}
	run_ok(ep_state(&p.a, IBV_QPS_ERR));
	for (i = 0; i < 20; i++)
		run_ok(expect_wc(p.a.scq, i, IBV_WC_WR_FLUSH_ERR, 5000, &wc));
	for (i = 0; i < 20; i++)
		run_ok(expect_wc(p.a.rcq, 100 + i, IBV_WC_WR_FLUSH_ERR, 5000,
				 NULL));
	for (i = 0; i < 5; i++)
		check_ok(post(&p.a, &(struct wr){ .id = 50 + i,
			.op = IBV_WR_RDMA_WRITE, .len = 10,
			.raddr = (uintptr_t)p.b.buf, .rkey = 1 }));
	for (i = 0; i < 5; i++)
		run_ok(expect_wc(p.a.scq, 50 + i, IBV_WC_WR_FLUSH_ERR, 5000,
				 NULL));
	run_ok(expect_no_wc(p.a.scq, 50));
	run_ok(expect_no_wc(p.a.rcq, 50));
	/* and after a reset it is as good as new */
	run_ok(ep_state(&p.a, IBV_QPS_RESET));
	check(ep_query_state(&p.a) == IBV_QPS_RESET);
	run_ok(ep_init(&p.a, &p.o));
	run_ok(ep_rtr(&p.a, &p.a, &p.o));
	run_ok(ep_rts(&p.a, &p.o));
	check_ok(post_recv(&p.a, 7, 4096, 64));
	check_ok(post(&p.a, &(struct wr){ .id = 8, .op = IBV_WR_SEND,
		.len = 64, .flags = IBV_SEND_SIGNALED }));
	run_ok(expect_wc(p.a.rcq, 7, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(expect_wc(p.a.scq, 8, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(pair_down(&p));
	return 0;
}

/*
 * A flood of numbered messages, and the receiver goes into error in the midst
 * of it: each that was delivered was so once, in order.
 */
static int once_in_error(void)
{
	enum { N = 60 };
	struct opts o = opts_default();
	struct ibv_wc wc;
	struct pair p;
	int round, i, got, flushed;

	o.timeout = 10;
	o.retry = 1;
	for (round = 0; round < 30; round++) {
		uint32_t expect = 0;

		run_ok(pair_up(&p, &o));
		for (i = 0; i < N; i++)
			check_ok(post_recv(&p.b, i, i * 64, 64));
		for (i = 0; i < N; i++) {
			*(uint32_t *)(p.a.buf + i * 64) = i;
			check_ok(post(&p.a, &(struct wr){ .id = i,
				.op = IBV_WR_SEND, .off = i * 64, .len = 64,
				.flags = IBV_SEND_SIGNALED }));
			if (i == round * 2)
				run_ok(ep_state(&p.b, IBV_QPS_ERR));
		}
		for (got = flushed = 0; got + flushed < N;) {
			if (get_wc(p.b.rcq, &wc, 5000) != 1)
				fail("%d received, %d flushed, %d missing",
				     got, flushed, N - got - flushed);
			if ((int)wc.wr_id != got + flushed)
				fail("receive %llu out of order",
				     (unsigned long long)wc.wr_id);
			if (wc.status == IBV_WC_SUCCESS) {
				check(!flushed);
				if (*(uint32_t *)(p.b.buf + wc.wr_id * 64) !=
				    expect)
					fail("message %u twice or lost",
					     expect);
				expect++;
				got++;
			} else {
				check(wc.status == IBV_WC_WR_FLUSH_ERR);
				flushed++;
			}
		}
		run_ok(expect_no_wc(p.b.rcq, 0));
		for (i = 0; i < N; i++) {
			if (get_wc(p.a.scq, &wc, 5000) != 1)
				fail("send %d never completes", i);
			check((int)wc.wr_id == i);
			if (wc.status == IBV_WC_SUCCESS && i >= got)
				fail("send %d succeeded, %d were received", i,
				     got);
		}
		run_ok(pair_down(&p));
	}
	return 0;
}

/* SEND with invalidate of a key that is not to be invalidated. */
static int send_inv_plain_mr(void)
{
	struct opts o = opts_default();
	struct ibv_sge sg;
	struct ibv_send_wr wr = { .wr_id = 1, .sg_list = &sg, .num_sge = 1,
		.opcode = IBV_WR_SEND_WITH_INV,
		.send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_wc wc;
	struct pair p, q;
	int n;

	run_ok(pair_up(&p, &o));
	run_ok(pair_up(&q, &o));
	sg = (struct ibv_sge){ (uintptr_t)p.a.buf, 64, p.a.mr->lkey };
	wr.invalidate_rkey = p.b.mr->rkey;
	check_ok(post_recv(&p.b, 5, 0, 64));
	check_ok(ibv_post_send(p.a.qp, &wr, &bad));
	n = get_wc(p.b.rcq, &wc, 5000);
	if (n != 1 || wc.status == IBV_WC_SUCCESS)
		fail("the receive: poll %d, %s", n,
		     n == 1 ? ibv_wc_status_str(wc.status) : "-");
	/* the key lives on */
	check_ok(post(&q.a, &(struct wr){ .id = 2, .op = IBV_WR_RDMA_WRITE,
		.flags = IBV_SEND_SIGNALED, .len = 64,
		.raddr = (uintptr_t)p.b.buf, .rkey = p.b.mr->rkey }));
	run_ok(expect_wc(q.a.scq, 2, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(pair_down(&q));
	run_ok(pair_down(&p));
	return 0;
}

/* A CQ that is too small: told, and nothing else comes to harm. */
static int cq_overflow(void)
{
	struct opts o = opts_default();
	struct pair p;
	int i, cqe;

	o.cqe = 1;
	o.depth = 512;
	run_ok(pair_up(&p, &o));
	cqe = p.a.scq->cqe;
	if (cqe >= o.depth)
		lacks(&host_a, "the smallest CQ has %d entries", cqe);
	for (i = 0; i < cqe + 20; i++)
		check_ok(post_to(&p.a, (struct wr){ .id = i, .len = 8,
			.op = IBV_WR_RDMA_WRITE, .flags = IBV_SEND_SIGNALED },
			&p.b, 0));
	run_ok(expect_event(&host_a, IBV_EVENT_CQ_ERR, p.a.scq, 5000));
	run_ok(sanity());
	run_ok(pair_down(&p));
	run_ok(sanity());
	return 0;
}

/* What was set is what is told. */
static int query_qp(void)
{
	struct opts o = opts_default();
	struct ibv_qp_init_attr ia;
	struct ibv_qp_attr at;
	struct pair p;

	o.mtu = IBV_MTU_512;
	o.timeout = 13;
	o.retry = 5;
	o.rnr_retry = 6;
	o.rnr_timer = 21;
	o.rd_atomic = 2;
	o.psn = 0xfedcba;
	o.qp_access = IBV_ACCESS_REMOTE_READ;
	o.sq_sig_all = 1;
	run_ok(pair_up(&p, &o));
	memset(&at, 0xff, sizeof(at));
	memset(&ia, 0xff, sizeof(ia));
	check_ok(ibv_query_qp(p.a.qp, &at, (IBV_QP_DEST_QPN << 1) - 1,
			      &ia));
	check(at.qp_state == IBV_QPS_RTS);
	check(at.cur_qp_state == IBV_QPS_RTS);
	check(at.path_mtu == IBV_MTU_512);
	check(at.rq_psn == ((o.psn + 0x1000) & 0xffffff));
	check(at.sq_psn == o.psn);
	check(at.dest_qp_num == p.b.qp->qp_num);
	check(at.qp_access_flags == IBV_ACCESS_REMOTE_READ);
	check(at.max_rd_atomic == 2);
	check(at.max_dest_rd_atomic == 2);
	check(at.min_rnr_timer == 21);
	check(at.port_num == 1);
	check(at.timeout == 13);
	check(at.retry_cnt == 5);
	check(at.rnr_retry == 6);
	check(at.pkey_index == 0);
	check(at.ah_attr.is_global == 1);
	check(at.ah_attr.port_num == 1);
	check(at.ah_attr.grh.sgid_index == host_a.gidx);
	check(!memcmp(&at.ah_attr.grh.dgid, &host_b.gid, 16));
	check(at.cap.max_send_wr >= 64 && at.cap.max_recv_wr >= 64);
	check(at.cap.max_send_sge >= 4 && at.cap.max_recv_sge >= 4);
	check(at.cap.max_inline_data >= 64);
	check(ia.cap.max_send_wr == at.cap.max_send_wr);
	check(ia.qp_type == IBV_QPT_RC);
	check(ia.sq_sig_all == 1);
	check(!at.sq_draining);
	run_ok(pair_down(&p));
	return 0;
}

/* In SQD what is started ends, nothing new starts, and RTS goes on. */
static int sqd(void)
{
	struct opts o = opts_default();
	struct ibv_qp_attr at = { .qp_state = IBV_QPS_SQD,
				  .en_sqd_async_notify = 1 };
	struct pair p;
	int i;

	run_ok(pair_up(&p, &o));
	for (i = 0; i < 20; i++)
		check_ok(post_to(&p.a, (struct wr){ .id = i, .len = 20000,
			.op = IBV_WR_RDMA_WRITE, .flags = IBV_SEND_SIGNALED },
			&p.b, 0));
	check_ok(ibv_modify_qp(p.a.qp, &at, IBV_QP_STATE |
			       IBV_QP_EN_SQD_ASYNC_NOTIFY));
	run_ok(expect_event(&host_a, IBV_EVENT_SQ_DRAINED, p.a.qp, 5000));
	check(ep_query_state(&p.a) == IBV_QPS_SQD);
	/* the peer may still send */
	check_ok(post_recv(&p.a, 5, 65536, 64));
	check_ok(post(&p.b, &(struct wr){ .id = 6, .op = IBV_WR_SEND,
		.len = 64, .flags = IBV_SEND_SIGNALED }));
	run_ok(expect_wc(p.a.rcq, 5, IBV_WC_SUCCESS, 5000, NULL));
	/* not so this side */
	for (i = 0; i < 20; i++) {
		struct ibv_wc wc;

		if (ibv_poll_cq(p.a.scq, 1, &wc) != 1)
			break;
		check((int)wc.wr_id == i && wc.status == IBV_WC_SUCCESS);
	}
	check_ok(post_to(&p.a, (struct wr){ .id = 20, .len = 64,
		.op = IBV_WR_RDMA_WRITE, .flags = IBV_SEND_SIGNALED }, &p.b,
		0));
	run_ok(expect_no_wc(p.a.scq, 200));
	at.qp_state = IBV_QPS_RTS;
	check_ok(ibv_modify_qp(p.a.qp, &at, IBV_QP_STATE));
	for (; i < 21; i++)
		run_ok(expect_wc(p.a.scq, i, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(pair_down(&p));
	return 0;
}

/* So it does if nobody waits for it and no timer would ask, late or at once. */
static int sqd_unawaited(void)
{
	struct opts o = opts_default();
	int late;

	o.timeout = 0;
	for (late = 0; late < 2; late++) {
		struct ibv_qp_attr at = { .qp_state = IBV_QPS_SQD,
					  .en_sqd_async_notify = 1 };
		struct pair p;

		run_ok(pair_up(&p, &o));
		memset(p.b.buf, 0, 3000);
		fill(p.a.buf, 3000, 8);
		check_ok(post_to(&p.a, (struct wr){ .len = 3000,
			.op = IBV_WR_RDMA_WRITE }, &p.b, 0));
		if (late)
			usleep(20000);
		check_ok(ibv_modify_qp(p.a.qp, &at, IBV_QP_STATE |
				       IBV_QP_EN_SQD_ASYNC_NOTIFY));
		run_ok(expect_event(&host_a, IBV_EVENT_SQ_DRAINED, p.a.qp,
				    5000));
		check(check_fill(p.b.buf, 3000, 8) < 0);
		run_ok(expect_no_wc(p.a.scq, 20));
		run_ok(pair_down(&p));
	}
	return 0;
}

/* Regions come and go under the peer's writes. */
struct churn {
	struct pair *p;
	volatile bool stop;
	volatile uint32_t rkey;
	int rounds;
};

static void *churn_thread(void *arg)
{
	struct churn *c = arg;

	while (!c->stop) {
		struct ibv_mr *mr = ibv_reg_mr(host_b.pd, c->p->b.buf, 65536,
					       ACC_ALL);

		if (!mr)
			break;
		c->rkey = mr->rkey;
		usleep(c->rounds % 7 * 50);
		if (ibv_dereg_mr(mr))
			break;
		c->rounds++;
	}
	return NULL;
}

static int dereg_under_traffic(void)
{
	int round, refusals = 0, done = 0;
	struct opts o = opts_default();
	struct churn c = { 0 };
	struct ibv_wc wc;
	struct pair p, q;
	pthread_t th;

	run_ok(pair_up(&q, &o));
	c.p = &q;
	check_ok(pthread_create(&th, NULL, churn_thread, &c));
	for (round = 0; round < (quick ? 100 : 400); round++) {
		run_ok(pair_up(&p, &o));
		while (1) {
			check_ok(post(&p.a, &(struct wr){ .id = round,
				.op = round & 1 ? IBV_WR_RDMA_READ :
				IBV_WR_RDMA_WRITE, .len = 65536,
				.flags = IBV_SEND_SIGNALED, .rkey = c.rkey,
				.raddr = (uintptr_t)q.b.buf }));
			check(get_wc(p.a.scq, &wc, 5000) == 1);
			if (wc.status != IBV_WC_SUCCESS) {
				refusals++;
				break;
			}
			if (++done % 8 == 0)
				break;
		}
		if (wc.status != IBV_WC_SUCCESS &&
		    wc.status != IBV_WC_REM_ACCESS_ERR)
			fail("%s", ibv_wc_status_str(wc.status));
		run_ok(pair_down(&p));
	}
	c.stop = true;
	pthread_join(th, NULL);
	printf("# %d registrations, %d operations done, %d refused\n",
	       c.rounds, done, refusals);
	check(c.rounds > 0 && done + refusals > 0);
	run_ok(pair_down(&q));
	run_ok(sanity());
	return 0;
}

/* Queue pairs are destroyed, and reset, with everything in flight. */
static int destroy_under_traffic(void)
{
	struct opts o = opts_default();
	struct pair p;
	int round, i;

	for (round = 0; round < (quick ? 50 : 200); round++) {
		run_ok(pair_up(&p, &o));
		for (i = 0; i < 30; i++) {
			check_ok(post_recv(&p.b, i, 0, 65536));
			check_ok(post_to(&p.a, (struct wr){ .id = i,
				.op = i % 3 == 0 ? IBV_WR_SEND : i % 3 == 1 ?
				IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
				.len = 30000, .flags = IBV_SEND_SIGNALED },
				&p.b, 65536));
		}
		switch (round % 4) {
		case 0:
			check_ok(ibv_destroy_qp(p.b.qp));
			p.b.qp = NULL;
			break;
		case 1:
			run_ok(ep_state(&p.a, IBV_QPS_RESET));
			break;
		case 2:
			run_ok(ep_state(&p.b, IBV_QPS_RESET));
			break;
		}
		run_ok(pair_down(&p));
	}
	run_ok(sanity());
	return 0;
}

static const struct testcase cases[] = {
	{ "rem_unknown_rkey", rem_unknown_rkey },
	{ "rem_wrong_key_tag", rem_wrong_key_tag },
	{ "rem_beyond_end", rem_beyond_end },
	{ "rem_before_start", rem_before_start },
	{ "rem_address_wraps", rem_address_wraps },
	{ "rem_mr_rights", rem_mr_rights },
	{ "rem_qp_rights", rem_qp_rights },
	{ "rem_other_pd", rem_other_pd },
	{ "rem_deregistered", rem_deregistered },
	{ "rem_write_imm", rem_write_imm },
	{ "loc_bad_lkey", loc_bad_lkey },
	{ "loc_range", loc_range },
	{ "loc_no_write", loc_no_write },
	{ "recv_too_small", recv_too_small },
	{ "rnr_exhausted", rnr_exhausted },
	{ "rnr_late", rnr_late },
	{ "retry_exhausted", retry_exhausted },
	{ "retry_seven", retry_seven },
	{ "timeout_zero", timeout_zero },
	{ "flush_order", flush_order },
	{ "once_in_error", once_in_error, 60 },
	{ "send_inv_plain_mr", send_inv_plain_mr },
	{ "cq_overflow", cq_overflow },
	{ "query_qp", query_qp },
	{ "sqd_unawaited", sqd_unawaited },
	{ "sqd", sqd },
	{ "dereg_under_traffic", dereg_under_traffic, 120 },
	{ "destroy_under_traffic", destroy_under_traffic, 120 },
};

int main(int argc, char **argv)
{
	return rig_main(argc, argv, cases, ARRAY_SIZE(cases));
}
