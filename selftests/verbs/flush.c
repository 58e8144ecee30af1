// SPDX-License-Identifier: GPL-2.0
/*
 * ATOMIC WRITE and FLUSH: posted through extended queue pairs, which is the
 * only way that libibverbs has for them.
 */
#include <pthread.h>
#include "rig.h"

#define POISON 0xa5
#define FLUSH_ALL (IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT)

static uint64_t caps(struct host *h)
{
	struct ibv_device_attr_ex attr = {};

	if (ibv_query_device_ex(h->ctx, NULL, &attr))
		return 0;
	return attr.device_cap_flags_ex;
}

/* From include/uapi/rdma/ib_user_verbs.h, which libibverbs does not repeat. */
#define CAP_FLUSH_GLOBAL (1ull << 38)
#define CAP_FLUSH_PERSISTENT (1ull << 39)
#define CAP_ATOMIC_WRITE (1ull << 40)

static struct opts opts_flush(void)
{
	struct opts o = opts_default();

	o.mr_access |= IBV_ACCESS_FLUSH_GLOBAL;
	o.qp_access |= IBV_ACCESS_FLUSH_GLOBAL;
	o.buf = 3 * 65536;
	return o;
}

/* Replaces the queue pair by an extended one that has these operations. */
static int extend(struct ep *e, const struct opts *o, uint64_t ops)
{
	struct ibv_qp_init_attr_ex ia = {
		.qp_type = o->type,
		.send_cq = e->scq, .recv_cq = e->rcq,
		.cap = {
			.max_send_wr = o->depth, .max_recv_wr = o->depth,
			.max_send_sge = o->sge, .max_recv_sge = o->sge,
		},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = e->h->pd,
		.send_ops_flags = ops,
	};

	check_ok(ibv_destroy_qp(e->qp));
	e->qp = ibv_create_qp_ex(e->h->ctx, &ia);
	if (!e->qp)
		fail("ibv_create_qp_ex: %s", strerror(errno));
	return 0;
}

static int up(struct pair *p, const struct opts *o)
{
	uint64_t ops = IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_FLUSH |
		       IBV_QP_EX_WITH_RDMA_WRITE;

	p->o = *o;
	run_ok(ep_create(&p->a, &host_a, o));
	run_ok(ep_create(&p->b, &host_b, o));
	run_ok(extend(&p->a, o, ops));
	run_ok(pair_connect(p));
	memset(p->b.buf, POISON, p->b.len);
	return 0;
}

static int atomic_write(struct pair *p, uint64_t id, size_t off, uint64_t value,
			bool signal)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(p->a.qp);

	ibv_wr_start(x);
	x->wr_id = id;
	x->wr_flags = signal ? IBV_SEND_SIGNALED : 0;
	ibv_wr_atomic_write(x, p->b.mr->rkey, (uintptr_t)p->b.buf + off, &value);
	return ibv_wr_complete(x);
}

static int flush(struct pair *p, uint64_t id, size_t off, size_t len,
		 uint8_t type, uint8_t level)
{
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(p->a.qp);

	ibv_wr_start(x);
	x->wr_id = id;
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_flush(x, p->b.mr->rkey, (uintptr_t)p->b.buf + off, len, type,
		     level);
	return ibv_wr_complete(x);
}

static int advertised(void)
{
	uint64_t c = caps(&host_a);
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_FLUSH_PERSISTENT;
	struct ibv_mr *mr;
	void *buf;

	check(c & CAP_ATOMIC_WRITE);
	check(c & CAP_FLUSH_GLOBAL);
	buf = aligned_alloc(4096, 4096);
	check(buf);
	mr = ibv_reg_mr(host_a.pd, buf, 4096,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_FLUSH_GLOBAL);
	check(mr);
	check_ok(ibv_dereg_mr(mr));
	mr = ibv_reg_mr(host_a.pd, buf, 4096, access);
	/* What isn't advertised is refused; what is may still want the memory. */
	if (!(c & CAP_FLUSH_PERSISTENT))
		check(!mr);
	if (mr)
		check_ok(ibv_dereg_mr(mr));
	free(buf);
	return 0;
}

static int atomic_write_lands(void)
{
	struct opts o = opts_flush();
	struct ibv_wc wc;
	struct pair p;
	size_t off[] = { 0, 8, 4096 - 8, 65536, o.buf - 8 };
	uint64_t got;
	unsigned int i;

	run_ok(up(&p, &o));
	for (i = 0; i < ARRAY_SIZE(off); i++) {
		uint64_t value = 0x0123456789abcdefull * (i + 1);

		memset(p.b.buf, POISON, p.b.len);
		check_ok(atomic_write(&p, i, off[i], value, true));
		run_ok(expect_wc(p.a.scq, i, IBV_WC_SUCCESS, 20000, &wc));
		check(wc.opcode == IBV_WC_ATOMIC_WRITE);
		memcpy(&got, p.b.buf + off[i], 8);
		if (got != value)
			fail("0x%016llx, not 0x%016llx",
			     (unsigned long long)got, (unsigned long long)value);
		check(check_byte(p.b.buf, off[i], POISON) < 0);
		check(check_byte(p.b.buf + off[i] + 8, p.b.len - off[i] - 8,
				 POISON) < 0);
	}
	return pair_down(&p);
}

static volatile bool stop;

/* Each of the values has eight equal bytes. */
static void *look(void *arg)
{
	const volatile uint64_t *word = arg;
	uintptr_t torn = 0;

	while (!stop) {
		uint64_t v = *word;

		torn += v != (v & 0xff) * 0x0101010101010101ull;
	}
	return (void *)torn;
}

static int atomic_write_is_never_torn(void)
{
	struct opts o = opts_flush();
	int n = quick ? 500 : 5000, i;
	struct ibv_wc wc;
	pthread_t reader;
	struct pair p;
	void *torn;

	run_ok(up(&p, &o));
	check(!pthread_create(&reader, NULL, look, p.b.buf));
	for (i = 0; i < n; i++) {
		bool last = i % 16 == 15 || i == n - 1;

		check_ok(atomic_write(&p, i, 0,
				      (i & 0xff) * 0x0101010101010101ull, last));
		if (last)
			run_ok(expect_wc(p.a.scq, i, IBV_WC_SUCCESS, 20000, &wc));
	}
	stop = true;
	check(!pthread_join(reader, &torn));
	check(!torn);
	check(p.b.buf[3] == ((n - 1) & 0xff));
	return pair_down(&p);
}

static int flush_after_writes(void)
{
	struct opts o = opts_flush();
	struct ibv_wc wc;
	struct pair p;
	int i;

	run_ok(up(&p, &o));
	for (i = 0; i < 40; i++) {
		struct wr w = {
			.id = 1000 + i, .op = IBV_WR_RDMA_WRITE,
			.off = 1, .len = 20000 + i,
		};

		fill(p.a.buf + 1, w.len, i);
		check_ok(post_to(&p.a, w, &p.b, 7));
		if (i % 2)
			check_ok(flush(&p, i, 7, w.len, IBV_FLUSH_GLOBAL,
				       IBV_FLUSH_RANGE));
		else	/* The range is nobody's. */
			check_ok(flush(&p, i, o.buf * 2, 77, IBV_FLUSH_GLOBAL,
				       IBV_FLUSH_MR));
		/* Its completion means that the WRITE before it is there. */
		run_ok(expect_wc(p.a.scq, i, IBV_WC_SUCCESS, 20000, &wc));
		check(wc.opcode == IBV_WC_FLUSH);
		check(check_fill(p.b.buf + 7, w.len, i) < 0);
	}
	return pair_down(&p);
}

/* More of them than READs may be outstanding, in one go. */
static int many_at_once(void)
{
	struct opts o = opts_flush();
	struct ibv_wc wc;
	struct pair p;
	int i;

	o.rd_atomic = 2;
	run_ok(up(&p, &o));
	for (i = 0; i < 32; i += 2) {
		check_ok(atomic_write(&p, i, 8 * i, i, true));
		check_ok(flush(&p, i + 1, 0, 4096, IBV_FLUSH_GLOBAL,
			       IBV_FLUSH_RANGE));
	}
	for (i = 0; i < 32; i++)
		run_ok(expect_wc(p.a.scq, i, IBV_WC_SUCCESS, 20000, &wc));
	for (i = 0; i < 32; i += 2)
		check(p.b.buf[8 * i] == i);
	return pair_down(&p);
}

enum what { FINE, MISALIGNED, OUTSIDE, NO_MR_RIGHT, NO_QP_RIGHT };

static int refused_write(enum what what, enum ibv_wc_status want)
{
	struct opts o = opts_flush();
	size_t off = what == MISALIGNED ? 4 : what == OUTSIDE ? o.buf : 0;
	struct pair p;

	if (what == NO_MR_RIGHT)
		o.mr_access &= ~(IBV_ACCESS_REMOTE_WRITE |
				 IBV_ACCESS_REMOTE_ATOMIC);
	if (what == NO_QP_RIGHT)
		o.qp_access &= ~IBV_ACCESS_REMOTE_WRITE;
	run_ok(up(&p, &o));
	check_ok(atomic_write(&p, 1, off, 0, true));
	run_ok(expect_wc(p.a.scq, 1, want, 20000, NULL));
	check(check_byte(p.b.buf, p.b.len, POISON) < 0);
	check(ep_query_state(&p.b) == IBV_QPS_ERR);
	return pair_down(&p);
}

static int atomic_write_refused(void)
{
	run_ok(refused_write(MISALIGNED, IBV_WC_REM_INV_REQ_ERR));
	run_ok(refused_write(OUTSIDE, IBV_WC_REM_ACCESS_ERR));
	run_ok(refused_write(NO_MR_RIGHT, IBV_WC_REM_ACCESS_ERR));
	return refused_write(NO_QP_RIGHT, IBV_WC_REM_INV_REQ_ERR);
}

static int refused_flush(enum what what, enum ibv_wc_status want, uint8_t type)
{
	struct opts o = opts_flush();
	size_t off = what == OUTSIDE ? o.buf - 100 : 0;
	struct pair p;

	if (what == NO_MR_RIGHT)
		o.mr_access &= ~FLUSH_ALL;
	if (what == NO_QP_RIGHT)
		o.qp_access &= ~FLUSH_ALL;
	run_ok(up(&p, &o));
	check_ok(flush(&p, 1, off, 101, type, IBV_FLUSH_RANGE));
	run_ok(expect_wc(p.a.scq, 1, want, 20000, NULL));
	return pair_down(&p);
}

static int flush_refused(void)
{
	uint8_t both = IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT;

	run_ok(refused_flush(OUTSIDE, IBV_WC_REM_ACCESS_ERR, IBV_FLUSH_GLOBAL));
	run_ok(refused_flush(NO_MR_RIGHT, IBV_WC_REM_ACCESS_ERR,
			     IBV_FLUSH_GLOBAL));
	run_ok(refused_flush(NO_QP_RIGHT, IBV_WC_REM_INV_REQ_ERR,
			     IBV_FLUSH_GLOBAL));
	if (!(caps(&host_b) & CAP_FLUSH_PERSISTENT))
		run_ok(refused_flush(FINE, IBV_WC_REM_INV_REQ_ERR, both));
	return 0;
}

static int flush_to_nowhere(void)
{
	return refused_flush(FINE, IBV_WC_LOC_QP_OP_ERR, 0);
}

static const struct testcase cases[] = {
	{ "ATOMIC WRITE and FLUSH are advertised as they are", advertised },
	{ "ATOMIC WRITE: eight bytes, and no others", atomic_write_lands },
	{ "ATOMIC WRITE is never seen in part", atomic_write_is_never_torn },
	{ "ATOMIC WRITE that is not permitted", atomic_write_refused },
	{ "FLUSH of a range and of a region", flush_after_writes },
	{ "FLUSH that is not permitted", flush_refused },
	{ "FLUSH without a placement never leaves", flush_to_nowhere },
	{ "more than may be outstanding", many_at_once },
};

int main(int argc, char **argv)
{
	return rig_main(argc, argv, cases, ARRAY_SIZE(cases));
}
