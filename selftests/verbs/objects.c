// SPDX-License-Identifier: GPL-2.0
/*
 * Verbs objects besides plain queue pairs and regions: shared receive queues,
 * completion queues that change their size or overflow, regions that are
 * registered anew, memory windows, multicast groups.
 */
#include <pthread.h>
#include <sys/mman.h>
#include <rdma/ib_user_verbs.h>
#include "rig.h"

/* ---- shared receive queues ------------------------------------------------ */

static struct ibv_srq *srq_make(struct ibv_pd *pd, int wr, int sge)
{
	struct ibv_srq_init_attr ia = {
		.attr = { .max_wr = wr, .max_sge = sge },
	};

	return ibv_create_srq(pd, &ia);
}

static int srq_post(struct ibv_srq *srq, struct ep *e, uint32_t lkey,
		    uint64_t id, size_t off, uint32_t len)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)e->buf + off, .length = len, .lkey = lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = id, .sg_list = &sge, .num_sge = 1,
	}, *bad;

	return ibv_post_srq_recv(srq, &wr, &bad);
}

/* Replaces the queue pair by one that takes its receives from the SRQ. */
static int srq_use(struct ep *e, const struct opts *o, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr ia = {
		.qp_type = o->type, .srq = srq,
		.send_cq = e->scq, .recv_cq = e->rcq,
		.cap = { .max_send_wr = o->depth, .max_send_sge = o->sge },
	};

	check_ok(ibv_destroy_qp(e->qp));
	e->qp = ibv_create_qp(e->h->pd, &ia);
	if (!e->qp)
		fail("ibv_create_qp with an SRQ: %s", strerror(errno));
	check(e->qp->srq == srq);
	return 0;
}

static int connect_pair(struct pair *p)
{
	const struct opts *o = &p->o;

	run_ok(ep_init(&p->a, o));
	run_ok(ep_init(&p->b, o));
	run_ok(ep_rtr(&p->a, &p->b, o));
	run_ok(ep_rtr(&p->b, &p->a, o));
	run_ok(ep_rts(&p->a, o));
	run_ok(ep_rts(&p->b, o));
	return 0;
}

/* A pair whose second end has a shared receive queue. */
static int srq_pair(struct pair *p, struct opts o, struct ibv_srq *srq)
{
	p->o = o;
	run_ok(ep_create(&p->a, &host_a, &o));
	run_ok(ep_create(&p->b, &host_b, &o));
	p->b.psn = (o.psn + 0x1000) & 0xffffff;
	run_ok(srq_use(&p->b, &o, srq));
	run_ok(connect_pair(p));
	return 0;
}

static int send_to(struct pair *p, uint64_t id, uint32_t len)
{
	check_ok(post(&p->a, &(struct wr){
		.id = id, .op = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED,
		.len = len }));
	run_ok(expect_wc(p->a.scq, id, IBV_WC_SUCCESS, 5000, NULL));
	return 0;
}

static struct opts small(void)
{
	struct opts o = opts_default();

	o.buf = 1 << 17;
	return o;
}

/* Four connections feed on one queue, in the order of posting. */
static int srq_traffic(void)
{
	enum { N = 4, EACH = 8, LEN = 5000 };
	struct ibv_srq *srq = srq_make(host_b.pd, N * EACH, 2);
	struct opts o = small();
	struct pair p[N];
	struct ibv_wc wc;
	int i, j;

	if (!srq)
		lacks(&host_b, "ibv_create_srq: %s", strerror(errno));
	o.buf = N * EACH * LEN;
	for (i = 0; i < N; i++)
		run_ok(srq_pair(&p[i], o, srq));
	for (i = 0; i < N * EACH; i++)
		check_ok(srq_post(srq, &p[0].b, p[0].b.mr->lkey, i, i * LEN,
				  LEN));
	for (j = 0; j < EACH; j++)
		for (i = 0; i < N; i++) {
			int id = j * N + i;

			fill(p[i].a.buf, LEN, id);
			run_ok(send_to(&p[i], id, LEN));
			run_ok(expect_wc(p[i].b.rcq, id, IBV_WC_SUCCESS, 5000,
					 &wc));
			check(wc.qp_num == p[i].b.qp->qp_num);
			check(wc.byte_len == LEN);
			check(check_fill(p[0].b.buf + id * LEN, LEN, id) < 0);
		}
	check_errno(ibv_destroy_srq(srq), EBUSY);
	for (i = 0; i < N; i++)
		run_ok(pair_down(&p[i]));
	check_ok(ibv_destroy_srq(srq));
	return 0;
}

static int srq_attr(void)
{
	struct ibv_srq_init_attr ia = { };
	struct ibv_srq_attr at;
	struct ibv_srq *srq;

	if (!host_a.attr.max_srq)
		lacks(&host_a, "no SRQs");
	check(host_a.attr.max_srq_wr > 0 && host_a.attr.max_srq_sge > 0);
	ia.attr.max_wr = host_a.attr.max_srq_wr + 1;
	ia.attr.max_sge = 1;
	errno = 0;
	check(!ibv_create_srq(host_a.pd, &ia) && errno == EINVAL);
	ia.attr.max_wr = 1;
	ia.attr.max_sge = host_a.attr.max_srq_sge + 1;
	check(!ibv_create_srq(host_a.pd, &ia) && errno == EINVAL);
	ia.attr.max_wr = host_a.attr.max_srq_wr;
	ia.attr.max_sge = host_a.attr.max_srq_sge;
	srq = ibv_create_srq(host_a.pd, &ia);
	check(srq);
	check_ok(ibv_query_srq(srq, &at));
	check(at.max_wr >= (uint32_t)host_a.attr.max_srq_wr);
	check(at.max_sge >= (uint32_t)host_a.attr.max_srq_sge);
	check(at.srq_limit == 0);
	at.srq_limit = at.max_wr + 1;
	check_errno(ibv_modify_srq(srq, &at, IBV_SRQ_LIMIT), EINVAL);
	check_ok(ibv_destroy_srq(srq));
	return 0;
}

/* One event a time that the limit is armed, when fewer are left. */
static int srq_limit(void)
{
	struct ibv_srq *srq = srq_make(host_b.pd, 16, 1);
	struct ibv_srq_attr at = { .srq_limit = 4 };
	struct pair p;
	int i;

	if (!srq)
		lacks(&host_b, "ibv_create_srq: %s", strerror(errno));
	run_ok(srq_pair(&p, small(), srq));
	for (i = 0; i < 8; i++)
		check_ok(srq_post(srq, &p.b, p.b.mr->lkey, i, 0, 64));
	check_ok(ibv_modify_srq(srq, &at, IBV_SRQ_LIMIT));
	check_ok(ibv_query_srq(srq, &at));
	check(at.srq_limit == 4);
	for (i = 0; i < 4; i++)
		run_ok(send_to(&p, i, 64));
	check(!saw_event(&host_b, IBV_EVENT_SRQ_LIMIT_REACHED, 100));
	run_ok(send_to(&p, i, 64));
	run_ok(expect_event(&host_b, IBV_EVENT_SRQ_LIMIT_REACHED, srq, 2000));
	check_ok(ibv_query_srq(srq, &at));
	check(at.srq_limit == 0);
	run_ok(send_to(&p, 9, 64));
	check(!saw_event(&host_b, IBV_EVENT_SRQ_LIMIT_REACHED, 100));
	/* armed when it is reached already */
	at.srq_limit = 4;
	check_ok(ibv_modify_srq(srq, &at, IBV_SRQ_LIMIT));
	run_ok(expect_event(&host_b, IBV_EVENT_SRQ_LIMIT_REACHED, srq, 2000));
	run_ok(pair_down(&p));
	check_ok(ibv_destroy_srq(srq));
	return 0;
}

/* What is posted stays posted, in order, across changes of size. */
static int srq_resize(void)
{
	struct ibv_srq *srq = srq_make(host_b.pd, 7, 1);
	struct ibv_srq_attr at;
	struct pair p;
	int i, next = 0, sent = 0;

	if (!srq)
		lacks(&host_b, "ibv_create_srq: %s", strerror(errno));
	if (!(host_a.attr.device_cap_flags & IBV_DEVICE_SRQ_RESIZE))
		lacks(&host_a, "SRQs can't be resized");
	run_ok(srq_pair(&p, small(), srq));
	/* so that the ring has wrapped around when it is replaced */
	for (i = 0; i < 5; i++)
		check_ok(srq_post(srq, &p.b, p.b.mr->lkey, next++, 0, 64));
	for (i = 0; i < 4; i++)
		run_ok(send_to(&p, sent++, 64));
	for (i = 0; i < 6; i++)
		check_ok(srq_post(srq, &p.b, p.b.mr->lkey, next++, 0, 64));
	check(srq_post(srq, &p.b, p.b.mr->lkey, next, 0, 64));
	at.max_wr = 100;
	check_ok(ibv_modify_srq(srq, &at, IBV_SRQ_MAX_WR));
	check_ok(ibv_query_srq(srq, &at));
	check(at.max_wr >= 100);
	for (i = 0; i < 90; i++)
		check_ok(srq_post(srq, &p.b, p.b.mr->lkey, next++, 0, 64));
	at.max_wr = 20;
	check_errno(ibv_modify_srq(srq, &at, IBV_SRQ_MAX_WR), EINVAL);
	at.max_wr = host_b.attr.max_srq_wr + 1;
	check_errno(ibv_modify_srq(srq, &at, IBV_SRQ_MAX_WR), EINVAL);
	while (next - sent > 10)
		run_ok(send_to(&p, sent++, 64));
	at.max_wr = 15;
	check_ok(ibv_modify_srq(srq, &at, IBV_SRQ_MAX_WR));
	while (sent < next)
		run_ok(send_to(&p, sent++, 64));
	for (i = 0; i < next; i++)
		run_ok(expect_wc(p.b.rcq, i, IBV_WC_SUCCESS, 1000, NULL));
	run_ok(pair_down(&p));
	check_ok(ibv_destroy_srq(srq));
	return 0;
}

/* A queue pair in error takes no more, says so, and leaves the rest alone. */
static int srq_last_wqe(void)
{
	struct ibv_srq *srq = srq_make(host_b.pd, 16, 1);
	struct pair p, q;

	if (!srq)
		lacks(&host_b, "ibv_create_srq: %s", strerror(errno));
	run_ok(srq_pair(&p, small(), srq));
	run_ok(srq_pair(&q, small(), srq));
	check_ok(srq_post(srq, &p.b, p.b.mr->lkey, 1, 0, 64));
	check_ok(srq_post(srq, &q.b, q.b.mr->lkey, 2, 0, 64));
	run_ok(send_to(&p, 5, 64));
	run_ok(expect_wc(p.b.rcq, 1, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(ep_state(&p.b, IBV_QPS_ERR));
	run_ok(expect_event(&host_b, IBV_EVENT_QP_LAST_WQE_REACHED, p.b.qp,
			    2000));
	run_ok(expect_no_wc(p.b.rcq, 50));
	run_ok(send_to(&q, 6, 64));
	run_ok(expect_wc(q.b.rcq, 2, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(pair_down(&p));
	run_ok(pair_down(&q));
	check_ok(ibv_destroy_srq(srq));
	return 0;
}

/* Without a receive the sender waits, and one posted later serves it. */
static int srq_rnr(void)
{
	struct ibv_srq *srq = srq_make(host_b.pd, 16, 1);
	struct pair p;

	if (!srq)
		lacks(&host_b, "ibv_create_srq: %s", strerror(errno));
	run_ok(srq_pair(&p, small(), srq));
	check_ok(post(&p.a, &(struct wr){
		.id = 1, .op = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED,
		.len = 64 }));
	run_ok(expect_no_wc(p.a.scq, 50));
	check_ok(srq_post(srq, &p.b, p.b.mr->lkey, 2, 0, 64));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(expect_wc(p.b.rcq, 2, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(pair_down(&p));
	check_ok(ibv_destroy_srq(srq));
	return 0;
}

/* The domain of the memory is that of the SRQ, not of the queue pair. */
static int srq_domain(void)
{
	struct ibv_pd *pd = ibv_alloc_pd(host_b.ctx);
	struct ibv_srq *srq;
	struct ibv_mr *mr;
	struct pair p;

	check(pd);
	srq = srq_make(pd, 16, 1);
	if (!srq)
		lacks(&host_b, "ibv_create_srq: %s", strerror(errno));
	run_ok(srq_pair(&p, small(), srq));
	mr = ibv_reg_mr(pd, p.b.buf, p.b.len, IBV_ACCESS_LOCAL_WRITE);
	check(mr);
	check_ok(srq_post(srq, &p.b, mr->lkey, 1, 0, 64));
	check_ok(srq_post(srq, &p.b, p.b.mr->lkey, 2, 0, 64));
	fill(p.a.buf, 64, 5);
	run_ok(send_to(&p, 1, 64));
	run_ok(expect_wc(p.b.rcq, 1, IBV_WC_SUCCESS, 5000, NULL));
	check(check_fill(p.b.buf, 64, 5) < 0);
	check_ok(post(&p.a, &(struct wr){
		.id = 2, .op = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED,
		.len = 64 }));
	run_ok(expect_wc(p.a.scq, 2, IBV_WC_REM_OP_ERR, 5000, NULL));
	run_ok(expect_wc(p.b.rcq, 2, IBV_WC_LOC_PROT_ERR, 5000, NULL));
	run_ok(pair_down(&p));
	check_ok(ibv_dereg_mr(mr));
	check_ok(ibv_destroy_srq(srq));
	check_ok(ibv_dealloc_pd(pd));
	return 0;
}

/* ---- completion queues ---------------------------------------------------- */

static int writes(struct pair *p, int first, int n)
{
	int i;

	for (i = 0; i < n; i++)
		check_ok(post_to(&p->a, (struct wr){
			.id = first + i, .op = IBV_WR_RDMA_WRITE,
			.flags = IBV_SEND_SIGNALED, .len = 8 }, &p->b, 0));
	return 0;
}

/* So long that the peer has carried out and acknowledged all of it. */
static int settle(struct pair *p)
{
	usleep(100000);
	check(ep_query_state(&p->a) == IBV_QPS_RTS);
	return 0;
}

static int cq_resize(void)
{
	struct opts o = small();
	struct ibv_cq *cq;
	struct pair p;
	int i, r;

	o.cqe = 15;
	run_ok(pair_up(&p, &o));
	cq = p.a.scq;
	/* so that the ring has wrapped around when it is replaced */
	run_ok(writes(&p, 100, 10));
	for (i = 0; i < 10; i++)
		run_ok(expect_wc(cq, 100 + i, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(writes(&p, 0, 12));
	run_ok(settle(&p));
	r = ibv_resize_cq(cq, 63);
	if (r == EOPNOTSUPP)
		lacks(&host_a, "CQs can't be resized");
	check_ok(r);
	check(cq->cqe >= 63);
	run_ok(writes(&p, 12, 40));
	run_ok(settle(&p));
	check_errno(ibv_resize_cq(cq, 51), EINVAL);
	check_errno(ibv_resize_cq(cq, host_a.attr.max_cqe + 1), EINVAL);
	for (i = 0; i < 40; i++)
		run_ok(expect_wc(cq, i, IBV_WC_SUCCESS, 5000, NULL));
	check_ok(ibv_resize_cq(cq, 12));
	for (; i < 52; i++)
		run_ok(expect_wc(cq, i, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(expect_no_wc(cq, 20));
	run_ok(pair_down(&p));
	return 0;
}

static volatile bool stop;
static volatile int resizes;

static void *resizer(void *arg)
{
	static const int sizes[] = { 400, 80, 200, 130 };
	struct ibv_cq *cq = arg;
	int i;

	for (i = 0; !stop; i++) {
		int r = ibv_resize_cq(cq, sizes[i % ARRAY_SIZE(sizes)]);

		if (r && r != EINVAL)
			return (void *)(intptr_t)r;
		resizes = resizes + !r;
		usleep(50);
	}
	return NULL;
}

/* Nothing is lost or told twice while the size changes under traffic. */
static int cq_resize_traffic(void)
{
	int n = quick ? 1000 : 5000, sent = 0, got = 0;
	struct opts o = small();
	pthread_t t;
	struct pair p;
	void *ret;

	o.cqe = 80;
	run_ok(pair_up(&p, &o));
	if (ibv_resize_cq(p.a.scq, 80) == EOPNOTSUPP)
		lacks(&host_a, "CQs can't be resized");
	check_ok(pthread_create(&t, NULL, resizer, p.a.scq));
	while (got < n || got < sent || resizes < 20) {
		for (; (sent < n || resizes < 20) && sent - got < o.depth; sent++)
			run_ok(writes(&p, sent, 1));
		/* it has to get at the lock of the CQ */
		if (!(got % 64))
			usleep(100);
		run_ok(expect_wc(p.a.scq, got, IBV_WC_SUCCESS, 5000, NULL));
		got++;
	}
	stop = true;
	pthread_join(t, &ret);
	check(!ret);
	printf("# %d resizes\n", resizes);
	run_ok(expect_no_wc(p.a.scq, 20));
	run_ok(pair_down(&p));
	return 0;
}

/*
 * A CQ that overflows is in error and so is its queue pair; what it held can
 * still be polled, as it was, and others are not disturbed.
 */
static int cq_overflow(void)
{
	struct opts o = small();
	struct ibv_wc wc;
	struct pair p, q;
	int i, n;

	o.cqe = 7;
	run_ok(pair_up(&p, &o));
	run_ok(pair_up(&q, &o));
	n = p.a.scq->cqe;
	run_ok(writes(&p, 0, n));
	run_ok(settle(&p));
	check(!saw_event(&host_a, IBV_EVENT_CQ_ERR, 20));
	run_ok(writes(&p, n, 3));
	run_ok(expect_event(&host_a, IBV_EVENT_CQ_ERR, p.a.scq, 2000));
	run_ok(expect_event(&host_a, IBV_EVENT_QP_FATAL, p.a.qp, 2000));
	check(ep_query_state(&p.a) == IBV_QPS_ERR);
	for (i = 0; i < n; i++)
		run_ok(expect_wc(p.a.scq, i, IBV_WC_SUCCESS, 100, &wc));
	run_ok(expect_no_wc(p.a.scq, 50));
	check(!saw_event(&host_a, IBV_EVENT_CQ_ERR, 20));
	run_ok(writes(&q, 50, 2));
	run_ok(expect_wc(q.a.scq, 50, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(expect_wc(q.a.scq, 51, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(pair_down(&p));
	run_ok(pair_down(&q));
	return 0;
}

/* ---- memory that is registered anew --------------------------------------- */

/* One access of the first end, and how it must end. */
static int reach(struct pair *p, enum ibv_wr_opcode op, uint64_t raddr,
		 uint32_t rkey, uint32_t len, enum ibv_wc_status st)
{
	check_ok(post(&p->a, &(struct wr){
		.id = 77, .op = op, .flags = IBV_SEND_SIGNALED, .len = len,
		.raddr = raddr, .rkey = rkey }));
	run_ok(expect_wc(p->a.scq, 77, st, 5000, NULL));
	return 0;
}

/* The same on a fresh pair of queue pairs, since a failure ends one. */
static int reach_fresh(enum ibv_wr_opcode op, uint64_t raddr, uint32_t rkey,
		       uint32_t len, enum ibv_wc_status st)
{
	struct opts o = small();
	struct pair p;

	run_ok(pair_up(&p, &o));
	fill(p.a.buf, len, 9);
	run_ok(reach(&p, op, raddr, rkey, len, st));
	run_ok(pair_down(&p));
	return 0;
}

#define WRITE IBV_WR_RDMA_WRITE
#define READ IBV_WR_RDMA_READ
#define OK IBV_WC_SUCCESS
#define DENIED IBV_WC_REM_ACCESS_ERR

static void *pages(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

/* Every combination of what can change at once. */
static int mr_rereg(void)
{
	const int all = IBV_REREG_MR_CHANGE_TRANSLATION |
			IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
	struct ibv_pd *pd = ibv_alloc_pd(host_b.ctx);
	uint8_t *m1 = pages(16384), *m2 = pages(65536);
	int flags;

	check(pd && m1 && m2);
	for (flags = 1; flags <= all; flags++) {
		bool tr = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
		bool dom = flags & IBV_REREG_MR_CHANGE_PD;
		bool acc = flags & IBV_REREG_MR_CHANGE_ACCESS;
		uint8_t *to = tr ? m2 + 4096 : m1;
		size_t len = tr ? 40000 : 16384;
		struct ibv_mr *mr = ibv_reg_mr(host_b.pd, m1, 16384,
					       IBV_ACCESS_LOCAL_WRITE |
					       IBV_ACCESS_REMOTE_READ);

		check(mr);
		run_ok(reach_fresh(READ, (uintptr_t)m1, mr->rkey, 100, OK));
		run_ok(reach_fresh(WRITE, (uintptr_t)m1, mr->rkey, 100,
				   DENIED));
		check_ok(rereg(mr, flags, pd, to, len, IBV_ACCESS_LOCAL_WRITE |
			       IBV_ACCESS_REMOTE_WRITE));
		memset(m1, 0x5a, 16384);
		memset(m2, 0x5a, 65536);
		run_ok(reach_fresh(WRITE, (uintptr_t)to + len - 100, mr->rkey,
				   100, dom || !acc ? DENIED : OK));
		check((check_fill(to + len - 100, 100, 9) < 0) ==
		      (acc && !dom));
		run_ok(reach_fresh(READ, (uintptr_t)to, mr->rkey, 100,
				   dom || acc ? DENIED : OK));
		run_ok(reach_fresh(READ, (uintptr_t)to + len - 99, mr->rkey,
				   100, DENIED));
		if (tr)
			run_ok(reach_fresh(READ, (uintptr_t)m1, mr->rkey, 100,
					   DENIED));
		if (dom) {
			check_ok(rereg(mr, IBV_REREG_MR_CHANGE_PD |
				       IBV_REREG_MR_CHANGE_ACCESS, host_b.pd,
				       NULL, 0, ACC_ALL));
			run_ok(reach_fresh(WRITE, (uintptr_t)to, mr->rkey, 100,
					   OK));
		}
		check_ok(ibv_dereg_mr(mr));
	}
	check_ok(ibv_dealloc_pd(pd));
	return 0;
}

/* What can't be done changes nothing. */
static int mr_rereg_errors(void)
{
	uint8_t *m = pages(16384);
	uint8_t *ro = mmap(NULL, 4096, PROT_READ,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(host_b.pd, m, 16384, ACC_ALL), *rm;

	check(mr && ro != MAP_FAILED);
	check_errno(rereg(mr, 0, NULL, m, 4096, 0), EINVAL);
	check_errno(rereg(mr, 8, NULL, m, 4096, 0), EOPNOTSUPP);
	check_errno(rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL,
			  (void *)4096, 4096, 0), EFAULT);
	check_errno(rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, m, 0, 0),
		    EINVAL);
	check_errno(rereg(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			  IBV_ACCESS_REMOTE_WRITE), EINVAL);
	run_ok(reach_fresh(WRITE, (uintptr_t)m, mr->rkey, 16384, OK));
	check(check_fill(m, 16384, 9) < 0);
	check_ok(ibv_dereg_mr(mr));
	/* memory that the process itself can't write */
	rm = ibv_reg_mr(host_b.pd, ro, 4096, IBV_ACCESS_REMOTE_READ);
	check(rm);
	check_errno(rereg(rm, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			  ACC_ALL), EFAULT);
	run_ok(reach_fresh(READ, (uintptr_t)ro, rm->rkey, 4096, OK));
	check_ok(mprotect(ro, 4096, PROT_READ | PROT_WRITE));
	check_ok(rereg(rm, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
		       ACC_ALL));
	run_ok(reach_fresh(WRITE, (uintptr_t)ro, rm->rkey, 4096, OK));
	check(check_fill(ro, 4096, 9) < 0);
	check_ok(ibv_dereg_mr(rm));
	return 0;
}

static int mr_zero_based(void)
{
	uint8_t *m = pages(16384);
	struct ibv_mr *mr = ibv_reg_mr(host_b.pd, m + 100, 10000,
				       ACC_ALL | IBV_ACCESS_ZERO_BASED);

	if (!mr)
		lacks(&host_b, "ibv_reg_mr: %s", strerror(errno));
	run_ok(reach_fresh(WRITE, 500, mr->rkey, 9500, OK));
	check(check_fill(m + 600, 9500, 9) < 0);
	run_ok(reach_fresh(WRITE, 501, mr->rkey, 9500, DENIED));
	run_ok(reach_fresh(WRITE, (uintptr_t)m + 100, mr->rkey, 1, DENIED));
	check_ok(ibv_dereg_mr(mr));
	return 0;
}

/* ---- memory windows -------------------------------------------------------- */

static int mw_pair(struct pair *p, struct ibv_mw **mw, enum ibv_mw_type type)
{
	struct opts o = small();

	o.mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
	run_ok(pair_up(p, &o));
	*mw = ibv_alloc_mw(host_b.pd, type);
	if (!*mw)
		lacks(&host_b, "ibv_alloc_mw: %s", strerror(errno));
	return 0;
}

static int bind1(struct pair *p, struct ibv_mw *mw, size_t off, size_t len,
		 int access, enum ibv_wc_status st)
{
	struct ibv_mw_bind b = {
		.wr_id = 55, .send_flags = IBV_SEND_SIGNALED,
		.bind_info = {
			.mr = p->b.mr, .addr = (uintptr_t)p->b.buf + off,
			.length = len, .mw_access_flags = access,
		},
	};
	struct ibv_wc wc;

	check_ok(ibv_bind_mw(p->b.qp, mw, &b));
	run_ok(expect_wc(p->b.scq, 55, st, 2000, &wc));
	check(st || wc.opcode == IBV_WC_BIND_MW);
	return 0;
}

static int bind2(struct pair *p, struct ibv_mw *mw, uint32_t rkey, size_t off,
		 size_t len, int access, enum ibv_wc_status st)
{
	struct ibv_send_wr wr = {
		.wr_id = 56, .opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {
			.mw = mw, .rkey = rkey,
			.bind_info = {
				.mr = p->b.mr,
				.addr = (uintptr_t)p->b.buf + off,
				.length = len, .mw_access_flags = access,
			},
		},
	}, *bad;

	check_ok(ibv_post_send(p->b.qp, &wr, &bad));
	run_ok(expect_wc(p->b.scq, 56, st, 2000, NULL));
	return 0;
}

static int invalidate(struct ep *e, enum ibv_wr_opcode op, uint32_t rkey,
		      enum ibv_wc_status st)
{
	struct ibv_send_wr wr = {
		.wr_id = 57, .opcode = op, .send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = rkey,
	}, *bad;
	struct ibv_wc wc;

	check_ok(ibv_post_send(e->qp, &wr, &bad));
	run_ok(expect_wc(e->scq, 57, st, 5000, &wc));
	check(st || wc.opcode == (op == IBV_WR_LOCAL_INV ? IBV_WC_LOCAL_INV :
				  IBV_WC_SEND));
	return 0;
}

/* A window opens a part of a region, with rights of its own. */
static int mw_type1(void)
{
	struct ibv_mw *mw;
	uint64_t base;
	struct pair p;
	uint32_t old;

	run_ok(mw_pair(&p, &mw, IBV_MW_TYPE_1));
	base = (uintptr_t)p.b.buf + 1000;
	run_ok(reach_fresh(WRITE, base, mw->rkey, 1, DENIED));
	run_ok(bind1(&p, mw, 1000, 5000, IBV_ACCESS_REMOTE_WRITE, OK));
	memset(p.b.buf, 0x5a, p.b.len);
	fill(p.a.buf, 5000, 3);
	run_ok(reach(&p, WRITE, base, mw->rkey, 5000, OK));
	check(check_fill(p.b.buf + 1000, 5000, 3) < 0);
	check(check_byte(p.b.buf, 1000, 0x5a) < 0);
	check(check_byte(p.b.buf + 6000, 1000, 0x5a) < 0);
	/* any queue pair of the domain */
	run_ok(reach_fresh(WRITE, base, mw->rkey, 5000, OK));
	run_ok(reach_fresh(WRITE, base, mw->rkey, 5001, DENIED));
	run_ok(reach_fresh(WRITE, base - 1, mw->rkey, 2, DENIED));
	run_ok(reach_fresh(READ, base, mw->rkey, 8, DENIED));
	/* the region itself is not open */
	run_ok(reach_fresh(WRITE, base, p.b.mr->rkey, 8, DENIED));
	/* bound anew, it has another key */
	old = mw->rkey;
	run_ok(bind1(&p, mw, 0, 100, IBV_ACCESS_REMOTE_READ, OK));
	check(mw->rkey != old);
	run_ok(reach_fresh(WRITE, base, old, 8, DENIED));
	run_ok(reach_fresh(READ, base - 1000, mw->rkey, 100, OK));
	/* unbound */
	old = mw->rkey;
	run_ok(bind1(&p, mw, 0, 0, 0, OK));
	run_ok(reach_fresh(READ, base - 1000, mw->rkey, 8, DENIED));
	run_ok(reach_fresh(READ, base - 1000, old, 8, DENIED));
	check_ok(ibv_dealloc_mw(mw));
	run_ok(pair_down(&p));
	return 0;
}

/* Bound by a queue pair, open to its peer alone, until invalidated. */
static int mw_type2(void)
{
	struct ibv_mw *mw;
	uint64_t base;
	struct pair p;
	uint32_t key;

	run_ok(mw_pair(&p, &mw, IBV_MW_TYPE_2));
	base = (uintptr_t)p.b.buf + 1000;
	key = ibv_inc_rkey(mw->rkey);
	run_ok(bind2(&p, mw, key, 1000, 5000, IBV_ACCESS_REMOTE_WRITE |
		     IBV_ACCESS_REMOTE_READ, OK));
	fill(p.a.buf, 5000, 3);
	run_ok(reach(&p, WRITE, base, key, 5000, OK));
	check(check_fill(p.b.buf + 1000, 5000, 3) < 0);
	run_ok(reach(&p, READ, base, key, 5000, OK));
	run_ok(reach_fresh(WRITE, base, key, 8, DENIED));
	run_ok(invalidate(&p.b, IBV_WR_LOCAL_INV, key, OK));
	/* bound again with a key of its owner's choice */
	key = ibv_inc_rkey(key);
	run_ok(bind2(&p, mw, key, 0, 64, IBV_ACCESS_REMOTE_WRITE |
		     IBV_ACCESS_ZERO_BASED, OK));
	run_ok(reach(&p, WRITE, 32, key, 32, OK));
	check(check_fill(p.b.buf + 32, 32, 3) < 0);
	run_ok(invalidate(&p.b, IBV_WR_LOCAL_INV, key, OK));
	run_ok(reach(&p, WRITE, 32, key, 32, DENIED));
	check_ok(ibv_dealloc_mw(mw));
	run_ok(pair_down(&p));
	return 0;
}

/* The peer invalidates, and the receiver is told what. */
static int mw_send_inv(void)
{
	struct ibv_mw *mw;
	struct ibv_wc wc;
	struct pair p;
	uint32_t key;

	run_ok(mw_pair(&p, &mw, IBV_MW_TYPE_2));
	key = ibv_inc_rkey(mw->rkey);
	run_ok(bind2(&p, mw, key, 0, 64, IBV_ACCESS_REMOTE_WRITE, OK));
	check_ok(post_recv(&p.b, 5, 0, 64));
	run_ok(invalidate(&p.a, IBV_WR_SEND_WITH_INV, key, OK));
	run_ok(expect_wc(p.b.rcq, 5, OK, 2000, &wc));
	check(wc.wc_flags & IBV_WC_WITH_INV);
	check(wc.invalidated_rkey == key);
	/* it is invalid now, so this is refused; so is what isn't a window */
	check_ok(post_recv(&p.b, 6, 0, 64));
	run_ok(invalidate(&p.a, IBV_WR_SEND_WITH_INV, key,
			  IBV_WC_REM_INV_REQ_ERR));
	check_ok(ibv_dealloc_mw(mw));
	run_ok(pair_down(&p));
	run_ok(mw_pair(&p, &mw, IBV_MW_TYPE_2));
	check_ok(post_recv(&p.b, 6, 0, 64));
	run_ok(invalidate(&p.a, IBV_WR_SEND_WITH_INV, p.b.mr->rkey,
			  IBV_WC_REM_INV_REQ_ERR));
	check_ok(ibv_dealloc_mw(mw));
	run_ok(pair_down(&p));
	return 0;
}

/* What must not be bound. */
static int mw_refused(void)
{
	struct ibv_mw *mw;
	struct pair p;
	uint32_t key;
	int i;

	for (i = 0; i < 7; i++) {
		enum ibv_mw_type t = i < 4 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2;
		struct ibv_mr *mr;
		uint8_t *m = NULL;

		run_ok(mw_pair(&p, &mw, t));
		key = ibv_inc_rkey(mw->rkey);
		mr = p.b.mr;
		switch (i) {
		case 0: /* beyond the end of the region */
			run_ok(bind1(&p, mw, 1, p.b.len,
				     IBV_ACCESS_REMOTE_READ,
				     IBV_WC_MW_BIND_ERR));
			break;
		case 1: /* a region that takes no windows */
		case 2: /* a region that its owner can't write */
			m = pages(4096);
			p.b.mr = ibv_reg_mr(host_b.pd, m, 4096, i == 1 ?
					    IBV_ACCESS_LOCAL_WRITE :
					    IBV_ACCESS_MW_BIND);
			check(p.b.mr);
			run_ok(bind1(&p, mw, m - p.b.buf, 64,
				     IBV_ACCESS_REMOTE_WRITE,
				     IBV_WC_MW_BIND_ERR));
			check_ok(ibv_dereg_mr(p.b.mr));
			break;
		case 3: /* it has no key to invalidate */
			run_ok(bind1(&p, mw, 0, 64, IBV_ACCESS_REMOTE_READ,
				     OK));
			run_ok(invalidate(&p.b, IBV_WR_LOCAL_INV, mw->rkey,
					  IBV_WC_MW_BIND_ERR));
			break;
		case 4: /* twice */
			run_ok(bind2(&p, mw, key, 0, 64,
				     IBV_ACCESS_REMOTE_READ, OK));
			run_ok(bind2(&p, mw, key + 1, 0, 64,
				     IBV_ACCESS_REMOTE_READ,
				     IBV_WC_MW_BIND_ERR));
			break;
		case 5: /* the key of another index */
			run_ok(bind2(&p, mw, key ^ 0x100, 0, 64,
				     IBV_ACCESS_REMOTE_READ,
				     IBV_WC_MW_BIND_ERR));
			break;
		case 6: /* of length 0 */
			run_ok(bind2(&p, mw, key, 0, 0,
				     IBV_ACCESS_REMOTE_READ,
				     IBV_WC_MW_BIND_ERR));
			break;
		}
		p.b.mr = mr;
		check(ep_query_state(&p.b) == IBV_QPS_ERR);
		check_ok(ibv_dealloc_mw(mw));
		run_ok(pair_down(&p));
	}
	return 0;
}

/* Datagrams have no such operation: it fails. */
static int mw_datagrams(void)
{
	struct ibv_ah_attr at = {
		.is_global = 1, .port_num = 1,
		.grh = {
			.hop_limit = 64, .dgid = host_a.gid,
			.sgid_index = host_b.gidx,
		},
	};
	struct ibv_ah *ah = ibv_create_ah(host_b.pd, &at);
	struct opts o = small();
	struct ibv_send_wr wr, *bad;
	struct ep u;

	check(ah);
	o.type = IBV_QPT_UD;
	run_ok(ep_create(&u, &host_b, &o));
	run_ok(ep_init(&u, &o));
	run_ok(ep_rtr(&u, NULL, &o));
	run_ok(ep_rts(&u, &o));
	/* the library looks at the address handle, whatever the opcode */
	wr = (struct ibv_send_wr){
		.wr_id = 57, .opcode = IBV_WR_LOCAL_INV,
		.send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = u.mr->rkey, .wr.ud.ah = ah,
	};
	check_ok(ibv_post_send(u.qp, &wr, &bad));
	run_ok(expect_wc(u.scq, 57, IBV_WC_LOC_QP_OP_ERR, 2000, NULL));
	check(ep_query_state(&u) == IBV_QPS_SQE);
	check_ok(ibv_destroy_ah(ah));
	run_ok(ep_destroy(&u));
	return 0;
}

/* A region stays as long as a window is bound to it. */
static int mw_holds_mr(void)
{
	struct ibv_mw *mw;
	struct pair p;

	run_ok(mw_pair(&p, &mw, IBV_MW_TYPE_1));
	run_ok(bind1(&p, mw, 0, 64, IBV_ACCESS_REMOTE_WRITE, OK));
	check_errno(rereg(p.b.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
			  ACC_ALL), EBUSY);
	check_errno(ibv_dereg_mr(p.b.mr), EBUSY);
	run_ok(reach(&p, WRITE, (uintptr_t)p.b.buf, mw->rkey, 64, OK));
	check_ok(ibv_dealloc_mw(mw));
	run_ok(reach(&p, WRITE, (uintptr_t)p.b.buf, mw->rkey, 64, DENIED));
	run_ok(pair_down(&p));
	/* and a process that just ends leaves none behind: see the runner */
	run_ok(mw_pair(&p, &mw, IBV_MW_TYPE_2));
	run_ok(bind2(&p, mw, ibv_inc_rkey(mw->rkey), 0, 64,
		     IBV_ACCESS_REMOTE_WRITE, OK));
	fflush(stdout);
	_exit(0);
}

/* ---- multicast ------------------------------------------------------------- */

static union ibv_gid group(int n)
{
	union ibv_gid g = { };

	if (ip_version == 4) {
		g.raw[10] = 0xff;
		g.raw[11] = 0xff;
		g.raw[12] = 239;
		g.raw[13] = 1;
		g.raw[14] = 2;
	} else {
		g.raw[0] = 0xff;
		g.raw[1] = 0x15;
	}
	g.raw[15] = n;
	return g;
}

static int ud_up(struct ep *e, struct host *h, const struct opts *o)
{
	run_ok(ep_create(e, h, o));
	run_ok(ep_init(e, o));
	run_ok(ep_rtr(e, NULL, o));
	run_ok(ep_rts(e, o));
	return 0;
}

static int ud_send(struct ep *e, struct ibv_ah *ah, uint32_t qpn, uint64_t id,
		   uint32_t len)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)e->buf, .length = len, .lkey = e->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = id, .opcode = IBV_WR_SEND, .sg_list = &sge,
		.num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
		.wr.ud = { .ah = ah, .remote_qpn = qpn, .remote_qkey = QKEY },
	}, *bad;

	fill(e->buf, len, id);
	check_ok(ibv_post_send(e->qp, &wr, &bad));
	run_ok(expect_wc(e->scq, id, OK, 5000, NULL));
	return 0;
}

static int got(struct ep *e, struct ep *from, uint64_t id, uint32_t len,
	       uint32_t seed)
{
	struct ibv_wc wc;

	run_ok(expect_wc(e->rcq, id, OK, 5000, &wc));
	check(wc.wc_flags & IBV_WC_GRH);
	check(wc.byte_len == len + 40);
	check(wc.src_qp == from->qp->qp_num);
	check(check_fill(e->buf + 65536 + 40, len, seed) < 0);
	check(!memcmp(e->buf + 65536 + 24 + (ip_version == 4 ? 12 : 0),
		      group(1).raw + (ip_version == 4 ? 12 : 0),
		      ip_version == 4 ? 4 : 16));
	return 0;
}

/* For datagrams from hosta to the first group. */
static int group_ah(struct ibv_ah **ah)
{
	struct ibv_ah_attr at = {
		.is_global = 1, .port_num = 1,
		.grh = { .hop_limit = 1, .dgid = group(1) },
	};

	at.grh.sgid_index = host_a.gidx;
	*ah = ibv_create_ah(host_a.pd, &at);
	if (!*ah)
		fail("ibv_create_ah: %s", strerror(errno));
	return 0;
}

/* To all that are attached, here and there, and to no other. */
static int mcast(void)
{
	enum { B1, B2, B3, A2, A1, N };
	union ibv_gid g1 = group(1), g2 = group(2);
	struct opts o = small();
	struct ep e[N];
	struct ibv_ah *ah;
	struct pair rc;
	int i, round;

	if (!host_a.attr.max_mcast_grp)
		lacks(&host_a, "no multicast groups");
	o.type = IBV_QPT_UD;
	for (i = 0; i < N; i++)
		run_ok(ud_up(&e[i], i < A2 ? &host_b : &host_a, &o));
	run_ok(group_ah(&ah));
	check_ok(ibv_attach_mcast(e[B1].qp, &g1, 0));
	check_ok(ibv_attach_mcast(e[B1].qp, &g1, 0));
	check_ok(ibv_attach_mcast(e[B2].qp, &g1, 0));
	check_ok(ibv_attach_mcast(e[B3].qp, &g2, 0));
	check_ok(ibv_attach_mcast(e[A2].qp, &g1, 0));
	for (round = 0; round < 3; round++)
		for (i = 0; i < N; i++)
			check_ok(post_recv(&e[i], round, 65536, 4096));
	run_ok(ud_send(&e[A1], ah, 0xffffff, 100, 1000));
	run_ok(got(&e[B1], &e[A1], 0, 1000, 100));
	run_ok(got(&e[B2], &e[A1], 0, 1000, 100));
	run_ok(got(&e[A2], &e[A1], 0, 1000, 100));
	run_ok(expect_no_wc(e[B3].rcq, 20));
	run_ok(expect_no_wc(e[A1].rcq, 20));
	/* a group and a number that don't go together */
	run_ok(ud_send(&e[A1], ah, e[B1].qp->qp_num, 101, 1000));
	run_ok(expect_no_wc(e[B1].rcq, 50));
	/* the rest stay when one leaves */
	check_ok(ibv_detach_mcast(e[B1].qp, &g1, 0));
	run_ok(ud_send(&e[A1], ah, 0xffffff, 102, 1000));
	run_ok(got(&e[B2], &e[A1], 1, 1000, 102));
	run_ok(got(&e[A2], &e[A1], 1, 1000, 102));
	run_ok(expect_no_wc(e[B1].rcq, 50));
	check_errno(ibv_detach_mcast(e[B1].qp, &g1, 0), EINVAL);
	check_ok(ibv_detach_mcast(e[B2].qp, &g1, 0));
	run_ok(ud_send(&e[A1], ah, 0xffffff, 103, 1000));
	run_ok(got(&e[A2], &e[A1], 2, 1000, 103));
	run_ok(expect_no_wc(e[B2].rcq, 50));
	/* only datagrams */
	o = small();
	run_ok(pair_up(&rc, &o));
	check_errno(ibv_attach_mcast(rc.a.qp, &g1, 0), EINVAL);
	run_ok(pair_down(&rc));
	g2.raw[ip_version == 4 ? 12 : 0] = 10;
	check_errno(ibv_attach_mcast(e[A2].qp, &g2, 0), EINVAL);
	check_ok(ibv_destroy_ah(ah));
	/* what is attached holds its queue pair, until it is detached */
	check_errno(ibv_destroy_qp(e[A2].qp), EBUSY);
	g2 = group(2);
	check_ok(ibv_detach_mcast(e[A2].qp, &g1, 0));
	check_ok(ibv_detach_mcast(e[B3].qp, &g2, 0));
	for (i = 0; i < N; i++)
		run_ok(ep_destroy(&e[i]));
	return 0;
}

/*
 * To the core attachments with other LIDs are others, of which each is detached;
 * datagrams come once, as long as there is one.
 */
static int mcast_lids(void)
{
	union ibv_gid g = group(1);
	struct opts o = small();
	struct ep from, to;
	struct ibv_ah *ah;
	int i, lid;

	if (!host_a.attr.max_mcast_grp)
		lacks(&host_a, "no multicast groups");
	o.type = IBV_QPT_UD;
	run_ok(ud_up(&from, &host_a, &o));
	run_ok(ud_up(&to, &host_b, &o));
	run_ok(group_ah(&ah));
	for (lid = 0; lid < 3; lid++)
		check_ok(ibv_attach_mcast(to.qp, &g, lid));
	for (lid = 0; lid < 3; lid++) {
		check_ok(post_recv(&to, lid, 65536, 4096));
		run_ok(ud_send(&from, ah, 0xffffff, 100 + lid, 1000));
		run_ok(got(&to, &from, lid, 1000, 100 + lid));
		run_ok(expect_no_wc(to.rcq, 20));
		check_ok(ibv_detach_mcast(to.qp, &g, lid));
	}
	check_ok(post_recv(&to, 3, 65536, 4096));
	run_ok(ud_send(&from, ah, 0xffffff, 103, 1000));
	run_ok(expect_no_wc(to.rcq, 50));
	for (i = 0; i < 2; i++)
		check_errno(ibv_detach_mcast(to.qp, &g, 0), EINVAL);
	check_ok(ibv_destroy_ah(ah));
	run_ok(ep_destroy(&from));
	run_ok(ep_destroy(&to));
	return 0;
}

/* ---- all of it at once, in use, until someone else ends it ----------------- */

static int hold(void)
{
	union ibv_gid g = group(7);
	struct ibv_srq_attr at = { .srq_limit = 1 };
	struct ibv_srq *srq;
	struct ibv_mw *m1, *m2;
	struct opts o = small();
	struct ibv_wc wc;
	struct pair p, q;
	struct ep u;
	uint32_t key;
	int i;

	run_ok(mw_pair(&p, &m1, IBV_MW_TYPE_1));
	m2 = ibv_alloc_mw(host_b.pd, IBV_MW_TYPE_2);
	check(m2);
	key = ibv_inc_rkey(m2->rkey);
	run_ok(bind1(&p, m1, 0, 65536, IBV_ACCESS_REMOTE_WRITE, OK));
	run_ok(bind2(&p, m2, key, 0, 65536, IBV_ACCESS_REMOTE_WRITE, OK));
	srq = srq_make(host_b.pd, 64, 1);
	check(srq);
	run_ok(srq_pair(&q, o, srq));
	check_ok(ibv_modify_srq(srq, &at, IBV_SRQ_LIMIT));
	o.type = IBV_QPT_UD;
	run_ok(ud_up(&u, &host_b, &o));
	for (i = 0; i < 3; i++)
		check_ok(ibv_attach_mcast(u.qp, &g, i));
	check_ok(ibv_resize_cq(u.rcq, 300));
	check_ok(rereg(u.mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0,
		       IBV_ACCESS_LOCAL_WRITE));
	printf("going\n");
	for (i = 0;; i++) {
		uint32_t rkey = i & 1 ? key : m1->rkey;

		srq_post(srq, &q.b, q.b.mr->lkey, i, 0, 4096);
		if (post(&p.a, &(struct wr){
			.id = i, .op = WRITE, .flags = IBV_SEND_SIGNALED,
			.len = 32768, .rkey = rkey,
			.raddr = (uintptr_t)p.b.buf }) ||
		    post(&q.a, &(struct wr){
			.id = i, .op = IBV_WR_SEND,
			.flags = IBV_SEND_SIGNALED, .len = 4096 }))
			break;
		if (get_wc(p.a.scq, &wc, 5000) != 1 || wc.status ||
		    get_wc(q.a.scq, &wc, 5000) != 1 || wc.status)
			break;
		while (ibv_poll_cq(q.b.rcq, 1, &wc) > 0)
			;
	}
	printf("over\n");
	fflush(stdout);
	/* whatever is left is for the kernel to give up */
	_exit(0);
}

/* A queue pair of a group, until someone else ends it. */
static int hold_group(void)
{
	union ibv_gid g = group(7);
	struct opts o = small();
	struct ep u;

	o.type = IBV_QPT_UD;
	run_ok(ud_up(&u, &host_a, &o));
	check_ok(ibv_attach_mcast(u.qp, &g, 0));
	printf("going\n");
	fflush(stdout);
	pause();
	return 0;
}

static const struct testcase cases[] = {
	{ "srq_attr", srq_attr },
	{ "srq_traffic", srq_traffic },
	{ "srq_limit", srq_limit },
	{ "srq_resize", srq_resize },
	{ "srq_last_wqe", srq_last_wqe },
	{ "srq_rnr", srq_rnr },
	{ "srq_domain", srq_domain },
	{ "cq_resize", cq_resize },
	{ "cq_resize_traffic", cq_resize_traffic, 60 },
	{ "cq_overflow", cq_overflow },
	{ "mr_rereg", mr_rereg, 60 },
	{ "mr_rereg_errors", mr_rereg_errors },
	{ "mr_zero_based", mr_zero_based },
	{ "mw_type1", mw_type1 },
	{ "mw_type2", mw_type2 },
	{ "mw_send_inv", mw_send_inv },
	{ "mw_refused", mw_refused },
	{ "mw_datagrams", mw_datagrams },
	{ "mw_holds_mr", mw_holds_mr },
	{ "mcast", mcast },
	{ "mcast_lids", mcast_lids },
};

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[argc - 1], "hold")) {
		rig_args(argc, argv);
		if (host_open(&host_a) || host_open(&host_b))
			return 1;
		return hold();
	}
	if (argc > 1 && !strcmp(argv[argc - 1], "hold_group")) {
		rig_args(argc, argv);
		return host_open(&host_a) || hold_group();
	}
	return rig_main(argc, argv, cases, ARRAY_SIZE(cases));
}
