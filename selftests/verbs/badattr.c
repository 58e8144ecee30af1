// SPDX-License-Identifier: GPL-2.0
/*
 * Arguments that make no sense get the documented errno, and change nothing.
 */
#include <sys/mman.h>
#include "rig.h"

static struct ep e;
static struct opts o;

/* rxo is to give what its documentation names; others have an alternative. */
static bool is_expected(int want, int or)
{
	return errno == want || (errno == or && !is_driver(&host_a, "rxo"));
}

static int fresh(void)
{
	o = opts_default();
	run_ok(ep_create(&e, &host_a, &o));
	return 0;
}

/* RESET, INIT, RTR or RTS, connected to itself. */
static int bring(enum ibv_qp_state to)
{
	run_ok(ep_state(&e, IBV_QPS_RESET));
	if ((to >= IBV_QPS_INIT && to <= IBV_QPS_RTS) || to == IBV_QPS_ERR)
		run_ok(ep_init(&e, &o));
	if (to >= IBV_QPS_RTR && to <= IBV_QPS_RTS)
		run_ok(ep_rtr(&e, &e, &o));
	if (to == IBV_QPS_RTS)
		run_ok(ep_rts(&e, &o));
	if (to == IBV_QPS_ERR)
		run_ok(ep_state(&e, IBV_QPS_ERR));
	check(ep_query_state(&e) == (int)to);
	return 0;
}

#define INIT_MASK (IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | \
		   IBV_QP_ACCESS_FLAGS)
#define RTR_MASK (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | \
		  IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | \
		  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_MASK (IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | \
		  IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC)

static struct ibv_qp_attr good(enum ibv_qp_state to)
{
	return (struct ibv_qp_attr){
		.qp_state = to, .port_num = 1, .path_mtu = IBV_MTU_1024,
		.dest_qp_num = e.qp->qp_num, .rq_psn = 1, .sq_psn = 1,
		.max_dest_rd_atomic = 1, .max_rd_atomic = 1,
		.min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = { .is_global = 1, .port_num = 1, .grh = {
			.hop_limit = 64, .sgid_index = host_a.gidx,
			.dgid = host_a.gid } },
	};
}

/*
 * Must be refused with EINVAL and leave the state as it was. (The core says
 * ENODATA of a GID that is empty.)
 */
static int refuse(struct ibv_qp_attr at, int mask, const char *what)
{
	bool no_gid = (mask & IBV_QP_AV) && at.ah_attr.grh.sgid_index >= 200;
	int before = ep_query_state(&e);
	int r = ibv_modify_qp(e.qp, &at, mask);

	if (r != EINVAL && !(no_gid && r == ENODATA))
		fail("%s: %d (%s), not EINVAL", what, r, strerror(r));
	if (ep_query_state(&e) != before)
		fail("%s: refused, but the state is %d, not %d", what,
		     ep_query_state(&e), before);
	return 0;
}

/* A list of refusals goes on after a failure: all are of interest. */
#define BAD(state, mask, what, assign) \
	do { \
		struct ibv_qp_attr at = good(state); \
		assign; \
		bad |= refuse(at, mask, what); \
	} while (0)

static int attr_range_init(void)
{
	int bad = 0;

	run_ok(fresh());
	run_ok(bring(IBV_QPS_RESET));
	BAD(IBV_QPS_INIT, INIT_MASK, "port 0", at.port_num = 0);
	BAD(IBV_QPS_INIT, INIT_MASK, "port 2", at.port_num = 2);
	BAD(IBV_QPS_INIT, INIT_MASK, "port 255", at.port_num = 255);
	BAD(IBV_QPS_INIT, INIT_MASK, "P_Key index 40000",
	    at.pkey_index = 40000);
	BAD(IBV_QPS_INIT, INIT_MASK, "state 8", at.qp_state = 8);
	BAD(IBV_QPS_INIT, INIT_MASK, "state 255", at.qp_state = 255);
	BAD(IBV_QPS_INIT, INIT_MASK | IBV_QP_CUR_STATE, "current state 77",
	    at.cur_qp_state = 77);
	BAD(IBV_QPS_INIT, INIT_MASK | IBV_QP_CUR_STATE,
	    "current state RTS when it is RESET",
	    at.cur_qp_state = IBV_QPS_RTS);
	run_ok(ep_init(&e, &o));
	run_ok(ep_destroy(&e));
	return bad;
}

static int attr_range_rtr(void)
{
	int bad = 0;

	run_ok(fresh());
	run_ok(bring(IBV_QPS_INIT));
	BAD(IBV_QPS_RTR, RTR_MASK, "path MTU 0", at.path_mtu = 0);
	BAD(IBV_QPS_RTR, RTR_MASK, "path MTU 6", at.path_mtu = 6);
	BAD(IBV_QPS_RTR, RTR_MASK, "path MTU 255", at.path_mtu = 255);
	BAD(IBV_QPS_RTR, RTR_MASK, "GID index 255 (empty)",
	    at.ah_attr.grh.sgid_index = 255);
	BAD(IBV_QPS_RTR, RTR_MASK, "GID index 200 (empty)",
	    at.ah_attr.grh.sgid_index = 200);
	BAD(IBV_QPS_RTR, RTR_MASK, "no GRH", at.ah_attr.is_global = 0);
	BAD(IBV_QPS_RTR, RTR_MASK, "address of port 9",
	    at.ah_attr.port_num = 9);
	BAD(IBV_QPS_RTR, RTR_MASK, "RNR timer 32", at.min_rnr_timer = 32);
	BAD(IBV_QPS_RTR, RTR_MASK, "too many reads to answer",
	    at.max_dest_rd_atomic = 255);
	run_ok(ep_rtr(&e, &e, &o));
	run_ok(ep_destroy(&e));
	return bad;
}

static int attr_range_rts(void)
{
	int bad = 0;

	run_ok(fresh());
	run_ok(bring(IBV_QPS_RTR));
	BAD(IBV_QPS_RTS, RTS_MASK, "timeout 32", at.timeout = 32);
	BAD(IBV_QPS_RTS, RTS_MASK, "timeout 255", at.timeout = 255);
	BAD(IBV_QPS_RTS, RTS_MASK, "retry_cnt 8", at.retry_cnt = 8);
	BAD(IBV_QPS_RTS, RTS_MASK, "rnr_retry 8", at.rnr_retry = 8);
	BAD(IBV_QPS_RTS, RTS_MASK, "too many reads to ask",
	    at.max_rd_atomic = 255);
	run_ok(ep_rts(&e, &o));
	BAD(IBV_QPS_RTS, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER, "RNR timer 77",
	    at.min_rnr_timer = 77);
	run_ok(ep_destroy(&e));
	return bad;
}

/* A netdev's MTU is the path's limit. */
static int attr_mtu(void)
{
	struct ibv_qp_attr at;

	run_ok(fresh());
	if (host_a.port.active_mtu == IBV_MTU_4096)
		skip("the path MTU is 4096 already");
	run_ok(bring(IBV_QPS_INIT));
	at = good(IBV_QPS_RTR);
	at.path_mtu = host_a.port.active_mtu + 1;
	run_ok(refuse(at, RTR_MASK, "more than the active MTU"));
	run_ok(ep_destroy(&e));
	return 0;
}

static int transitions(void)
{
	static const struct { enum ibv_qp_state from, to; } no[] = {
		{ IBV_QPS_RESET, IBV_QPS_RTR }, { IBV_QPS_RESET, IBV_QPS_RTS },
		{ IBV_QPS_RESET, IBV_QPS_SQD }, { IBV_QPS_RESET, IBV_QPS_SQE },
		{ IBV_QPS_INIT, IBV_QPS_RTS }, { IBV_QPS_INIT, IBV_QPS_SQD },
		{ IBV_QPS_INIT, IBV_QPS_SQE },
		{ IBV_QPS_RTR, IBV_QPS_INIT }, { IBV_QPS_RTR, IBV_QPS_RTR },
		{ IBV_QPS_RTR, IBV_QPS_SQD },
		{ IBV_QPS_RTS, IBV_QPS_INIT }, { IBV_QPS_RTS, IBV_QPS_RTR },
		{ IBV_QPS_RTS, IBV_QPS_SQE },
		{ IBV_QPS_ERR, IBV_QPS_INIT }, { IBV_QPS_ERR, IBV_QPS_RTR },
		{ IBV_QPS_ERR, IBV_QPS_RTS }, { IBV_QPS_ERR, IBV_QPS_SQD },
	};
	int bad = 0, i;
	char what[64];

	run_ok(fresh());
	for (i = 0; i < (int)ARRAY_SIZE(no); i++) {
		int mask = no[i].to == IBV_QPS_INIT ? INIT_MASK :
			   no[i].to == IBV_QPS_RTR ? RTR_MASK :
			   no[i].to == IBV_QPS_RTS ? RTS_MASK : IBV_QP_STATE;

		run_ok(bring(no[i].from));
		snprintf(what, sizeof(what), "from state %d to %d",
			 no[i].from, no[i].to);
		bad |= refuse(good(no[i].to), mask, what);
	}
	run_ok(ep_destroy(&e));
	return bad;
}

/* Each attribute that a transition needs, left out; and one too many. */
static int attr_missing(void)
{
	static const struct {
		enum ibv_qp_state from, to;
		int mask;
	} steps[] = {
		{ IBV_QPS_RESET, IBV_QPS_INIT, INIT_MASK },
		{ IBV_QPS_INIT, IBV_QPS_RTR, RTR_MASK },
		{ IBV_QPS_RTR, IBV_QPS_RTS, RTS_MASK },
	};
	int bad = 0, i, bit;
	char what[64];

	run_ok(fresh());
	for (i = 0; i < 3; i++) {
		run_ok(bring(steps[i].from));
		for (bit = 1; bit <= steps[i].mask; bit <<= 1) {
			if (!(steps[i].mask & bit) || bit == IBV_QP_STATE)
				continue;
			snprintf(what, sizeof(what),
				 "to state %d without 0x%x", steps[i].to, bit);
			bad |= refuse(good(steps[i].to),
				      steps[i].mask & ~bit, what);
		}
	}
	run_ok(bring(IBV_QPS_RESET));
	bad |= refuse(good(IBV_QPS_INIT), INIT_MASK | IBV_QP_SQ_PSN,
		      "to INIT with a PSN");
	bad |= refuse(good(IBV_QPS_INIT), INIT_MASK | IBV_QP_QKEY,
		      "RC with a Q_Key");
	run_ok(bring(IBV_QPS_INIT));
	bad |= refuse(good(IBV_QPS_RTR), RTR_MASK | IBV_QP_TIMEOUT,
		      "to RTR with a timeout");
	run_ok(ep_destroy(&e));
	return bad;
}

static int qp_create(struct ibv_qp_init_attr ia, int want, int or,
		     const char *what)
{
	struct ibv_qp *qp;

	ia.send_cq = e.scq;
	ia.recv_cq = e.rcq;
	errno = 0;
	qp = ibv_create_qp(host_a.pd, &ia);
	if (qp) {
		ibv_destroy_qp(qp);
		fail("%s: made", what);
	}
	if (!is_expected(want, or))
		fail("%s: %s, not %s", what, strerror(errno), strerror(want));
	return 0;
}

static int create_qp(void)
{
	const struct ibv_qp_init_attr ok = {
		.qp_type = IBV_QPT_RC, .cap = { 4, 4, 1, 1, 0 },
	};
	struct ibv_qp_init_attr ia;
	int bad = 0;

	run_ok(fresh());
#define NO(want, or, what, assign) \
	do { ia = ok; assign; bad |= qp_create(ia, want, or, what); } while (0)
	NO(EINVAL, ENOMEM, "max_send_wr + 1",
	   ia.cap.max_send_wr = host_a.attr.max_qp_wr + 1);
	NO(EINVAL, ENOMEM, "max_recv_wr + 1",
	   ia.cap.max_recv_wr = host_a.attr.max_qp_wr + 1);
	NO(EINVAL, ENOMEM, "2^32 - 1 sends", ia.cap.max_send_wr = ~0u);
	NO(EINVAL, EINVAL, "max_sge + 1 to send",
	   ia.cap.max_send_sge = host_a.attr.max_sge + 1);
	NO(EINVAL, EINVAL, "max_sge + 1 to receive",
	   ia.cap.max_recv_sge = host_a.attr.max_sge + 1);
	NO(EINVAL, EINVAL, "2^31 inline bytes",
	   ia.cap.max_inline_data = 0x7fffffff);
	NO(EINVAL, EINVAL, "2^32 - 1 inline bytes",
	   ia.cap.max_inline_data = ~0u);
	NO(EINVAL, EOPNOTSUPP, "type 0", ia.qp_type = 0);
	NO(EINVAL, EOPNOTSUPP, "type 99", ia.qp_type = 99);
	NO(EOPNOTSUPP, EINVAL, "a raw packet QP",
	   ia.qp_type = IBV_QPT_RAW_PACKET);
	run_ok(ep_destroy(&e));
	return bad;
}

static int create_cq(void)
{
	struct ibv_cq *cq;
	int bad = 0, i;
	const struct { int cqe, vector; const char *what; } no[] = {
		{ 0, 0, "no entry" }, { -1, 0, "2^32 - 1 entries" },
		{ host_a.attr.max_cqe + 1, 0, "max_cqe + 1" },
		{ 8, host_a.ctx->num_comp_vectors, "an unknown vector" },
		{ 8, -1, "vector -1" },
	};

	for (i = 0; i < (int)ARRAY_SIZE(no); i++) {
		errno = 0;
		cq = ibv_create_cq(host_a.ctx, no[i].cqe, NULL, NULL,
				   no[i].vector);
		if (cq || errno != EINVAL) {
			printf("# %s: %s, not EINVAL\n", no[i].what,
			       cq ? "made" : strerror(errno));
			bad = FAIL;
		}
		if (cq)
			ibv_destroy_cq(cq);
	}
	return bad;
}

static int no_mr(void *addr, size_t len, int access, int want, int or,
		 const char *what)
{
	struct ibv_mr *mr;

	errno = 0;
	mr = ibv_reg_mr(host_a.pd, addr, len, access);
	if (mr) {
		ibv_dereg_mr(mr);
		fail("%s: registered", what);
	}
	if (!is_expected(want, or))
		fail("%s: %s, not %s", what, strerror(errno), strerror(want));
	return 0;
}

static int reg_mr(void)
{
	size_t page = 4096;
	uint8_t *m = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int bad = 0;

	check(m != MAP_FAILED);
	memset(m, 1, 8 * page);
	check_ok(munmap(m + 4 * page, page));
	bad |= no_mr(m + 4 * page, page, ACC_ALL, EFAULT, EFAULT,
		     "unmapped memory");
	bad |= no_mr(m, 8 * page, ACC_ALL, EFAULT, EFAULT,
		     "memory with a hole");
	bad |= no_mr(m + 3 * page, page + 1, ACC_ALL, EFAULT, EFAULT,
		     "one byte beyond its end");
	bad |= no_mr((void *)0x1000, page, ACC_ALL, EFAULT, EFAULT,
		     "address 4096");
	bad |= no_mr((void *)(~0ull - 4095), 8192, ACC_ALL, EINVAL, EFAULT,
		     "a range that wraps");
	bad |= no_mr((void *)(~0ull - 4095), 8192,
		     ACC_ALL | IBV_ACCESS_ON_DEMAND, EOVERFLOW, EINVAL,
		     "a range that wraps, on demand");
	bad |= no_mr((void *)0xffff800000000000ull, page, ACC_ALL, EFAULT,
		     EINVAL, "the kernel's memory");
	bad |= no_mr(m, ~0ull - (uintptr_t)m, ACC_ALL, EINVAL, ENOMEM,
		     "2^64 bytes");
	bad |= no_mr(m, ~0ull - (uintptr_t)m, ACC_ALL | IBV_ACCESS_ON_DEMAND,
		     EOVERFLOW, EINVAL, "2^64 bytes, on demand");
	bad |= no_mr(m, 1ull << 60, ACC_ALL, ENOMEM, EFAULT, "2^60 bytes");
	bad |= no_mr(m, 1ull << 60, ACC_ALL | IBV_ACCESS_ON_DEMAND, ENOMEM,
		     EINVAL, "2^60 bytes, on demand");
	check_ok(mprotect(m, page, PROT_READ));
	bad |= no_mr(m, page, ACC_ALL, EFAULT, EACCES,
		     "read-only memory to be written");
	check_ok(mprotect(m + page, page, PROT_NONE));
	bad |= no_mr(m + page, page, ACC_ALL, EFAULT, EFAULT,
		     "memory without any right");
	m += 2 * page;
	bad |= no_mr(m, page, IBV_ACCESS_REMOTE_WRITE, EINVAL, EINVAL,
		     "remote write without local write");
	bad |= no_mr(m, page, IBV_ACCESS_REMOTE_ATOMIC, EINVAL, EINVAL,
		     "remote atomic without local write");
	bad |= no_mr(m, page, IBV_ACCESS_LOCAL_WRITE | 1 << 17, EINVAL,
		     EOPNOTSUPP, "an unknown access flag");
	return bad;
}

/* What the process posts wrongly is refused by the library or the kernel. */
static int posts(void)
{
	struct ibv_sge sg[64];
	struct ibv_send_wr wr = { .opcode = IBV_WR_SEND, .sg_list = sg,
				  .send_flags = IBV_SEND_SIGNALED }, *bad;
	struct ibv_recv_wr rr = { .sg_list = sg }, *rbad;
	struct ibv_qp_init_attr ia;
	struct ibv_qp_attr at;
	int i, r;

	run_ok(fresh());
	check(ibv_post_recv(e.qp, &rr, &rbad) == EINVAL);
	run_ok(bring(IBV_QPS_RTS));
	check_ok(ibv_query_qp(e.qp, &at, IBV_QP_CAP, &ia));
	for (i = 0; i < 64; i++)
		sg[i] = (struct ibv_sge){ (uintptr_t)e.buf, 1, e.mr->lkey };
	check(at.cap.max_send_sge < 64 && at.cap.max_recv_sge < 64);
	wr.num_sge = at.cap.max_send_sge + 1;
	check(ibv_post_send(e.qp, &wr, &bad) == EINVAL && bad == &wr);
	rr.num_sge = at.cap.max_recv_sge + 1;
	check(ibv_post_recv(e.qp, &rr, &rbad) == EINVAL && rbad == &rr);
	wr.num_sge = 1;
	wr.send_flags |= IBV_SEND_INLINE;
	sg[0].length = at.cap.max_inline_data + 1;
	check(ibv_post_send(e.qp, &wr, &bad) == EINVAL && bad == &wr);
	/* a full queue */
	for (i = 0; i < 100000; i++) {
		r = ibv_post_recv(e.qp, &(struct ibv_recv_wr){ .wr_id = i },
				  &rbad);
		if (r)
			break;
	}
	check(r == ENOMEM);
	check(i >= (int)at.cap.max_recv_wr);
	/* nothing was lost by all that */
	sg[0].length = 0;
	wr.send_flags = IBV_SEND_SIGNALED;
	check_ok(ibv_post_send(e.qp, &wr, &bad));
	run_ok(expect_wc(e.scq, 0, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(expect_wc(e.rcq, 0, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(ep_destroy(&e));
	return 0;
}

static int ah_create(struct ibv_ah_attr aa, int want, const char *what)
{
	struct ibv_ah *ah;

	errno = 0;
	ah = ibv_create_ah(host_a.pd, &aa);
	if (ah) {
		ibv_destroy_ah(ah);
		fail("%s: made", what);
	}
	if (errno != want)
		fail("%s: %s, not %s", what, strerror(errno), strerror(want));
	return 0;
}

static int create_ah(void)
{
	struct ibv_ah_attr ok = { .is_global = 1, .port_num = 1, .grh = {
		.dgid = host_a.gid, .sgid_index = host_a.gidx,
		.hop_limit = 64 } }, aa;
	struct ibv_ah *ah;
	int bad = 0;

	aa = ok;
	aa.port_num = 0;
	bad |= ah_create(aa, EINVAL, "port 0");
	aa.port_num = 9;
	bad |= ah_create(aa, EINVAL, "port 9");
	aa = ok;
	aa.grh.sgid_index = 250;
	bad |= ah_create(aa, ENODATA, "an empty GID");	/* the core's */
	aa = ok;
	aa.is_global = 0;
	bad |= ah_create(aa, EINVAL, "no GRH");
	ah = ibv_create_ah(host_a.pd, &ok);
	check(ah);
	check_ok(ibv_destroy_ah(ah));
	return bad;
}

/* What is in use stays. */
static int busy(void)
{
	struct ibv_pd *pd;
	struct ibv_mr *mr;

	run_ok(fresh());
	check_errno(ibv_destroy_cq(e.scq), EBUSY);
	check_errno(ibv_destroy_cq(e.rcq), EBUSY);
	check_errno(ibv_dealloc_pd(host_a.pd), EBUSY);
	pd = ibv_alloc_pd(host_a.ctx);
	check(pd);
	mr = ibv_reg_mr(pd, e.buf, 4096, 0);
	check(mr);
	check_errno(ibv_dealloc_pd(pd), EBUSY);
	check_ok(ibv_dereg_mr(mr));
	check_ok(ibv_dealloc_pd(pd));
	run_ok(bring(IBV_QPS_RTS));
	run_ok(ep_destroy(&e));
	return 0;
}

/* UD has no business with what is for connections. */
static int ud_attrs(void)
{
	struct ibv_qp_attr at;
	int bad = 0;

	o = opts_default();
	o.type = IBV_QPT_UD;
	run_ok(ep_create(&e, &host_a, &o));
	at = good(IBV_QPS_INIT);
	bad |= refuse(at, INIT_MASK, "UD to INIT without a Q_Key");
	run_ok(ep_init(&e, &o));
	at = good(IBV_QPS_RTR);
	bad |= refuse(at, RTR_MASK, "UD to RTR with a path");
	run_ok(ep_rtr(&e, &e, &o));
	at = good(IBV_QPS_RTS);
	bad |= refuse(at, RTS_MASK, "UD to RTS with a timeout");
	run_ok(ep_rts(&e, &o));
	run_ok(ep_destroy(&e));
	return bad;
}

/* Operations that the service hasn't: refused, or a completion; no silence. */
static int ud_wrong_op(void)
{
	const enum ibv_wr_opcode ops[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
		IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_ATOMIC_FETCH_AND_ADD,
	};
	struct ibv_wc wc;
	int i, r;

	for (i = 0; i < (int)ARRAY_SIZE(ops); i++) {
		o = opts_default();
		o.type = IBV_QPT_UD;
		run_ok(ep_create(&e, &host_a, &o));
		run_ok(ep_init(&e, &o));
		run_ok(ep_rtr(&e, &e, &o));
		run_ok(ep_rts(&e, &o));
		r = post_to(&e, (struct wr){ .id = 1, .op = ops[i], .len = 8,
			.flags = IBV_SEND_SIGNALED }, &e, 4096);
		if (!r) {
			if (get_wc(e.scq, &wc, 3000) != 1)
				fail("operation %d: no completion", ops[i]);
			if (wc.status != IBV_WC_LOC_QP_OP_ERR)
				fail("operation %d: %s", ops[i],
				     ibv_wc_status_str(wc.status));
		} else if (r != EINVAL) {
			fail("operation %d: post says %s", ops[i],
			     strerror(r));
		}
		run_ok(ep_destroy(&e));
	}
	return 0;
}

static int still_works(void)
{
	return sanity();
}

static const struct testcase cases[] = {
	{ "attr_range_init", attr_range_init },
	{ "attr_range_rtr", attr_range_rtr },
	{ "attr_range_rts", attr_range_rts },
	{ "attr_mtu", attr_mtu },
	{ "attr_missing", attr_missing },
	{ "transitions", transitions },
	{ "create_qp", create_qp },
	{ "create_cq", create_cq },
	{ "reg_mr", reg_mr },
	{ "posts", posts },
	{ "create_ah", create_ah },
	{ "busy", busy },
	{ "ud_attrs", ud_attrs },
	{ "ud_wrong_op", ud_wrong_op },
	{ "still_works", still_works },
};

int main(int argc, char **argv)
{
	return rig_main(argc, argv, cases, ARRAY_SIZE(cases));
}
