// SPDX-License-Identifier: GPL-2.0
/*
 * One of several workers of a soak: many queue pairs between the hosts, all
 * operations and sizes at random, everything verified. It ends with its time
 * or by SIGTERM; it may be killed at any point.
 *
 *   soak -a ... -b ... FILE SLOT SECONDS
 *
 * FILE holds what all workers did, a line of counters a slot (struct work).
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <arpa/inet.h>
#include <sys/mman.h>
#include "rig.h"

#define PAIRS 24		/* RC; one UC and one UD besides */
#define MSG (256 << 10)
#define PATIENCE_MS 60000

struct work {
	uint64_t ops[8], bytes, datagrams, lost, pairs, rounds, wrong;
};

enum { SEND, SEND_IMM, WRITE, WRITE_IMM, READ, ADD, SWAP };

static const enum ibv_wr_opcode opcodes[] = {
	IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
	IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
	IBV_WR_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_CMP_AND_SWP,
};

static struct work *work;
static volatile sig_atomic_t ended;
static uint64_t rng;

static void on_term(int sig)
{
	ended = 1;
}

static uint64_t rnd(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

/* Small ones often, each power of two as often as the next. */
static uint32_t some_len(uint32_t max)
{
	uint32_t n = rnd() & ((2u << rnd() % 18) - 1);

	return n > max ? max : n;
}

/* ---- reliable ------------------------------------------------------------- */

/* A buffer: what is sent, what comes in, eight bytes for atomics. */
#define OUT 0
#define IN MSG
#define WORD (2 * MSG)

static struct flow {
	struct pair p;
	struct ep *from, *to;
	int op;
	uint32_t len, seed;
	uint64_t before, add;
	int rounds;
} flows[PAIRS];

static struct opts options(enum ibv_qp_type type)
{
	struct opts o = opts_default();

	o.type = type;
	o.psn = rnd() & 0xffffff;
	o.mtu = 1 + rnd() % pair_mtu();
	o.retry = 7;
	o.timeout = 16;
	o.depth = 8;
	o.buf = 2 * MSG + 4096;
	o.patience_ms = PATIENCE_MS;
	return o;
}

static int begin(struct flow *f)
{
	struct wr w = { .flags = IBV_SEND_SIGNALED };
	bool back = rnd() & 1;

	f->from = back ? &f->p.b : &f->p.a;
	f->to = back ? &f->p.a : &f->p.b;
	f->op = rnd() % ARRAY_SIZE(opcodes);
	f->len = f->op >= ADD ? 8 : some_len(MSG);
	f->seed = rnd();
	w.id = f->seed;
	w.op = opcodes[f->op];
	w.len = f->len;
	w.imm = f->seed;
	fill(f->op == READ ? f->to->buf : f->from->buf, f->len, f->seed);
	switch (f->op) {
	case SEND: case SEND_IMM: case WRITE_IMM:
		check_ok(post_recv(f->to, f->seed, IN, MSG));
		break;
	case READ:
		w.off = IN;
		return post_to(f->from, w, f->to, OUT);
	case ADD: case SWAP:
		w.off = IN;
		f->before = *(uint64_t *)(f->to->buf + WORD);
		w.add = f->op == ADD ? rnd() : f->before + (rnd() & 1);
		w.swap = rnd();
		f->add = f->op == ADD ? f->before + w.add :
			 w.add == f->before ? w.swap : f->before;
		return post_to(f->from, w, f->to, WORD);
	}
	return post_to(f->from, w, f->to, IN);
}

static int finish(struct flow *f)
{
	struct ibv_wc wc;

	run_ok(expect_wc(f->from->scq, f->seed, IBV_WC_SUCCESS, PATIENCE_MS,
			 NULL));
	if (f->op == SEND || f->op == SEND_IMM || f->op == WRITE_IMM) {
		run_ok(expect_wc(f->to->rcq, f->seed, IBV_WC_SUCCESS,
				 PATIENCE_MS, &wc));
		check(wc.byte_len == f->len);
		if (f->op != SEND)
			check(ntohl(wc.imm_data) == f->seed);
	}
	if (f->op >= ADD) {
		check(*(uint64_t *)(f->from->buf + IN) == f->before);
		check(*(uint64_t *)(f->to->buf + WORD) == f->add);
	} else if (check_fill((f->op == READ ? f->from : f->to)->buf + IN,
			      f->len, f->seed) >= 0) {
		fail("op %d: wrong data of %u bytes", f->op, f->len);
	}
	work->ops[f->op]++;
	work->bytes += f->len;
	return 0;
}

/* Now and then a queue pair goes in the midst of its work, and another comes. */
static int renew(struct flow *f)
{
	struct opts o = options(IBV_QPT_RC);

	if (f->rounds) {
		if (rnd() & 1)
			begin(f);
		run_ok(pair_down(&f->p));
	}
	run_ok(pair_up(&f->p, &o));
	f->rounds = 20 + rnd() % 500;
	work->pairs++;
	return 0;
}

/* ---- unreliable ----------------------------------------------------------- */

static struct pair uc, ud;
static struct ibv_ah *ah;

static int unreliable_up(void)
{
	struct opts o = options(IBV_QPT_UC);
	struct ibv_ah_attr aa = { .is_global = 1, .port_num = 1,
		.grh = { .sgid_index = host_a.gidx, .dgid = host_b.gid,
			 .hop_limit = 64 } };
	uint64_t until = now_us() + PATIENCE_MS * 1000ull;

	run_ok(pair_up(&uc, &o));
	o.type = IBV_QPT_UD;
	run_ok(pair_up(&ud, &o));
	do
		ah = ibv_create_ah(host_a.pd, &aa);
	while (!ah && unreachable(errno, until));
	check(ah);
	return 0;
}

/* It comes whole and once, or not at all. The seed is the immediate. */
static int datagram(struct pair *p, int grh, uint32_t max)
{
	struct ibv_sge sge = { (uintptr_t)p->a.buf, some_len(max),
			       p->a.mr->lkey };
	struct ibv_send_wr wr = {
		.sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
		.opcode = IBV_WR_SEND_WITH_IMM,
	}, *bad;
	static int posted[2];
	struct ibv_wc wc;
	uint32_t seed = rnd();

	while (posted[!grh] < 4) {
		check_ok(post_recv(&p->b, 1, IN, MSG));
		posted[!grh]++;
	}
	fill(p->a.buf, sge.length, seed);
	wr.imm_data = htonl(seed);
	if (grh) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = p->b.qp->qp_num;
		wr.wr.ud.remote_qkey = QKEY;
	}
	check_ok(ibv_post_send(p->a.qp, &wr, &bad));
	run_ok(expect_wc(p->a.scq, 0, IBV_WC_SUCCESS, PATIENCE_MS, NULL));
	work->datagrams++;
	if (get_wc(p->b.rcq, &wc, 100) != 1) {
		work->lost++;
		return 0;
	}
	posted[!grh]--;
	check(wc.status == IBV_WC_SUCCESS);
	/* One that was delayed may come in place of the last. */
	if (ntohl(wc.imm_data) != seed)
		return 0;
	check(wc.byte_len == sge.length + 40 * grh);
	check(check_fill(p->b.buf + IN + 40 * grh, sge.length, seed) < 0);
	return 0;
}

/* ---- */

static int run(uint64_t end)
{
	int i;

	run_ok(host_open(&host_a));
	run_ok(host_open(&host_b));
	run_ok(unreliable_up());
	for (i = 0; i < PAIRS; i++)
		run_ok(renew(&flows[i]));
	while (!ended && now_us() < end) {
		for (i = 0; i < PAIRS; i++)
			run_ok(begin(&flows[i]));
		for (i = 0; i < PAIRS; i++)
			run_ok(finish(&flows[i]));
		run_ok(datagram(&uc, 0, 8192));
		run_ok(datagram(&ud, 1, 1000));
		for (i = 0; i < PAIRS; i++)
			if (!--flows[i].rounds) {
				flows[i].rounds = 1;
				run_ok(renew(&flows[i]));
			}
		work->rounds++;
	}
	for (i = 0; i < PAIRS; i++)
		run_ok(pair_down(&flows[i].p));
	check_ok(ibv_destroy_ah(ah));
	run_ok(pair_down(&uc));
	return pair_down(&ud);
}

int main(int argc, char **argv)
{
	int i = rig_args(argc, argv), fd, r;
	struct sigaction term = { .sa_handler = on_term };
	struct work *all;

	if (argc - i != 3)
		return 2;
	sigaction(SIGTERM, &term, NULL);
	fd = open(argv[i], O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, 65536))
		return 2;
	all = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (all == MAP_FAILED)
		return 2;
	work = &all[atoi(argv[i + 1])];
	rng = (now_us() + getpid()) * 0x9e3779b97f4a7c15ull | 1;
	r = run(now_us() + atoi(argv[i + 2]) * 1000000ull);
	if (r)
		work->wrong++;
	return r;
}
