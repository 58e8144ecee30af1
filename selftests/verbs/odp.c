// SPDX-License-Identifier: GPL-2.0
/*
 * Memory paged on demand: pages that were never there, that go while they are
 * used, that are others in the end, or that there are none of.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "rig.h"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef SYS_memfd_secret
#define SYS_memfd_secret 447
#endif

#define LEN (1 << 20)
#define PAGE 4096

static struct opts opts_odp(void)
{
	struct opts o = opts_default();

	o.mr_access |= IBV_ACCESS_ON_DEMAND;
	o.buf = LEN + PAGE;
	return o;
}

/* What is there is given back: zeros take its place. */
static int drop(struct ep *e)
{
	check_ok(madvise(e->buf, e->len, MADV_DONTNEED));
	return 0;
}

static long resident_kb(void)
{
	long pages = -1;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f) {
		if (fscanf(f, "%*d %ld", &pages) != 1)
			pages = -1;
		fclose(f);
	}
	return pages * (PAGE / 1024);
}

static int advertised(void)
{
	const uint32_t all = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV |
			     IBV_ODP_SUPPORT_SRQ_RECV;
	struct ibv_device_attr_ex a = {};

	check_ok(ibv_query_device_ex(host_a.ctx, NULL, &a));
	check(a.odp_caps.general_caps & IBV_ODP_SUPPORT);
	check(a.odp_caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT);
	check((a.odp_caps.per_transport_caps.rc_odp_caps & all) == all);
	check((a.odp_caps.per_transport_caps.uc_odp_caps & all) == all);
	check((a.odp_caps.per_transport_caps.ud_odp_caps & all) == all);
	check(a.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_READ);
	check(a.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_WRITE);
	check(a.odp_caps.per_transport_caps.rc_odp_caps & IBV_ODP_SUPPORT_ATOMIC);
	return 0;
}

/* A gigabyte is registered, and costs a little more than nothing. */
static int nothing_pinned(void)
{
	const size_t len = 1 << 30;
	long before, after;
	struct ibv_mr *mr;
	void *p;

	p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	check(p != MAP_FAILED);
	before = resident_kb();
	mr = ibv_reg_mr(host_a.pd, p, len, ACC_ALL | IBV_ACCESS_ON_DEMAND);
	if (!mr)
		fail("ibv_reg_mr: %s", strerror(errno));
	after = resident_kb();
	if (after - before > 1024)
		fail("%ld kB more are resident", after - before);
	check_ok(ibv_dereg_mr(mr));
	check_ok(munmap(p, len));
	return 0;
}

/* One operation; the memory that the data goes to was never there, or is gone. */
static int move(struct pair *p, enum ibv_wr_opcode op, uint32_t len,
		uint32_t seed)
{
	bool read = op == IBV_WR_RDMA_READ;
	bool send = op == IBV_WR_SEND;
	struct ep *src = read ? &p->b : &p->a, *dst = read ? &p->a : &p->b;
	struct wr w = {
		.id = seed, .op = op, .flags = IBV_SEND_SIGNALED, .len = len,
		.off = 7,
	};
	size_t at = 5;
	struct ibv_wc wc;
	long bad;

	fill(src->buf + (read ? at : 7), len, seed);
	/* There, but the device doesn't know where. */
	evict(src->buf, src->len);
	run_ok(drop(dst));
	if (send)
		check_ok(post_recv(&p->b, seed, at, len));
	check_ok(post_to(&p->a, w, &p->b, at));
	run_ok(expect_wc(p->a.scq, seed, IBV_WC_SUCCESS, 20000, &wc));
	if (send) {
		run_ok(expect_wc(p->b.rcq, seed, IBV_WC_SUCCESS, 20000, &wc));
		check(wc.byte_len == len);
	}
	bad = check_fill(dst->buf + (read ? 7 : at), len, seed);
	if (bad >= 0)
		fail("operation %d, %u bytes: byte %ld is wrong", op, len, bad);
	return 0;
}

static int moves(enum ibv_qp_type type, const enum ibv_wr_opcode *ops, int n)
{
	const uint32_t lens[] = { 1, 4096, 4097, 20000, LEN };
	struct opts o = opts_odp();
	struct pair p;
	uint32_t seed = 1;
	unsigned int i, j;

	o.type = type;
	run_ok(pair_up(&p, &o));
	for (i = 0; i < ARRAY_SIZE(lens); i++)
		for (j = 0; j < (unsigned int)n; j++)
			run_ok(move(&p, ops[j],
				    type == IBV_QPT_UC && lens[i] > 100000 ?
				    100000 : lens[i], seed++));
	return pair_down(&p);
}

static int rc(void)
{
	const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
	};

	return moves(IBV_QPT_RC, ops, ARRAY_SIZE(ops));
}

/* A WRITE without immediate data does not tell when it is there. */
static int uc(void)
{
	const enum ibv_wr_opcode ops[] = { IBV_WR_SEND };

	return moves(IBV_QPT_UC, ops, ARRAY_SIZE(ops));
}

/* A peer reads what nobody has written: zeros. */
static int never_touched(void)
{
	struct opts o = opts_odp();
	struct wr w = {
		.id = 1, .op = IBV_WR_RDMA_READ, .flags = IBV_SEND_SIGNALED,
		.len = LEN,
	};
	struct pair p;

	run_ok(pair_up(&p, &o));
	memset(p.a.buf, 0x55, p.a.len);
	check_ok(post_to(&p.a, w, &p.b, 0));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_SUCCESS, 20000, NULL));
	check(check_byte(p.a.buf, LEN, 0) < 0);
	check(p.a.buf[LEN] == 0x55);
	return pair_down(&p);
}

/* Other memory at the same address is what is accessed from then on. */
static int remapped(void)
{
	struct opts o = opts_odp();
	struct pair p;
	uint32_t i;

	run_ok(pair_up(&p, &o));
	for (i = 1; i <= 3; i++) {
		void *m;

		run_ok(move(&p, IBV_WR_RDMA_WRITE, LEN, i));
		m = mmap(p.b.buf, p.b.len, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		check(m == p.b.buf);
		check(check_byte(p.b.buf, LEN, 0) < 0);
	}
	return pair_down(&p);
}

/* Where there is no memory, the access fails as one outside of a region. */
static int unmapped(void)
{
	struct opts o = opts_odp();
	struct wr w = {
		.id = 1, .flags = IBV_SEND_SIGNALED, .len = 3 * PAGE,
	};
	const enum ibv_wr_opcode ops[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
	};
	struct pair p;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ops); i++) {
		run_ok(pair_up(&p, &o));
		w.op = ops[i];
		/* The second page of three. */
		check_ok(munmap(p.b.buf + PAGE, PAGE));
		check_ok(post_to(&p.a, w, &p.b, 0));
		run_ok(expect_wc(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR, 20000, NULL));
		check(ep_query_state(&p.b) == IBV_QPS_ERR);
		run_ok(pair_down(&p));

		run_ok(pair_up(&p, &o));
		check_ok(munmap(p.a.buf + PAGE, PAGE));
		check_ok(post_to(&p.a, w, &p.b, 0));
		run_ok(expect_wc(p.a.scq, 1, IBV_WC_LOC_PROT_ERR, 20000, NULL));
		run_ok(pair_down(&p));
	}
	run_ok(pair_up(&p, &o));
	w.op = IBV_WR_SEND;
	check_ok(munmap(p.b.buf, PAGE));
	check_ok(post_recv(&p.b, 2, 0, 3 * PAGE));
	check_ok(post(&p.a, &w));
	run_ok(expect_wc(p.b.rcq, 2, IBV_WC_LOC_PROT_ERR, 20000, NULL));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_REM_OP_ERR, 20000, NULL));
	return pair_down(&p);
}

/* Puts memory that nobody but the process may see in the place of some. */
static int hide(struct ep *e, size_t off, size_t len, uint32_t seed)
{
	int fd = syscall(SYS_memfd_secret, 0);
	void *m;

	if (fd < 0)
		skip("no memfd_secret here: %s", strerror(errno));
	check_ok(ftruncate(fd, len));
	m = mmap(e->buf + off, len, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_FIXED, fd, 0);
	check(m == e->buf + off);
	close(fd);
	fill(m, len, seed);
	return 0;
}

/* Memory that the kernel itself doesn't see is none that a peer sees. */
static int hidden(void)
{
	struct opts o = opts_odp();
	struct wr w = {
		.id = 1, .flags = IBV_SEND_SIGNALED, .len = 3 * PAGE,
	};
	const enum ibv_wr_opcode ops[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ,
	};
	struct ibv_sge s;
	struct pair p;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ops); i++) {
		w.op = ops[i];
		run_ok(pair_up(&p, &o));
		run_ok(hide(&p.b, PAGE, PAGE, 5));
		check_ok(post_to(&p.a, w, &p.b, 0));
		run_ok(expect_wc(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR, 20000, NULL));
		check(check_fill(p.b.buf + PAGE, PAGE, 5) < 0);
		run_ok(pair_down(&p));

		run_ok(pair_up(&p, &o));
		run_ok(hide(&p.a, PAGE, PAGE, 5));
		check_ok(post_to(&p.a, w, &p.b, 0));
		run_ok(expect_wc(p.a.scq, 1, IBV_WC_LOC_PROT_ERR, 20000, NULL));
		check(check_fill(p.a.buf + PAGE, PAGE, 5) < 0);
		run_ok(pair_down(&p));
	}
	/* What is beside it is there. */
	run_ok(pair_up(&p, &o));
	run_ok(hide(&p.b, 2 * PAGE, PAGE, 5));
	run_ok(hide(&p.a, 2 * PAGE, PAGE, 5));
	w.op = IBV_WR_RDMA_WRITE;
	w.len = 2 * PAGE;
	fill(p.a.buf, w.len, 6);
	check_ok(post_to(&p.a, w, &p.b, 0));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_SUCCESS, 20000, NULL));
	check(check_fill(p.b.buf, w.len, 6) < 0);
	s = (struct ibv_sge){ (uintptr_t)p.b.buf, 4 * PAGE, p.b.mr->lkey };
	check(advise_mr(host_b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH,
			IBV_ADVISE_MR_FLAG_FLUSH, &s, 1) == EFAULT);
	check_ok(advise_mr(host_b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
			   IBV_ADVISE_MR_FLAG_FLUSH, &s, 1));
	return pair_down(&p);
}

/*
 * What a peer wrote is not lost with its page, though the process's page tables
 * don't know of it: memory that its process gave up, until somebody writes to it.
 */
static int kept(void)
{
	const enum ibv_wr_opcode ops[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_SEND, IBV_WR_RDMA_READ,
	};
	struct opts o = opts_odp();
	unsigned int i, round;
	struct pair p;

	run_ok(pair_up(&p, &o));
	for (round = 0; round < 4; round++)
		for (i = 0; i < ARRAY_SIZE(ops); i++) {
			bool read = ops[i] == IBV_WR_RDMA_READ;
			struct ep *src = read ? &p.b : &p.a;
			struct ep *dst = read ? &p.a : &p.b;
			struct wr w = {
				.id = 1, .op = ops[i], .len = LEN,
				.flags = IBV_SEND_SIGNALED,
			};
			long bad;

			fill(src->buf, LEN, round + i);
			memset(dst->buf, 0x55, LEN);
			check_ok(madvise(dst->buf, LEN, MADV_FREE));
			if (ops[i] == IBV_WR_SEND)
				check_ok(post_recv(&p.b, 2, 0, LEN));
			check_ok(post_to(&p.a, w, &p.b, 0));
			run_ok(expect_wc(p.a.scq, 1, IBV_WC_SUCCESS, 20000,
					 NULL));
			if (ops[i] == IBV_WR_SEND)
				run_ok(expect_wc(p.b.rcq, 2, IBV_WC_SUCCESS,
						 20000, NULL));
			if (madvise(dst->buf, LEN, MADV_PAGEOUT))
				skip("no MADV_PAGEOUT here");
			bad = check_fill(dst->buf, LEN, round + i);
			if (bad >= 0)
				fail("operation %d: byte %ld was lost", ops[i],
				     bad);
		}
	return pair_down(&p);
}

/* More than there are tables for is refused at once. */
static int too_long(void)
{
	static const int access[] = { ACC_ALL, ACC_ALL | IBV_ACCESS_ON_DEMAND };
	const size_t len = (1ull << 40) + PAGE;
	unsigned int i;
	void *m;

	m = mmap(NULL, len, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (m == MAP_FAILED)
		skip("no so large mapping here");
	for (i = 0; i < ARRAY_SIZE(access); i++) {
		struct ibv_mr *mr = ibv_reg_mr(host_a.pd, m, len, access[i]);

		check(!mr && errno == ENOMEM);
	}
	check_ok(munmap(m, len));
	return sanity();
}

/* What the process may not write, no peer writes, whatever the key says. */
static int read_only(void)
{
	struct opts o = opts_odp();
	struct wr w = {
		.id = 1, .op = IBV_WR_RDMA_READ, .flags = IBV_SEND_SIGNALED,
		.len = 2 * PAGE,
	};
	struct pair p;

	run_ok(pair_up(&p, &o));
	fill(p.b.buf, LEN, 9);
	run_ok(move(&p, IBV_WR_RDMA_WRITE, 2 * PAGE, 3));
	fill(p.b.buf, LEN, 9);
	check_ok(mprotect(p.b.buf, p.b.len, PROT_READ));
	check_ok(post_to(&p.a, w, &p.b, 0));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_SUCCESS, 20000, NULL));
	check(check_fill(p.a.buf, 2 * PAGE, 9) < 0);
	w.op = IBV_WR_RDMA_WRITE;
	check_ok(post_to(&p.a, w, &p.b, 0));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR, 20000, NULL));
	check(check_fill(p.b.buf, LEN, 9) < 0);
	return pair_down(&p);
}

/* Pages go and become others all the time: a fork copies on write. */
static int forks(void)
{
	struct opts o = opts_odp();
	int rounds = quick ? 10 : 40, i;
	struct pair p;

	run_ok(pair_up(&p, &o));
	for (i = 0; i < rounds; i++) {
		struct wr w = {
			.id = i, .flags = IBV_SEND_SIGNALED, .len = LEN,
			.op = i & 1 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
		};
		struct ep *src = i & 1 ? &p.b : &p.a;
		struct ep *dst = i & 1 ? &p.a : &p.b;
		pid_t child[3];
		int j;

		fill(src->buf, LEN, i);
		check_ok(post_to(&p.a, w, &p.b, 0));
		for (j = 0; j < 3; j++) {
			child[j] = fork();
			if (!child[j]) {
				/* The child's copy is its own. */
				memset(src->buf, 0xee, LEN);
				memset(dst->buf, 0xee, LEN);
				_exit(0);
			}
			check(child[j] > 0);
		}
		run_ok(expect_wc(p.a.scq, i, IBV_WC_SUCCESS, 20000, NULL));
		for (j = 0; j < 3; j++)
			check(waitpid(child[j], NULL, 0) == child[j]);
		if (check_fill(dst->buf, LEN, i) >= 0)
			fail("round %d: the data is wrong", i);
	}
	return pair_down(&p);
}

/* Each atomic counts once, also those that had to wait for the page. */
static int atomics(void)
{
	struct opts o = opts_odp();
	uint64_t want = 0;
	struct pair p;
	int i;

	run_ok(pair_up(&p, &o));
	memset(p.b.buf, 0, PAGE);
	for (i = 0; i < 100; i++) {
		struct wr w = {
			.id = i, .op = IBV_WR_ATOMIC_FETCH_AND_ADD,
			.flags = IBV_SEND_SIGNALED, .len = 8, .add = i,
			.off = 64,
		};

		evict(p.b.buf, p.b.len);
		run_ok(drop(&p.a));
		check_ok(post_to(&p.a, w, &p.b, 8));
		run_ok(expect_wc(p.a.scq, i, IBV_WC_SUCCESS, 20000, NULL));
		check(*(uint64_t *)(p.a.buf + 64) == want);
		want += i;
		check(*(uint64_t *)(p.b.buf + 8) == want);
	}
	return pair_down(&p);
}

/* One region of all memory, also of what comes into being later. */
static int everything(void)
{
	struct opts o = opts_odp();
	struct ibv_mr *a, *b;
	struct wr w = {
		.id = 1, .flags = IBV_SEND_SIGNALED, .op = IBV_WR_RDMA_WRITE,
		.len = LEN,
	};
	const size_t big = 64 << 20;
	struct pair p;
	uint8_t *m;
	int i;

	run_ok(pair_up(&p, &o));
	a = ibv_reg_mr(host_a.pd, NULL, SIZE_MAX,
		       IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	check(a);
	b = ibv_reg_mr(host_b.pd, NULL, SIZE_MAX, ACC_ALL | IBV_ACCESS_ON_DEMAND);
	check(b);
	m = mmap(NULL, big, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	check(m != MAP_FAILED);
	w.lkey = a->lkey;
	w.rkey = b->rkey;
	for (i = 0; i < 12; i++) {
		/* Across the border between two huge pages, most of the time. */
		size_t at = i * (5 << 20) + 12345;

		fill(p.a.buf, LEN, i);
		w.raddr = (uintptr_t)m + at;
		check_ok(post(&p.a, &w));
		run_ok(expect_wc(p.a.scq, 1, IBV_WC_SUCCESS, 20000, NULL));
		check(check_fill(m + at, LEN, i) < 0);
	}
	check_ok(munmap(m, big));
	check_ok(post(&p.a, &w));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR, 20000, NULL));
	check_ok(ibv_dereg_mr(a));
	check_ok(ibv_dereg_mr(b));
	return pair_down(&p);
}

/* Region or queue pair are given up while data comes. */
static int given_up(void)
{
	struct opts o = opts_odp();
	struct pair p;
	int i;

	o.timeout = 10;
	o.retry = 1;
	for (i = 0; i < 8; i++) {
		struct wr w = {
			.id = 1, .op = IBV_WR_RDMA_WRITE,
			.flags = IBV_SEND_SIGNALED, .len = LEN,
		};

		run_ok(pair_up(&p, &o));
		check_ok(post_to(&p.a, w, &p.b, 0));
		if (i & 1) {
			check_ok(ibv_dereg_mr(p.b.mr));
			p.b.mr = NULL;
		} else {
			check_ok(ibv_destroy_qp(p.b.qp));
			p.b.qp = NULL;
		}
		run_ok(pair_down(&p));
	}
	return 0;
}

/*
 * Two at once, of which the second one's memory is absent, on either side in
 * turn. The first must not wait for that: 62-odp.sh looks at the counters.
 */
static int before_absent(void)
{
	struct opts o = opts_odp();
	struct pair p;
	int i, k;

	run_ok(pair_up(&p, &o));
	for (i = 0; i < 16; i++) {
		struct ibv_sge sge = {
			(uintptr_t)p.a.buf, 64, p.a.mr->lkey };
		struct ibv_send_wr wr[2] = { }, *bad;

		for (k = 0; k < 2; k++) {
			wr[k].wr_id = k;
			wr[k].opcode = IBV_WR_RDMA_WRITE;
			wr[k].send_flags = IBV_SEND_SIGNALED;
			wr[k].wr.rdma.remote_addr = (uintptr_t)p.b.buf;
			wr[k].wr.rdma.rkey = p.b.mr->rkey;
		}
		wr[0].next = &wr[1];
		wr[1].sg_list = &sge;
		wr[1].num_sge = 1;
		fill(p.a.buf, 64, i);
		/* Every other time changes nothing, if two take turns. */
		for (k = 0; k < 2; k++)
			evict(i & 1 ? p.b.buf : p.a.buf, p.a.len);
		check_ok(ibv_post_send(p.a.qp, wr, &bad));
		for (k = 0; k < 2; k++)
			run_ok(expect_wc(p.a.scq, k, IBV_WC_SUCCESS, 20000, NULL));
		check(check_fill(p.b.buf, 64, i) < 0);
	}
	return pair_down(&p);
}

static struct ibv_sge part(struct ep *e, size_t at, uint32_t len)
{
	return (struct ibv_sge){ (uintptr_t)e->buf + at, len, e->mr->lkey };
}

/* Puts memory where there is none. */
static int map_again(void *at, size_t len)
{
	check(mmap(at, len, PROT_READ | PROT_WRITE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
	return 0;
}

struct flips {
	uint8_t *at;
	size_t len;
	atomic_bool stop;
};

/* Whoever wants to page something in has to wait for this most of the time. */
static void *flip_loop(void *arg)
{
	struct flips *f = arg;

	while (!atomic_load(&f->stop))
		evict(f->at, f->len);
	return NULL;
}

/*
 * Many at a time whose memory isn't there, each in a place of its own in one
 * region: all are told, however they take turns in asking. They ask seldom, as
 * the process's memory is busy at first.
 */
static int unmapped_by_many(void)
{
	struct flips f = { .len = (quick ? 8 : 32) << 20 };
	pthread_t flipper;
	const int rounds = quick ? 1 : 3;
	struct opts o = opts_odp();
	struct pair p[6];
	int side, r;
	unsigned int i;

	/* Not to be taken for a lost peer. */
	o.timeout = 18;
	f.at = mmap(NULL, f.len, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(f.at != MAP_FAILED);
	memset(f.at, 1, f.len);
	for (r = 0; r < rounds; r++)
		for (side = 0; side < 2; side++) {
			const enum ibv_wc_status want = side ?
				IBV_WC_REM_ACCESS_ERR : IBV_WC_LOC_PROT_ERR;
			struct ep *holed;

			for (i = 0; i < ARRAY_SIZE(p); i++)
				run_ok(pair_up(&p[i], &o));
			holed = side ? &p[0].b : &p[0].a;
			for (i = 0; i < ARRAY_SIZE(p); i++)
				check_ok(munmap(holed->buf + 2 * i * PAGE, PAGE));
			atomic_store(&f.stop, false);
			check_ok(pthread_create(&flipper, NULL, flip_loop, &f));
			for (i = 0; i < ARRAY_SIZE(p); i++) {
				struct wr w = {
					.id = i, .flags = IBV_SEND_SIGNALED,
					.op = IBV_WR_RDMA_WRITE, .len = 64,
				};
				uint8_t *hole = holed->buf + 2 * i * PAGE;

				w.raddr = (uintptr_t)p[i].b.buf;
				w.rkey = p[i].b.mr->rkey;
				if (side) {
					w.raddr = (uintptr_t)hole;
					w.rkey = holed->mr->rkey;
				} else {
					w.lkey = holed->mr->lkey;
					w.off = hole - p[i].a.buf;
				}
				check_ok(post(&p[i].a, &w));
				usleep(80);
			}
			usleep(10000);
			atomic_store(&f.stop, true);
			check_ok(pthread_join(flipper, NULL));
			for (i = 0; i < ARRAY_SIZE(p); i++)
				run_ok(expect_wc(p[i].a.scq, i, want, 5000, NULL));
			for (i = 0; i < ARRAY_SIZE(p); i++)
				run_ok(pair_down(&p[i]));
		}
	check_ok(munmap(f.at, f.len));
	return 0;
}

/*
 * What failed when there was no memory concerns whoever asked then: not who
 * asks later, when there is some.
 */
static int forgotten(void)
{
	const int rounds = quick ? 20 : 60;
	struct opts o = opts_odp();
	struct pair p, q;
	int i;

	run_ok(pair_up(&q, &o));
	fill(q.a.buf, PAGE, 1);
	for (i = 0; i < rounds; i++) {
		struct wr w = {
			.id = i, .flags = IBV_SEND_SIGNALED, .len = 64,
			.op = IBV_WR_RDMA_WRITE, .lkey = q.a.mr->lkey,
		};
		uint8_t *hole = q.a.buf + (1 + i) * PAGE;

		run_ok(pair_up(&p, &o));
		check_ok(munmap(hole, PAGE));
		w.off = hole - p.a.buf;
		check_ok(post_to(&p.a, w, &p.b, 0));
		/* Nobody asks any more, most of the times. */
		run_ok(ep_state(&p.a, IBV_QPS_RESET));
		usleep(50000);
		run_ok(map_again(hole, PAGE));
		fill(hole, 64, i);
		w.off = hole - q.a.buf;
		check_ok(post_to(&q.a, w, &q.b, 0));
		run_ok(expect_wc(q.a.scq, i, IBV_WC_SUCCESS, 20000, NULL));
		check(check_fill(q.b.buf, 64, i) < 0);
		run_ok(pair_down(&p));
	}
	return pair_down(&q);
}

/* What a thread does to a region over and over. */
struct busy {
	struct ep *e;
	int advice;		/* -1: gives the memory back instead */
	atomic_bool *stop;
	pthread_t thread;
	long times;
	int err;
};

static void *busy_loop(void *arg)
{
	struct busy *b = arg;
	struct ibv_sge s = part(b->e, 0, LEN);

	while (!atomic_load(b->stop) && !b->err) {
		b->err = b->advice < 0 ?
			madvise(b->e->buf, LEN, MADV_DONTNEED) :
			advise_mr(b->e->h->pd, b->advice,
				  IBV_ADVISE_MR_FLAG_FLUSH, &s, 1);
		b->times++;
		if (b->advice < 0)
			usleep(1000);
	}
	return NULL;
}

/*
 * Several that get pages of one region in at a time, of which some are given
 * back meanwhile, while peers access it.
 */
static int at_once(void)
{
	const int advice[] = {
		IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
		IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, -1,
		IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
		IBV_ADVISE_MR_ADVICE_PREFETCH,
		IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
	};
	const uint64_t until = now_us() + (quick ? 2 : 5) * 1000000ull;
	struct busy busy[ARRAY_SIZE(advice)];
	struct opts o = opts_odp();
	atomic_bool stop = false;
	unsigned int i, writes;
	struct pair p;

	/* Pages go as fast as they come: that is not to look like a lost peer. */
	o.timeout = 18;
	run_ok(pair_up(&p, &o));
	for (i = 0; i < ARRAY_SIZE(busy); i++) {
		busy[i] = (struct busy){
			.e = &p.b, .advice = advice[i], .stop = &stop,
		};
		check_ok(pthread_create(&busy[i].thread, NULL, busy_loop,
					&busy[i]));
	}
	for (writes = 0; now_us() < until; writes++) {
		struct wr w = {
			.id = writes, .flags = IBV_SEND_SIGNALED, .len = LEN,
			.op = writes & 1 ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE,
		};

		check_ok(post_to(&p.a, w, &p.b, 0));
		run_ok(expect_wc(p.a.scq, writes, IBV_WC_SUCCESS, 20000, NULL));
	}
	atomic_store(&stop, true);
	for (i = 0; i < ARRAY_SIZE(busy); i++) {
		check_ok(pthread_join(busy[i].thread, NULL));
		printf("# advice %d: %ld times\n", advice[i], busy[i].times);
		check(!busy[i].err && busy[i].times);
	}
	printf("# %u accesses\n", writes);
	return pair_down(&p);
}

/*
 * Nothing waits for pages that were got in ahead, if they stay: 62-odp.sh looks
 * at the counters. All of it in several ranges, which need not begin with a page.
 */
static int prefetched(void)
{
	const enum ibv_wr_opcode ops[] = {
		IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND,
	};
	struct opts o = opts_odp();
	unsigned int i, j;
	struct pair p;

	run_ok(pair_up(&p, &o));
	for (i = 0; i < 3 * ARRAY_SIZE(ops); i++) {
		struct wr w = {
			.id = i, .op = ops[i % ARRAY_SIZE(ops)], .len = LEN,
			.flags = IBV_SEND_SIGNALED, .off = 3,
		};
		struct ep *ends[] = { &p.a, &p.b };
		bool read = w.op == IBV_WR_RDMA_READ;
		struct ep *src = ends[read], *dst = ends[!read];

		for (j = 0; j < ARRAY_SIZE(ends); j++)
			run_ok(drop(ends[j]));
		fill(src->buf + (read ? 1 : 3), LEN, i);
		evict(src->buf, src->len);
		for (j = 0; j < ARRAY_SIZE(ends); j++) {
			struct ibv_sge list[] = {
				part(ends[j], 1, 1), part(ends[j], 2, 0),
				part(ends[j], 100, LEN / 2),
				part(ends[j], 100 + LEN / 2, LEN / 2),
			};

			check_ok(advise_mr(ends[j]->qp->pd,
					IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
					IBV_ADVISE_MR_FLAG_FLUSH, list,
					ARRAY_SIZE(list)));
		}
		if (w.op == IBV_WR_SEND)
			check_ok(post_recv(&p.b, i, 1, LEN));
		check_ok(post_to(&p.a, w, &p.b, 1));
		run_ok(expect_wc(p.a.scq, i, IBV_WC_SUCCESS, 20000, NULL));
		if (w.op == IBV_WR_SEND)
			run_ok(expect_wc(p.b.rcq, i, IBV_WC_SUCCESS, 20000, NULL));
		check(check_fill(dst->buf + (read ? 3 : 1), LEN, i) < 0);
	}
	return pair_down(&p);
}

/* What is at hand is found; what was never there is not made. */
static int prefetched_present(void)
{
	struct opts o = opts_odp();
	struct ibv_sge all;
	struct wr w = {
		.id = 1, .op = IBV_WR_RDMA_READ, .flags = IBV_SEND_SIGNALED,
		.len = LEN / 2,
	};
	unsigned char there[LEN / PAGE];
	struct pair p;
	uint8_t *m;
	int i;

	run_ok(pair_up(&p, &o));
	fill(p.b.buf, LEN, 2);
	evict(p.b.buf, p.b.len);
	all = part(&p.a, 0, LEN);
	check_ok(advise_mr(p.a.qp->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
			IBV_ADVISE_MR_FLAG_FLUSH, &all, 1));
	all = part(&p.b, 0, LEN);
	check_ok(advise_mr(p.b.qp->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
			IBV_ADVISE_MR_FLAG_FLUSH, &all, 1));
	check_ok(post_to(&p.a, w, &p.b, 0));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_SUCCESS, 20000, NULL));
	check(check_fill(p.a.buf, LEN / 2, 2) < 0);

	run_ok(drop(&p.b));
	m = (uint8_t *)(((uintptr_t)p.b.buf + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
	check_ok(advise_mr(p.b.qp->pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
			IBV_ADVISE_MR_FLAG_FLUSH, &all, 1));
	check_ok(mincore(m, LEN - PAGE, there));
	for (i = 0; i < LEN / PAGE - 1; i++)
		check(!(there[i] & 1));
	check_ok(advise_mr(p.b.qp->pd, IBV_ADVISE_MR_ADVICE_PREFETCH,
			IBV_ADVISE_MR_FLAG_FLUSH, &all, 1));
	return pair_down(&p);
}

/* A region of all memory: also of parts that nobody has asked for so far. */
static int prefetched_everything(void)
{
	const size_t big = 16 << 20, at = 3 << 20;
	struct wr w = {
		.id = 1, .flags = IBV_SEND_SIGNALED, .op = IBV_WR_RDMA_WRITE,
		.len = LEN,
	};
	struct opts o = opts_default();
	struct ibv_sge range;
	struct ibv_mr *b;
	struct pair p;
	uint8_t *m;

	o.buf = LEN;
	run_ok(pair_up(&p, &o));
	b = ibv_reg_mr(host_b.pd, NULL, SIZE_MAX, ACC_ALL | IBV_ACCESS_ON_DEMAND);
	check(b);
	m = mmap(NULL, big, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	check(m != MAP_FAILED);
	range = (struct ibv_sge){ (uintptr_t)m, big, b->lkey };
	check_ok(advise_mr(host_b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
			IBV_ADVISE_MR_FLAG_FLUSH, &range, 1));
	check_ok(advise_mr(host_b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
			IBV_ADVISE_MR_FLAG_FLUSH, &range, 1));
	fill(p.a.buf, LEN, 3);
	w.raddr = (uintptr_t)m + at + 5;
	w.rkey = b->rkey;
	check_ok(post(&p.a, &w));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_SUCCESS, 20000, NULL));
	check(check_fill(m + at + 5, LEN, 3) < 0);
	check_ok(munmap(m, big));
	check(advise_mr(host_b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
		     IBV_ADVISE_MR_FLAG_FLUSH, &range, 1) == EFAULT);
	check_ok(ibv_dereg_mr(b));
	return pair_down(&p);
}

/* The errno of the man page; advice that need not be followed fails only if it makes no sense. */
static int bad_advice(void)
{
	struct opts o = opts_odp();
	struct ibv_pd *other;
	struct ibv_mr *ro, *pinned;
	struct ibv_sge s[2];
	struct pair p;
	uint32_t flags;

	run_ok(pair_up(&p, &o));
	other = ibv_alloc_pd(host_a.ctx);
	check(other);
	ro = ibv_reg_mr(host_a.pd, p.a.buf, PAGE,
			IBV_ACCESS_REMOTE_READ | IBV_ACCESS_ON_DEMAND);
	check(ro);
	pinned = ibv_reg_mr(host_a.pd, p.a.buf, PAGE, IBV_ACCESS_LOCAL_WRITE);
	check(pinned);
	for (flags = 0; flags <= IBV_ADVISE_MR_FLAG_FLUSH; flags++) {
		const int read = IBV_ADVISE_MR_ADVICE_PREFETCH;
		const int write = IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;

		s[0] = s[1] = part(&p.a, 0, PAGE);
		check_ok(advise_mr(host_a.pd, read, flags, s, 2));
		s[1].lkey ^= 1;
		check(advise_mr(host_a.pd, read, flags, s, 2) == ENOENT);
		s[1].lkey = 0xdead00;
		check(advise_mr(host_a.pd, read, flags, s, 2) == ENOENT);
		s[1] = part(&p.a, p.a.len - 1, 2);
		check(advise_mr(host_a.pd, read, flags, s, 2) == EFAULT);
		s[1].addr = UINT64_MAX;
		check(advise_mr(host_a.pd, read, flags, s, 2) == EFAULT);
		s[1] = part(&p.a, 0, PAGE);
		check(advise_mr(other, read, flags, s, 2) == EPERM);
		s[1].lkey = ro->lkey;
		check_ok(advise_mr(host_a.pd, read, flags, s, 2));
		check(advise_mr(host_a.pd, write, flags, s, 2) == EPERM);
		s[1].lkey = pinned->lkey;
		check(advise_mr(host_a.pd, read, flags, s, 2) == EINVAL);
		check(advise_mr(host_a.pd, 77, flags, s, 1) == EOPNOTSUPP);
		check(advise_mr(host_a.pd, read, flags | 2, s, 1) == EINVAL);
	}
	check_ok(ibv_dereg_mr(ro));
	check_ok(ibv_dereg_mr(pinned));
	check_ok(ibv_dealloc_pd(other));

	/* There is no memory in the midst of it. */
	s[0] = part(&p.b, 0, LEN);
	check_ok(munmap(p.b.buf + LEN / 2, PAGE));
	check(advise_mr(host_b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
		     IBV_ADVISE_MR_FLAG_FLUSH, s, 1) == EFAULT);
	check_ok(advise_mr(host_b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, s, 1));
	check_ok(advise_mr(host_b.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
			IBV_ADVISE_MR_FLAG_FLUSH, s, 1));
	return pair_down(&p);
}

static const struct testcase cases[] = {
	{ "odp_advertised", advertised },
	{ "odp_nothing_pinned", nothing_pinned },
	{ "odp_rc", rc, 60 },
	{ "odp_uc", uc, 60 },
	{ "odp_never_touched", never_touched },
	{ "odp_remapped", remapped },
	{ "odp_unmapped", unmapped, 60 },
	{ "odp_hidden", hidden },
	{ "odp_kept", kept, 60 },
	{ "odp_too_long", too_long },
	{ "odp_read_only", read_only },
	{ "odp_forks", forks, 120 },
	{ "odp_atomics", atomics, 60 },
	{ "odp_everything", everything, 60 },
	{ "odp_given_up", given_up, 60 },
	{ "odp_before_absent", before_absent, 60 },
	{ "odp_unmapped_by_many", unmapped_by_many, 120 },
	{ "odp_forgotten", forgotten, 60 },
	{ "odp_at_once", at_once, 60 },
	{ "prefetched", prefetched, 60 },
	{ "prefetched_present", prefetched_present },
	{ "prefetched_everything", prefetched_everything },
	{ "bad_advice", bad_advice },
};

int main(int argc, char **argv)
{
	return rig_main(argc, argv, cases, ARRAY_SIZE(cases));
}
