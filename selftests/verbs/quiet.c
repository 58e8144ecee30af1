// SPDX-License-Identifier: GPL-2.0
/*
 * Messages that nobody is known to wait for: posted one by one, without a
 * completion, or with one while others are there to be read. A device may let
 * them wait for each other, but not for long, nor lose them, nor change their
 * order, whatever happens to the queue pair meanwhile.
 */
#define _GNU_SOURCE
#include "rig.h"

#define COUNT 200
#define SLOT 8192

static struct opts options(void)
{
	struct opts o = opts_default();

	o.depth = 2 * COUNT;
	o.buf = COUNT * SLOT;
	return o;
}

/* Most are as long as a packet may be. */
static bool longer;

/* Small as a rule, equal ones in a row, and a long one now and then. */
static uint32_t len_of(int i)
{
	if (longer)
		return i % 50 == 49 ? SLOT : i % 9 ? 4096 : 2048;
	return i % 50 == 49 ? 2048 : i % 9 ? 8 : 8 + i % 5 * 12;
}

static int post_quietly(struct ep *from, int i, unsigned int flags)
{
	struct wr w = { .id = i, .op = IBV_WR_SEND, .flags = flags,
			.off = i * SLOT, .len = len_of(i) };

	fill(from->buf + w.off, w.len, i);
	return post(from, &w);
}

static int post_receives(struct ep *to, int n)
{
	int i;

	for (i = 0; i < n; i++)
		check_ok(post_recv(to, i, i * SLOT, SLOT));
	return 0;
}

static int arrived(struct ep *to, int i)
{
	struct ibv_wc wc;

	run_ok(expect_wc(to->rcq, i, IBV_WC_SUCCESS, 3000, &wc));
	check(wc.byte_len == len_of(i));
	check(check_fill(to->buf + i * SLOT, wc.byte_len, i) < 0);
	return 0;
}

static int all_arrived(struct ep *to, int n)
{
	int i;

	for (i = 0; i < n; i++)
		run_ok(arrived(to, i));
	return 0;
}

/* n messages that nobody waits for, of a pair that is fresh. */
static int up_and_post(struct pair *p, int n)
{
	struct opts o = options();
	int i;

	run_ok(pair_up(p, &o));
	run_ok(post_receives(&p->b, COUNT));
	for (i = 0; i < n; i++)
		check_ok(post_quietly(&p->a, i, 0));
	return 0;
}

/* They come though none of them is waited for and no more are posted. */
static int quiet_stream(void)
{
	struct opts o = options();
	struct pair p;
	int i, round;

	run_ok(pair_up(&p, &o));
	for (round = 0; round < 8; round++) {
		/* A stream breaks off at any length. */
		int n = round < 4 ? COUNT : 17 + rand() % (COUNT - 17);

		run_ok(post_receives(&p.b, n));
		for (i = 0; i < n; i++)
			check_ok(post_quietly(&p.a, i, 0));
		run_ok(all_arrived(&p.b, n));
	}
	check_ok(post_receives(&p.b, 1));
	check_ok(post_quietly(&p.a, 0, IBV_SEND_SIGNALED));
	run_ok(expect_wc(p.a.scq, 0, IBV_WC_SUCCESS, 3000, NULL));
	return pair_down(&p);
}

/* The i-th message as part of a list. */
static void prepare(struct ep *from, int i, struct ibv_send_wr *wr,
		    struct ibv_sge *sge)
{
	sge->addr = (uintptr_t)from->buf + i * SLOT;
	sge->length = len_of(i);
	sge->lkey = from->mr->lkey;
	fill(from->buf + i * SLOT, len_of(i), i);
	wr->wr_id = i;
	wr->opcode = IBV_WR_SEND;
	wr->sg_list = sge;
	wr->num_sge = 1;
}

/* Several in one system call. */
static int quiet_lists(void)
{
	struct opts o = options();
	struct pair p;
	int i, k, n;

	run_ok(pair_up(&p, &o));
	for (n = 1; n <= 40; n += 13) {
		struct ibv_send_wr wr[40] = { }, *bad;
		struct ibv_sge sge[40];

		run_ok(post_receives(&p.b, COUNT));
		for (i = 0; i < COUNT; i += n) {
			for (k = 0; k < n && i + k < COUNT; k++) {
				prepare(&p.a, i + k, &wr[k], &sge[k]);
				wr[k].next = &wr[k + 1];
			}
			wr[k - 1].next = NULL;
			check_ok(ibv_post_send(p.a.qp, wr, &bad));
		}
		run_ok(all_arrived(&p.b, COUNT));
	}
	return pair_down(&p);
}

/* Both send, and each takes what the other sends for an answer. */
static int quiet_answers(void)
{
	struct opts o = options();
	struct pair p;
	int i;

	run_ok(pair_up(&p, &o));
	run_ok(post_receives(&p.a, COUNT));
	run_ok(post_receives(&p.b, COUNT));
	for (i = 0; i < COUNT; i++) {
		check_ok(post_quietly(&p.a, i, 0));
		if (i % 40 > 20)
			check_ok(post_quietly(&p.b, i, 0));
	}
	for (i = 0; i < COUNT; i++) {
		run_ok(arrived(&p.b, i));
		if (i % 40 > 20) {
			struct ibv_wc wc;

			check(get_wc(p.a.rcq, &wc, 3000) == 1);
			check(wc.status == IBV_WC_SUCCESS);
			check(wc.byte_len == len_of(i));
		}
	}
	return pair_down(&p);
}

/* One that is waited for takes all before it along. */
static int quiet_until_awaited(void)
{
	struct opts o = options();
	struct pair p;
	int i, k;

	run_ok(pair_up(&p, &o));
	for (k = 0; k < 5; k++) {
		run_ok(post_receives(&p.b, COUNT));
		for (i = 0; i < COUNT; i++)
			check_ok(post_quietly(&p.a, i, i % 23 == 22 ?
					      IBV_SEND_SIGNALED : 0));
		for (i = 22; i < COUNT; i += 23)
			run_ok(expect_wc(p.a.scq, i, IBV_WC_SUCCESS, 3000,
					 NULL));
		run_ok(all_arrived(&p.b, COUNT));
	}
	run_ok(expect_no_wc(p.a.scq, 0));
	return pair_down(&p);
}

#define PAIRS 4

/* Several queue pairs of one thread, filled in turn. */
static int quiet_in_turn(void)
{
	struct opts o = options(), lent = o;
	struct pair p[PAIRS];
	int i, k, round;

	for (k = 0; k < PAIRS; k++) {
		p[k].o = o;
		run_ok(ep_create(&p[k].a, &host_a, &lent));
		run_ok(ep_create(&p[k].b, &host_b, &o));
		run_ok(pair_connect(&p[k]));
		lent.send_cq = p[0].a.scq;
	}
	for (round = 0; round < 12; round++) {
		/* Bursts, as they fill a queue; at last each gets one. */
		int n = round < 8 ? 17 + rand() % (COUNT - 17) : 1;
		int first = rand() % PAIRS;

		for (k = 0; k < PAIRS; k++)
			run_ok(post_receives(&p[k].b, n));
		for (k = 0; k < PAIRS; k++)
			for (i = 0; i < n; i++)
				check_ok(post_quietly(&p[(first + k) % PAIRS].a,
						      i, 0));
		for (k = 0; k < PAIRS; k++)
			run_ok(all_arrived(&p[k].b, n));
	}
	/* One that goes leaves the others' alone. */
	for (k = PAIRS - 1; k >= 0; k--) {
		run_ok(post_receives(&p[0].b, 40));
		run_ok(post_receives(&p[k].b, 40));
		for (i = 0; i < 40; i++)
			check_ok(post_quietly(&p[k].a, i, 0));
		if (k) {
			check_ok(ibv_destroy_qp(p[k].a.qp));
			p[k].a.qp = NULL;
		}
		for (i = 0; k && i < 40; i++)
			check_ok(post_quietly(&p[0].a, i, 0));
		run_ok(all_arrived(&p[0].b, 40));
		run_ok(pair_down(&p[k]));
	}
	return 0;
}

/* READs that nobody waits for but the last: their responses are small, too. */
static int quiet_reads(void)
{
	struct opts o = options();
	struct pair p;
	int i, round;

	run_ok(pair_up(&p, &o));
	for (round = 0; round < 6; round++) {
		for (i = 0; i < COUNT; i++)
			fill(p.b.buf + i * SLOT, len_of(i), i + round);
		memset(p.a.buf, 0, p.a.len);
		for (i = 0; i < COUNT; i++)
			check_ok(post_to(&p.a, (struct wr){
				.id = i, .op = IBV_WR_RDMA_READ,
				.flags = i % 100 == 99 ? IBV_SEND_SIGNALED : 0,
				.off = i * SLOT, .len = len_of(i) }, &p.b,
				i * SLOT));
		for (i = 99; i < COUNT; i += 100)
			run_ok(expect_wc(p.a.scq, i, IBV_WC_SUCCESS, 8000,
					 NULL));
		for (i = 0; i < COUNT; i++)
			if (check_fill(p.a.buf + i * SLOT, len_of(i),
				       i + round) >= 0)
				fail("READ %d of round %d", i, round);
	}
	run_ok(expect_no_wc(p.a.scq, 0));
	return pair_down(&p);
}

/* Each one ends: it arrived, or its work request is flushed. */
static int quiet_then_error(void)
{
	struct pair p;
	int n, round;

	for (round = 0; round < 6; round++) {
		int flushed = 0, next = -1, done;
		struct ibv_wc wc;

		n = COUNT - round * 7;
		run_ok(up_and_post(&p, n));
		check_ok(ep_state(&p.a, IBV_QPS_ERR));
		while (get_wc(p.a.scq, &wc, 100) == 1) {
			check(wc.status == IBV_WC_WR_FLUSH_ERR);
			check(next < 0 || wc.wr_id == (uint64_t)next);
			next = wc.wr_id + 1;
			flushed++;
		}
		check(!flushed || next == n);
		for (done = 0; get_wc(p.b.rcq, &wc, 100) == 1; done++)
			check(wc.status == IBV_WC_SUCCESS &&
			      wc.wr_id == (uint64_t)done);
		if (done + flushed < n)
			fail("%d arrived, %d flushed, of %d", done, flushed, n);
		run_ok(pair_down(&p));
	}
	return 0;
}

/* Who posts where it is not allowed is told so at once. */
static int quiet_then_reset(void)
{
	struct pair p;

	run_ok(up_and_post(&p, COUNT / 2));
	check_ok(ep_state(&p.a, IBV_QPS_RESET));
	check(post_quietly(&p.a, COUNT / 2, 0) == EINVAL);
	return pair_down(&p);
}

/* They are not waited for by who destroys the queue pair either. */
static int quiet_then_destroy(void)
{
	struct pair p;
	int round;

	for (round = 0; round < 20; round++) {
		run_ok(up_and_post(&p, 20 + round));
		run_ok(pair_down(&p));
	}
	return 0;
}

static int quiet_long(void)
{
	int ret;

	longer = true;
	ret = quiet_stream();
	longer = false;
	return ret;
}

/*
 * Each has a completion, and none is read before all have arrived. They come,
 * though no more are posted.
 */
static int unread(bool sig_all, bool armed)
{
	struct opts o = options();
	unsigned int flags = sig_all ? 0 : IBV_SEND_SIGNALED;
	struct pair p;
	int i, round;

	o.sq_sig_all = sig_all;
	o.channel = true;
	run_ok(pair_up(&p, &o));
	for (round = 0; round < 6; round++) {
		int n = round < 3 ? COUNT : 33 + rand() % (COUNT - 33);

		run_ok(post_receives(&p.b, n));
		if (armed)
			check_ok(ibv_req_notify_cq(p.a.scq, 1));
		for (i = 0; i < n; i++)
			check_ok(post_quietly(&p.a, i, flags));
		run_ok(all_arrived(&p.b, n));
		for (i = 0; i < n; i++)
			run_ok(expect_wc(p.a.scq, i, IBV_WC_SUCCESS, 3000,
					 NULL));
	}
	run_ok(expect_no_wc(p.a.scq, 0));
	return pair_down(&p);
}

static int unread_stream(void)
{
	return unread(false, false);
}

static int unread_sig_all(void)
{
	return unread(true, false);
}

static int unread_long(void)
{
	int ret;

	longer = true;
	ret = unread_stream();
	longer = false;
	return ret;
}

/* Its process wants to be told of the next one with an event, or an error. */
static int unread_armed(void)
{
	return unread(false, true);
}

/*
 * Who posts one more, and goes to sleep until it completes, waits for it:
 * 15-verbs.sh looks at how many were left to wait, which no more are soon if
 * that proves wrong each time.
 */
static int unread_asleep(void)
{
	struct opts o = options();
	bool early = false;	/* it completed before that was asked for */
	struct pair p;
	int i;

	o.channel = true;
	run_ok(pair_up(&p, &o));
	run_ok(post_receives(&p.b, COUNT));
	for (i = 0; i < COUNT; i++) {
		/* By then 32 are left unread, and one after a pause never waits. */
		if (i == 32)
			usleep(50000);
		check_ok(post_quietly(&p.a, i, IBV_SEND_SIGNALED));
		if (early) {
			/* It brings the event that was asked for before. */
			check(get_cq_event(&p.a, 3000) == 1);
			early = false;
		} else if (i > 32) {
			check_ok(ibv_req_notify_cq(p.a.scq, 0));
			early = get_cq_event(&p.a, 20) != 1;
		}
		run_ok(arrived(&p.b, i));
	}
	for (i = 0; i < COUNT; i++)
		run_ok(expect_wc(p.a.scq, i, IBV_WC_SUCCESS, 3000, NULL));
	return pair_down(&p);
}

/* Completions are read as they come: somebody waits for each. */
static int read_each(void)
{
	struct opts o = options();
	struct pair p;
	int i;

	run_ok(pair_up(&p, &o));
	run_ok(post_receives(&p.b, COUNT));
	for (i = 0; i < COUNT; i++) {
		check_ok(post_quietly(&p.a, i, IBV_SEND_SIGNALED));
		run_ok(expect_wc(p.a.scq, i, IBV_WC_SUCCESS, 3000, NULL));
	}
	run_ok(all_arrived(&p.b, COUNT));
	return pair_down(&p);
}

/*
 * The last of a few that are posted at once, or one by one, fails where it is.
 * Those before it end well, and soon, though no timeout would see to that.
 */
static int fault_after(unsigned int flags, bool at_once)
{
	struct ibv_send_wr wr[4] = { }, *bad;
	struct opts o = options();
	struct ibv_sge sge[4];
	struct pair p;
	uint64_t start;
	int k;

	o.timeout = 0;
	run_ok(pair_up(&p, &o));
	for (k = 0; k < 4; k++) {
		prepare(&p.a, k, &wr[k], &sge[k]);
		/* Which needs no credit: ACKs bring that. */
		wr[k].opcode = IBV_WR_RDMA_WRITE;
		wr[k].wr.rdma.remote_addr = (uintptr_t)p.b.buf + k * SLOT;
		wr[k].wr.rdma.rkey = p.b.mr->rkey;
		wr[k].send_flags = flags;
		if (at_once && k)
			wr[k - 1].next = &wr[k];
	}
	sge[3].lkey++;
	wr[3].send_flags = IBV_SEND_SIGNALED;
	start = now_us();
	for (k = 0; k < (at_once ? 1 : 4); k++)
		check_ok(ibv_post_send(p.a.qp, &wr[k], &bad));
	for (k = flags ? 0 : 3; k < 4; k++)
		run_ok(expect_wc(p.a.scq, k, k == 3 ? IBV_WC_LOC_PROT_ERR :
				 IBV_WC_SUCCESS, 3000, NULL));
	check(now_us() - start < 3000000);
	for (k = 0; k < 3; k++)
		check(check_fill(p.b.buf + k * SLOT, len_of(k), k) < 0);
	return pair_down(&p);
}

static int before_a_fault(void)
{
	int at_once;

	for (at_once = 0; at_once < 2; at_once++) {
		run_ok(fault_after(0, at_once));
		run_ok(fault_after(IBV_SEND_SIGNALED, at_once));
	}
	return 0;
}

/*
 * What waits leaves when the peer sends something, and doesn't wait for a pause
 * of the peer: most times few WRITEs of it are enough.
 */
static int quiet_beside_work(void)
{
	int i, got, writes, round, soon = 0;
	struct ibv_wc wc;
	struct pair p;

	for (round = 0; round < 8; round++) {
		run_ok(up_and_post(&p, 0));
		/* No ACK is missing of those that leave at once. */
		for (i = 0; i < 40; i++)
			check_ok(post_quietly(&p.a, i, i == 15 ?
					      IBV_SEND_SIGNALED : 0));
		for (got = writes = 0; got < 40 && writes < 10000; writes++) {
			check_ok(post_to(&p.b, (struct wr){
				.op = IBV_WR_RDMA_WRITE, .len = 8,
				.flags = IBV_SEND_SIGNALED }, &p.a, 0));
			run_ok(expect_wc(p.b.scq, 0, IBV_WC_SUCCESS, 3000,
					 NULL));
			while (ibv_poll_cq(p.b.rcq, 1, &wc) == 1)
				check(wc.status == IBV_WC_SUCCESS &&
				      wc.wr_id == (uint64_t)got++);
		}
		printf("# %d arrived after %d WRITEs\n", got, writes);
		check(got == 40);
		soon += writes <= 8;
		run_ok(pair_down(&p));
	}
	check(soon >= 4);
	return 0;
}

static const struct testcase cases[] = {
	{ "quiet_stream", quiet_stream },
	{ "quiet_long", quiet_long, 60 },
	{ "quiet_lists", quiet_lists },
	{ "quiet_answers", quiet_answers },
	{ "quiet_until_awaited", quiet_until_awaited },
	{ "quiet_in_turn", quiet_in_turn, 60 },
	{ "quiet_reads", quiet_reads, 60 },
	{ "quiet_then_error", quiet_then_error, 60 },
	{ "quiet_then_reset", quiet_then_reset },
	{ "quiet_then_destroy", quiet_then_destroy, 60 },
	{ "unread_stream", unread_stream },
	{ "unread_sig_all", unread_sig_all },
	{ "unread_long", unread_long, 60 },
	{ "unread_armed", unread_armed },
	{ "unread_asleep", unread_asleep },
	{ "read_each", read_each },
	{ "before_a_fault", before_a_fault },
	{ "quiet_beside_work", quiet_beside_work },
};

int main(int argc, char **argv)
{
	return rig_main(argc, argv, cases, ARRAY_SIZE(cases));
}
