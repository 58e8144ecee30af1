// SPDX-License-Identifier: GPL-2.0
/*
 * Faults as users have them. Each case brings one about, says "look STAGE" when
 * there is something to be seen, and goes on when a line comes in: meanwhile
 * others can look at the queue pairs, of which it tells the numbers.
 *
 * Host a sends, host b receives. A network that loses or delays packets is made
 * by the caller.
 */
#include "rig.h"

static int look(const char *stage)
{
	char c = 0;

	printf("look %s\n", stage);
	fflush(stdout);
	while (c != '\n')
		if (read(0, &c, 1) != 1)
			fail("nobody looked at %s", stage);
	return 0;
}

static void tell(const struct pair *p)
{
	printf("qp a %u\nqp b %u\n", p->a.qp->qp_num, p->b.qp->qp_num);
}

static struct opts options(void)
{
	struct opts o = opts_default();

	o.mtu = IBV_MTU_1024;
	return o;
}

static int up(struct pair *p, const struct opts *o)
{
	run_ok(pair_up(p, o));
	tell(p);
	return 0;
}

static int send_some(struct ep *e, int from, int n, uint32_t len)
{
	int i;

	for (i = from; i < from + n; i++)
		check_ok(post(e, &(struct wr){ .id = i, .op = IBV_WR_SEND,
			.len = len, .flags = IBV_SEND_SIGNALED }));
	return 0;
}

static int recv_some(struct ep *e, int from, int n, uint32_t len)
{
	int i;

	for (i = from; i < from + n; i++)
		check_ok(post_recv(e, i, 0, len));
	return 0;
}

static int expect_some(struct ibv_cq *cq, int from, int n)
{
	int i;

	for (i = from; i < from + n; i++)
		run_ok(expect_wc(cq, i, IBV_WC_SUCCESS, 20000, NULL));
	return 0;
}

/* Nothing is wrong. */
static int well(void)
{
	struct opts o = options();
	struct pair p;

	run_ok(up(&p, &o));
	run_ok(look("idle"));
	run_ok(recv_some(&p.b, 0, 8, 3000));
	run_ok(send_some(&p.a, 0, 4, 3000));
	run_ok(expect_some(p.a.scq, 0, 4));
	run_ok(expect_some(p.b.rcq, 0, 4));
	run_ok(look("done"));
	return pair_down(&p);
}

/* One receive every 20 ms: slower than the sender, but not too slow. */
static int slow_receiver(void)
{
	struct opts o = options();
	struct pair p;
	int i;

	run_ok(up(&p, &o));
	run_ok(look("begin"));
	run_ok(recv_some(&p.b, 0, 1, 3000));
	run_ok(send_some(&p.a, 0, 60, 3000));
	for (i = 1; i < 60; i++) {
		usleep(20000);
		run_ok(recv_some(&p.b, i, 1, 3000));
	}
	run_ok(expect_some(p.a.scq, 0, 60));
	run_ok(look("done"));
	return pair_down(&p);
}

/* No receive for long, where the sender is not patient for ever. */
static int no_receive(void)
{
	struct opts o = options();
	struct pair p;

	o.rnr_timer = 18;	/* 5.12 ms */
	run_ok(up(&p, &o));
	run_ok(look("begin"));
	run_ok(send_some(&p.a, 0, 2, 3000));
	run_ok(look("waiting"));
	run_ok(recv_some(&p.b, 0, 2, 3000));
	run_ok(expect_some(p.a.scq, 0, 2));
	run_ok(pair_down(&p));

	o.rnr_retry = 2;
	run_ok(up(&p, &o));
	run_ok(send_some(&p.a, 0, 1, 3000));
	run_ok(expect_wc(p.a.scq, 0, IBV_WC_RNR_RETRY_EXC_ERR, 10000, NULL));
	run_ok(look("failed"));
	return pair_down(&p);
}

/* WRITEs, a line after each few; the caller makes the weather. */
static int writes(void)
{
	struct opts o = options();
	struct pair p;
	int i;

	o.timeout = getenv("SYMPTOM_TIMEOUT") ? atoi(getenv("SYMPTOM_TIMEOUT")) : 14;
	run_ok(up(&p, &o));
	run_ok(look("begin"));
	for (i = 0; i < 40; i++) {
		check_ok(post_to(&p.a, (struct wr){ .id = i,
			.op = IBV_WR_RDMA_WRITE, .len = 8000,
			.flags = IBV_SEND_SIGNALED }, &p.b, 0));
		run_ok(expect_wc(p.a.scq, i, IBV_WC_SUCCESS, 20000, NULL));
	}
	run_ok(look("done"));
	return pair_down(&p);
}

/* A WRITE that is never answered: the caller, or the peer's state, sees to it. */
static int fails_after(struct pair *p, uint32_t len)
{
	check_ok(post(&p->a, &(struct wr){ .id = 1, .op = IBV_WR_RDMA_WRITE,
		.len = len, .flags = IBV_SEND_SIGNALED,
		.raddr = (uintptr_t)p->b.buf, .rkey = p->b.mr->rkey }));
	usleep(100000);
	run_ok(look("trying"));
	run_ok(expect_wc(p->a.scq, 1, IBV_WC_RETRY_EXC_ERR, 20000, NULL));
	run_ok(look("failed"));
	return 0;
}

/* A pair in INIT, of which the sender gives up soon; the caller connects it, after its own fashion. */
static int halfway(struct pair *p, struct opts *o)
{
	o->timeout = 17;	/* half a second */
	o->retry = 2;
	p->o = *o;
	run_ok(ep_create(&p->a, &host_a, o));
	run_ok(ep_create(&p->b, &host_b, o));
	tell(p);
	run_ok(ep_init(&p->a, o));
	run_ok(ep_init(&p->b, o));
	return 0;
}

/* What was connected like that does not work. */
static int in_vain(struct pair *p)
{
	run_ok(look("begin"));
	run_ok(fails_after(p, 100));
	return pair_down(p);
}

static int no_answer(void)
{
	struct opts o = options();
	struct pair p;

	o.timeout = 17;		/* half a second */
	o.retry = 2;
	run_ok(up(&p, &o));
	return in_vain(&p);
}

/* Half of a connection: the receiver has got no further than INIT. */
static int peer_in_init(void)
{
	struct opts o = options();
	struct pair p;

	run_ok(halfway(&p, &o));
	run_ok(ep_rtr(&p.a, &p.b, &o));
	run_ok(ep_rts(&p.a, &o));
	return in_vain(&p);
}

/* The sender is connected to a number that is nobody's. */
static int wrong_qpn(void)
{
	struct opts o = options();
	struct ep nobody;
	struct pair p;

	run_ok(halfway(&p, &o));
	run_ok(ep_create(&nobody, &host_b, &o));
	printf("nobody %u\n", nobody.qp->qp_num);
	run_ok(ep_rtr(&p.a, &nobody, &o));
	run_ok(ep_rtr(&p.b, &p.a, &o));
	run_ok(ep_rts(&p.a, &o));
	run_ok(ep_destroy(&nobody));
	return in_vain(&p);
}

/* The two ends begin at different numbers: the sender skips some, or is behind. */
static int desynchronised(int by)
{
	struct opts o = options();
	struct pair p;
	struct ep as;

	run_ok(halfway(&p, &o));
	as = p.a;
	as.psn = (as.psn - by) & 0xffffff;
	run_ok(ep_rtr(&p.a, &p.b, &o));
	run_ok(ep_rtr(&p.b, &as, &o));
	run_ok(ep_rts(&p.a, &o));
	run_ok(ep_rts(&p.b, &o));
	return in_vain(&p);
}

static int sender_ahead(void) { return desynchronised(1000); }
static int sender_behind(void) { return desynchronised(-1000); }

/* A key that the receiver never gave, one that gives no such right, a range beyond it. */
static int refused(uint32_t key, uint64_t skew, int access)
{
	struct opts o = options();
	struct pair p;

	o.mr_access = access;
	run_ok(up(&p, &o));
	run_ok(look("begin"));
	printf("key %u\n", p.b.mr->rkey ^ key);
	check_ok(post(&p.a, &(struct wr){ .id = 1, .op = IBV_WR_RDMA_WRITE,
		.len = 100, .flags = IBV_SEND_SIGNALED,
		.raddr = (uintptr_t)p.b.buf + skew,
		.rkey = p.b.mr->rkey ^ key }));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_REM_ACCESS_ERR, 10000, NULL));
	run_ok(look("failed"));
	return pair_down(&p);
}

static int unknown_key(void) { return refused(0x5500, 0, ACC_ALL); }
static int beyond_region(void) { return refused(0, 1 << 20, ACC_ALL); }
static int without_right(void)
{
	return refused(0, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
}

/* A key that no region has, of a send and of a receive: a fault of one's own. */
static int own_send_key(void)
{
	struct opts o = options();
	struct pair p;

	run_ok(up(&p, &o));
	printf("key %u\n", p.a.mr->lkey ^ 0x5500);
	run_ok(look("begin"));
	check_ok(post(&p.a, &(struct wr){ .id = 1, .op = IBV_WR_SEND,
		.len = 100, .lkey = p.a.mr->lkey ^ 0x5500 }));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_LOC_PROT_ERR, 5000, NULL));
	run_ok(look("failed"));
	return pair_down(&p);
}

static int own_recv_key(void)
{
	struct opts o = options();
	struct ibv_sge sg;
	struct ibv_recv_wr *bad, rr = {
		.wr_id = 5, .sg_list = &sg, .num_sge = 1,
	};
	struct pair p;

	run_ok(up(&p, &o));
	sg = (struct ibv_sge){ (uintptr_t)p.b.buf, 100, p.b.mr->lkey ^ 0x5500 };
	printf("key %u\n", sg.lkey);
	run_ok(look("begin"));
	check_ok(ibv_post_recv(p.b.qp, &rr, &bad));
	run_ok(send_some(&p.a, 1, 1, 100));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_REM_OP_ERR, 5000, NULL));
	run_ok(expect_wc(p.b.rcq, 5, IBV_WC_LOC_PROT_ERR, 5000, NULL));
	run_ok(look("failed"));
	return pair_down(&p);
}

/* What is small gets through; what fills a packet doesn't: the caller sees to it. */
static int large_packets(void)
{
	struct opts o = options();
	struct pair p;

	o.mtu = IBV_MTU_4096;
	o.timeout = 17;
	o.retry = 2;
	run_ok(up(&p, &o));
	run_ok(look("begin"));
	check_ok(post_to(&p.a, (struct wr){ .id = 0, .op = IBV_WR_RDMA_WRITE,
		.len = 100, .flags = IBV_SEND_SIGNALED }, &p.b, 0));
	run_ok(expect_wc(p.a.scq, 0, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(look("small"));
	run_ok(fails_after(&p, 4096));
	return pair_down(&p);
}

/* The two ends have different path MTUs. */
static int path_mtus(void)
{
	struct opts o = options(), small = o;
	struct pair p;

	o.mtu = IBV_MTU_4096;
	small.mtu = IBV_MTU_1024;
	p.o = o;
	run_ok(ep_create(&p.a, &host_a, &o));
	run_ok(ep_create(&p.b, &host_b, &o));
	tell(&p);
	run_ok(ep_init(&p.a, &o));
	run_ok(ep_init(&p.b, &o));
	run_ok(ep_rtr(&p.a, &p.b, &o));
	run_ok(ep_rtr(&p.b, &p.a, &small));
	run_ok(ep_rts(&p.a, &o));
	run_ok(ep_rts(&p.b, &o));
	run_ok(look("begin"));
	check_ok(post_to(&p.a, (struct wr){ .id = 1, .op = IBV_WR_RDMA_WRITE,
		.len = 4096, .flags = IBV_SEND_SIGNALED }, &p.b, 0));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_REM_INV_REQ_ERR, 10000, NULL));
	run_ok(look("failed"));
	return pair_down(&p);
}

/* Three senders, of which the caller counts two. */
static int two(void)
{
	struct opts o = options();
	struct pair p, q, r;
	struct pair *all[] = { &p, &q, &r, &p };
	int i;

	run_ok(up(&p, &o));
	run_ok(pair_up(&q, &o));
	run_ok(pair_up(&r, &o));
	printf("qp c %u\n", q.a.qp->qp_num);
	run_ok(look("begin"));
	for (i = 0; i < (int)ARRAY_SIZE(all); i++) {
		check_ok(post_to(&all[i]->a, (struct wr){ .id = i,
			.op = IBV_WR_RDMA_WRITE, .len = 100,
			.flags = IBV_SEND_SIGNALED }, &all[i]->b, 0));
		run_ok(expect_wc(all[i]->a.scq, i, IBV_WC_SUCCESS, 5000, NULL));
	}
	run_ok(look("done"));
	run_ok(pair_down(&p));
	run_ok(pair_down(&q));
	return pair_down(&r);
}

/* More than a slow network takes at once. */
static int much(void)
{
	struct opts o = options();
	struct pair p;

	run_ok(up(&p, &o));
	run_ok(look("begin"));
	check_ok(post_to(&p.a, (struct wr){ .id = 1, .op = IBV_WR_RDMA_WRITE,
		.len = 1 << 20 }, &p.b, 0));
	run_ok(look("posted"));
	return pair_down(&p);
}

/* What a sender waits for, besides the peer's receives. */
static int waits(void)
{
	struct opts o = options();
	struct pair p;
	int i;

	o.timeout = 0;
	o.rd_atomic = 1;
	run_ok(up(&p, &o));
	run_ok(look("begin"));	/* the caller has nothing arrive from here on */
	check_ok(post_to(&p.a, (struct wr){ .id = 1, .op = IBV_WR_RDMA_WRITE,
		.len = 100 }, &p.b, 0));
	run_ok(look("unacknowledged"));
	for (i = 0; i < 2; i++)
		check_ok(post_to(&p.a, (struct wr){ .id = i,
			.op = IBV_WR_RDMA_READ, .len = 100 }, &p.b, 0));
	run_ok(look("read_limit"));
	run_ok(pair_down(&p));

	run_ok(up(&p, &o));
	check_ok(post_to(&p.a, (struct wr){ .id = 1, .op = IBV_WR_RDMA_READ,
		.len = 100 }, &p.b, 0));
	check_ok(post_to(&p.a, (struct wr){ .id = 2, .op = IBV_WR_RDMA_WRITE,
		.len = 100, .flags = IBV_SEND_FENCE }, &p.b, 0));
	run_ok(look("fence"));
	run_ok(pair_down(&p));

	run_ok(up(&p, &o));
	check_ok(post_to(&p.a, (struct wr){ .id = 1, .op = IBV_WR_RDMA_WRITE,
		.len = 1 << 20 }, &p.b, 0));
	run_ok(look("window"));
	run_ok(ep_state(&p.a, IBV_QPS_ERR));
	run_ok(look("state"));
	return pair_down(&p);
}

static const struct testcase cases[] = {
	{ "well", well, 60 },
	{ "slow_receiver", slow_receiver, 60 },
	{ "no_receive", no_receive, 60 },
	{ "writes", writes, 60 },
	{ "no_answer", no_answer, 60 },
	{ "peer_in_init", peer_in_init, 60 },
	{ "wrong_qpn", wrong_qpn, 60 },
	{ "sender_ahead", sender_ahead, 60 },
	{ "sender_behind", sender_behind, 60 },
	{ "unknown_key", unknown_key, 60 },
	{ "beyond_region", beyond_region, 60 },
	{ "without_right", without_right, 60 },
	{ "own_send_key", own_send_key, 60 },
	{ "own_recv_key", own_recv_key, 60 },
	{ "large_packets", large_packets, 60 },
	{ "path_mtus", path_mtus, 60 },
	{ "two", two, 60 },
	{ "much", much, 60 },
	{ "waits", waits, 60 },
};

int main(int argc, char **argv)
{
	return rig_main(argc, argv, cases, ARRAY_SIZE(cases));
}
