// SPDX-License-Identifier: GPL-2.0
/*
 * Limits: what is advertised is what there is, and beyond it comes the errno of
 * the man page; what is given back can be had again. RLIMIT_MEMLOCK.
 */
#include <sys/mman.h>
#include <sys/resource.h>
#include "rig.h"

/* What others on the device may hold: QP 1, its CQ, PD and region. */
#define OTHERS 16

static struct ibv_cq *cq;
static uint8_t *page;

static void *new_pd(void)
{
	return ibv_alloc_pd(host_a.ctx);
}

static int end_pd(void *p)
{
	return ibv_dealloc_pd(p);
}

static void *new_ah(void)
{
	struct ibv_ah_attr at = {
		.is_global = 1, .port_num = 1,
		.grh = { .hop_limit = 1, .sgid_index = host_a.gidx,
			 .dgid = host_a.gid },
	};

	return ibv_create_ah(host_a.pd, &at);
}

static int end_ah(void *p)
{
	return ibv_destroy_ah(p);
}

static void *new_cq(void)
{
	return ibv_create_cq(host_a.ctx, 1, NULL, NULL, 0);
}

static int end_cq(void *p)
{
	return ibv_destroy_cq(p);
}

static void *new_srq(void)
{
	struct ibv_srq_init_attr ia = { .attr = { .max_wr = 1, .max_sge = 1 } };

	return ibv_create_srq(host_a.pd, &ia);
}

static int end_srq(void *p)
{
	return ibv_destroy_srq(p);
}

static void *new_mw(void)
{
	return ibv_alloc_mw(host_a.pd, IBV_MW_TYPE_1);
}

static int end_mw(void *p)
{
	return ibv_dealloc_mw(p);
}

static void *new_mr(void)
{
	return ibv_reg_mr(host_a.pd, page, 1, IBV_ACCESS_LOCAL_WRITE);
}

static int end_mr(void *p)
{
	return ibv_dereg_mr(p);
}

static void *new_qp(void)
{
	struct ibv_qp_init_attr ia = {
		.qp_type = IBV_QPT_UD, .send_cq = cq, .recv_cq = cq,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};

	return ibv_create_qp(host_a.pd, &ia);
}

static int end_qp(void *p)
{
	return ibv_destroy_qp(p);
}

/* As many as there may be, none more, and one again when one is gone. */
static int exhaust(int max, void *(*new)(void), int (*end)(void *))
{
	void **all = calloc(max + 1, sizeof(*all));
	int n = 0, bad = 0;

	check(all);
	check(max > OTHERS);
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(page != MAP_FAILED);
	cq = ibv_create_cq(host_a.ctx, 16, NULL, NULL, 0);
	check(cq);
	errno = 0;
	while (n <= max && (all[n] = new()))
		n++;
	if (n > max) {
		printf("# %d of %d were made\n", n, max);
		bad = FAIL;
	} else if (errno != ENOMEM) {
		printf("# after %d of %d: %s, not ENOMEM\n", n, max,
		       strerror(errno));
		bad = FAIL;
	} else if (n < max - OTHERS) {
		printf("# only %d of %d\n", n, max);
		bad = FAIL;
	}
	if (!bad) {
		check_ok(end(all[--n]));
		all[n] = new();
		if (!all[n])
			fail("one gone, and none to be had: %s", strerror(errno));
		n++;
		check(!new());
	}
	while (n > 0)
		check_ok(end(all[--n]));
	all[0] = new();
	check(all[0]);
	check_ok(end(all[0]));
	check_ok(ibv_destroy_cq(cq));
	free(all);
	return bad;
}

#define LIMIT(what, field) \
	static int what##_limit(void) \
	{ \
		return exhaust(host_a.attr.field, new_##what, end_##what); \
	}
LIMIT(pd, max_pd)
LIMIT(ah, max_ah)
LIMIT(cq, max_cq)
LIMIT(srq, max_srq)
LIMIT(mw, max_mw)
LIMIT(mr, max_mr)
LIMIT(qp, max_qp)

static union ibv_gid group(int n)
{
	return (union ibv_gid){ .raw = {
		0xff, 0x15, [13] = n >> 16, [14] = n >> 8, [15] = n,
	} };
}

/* Attaches up to so many; returns how many there are before one is refused. */
static int attach(struct ibv_qp **qps, int nqps, int ngroups)
{
	int i, err;

	for (i = 0; i < nqps * ngroups; i++) {
		union ibv_gid g = group(i / nqps);

		err = ibv_attach_mcast(qps[i % nqps], &g, 0);
		if (!err)
			continue;
		if (err != ENOMEM)
			printf("# after %d: %s, not ENOMEM\n", i, strerror(err));
		return err == ENOMEM ? i : -1;
	}
	return i;
}

static int detach(struct ibv_qp **qps, int nqps, int n)
{
	int i;

	for (i = 0; i < n; i++) {
		union ibv_gid g = group(i / nqps);

		check_ok(ibv_detach_mcast(qps[i % nqps], &g, 0));
	}
	return 0;
}

/* Groups; queue pairs of a group, and of all together. */
static int mcast_limits(void)
{
	const int groups = host_a.attr.max_mcast_grp;
	const int each = host_a.attr.max_mcast_qp_attach;
	const int all = host_a.attr.max_total_mcast_qp_attach;
	struct ibv_qp **qps = calloc(each + 1, sizeof(*qps));
	int i, n;

	check(qps);
	check(groups > 0 && each > 0 && all > each);
	cq = ibv_create_cq(host_a.ctx, 16, NULL, NULL, 0);
	check(cq);
	for (i = 0; i < each + 1; i++) {
		qps[i] = new_qp();
		check(qps[i]);
	}
	for (i = 0; i < 2; i++) {
		n = attach(qps, 1, groups + 1);
		if (n != groups)
			fail("%d groups, not %d", n, groups);
		run_ok(detach(qps, 1, n));
		n = attach(qps, each + 1, 1);
		if (n != each)
			fail("%d queue pairs in a group, not %d", n, each);
		run_ok(detach(qps, each + 1, n));
		n = attach(qps, each, all / each + 1);
		if (n != all)
			fail("%d in all groups, not %d", n, all);
		run_ok(detach(qps, each, n));
	}
	for (i = 0; i < each + 1; i++)
		check_ok(ibv_destroy_qp(qps[i]));
	check_ok(ibv_destroy_cq(cq));
	free(qps);
	return 0;
}

/* READs and atomics outstanding: as many as advertised, and no more. */
static int rd_atomic_limits(void)
{
	struct opts o = opts_default();
	struct ibv_qp_init_attr ia;
	struct ibv_qp_attr at;
	struct pair p;

	o.rd_atomic = host_a.attr.max_qp_rd_atom;
	check(o.rd_atomic == host_a.attr.max_qp_init_rd_atom);
	run_ok(pair_up(&p, &o));
	check_ok(ibv_query_qp(p.a.qp, &at, IBV_QP_MAX_QP_RD_ATOMIC |
			      IBV_QP_MAX_DEST_RD_ATOMIC, &ia));
	check(at.max_rd_atomic == o.rd_atomic);
	check(at.max_dest_rd_atomic == o.rd_atomic);
	run_ok(pair_down(&p));
	o.rd_atomic++;
	check(pair_up(&p, &o));
	return pair_down(&p);
}

static int set_memlock(rlim_t bytes)
{
	struct rlimit r = { bytes, bytes };

	return setrlimit(RLIMIT_MEMLOCK, &r);
}

/*
 * Pinned memory counts, to the page, and counts no more when it is given back;
 * memory that is paged on demand does not. What is too much costs nothing. Root
 * may lock what it likes.
 */
static int memlock(void)
{
	const size_t quarter = 1 << 20, huge = (1ull << 40) - (64 << 10);
	struct ibv_mr *mr[5];
	uint64_t begin;
	uint8_t *m;
	int i, round;

	m = mmap(NULL, 5 * quarter, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(m != MAP_FAILED);
	check_ok(set_memlock(4 * quarter));
	check_ok(setgid(65534));
	check_ok(setuid(65534));
	for (round = 0; round < 3; round++) {
		for (i = 0; i < 4; i++) {
			mr[i] = ibv_reg_mr(host_a.pd, m + i * quarter, quarter,
					   ACC_ALL);
			if (!mr[i])
				fail("round %d, quarter %d: %s", round, i,
				     strerror(errno));
		}
		errno = 0;
		mr[4] = ibv_reg_mr(host_a.pd, m + 4 * quarter, 1, ACC_ALL);
		check(!mr[4]);
		check(errno == ENOMEM);
		for (i = 0; i < 4; i++)
			check_ok(ibv_dereg_mr(mr[i]));
	}
	/* A table of its pages would take two gigabytes: nobody makes it first. */
	begin = now_us();
	for (i = 0; i < 8; i++) {
		errno = 0;
		check(!ibv_reg_mr(host_a.pd, m, huge, ACC_ALL));
		check(errno == ENOMEM);
	}
	if (now_us() - begin > 1000000)
		fail("%llu ms to refuse what is too much",
		     (unsigned long long)(now_us() - begin) / 1000);
	mr[0] = ibv_reg_mr(host_a.pd, m, 5 * quarter,
			   ACC_ALL | IBV_ACCESS_ON_DEMAND);
	if (mr[0])
		check_ok(ibv_dereg_mr(mr[0]));
	else
		check(errno == EOPNOTSUPP || errno == EINVAL);
	return 0;
}

/*
 * Run in an RDMA control group that allows so many objects, most of which the
 * frame has not taken: for 63-limits.sh.
 */
static int cgroup(void)
{
	const char *allowed = getenv("RXO_CGROUP_OBJECTS");
	struct ibv_pd *pd[256];
	int n = 0, i, max;

	if (!allowed)
		skip("not in a control group");
	max = atoi(allowed);
	check(max < (int)ARRAY_SIZE(pd));
	while (n < max + 1 && (pd[n] = ibv_alloc_pd(host_a.ctx)))
		n++;
	if (n > max)
		fail("%d domains where %d objects are allowed", n, max);
	if (errno != EAGAIN && errno != ENOSPC)
		fail("after %d: %s", n, strerror(errno));
	check(n > 0 && n < max);
	/* The limit is that of all kinds together. */
	check(!ibv_create_cq(host_a.ctx, 1, NULL, NULL, 0));
	check_ok(ibv_dealloc_pd(pd[--n]));
	cq = ibv_create_cq(host_a.ctx, 1, NULL, NULL, 0);
	check(cq);
	check(!ibv_alloc_pd(host_a.ctx));
	check_ok(ibv_destroy_cq(cq));
	for (i = 0; i < n; i++)
		check_ok(ibv_dealloc_pd(pd[i]));
	return 0;
}

static const struct testcase cases[] = {
	{ "max_pd", pd_limit, 60 },
	{ "max_ah", ah_limit, 60 },
	{ "max_cq", cq_limit, 120 },
	{ "max_srq", srq_limit, 120 },
	{ "max_mw", mw_limit, 60 },
	{ "max_mr", mr_limit, 240 },
	{ "max_qp", qp_limit, 240 },
	{ "max_mcast", mcast_limits, 60 },
	{ "max_rd_atomic", rd_atomic_limits },
	{ "memlock", memlock },
	{ "cgroup", cgroup },
};

int main(int argc, char **argv)
{
	return rig_main(argc, argv, cases, ARRAY_SIZE(cases));
}
