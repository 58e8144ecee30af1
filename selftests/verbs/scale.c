// SPDX-License-Identifier: GPL-2.0
/*
 * Many RC queue pairs at once: what each takes of the kernel's memory, of time
 * to make and connect, and what a message costs among so many. All of them
 * carry verified data, both ways.
 *
 * Each case says so in a line "# scale ...", which bench/run.py reads.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <sys/mman.h>
#include "rig.h"

enum {
	DEPTH = 16,
	SLOT = 256,		/* bytes of a message */
	BATCH = 64,		/* messages under way */
	MESSAGES = 20000,	/* if there are not more queue pairs */
	LIMIT_KB = 1 << 20,	/* for 10000 of them: 1 GB */
};

/* One host's half of the queue pairs. */
struct side {
	struct host *h;
	struct ibv_cq *scq, *rcq;
	struct ibv_mr *mr;
	uint8_t *buf;		/* a slot each to send from, then as many to receive */
	struct ep *eps;
};

static struct side side_a, side_b;
static int pairs;

/* ---- the kernel's memory -------------------------------------------------- */

static long meminfo(const char *what)
{
	char line[128], name[64];
	long kb, found = 0;
	FILE *f = fopen("/proc/meminfo", "r");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%63[^:]: %ld", name, &kb) == 2 &&
		    !strcmp(name, what))
			found = kb;
	if (f)
		fclose(f);
	return found;
}

/* Makes the kernel free at once what it frees in batches, after grace periods. */
static void shrink(void)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY);

	if (fd >= 0) {
		if (write(fd, "2", 1) != 1)
			perror("# drop_caches");
		close(fd);
	}
	usleep(300000);
}

/*
 * What the kernel has allocated.  What is free can't tell: lists of free pages
 * that each CPU keeps do not count as that, and are some megabytes.
 */
static long kernel_kb(void)
{
	shrink();
	return meminfo("Slab") + meminfo("VmallocUsed") +
	       meminfo("PageTables") + meminfo("KernelStack") +
	       meminfo("Percpu");
}

/* ---- queue pairs ---------------------------------------------------------- */

static int side_up(struct side *s, struct host *h)
{
	size_t len = 2ul * pairs * SLOT;

	s->h = h;
	s->scq = ibv_create_cq(h->ctx, pairs + BATCH, NULL, NULL, 0);
	check(s->scq);
	s->rcq = ibv_create_cq(h->ctx, pairs + BATCH, NULL, NULL, 0);
	check(s->rcq);
	s->buf = mmap(NULL, len, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	check(s->buf != MAP_FAILED);
	s->mr = ibv_reg_mr(h->pd, s->buf, len, ACC_ALL);
	check(s->mr);
	s->eps = calloc(pairs, sizeof(*s->eps));
	check(s->eps);
	return 0;
}

static int side_down(struct side *s)
{
	check_ok(ibv_dereg_mr(s->mr));
	check_ok(ibv_destroy_cq(s->scq));
	check_ok(ibv_destroy_cq(s->rcq));
	munmap(s->buf, 2ul * pairs * SLOT);
	free(s->eps);
	return 0;
}

static int create(struct side *s, int i, const struct opts *o)
{
	struct ibv_qp_init_attr ia = {
		.qp_type = IBV_QPT_RC, .send_cq = s->scq, .recv_cq = s->rcq,
		.sq_sig_all = 1,
		.cap = {
			.max_send_wr = DEPTH, .max_recv_wr = DEPTH,
			.max_send_sge = 1, .max_recv_sge = 1,
		},
	};
	struct ep *e = &s->eps[i];

	e->h = s->h;
	e->scq = s->scq;
	e->rcq = s->rcq;
	e->mr = s->mr;
	e->buf = s->buf;
	e->psn = (o->psn + i) & 0xffffff;
	e->qp = ibv_create_qp(s->h->pd, &ia);
	if (!e->qp)
		fail("queue pair %d of %d on %s: %s", i, pairs, s->h->dev,
		     strerror(errno));
	return 0;
}

static int connect_pair(int i, const struct opts *o)
{
	struct ep *a = &side_a.eps[i], *b = &side_b.eps[i];

	run_ok(ep_init(a, o));
	run_ok(ep_init(b, o));
	run_ok(ep_rtr(a, b, o));
	run_ok(ep_rtr(b, a, o));
	run_ok(ep_rts(a, o));
	run_ok(ep_rts(b, o));
	return 0;
}

/* ---- traffic -------------------------------------------------------------- */

static int reap(struct ibv_cq *cq, int n, enum ibv_wc_opcode op)
{
	uint64_t start = now_us();
	struct ibv_wc wc[16];
	int got, i;

	while (n) {
		got = ibv_poll_cq(cq, n < 16 ? n : 16, wc);
		check(got >= 0);
		for (i = 0; i < got; i++)
			if (wc[i].status != IBV_WC_SUCCESS ||
			    wc[i].opcode != op ||
			    (op == IBV_WC_RECV && wc[i].byte_len != SLOT))
				fail("wr %" PRIu64 ": %s, opcode %d, %u bytes",
				     wc[i].wr_id,
				     ibv_wc_status_str(wc[i].status),
				     wc[i].opcode, wc[i].byte_len);
		n -= got;
		if (!got) {
			if (now_us() - start > 10000000)
				fail("%d completions are missing", n);
			relax(start);
		}
	}
	return 0;
}

/* One message over each queue pair from first on, n of them; microseconds. */
static int burst(struct side *from, struct side *to, int first, int n,
		 uint32_t seed, uint64_t *us)
{
	uint64_t start;
	int i;

	for (i = first; i < first + n; i++) {
		size_t at = (size_t)i * SLOT, in = at + (size_t)pairs * SLOT;

		fill(from->buf + at, SLOT, seed + i);
		memset(to->buf + in, 0, SLOT);
		check_ok(post_recv(&to->eps[i], i, in, SLOT));
	}
	start = now_us();
	for (i = first; i < first + n; i++)
		check_ok(post(&from->eps[i], &(struct wr){
			.id = i, .op = IBV_WR_SEND, .off = (size_t)i * SLOT,
			.len = SLOT }));
	run_ok(reap(to->rcq, n, IBV_WC_RECV));
	run_ok(reap(from->scq, n, IBV_WC_SEND));
	*us += now_us() - start;
	for (i = first; i < first + n; i++) {
		size_t in = (size_t)(pairs + i) * SLOT;
		long bad = check_fill(to->buf + in, SLOT, seed + i);

		if (bad >= 0)
			fail("queue pair %d: byte %ld differs", i, bad);
	}
	return 0;
}

static int traffic(double *us_each)
{
	int rounds = MESSAGES / 2 / pairs, round, first, n;
	uint64_t us = 0, sent = 0;

	rounds = quick ? 1 : rounds < 1 ? 1 : rounds;
	for (round = 0; round < rounds; round++)
		for (first = 0; first < pairs; first += n) {
			n = pairs - first < BATCH ? pairs - first : BATCH;
			run_ok(burst(&side_a, &side_b, first, n,
				     2 * round * pairs, &us));
			run_ok(burst(&side_b, &side_a, first, n,
				     (2 * round + 1) * pairs, &us));
			sent += 2 * n;
		}
	*us_each = (double)us / sent;
	return 0;
}

/* ---- cases ---------------------------------------------------------------- */

/* Both hosts in turn, so that neither's queue pairs lie together. */
static int create_all(const struct opts *o)
{
	int i;

	for (i = 0; i < pairs; i++) {
		run_ok(create(&side_a, i, o));
		run_ok(create(&side_b, i, o));
	}
	return 0;
}

static int destroy_all(void)
{
	int i;

	for (i = 0; i < pairs; i++) {
		check_ok(ibv_destroy_qp(side_a.eps[i].qp));
		check_ok(ibv_destroy_qp(side_b.eps[i].qp));
	}
	return 0;
}

/* The first ones of a kernel pay for what all share. */
static int warm_up(void)
{
	struct opts o = opts_default();

	pairs = 2;
	run_ok(side_up(&side_a, &host_a));
	run_ok(side_up(&side_b, &host_b));
	run_ok(create_all(&o));
	run_ok(destroy_all());
	run_ok(side_down(&side_a));
	run_ok(side_down(&side_b));
	return 0;
}

static int scale(int qps, bool connected)
{
	struct opts o = opts_default();
	uint64_t start, made = 0, joined = 0, gone;
	double us = 0;
	long before, used;
	int i;

	o.timeout = 17;
	run_ok(warm_up());
	pairs = qps / 2;
	if (host_a.attr.max_qp < qps / 2)
		lacks(&host_a, "%s has at most %d queue pairs", host_a.dev,
		      host_a.attr.max_qp);
	run_ok(side_up(&side_a, &host_a));
	run_ok(side_up(&side_b, &host_b));
	before = kernel_kb();
	start = now_us();
	run_ok(create_all(&o));
	made = now_us() - start;
	if (connected) {
		start = now_us();
		for (i = 0; i < pairs; i++)
			run_ok(connect_pair(i, &o));
		joined = now_us() - start;
	}
	used = kernel_kb() - before;
	if (connected)
		run_ok(traffic(&us));
	start = now_us();
	run_ok(destroy_all());
	gone = now_us() - start;
	run_ok(side_down(&side_a));
	run_ok(side_down(&side_b));
	printf("# scale qps=%d state=%s create=%.1f connect=%.1f message=%.2f destroy=%.1f bytes=%.0f\n",
	       qps, connected ? "rts" : "reset", (double)made / qps,
	       (double)joined / qps, us, (double)gone / qps,
	       used * 1024.0 / qps);
	if (used > (long)(LIMIT_KB / 10000.0 * qps) + 4096)
		fail("%d queue pairs of depth %d take %ld KB", qps, DEPTH, used);
	return 0;
}

static int idle_1000(void)
{
	return scale(1000, false);
}

static int qps_10(void)
{
	return scale(10, true);
}

static int qps_100(void)
{
	return scale(100, true);
}

static int qps_1000(void)
{
	return scale(1000, true);
}

static int qps_10000(void)
{
	return scale(10000, true);
}

static const struct testcase cases[] = {
	{ "idle_1000", idle_1000, 120 },
	{ "qps_10", qps_10, 60 },
	{ "qps_100", qps_100, 60 },
	{ "qps_1000", qps_1000, 120 },
	{ "qps_10000", qps_10000, 600 },
};

int main(int argc, char **argv)
{
	return rig_main(argc, argv, cases, ARRAY_SIZE(cases));
}
