// SPDX-License-Identifier: GPL-2.0
/*
 * Traffic for links that somebody watches or damages: every operation once
 * and verified, streams that must survive what a network does to packets,
 * single messages for a loss planned by the caller, and the time that retries
 * take to run out.
 *
 * From the environment: LINK_MTUS, the path MTUs ("256 4096"; default all
 * that the link carries), LINK_TIMEOUT, the ACK timeout's code (14),
 * LINK_ROUNDS, rounds of a stream, LINK_RESTARTS, how often a stream may begin
 * anew because its retries ran out (0).
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include "rig.h"

#define POISON 0xa5
#define GUARD 64

static int env_int(const char *name, int otherwise)
{
	const char *v = getenv(name);

	return v && *v ? atoi(v) : otherwise;
}

static struct opts link_opts(void)
{
	struct opts o = opts_default();

	o.timeout = env_int("LINK_TIMEOUT", 14);
	o.mtu = pair_mtu() < IBV_MTU_1024 ? pair_mtu() : IBV_MTU_1024;
	return o;
}

/* Says which queue pairs are connected, for who looks at their packets. */
static int up(struct pair *p, const struct opts *o)
{
	run_ok(pair_up(p, o));
	if (getenv("LINK_PAIRS"))
		printf("# pair %s 0x%x 0x%x\n", o->type == IBV_QPT_RC ? "RC" :
		       o->type == IBV_QPT_UC ? "UC" : "UD", p->a.qp->qp_num,
		       p->b.qp->qp_num);
	return 0;
}

static int link_mtus(enum ibv_mtu *m)
{
	const char *list = getenv("LINK_MTUS");
	int i, n = 0;

	for (i = IBV_MTU_256; i <= (int)pair_mtu(); i++) {
		char word[8];

		snprintf(word, sizeof(word), "%d", mtu_bytes(i));
		if (!list || strstr(list, word))
			m[n++] = i;
	}
	return n;
}

/* ---- one message ---------------------------------------------------------- */

static bool op_reads(enum ibv_wr_opcode op)
{
	return op == IBV_WR_RDMA_READ;
}

static bool op_imm(enum ibv_wr_opcode op)
{
	return op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

static bool op_sends(enum ibv_wr_opcode op)
{
	return op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM;
}

static bool op_atomic(enum ibv_wr_opcode op)
{
	return op == IBV_WR_ATOMIC_FETCH_AND_ADD ||
	       op == IBV_WR_ATOMIC_CMP_AND_SWP;
}

static const char *op_name(enum ibv_wr_opcode op)
{
	switch (op) {
	case IBV_WR_SEND: return "SEND";
	case IBV_WR_SEND_WITH_IMM: return "SEND with immediate";
	case IBV_WR_RDMA_WRITE: return "WRITE";
	case IBV_WR_RDMA_WRITE_WITH_IMM: return "WRITE with immediate";
	case IBV_WR_RDMA_READ: return "READ";
	case IBV_WR_ATOMIC_FETCH_AND_ADD: return "FetchAdd";
	case IBV_WR_ATOMIC_CMP_AND_SWP: return "CmpSwap";
	default: return "?";
	}
}

static int check_data(const uint8_t *at, uint32_t len, uint32_t seed)
{
	long bad = check_fill(at, len, seed);

	if (bad >= 0)
		fail("byte %ld of %u differs: 0x%02x", bad, len, at[bad]);
	bad = check_byte(at + len, GUARD, POISON);
	if (bad >= 0)
		fail("byte %ld after the %u was written", bad, len);
	return 0;
}

/*
 * With no credits yet, the first packet of a first message goes alone. An
 * empty WRITE brings credits, if the receive is there already.
 */
static bool credits_first;

/* A message from the one end to the other, or back for a READ. */
static int message(struct ep *from, struct ep *to, enum ibv_wr_opcode op,
		   uint32_t len, uint32_t seed)
{
	struct ep *src = op_reads(op) ? to : from;
	struct ep *dst = op_reads(op) ? from : to;
	struct ibv_wc wc;

	fill(src->buf, len, seed);
	memset(dst->buf, POISON, len + GUARD);
	if (op_sends(op) || op_imm(op))
		check_ok(post_recv(to, seed, 0, op_sends(op) ? len : 0));
	if (credits_first) {
		check_ok(post(from, &(struct wr){
			.id = 0, .op = IBV_WR_RDMA_WRITE,
			.flags = IBV_SEND_SIGNALED }));
		run_ok(expect_wc(from->scq, 0, IBV_WC_SUCCESS, 5000, NULL));
	}
	check_ok(post_to(from, (struct wr){
		.id = seed, .op = op, .flags = IBV_SEND_SIGNALED, .len = len,
		.imm = ~seed }, to, 0));
	run_ok(expect_wc(from->scq, seed, IBV_WC_SUCCESS, 15000, NULL));
	if (op_sends(op) || op_imm(op)) {
		run_ok(expect_wc(to->rcq, seed, IBV_WC_SUCCESS, 15000, &wc));
		if (wc.byte_len != len)
			fail("receive of %u bytes, not %u", wc.byte_len, len);
		check(!(wc.wc_flags & IBV_WC_WITH_IMM) == !op_imm(op));
		check(!op_imm(op) || ntohl(wc.imm_data) == (uint32_t)~seed);
	}
	return check_data(dst->buf, len, seed);
}

/* An atomic on a word that holds 7, and the word afterwards. */
static int atomic(struct ep *from, struct ep *to, enum ibv_wr_opcode op)
{
	bool add = op == IBV_WR_ATOMIC_FETCH_AND_ADD;
	volatile uint64_t *word = (uint64_t *)to->buf;
	struct wr w = {
		.id = 9, .op = op, .flags = IBV_SEND_SIGNALED, .len = 8,
		.off = 64, .add = add ? 0x100000002ull : 7,
		.swap = 0x123456789abcdefull,
	};
	uint64_t was;

	*word = 7;
	check_ok(post_to(from, w, to, 0));
	run_ok(expect_wc(from->scq, 9, IBV_WC_SUCCESS, 15000, NULL));
	memcpy(&was, from->buf + 64, 8);
	if (was != 7)
		fail("%s says that 7 was %llu", op_name(op),
		     (unsigned long long)was);
	if (*word != (add ? 0x100000009ull : 0x123456789abcdefull))
		fail("%s made 7 a 0x%llx", op_name(op),
		     (unsigned long long)*word);
	if (add)
		return 0;
	/* Does not compare equal any more: nothing is to happen. */
	check_ok(post_to(from, w, to, 0));
	run_ok(expect_wc(from->scq, 9, IBV_WC_SUCCESS, 15000, NULL));
	memcpy(&was, from->buf + 64, 8);
	check(was == 0x123456789abcdefull && *word == was);
	return 0;
}

/* ---- what the responder cannot do ------------------------------------------ */

/*
 * A receive whose second entry does not serve, by its key, its rights or its
 * range: the responder's own fault, which it tells as a remote operational
 * error, and its own consumer by the receive. rdma_rxe calls it by another name.
 */
static int bad_receive(void)
{
	enum ibv_wc_status told = env_int("LINK_RECV_STATUS", IBV_WC_LOC_PROT_ERR);
	struct opts o = link_opts();
	struct ibv_sge sg[2];
	struct ibv_recv_wr *bad, rr = {
		.wr_id = 5, .sg_list = sg, .num_sge = 2,
	};
	struct ibv_mr *mr;
	struct pair p;
	int i;

	o.mtu = IBV_MTU_256;
	for (i = 0; i < 3; i++) {
		run_ok(up(&p, &o));
		mr = ibv_reg_mr(p.b.h->pd, p.b.buf, 4096,
				i == 1 ? 0 : IBV_ACCESS_LOCAL_WRITE);
		check(mr);
		memset(p.b.buf, POISON, 16384);
		fill(p.a.buf, 1000, 7);
		sg[0] = (struct ibv_sge){ (uintptr_t)p.b.buf + 8192, 300,
					  p.b.mr->lkey };
		sg[1] = (struct ibv_sge){ (uintptr_t)p.b.buf, 4096, mr->lkey };
		if (i == 0)
			sg[1].lkey ^= 0x5500;
		if (i == 2)
			sg[1].addr += 4000;
		check_ok(ibv_post_recv(p.b.qp, &rr, &bad));
		check_ok(post_recv(&p.b, 6, 0, 100));
		check_ok(post(&p.a, &(struct wr){ .id = 1, .op = IBV_WR_SEND,
			.flags = IBV_SEND_SIGNALED, .len = 1000 }));
		check_ok(post(&p.a, &(struct wr){ .id = 2, .op = IBV_WR_SEND,
			.flags = IBV_SEND_SIGNALED, .len = 10 }));
		run_ok(expect_wc(p.a.scq, 1, IBV_WC_REM_OP_ERR, 5000, NULL));
		run_ok(expect_wc(p.a.scq, 2, IBV_WC_WR_FLUSH_ERR, 5000, NULL));
		run_ok(expect_wc(p.b.rcq, 5, told, 5000, NULL));
		run_ok(expect_wc(p.b.rcq, 6, IBV_WC_WR_FLUSH_ERR, 5000, NULL));
		check(check_byte(p.b.buf, i == 2 ? 4000 : 8192, POISON) < 0);
		check(ep_query_state(&p.a) == IBV_QPS_ERR);
		check(ep_query_state(&p.b) == IBV_QPS_ERR);
		check_ok(ibv_dereg_mr(mr));
		run_ok(pair_down(&p));
	}
	return 0;
}

/* ---- every operation, both ways, each MTU --------------------------------- */

static const enum ibv_wr_opcode rc_ops[] = {
	IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE,
	IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_READ,
};

static int every_op(enum ibv_qp_type type, const enum ibv_wr_opcode *ops,
		    int nops)
{
	struct opts o = link_opts();
	enum ibv_mtu mtus[5];
	int nm = link_mtus(mtus), i, j, k;
	uint32_t seed = 1;

	check(nm > 0);
	o.type = type;
	for (i = 0; i < nm; i++) {
		uint32_t mtu = mtu_bytes(mtus[i]);
		uint32_t lens[] = { 0, 1, 2, 3, 4, mtu - 1, mtu, mtu + 1,
				    2 * mtu, 3 * mtu + 2, 40000 };
		int nlens = ARRAY_SIZE(lens);
		struct pair p;

		/* Nothing brings back what a long burst loses on UC. */
		if (type == IBV_QPT_UC)
			nlens--;

		o.mtu = mtus[i];
		run_ok(up(&p, &o));
		for (j = 0; j < nops; j++)
			for (k = 0; k < nlens; k++, seed++)
				if (message(&p.a, &p.b, ops[j], lens[k], seed) ||
				    message(&p.b, &p.a, ops[j], lens[k], ~seed))
					fail("%s of %u bytes at path MTU %u",
					     op_name(ops[j]), lens[k], mtu);
		if (type == IBV_QPT_RC) {
			run_ok(atomic(&p.a, &p.b, IBV_WR_ATOMIC_FETCH_AND_ADD));
			run_ok(atomic(&p.b, &p.a, IBV_WR_ATOMIC_FETCH_AND_ADD));
			run_ok(atomic(&p.a, &p.b, IBV_WR_ATOMIC_CMP_AND_SWP));
			run_ok(atomic(&p.b, &p.a, IBV_WR_ATOMIC_CMP_AND_SWP));
		}
		run_ok(expect_no_wc(p.a.rcq, 0));
		run_ok(expect_no_wc(p.b.rcq, 0));
		run_ok(pair_down(&p));
	}
	return 0;
}

static int ops_rc(void)
{
	return every_op(IBV_QPT_RC, rc_ops, ARRAY_SIZE(rc_ops));
}

/* A WRITE without immediate data has no end that the peer would see. */
static int ops_uc(void)
{
	const enum ibv_wr_opcode ops[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
	};

	return every_op(IBV_QPT_UC, ops, ARRAY_SIZE(ops));
}

/* So it is followed by a message that has. */
static int uc_write(void)
{
	struct opts o = link_opts();
	enum ibv_mtu mtus[5];
	int nm = link_mtus(mtus), i, k, turn;

	o.type = IBV_QPT_UC;
	for (i = 0; i < nm; i++) {
		uint32_t mtu = mtu_bytes(mtus[i]);
		uint32_t lens[] = { 0, 1, mtu, mtu + 1, 3 * mtu + 2 };
		struct pair p;

		o.mtu = mtus[i];
		run_ok(up(&p, &o));
		for (turn = 0; turn < 2; turn++)
			for (k = 0; k < (int)ARRAY_SIZE(lens); k++) {
				struct ep *f = turn ? &p.b : &p.a;
				struct ep *t = turn ? &p.a : &p.b;

				fill(f->buf, lens[k], k);
				memset(t->buf, POISON, lens[k] + GUARD);
				check_ok(post_recv(t, k, 1 << 19, 0));
				check_ok(post_to(f, (struct wr){
					.op = IBV_WR_RDMA_WRITE,
					.len = lens[k] }, t, 0));
				check_ok(post(f, &(struct wr){
					.id = k, .op = IBV_WR_SEND,
					.flags = IBV_SEND_SIGNALED }));
				run_ok(expect_wc(t->rcq, k, IBV_WC_SUCCESS,
						 5000, NULL));
				run_ok(expect_wc(f->scq, k, IBV_WC_SUCCESS,
						 5000, NULL));
				run_ok(check_data(t->buf, lens[k], k));
			}
		run_ok(pair_down(&p));
	}
	return 0;
}

static struct ibv_ah *ud_ah(struct ep *e, struct ep *peer)
{
	struct ibv_ah_attr aa = {
		.is_global = 1, .port_num = 1,
		.grh = { .dgid = peer->h->gid, .sgid_index = e->h->gidx,
			 .hop_limit = 64 },
	};

	return ibv_create_ah(e->h->pd, &aa);
}

static int ud_message(struct ep *from, struct ep *to, struct ibv_ah *ah,
		      uint32_t len, bool imm, uint32_t seed)
{
	struct ibv_sge sg = { (uintptr_t)from->buf, len, from->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = seed, .sg_list = &sg, .num_sge = !!len,
		.opcode = imm ? IBV_WR_SEND_WITH_IMM : IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED, .imm_data = htonl(~seed),
		.wr.ud = { .ah = ah, .remote_qpn = to->qp->qp_num,
			   .remote_qkey = QKEY },
	}, *bad;
	struct ibv_wc wc;

	fill(from->buf, len, seed);
	memset(to->buf, POISON, 40 + len + GUARD);
	check_ok(post_recv(to, seed, 0, 40 + len));
	check_ok(ibv_post_send(from->qp, &wr, &bad));
	run_ok(expect_wc(from->scq, seed, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(expect_wc(to->rcq, seed, IBV_WC_SUCCESS, 5000, &wc));
	check(wc.byte_len == len + 40);
	check(wc.src_qp == from->qp->qp_num);
	/* These flags and no other ones, numbered as libibverbs has them. */
	check(wc.wc_flags == (IBV_WC_GRH | (imm ? IBV_WC_WITH_IMM : 0)));
	check(!imm || ntohl(wc.imm_data) == (uint32_t)~seed);
	return check_data(to->buf + 40, len, seed);
}

static int ops_ud(void)
{
	uint32_t mtu = mtu_bytes(pair_mtu());
	uint32_t lens[] = { 0, 1, 2, 3, 4, 255, 1024, mtu - 1, mtu };
	struct opts o = link_opts();
	struct ibv_ah *ab, *ba;
	struct pair p;
	int i;

	o.type = IBV_QPT_UD;
	run_ok(up(&p, &o));
	ab = ud_ah(&p.a, &p.b);
	ba = ud_ah(&p.b, &p.a);
	check(ab && ba);
	for (i = 0; i < 2 * (int)ARRAY_SIZE(lens); i++) {
		uint32_t len = lens[i / 2];

		if (ud_message(&p.a, &p.b, ab, len, i & 1, i + 1) ||
		    ud_message(&p.b, &p.a, ba, len, i & 1, ~i))
			fail("%u bytes, immediate: %d", len, i & 1);
	}
	check_ok(ibv_destroy_ah(ab));
	check_ok(ibv_destroy_ah(ba));
	run_ok(pair_down(&p));
	return 0;
}

/*
 * A SEND that invalidates the key of a window at the peer, whichever end can
 * bind one: afterwards the key is no more.
 */
static int inv_one(struct ep *from, struct ep *to, uint32_t len)
{
	struct ibv_mw *mw = ibv_alloc_mw(to->h->pd, IBV_MW_TYPE_2);
	struct ibv_send_wr bind = {
		.wr_id = 1, .opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
	}, inv = {
		.wr_id = 2, .opcode = IBV_WR_SEND_WITH_INV,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;
	struct ibv_sge sg = { (uintptr_t)from->buf, len, from->mr->lkey };
	struct ibv_wc wc;

	check(mw);
	bind.bind_mw.mw = mw;
	bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	bind.bind_mw.bind_info = (struct ibv_mw_bind_info){
		.mr = to->mr, .addr = (uintptr_t)to->buf + 65536,
		.length = 4096, .mw_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	check_ok(ibv_post_send(to->qp, &bind, &bad));
	run_ok(expect_wc(to->scq, 1, IBV_WC_SUCCESS, 5000, NULL));
	/* It serves. */
	fill(from->buf, len < 100 ? 100 : len, 3);
	check_ok(post(from, &(struct wr){
		.id = 5, .op = IBV_WR_RDMA_WRITE, .flags = IBV_SEND_SIGNALED,
		.len = 100, .raddr = (uintptr_t)to->buf + 65536,
		.rkey = bind.bind_mw.rkey }));
	run_ok(expect_wc(from->scq, 5, IBV_WC_SUCCESS, 5000, NULL));
	check(check_fill(to->buf + 65536, 100, 3) < 0);

	memset(to->buf, POISON, len + GUARD);
	check_ok(post_recv(to, 7, 0, len));
	inv.sg_list = &sg;
	inv.num_sge = 1;
	inv.invalidate_rkey = bind.bind_mw.rkey;
	check_ok(ibv_post_send(from->qp, &inv, &bad));
	run_ok(expect_wc(from->scq, 2, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(expect_wc(to->rcq, 7, IBV_WC_SUCCESS, 5000, &wc));
	run_ok(check_data(to->buf, len, 3));
	/* rdma_rxe has the kernel's flag there, whose value is another. */
	if (!is_driver(to->h, "rxe"))
		check(wc.wc_flags & IBV_WC_WITH_INV);
	check(wc.invalidated_rkey == bind.bind_mw.rkey);
	/* It doesn't any more. */
	check_ok(post(from, &(struct wr){
		.id = 6, .op = IBV_WR_RDMA_WRITE, .flags = IBV_SEND_SIGNALED,
		.len = 100, .raddr = (uintptr_t)to->buf + 65536,
		.rkey = bind.bind_mw.rkey }));
	run_ok(expect_wc(from->scq, 6, IBV_WC_REM_ACCESS_ERR, 5000, NULL));
	check_ok(ibv_dealloc_mw(mw));
	return 0;
}

static int can_bind(struct host *h)
{
	return (h->attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) ||
	       (h->attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A);
}

static int send_inv(void)
{
	const uint32_t lens[] = { 30, 5000 };
	struct opts o = link_opts();
	struct pair p;
	int i, done = 0;

	o.mr_access |= IBV_ACCESS_MW_BIND;
	if (!can_bind(&host_a) && !can_bind(&host_b))
		lacks(&host_a, "neither device has memory windows of type 2");
	for (i = 0; i < 4; i++) {
		struct host *to = i & 1 ? &host_a : &host_b;

		if (!can_bind(to))
			continue;
		/* Only where windows are can memory be registered for them. */
		o.mr_access = ACC_ALL;
		run_ok(up(&p, &o));
		struct ep *f = i & 1 ? &p.b : &p.a, *t = i & 1 ? &p.a : &p.b;

		check_ok(ibv_dereg_mr(t->mr));
		t->mr = ibv_reg_mr(to->pd, t->buf, t->len,
				   ACC_ALL | IBV_ACCESS_MW_BIND);
		check(t->mr);
		if (inv_one(f, t, lens[i / 2]))
			fail("%u bytes from %s to %s", lens[i / 2],
			     f->h->dev, t->h->dev);
		run_ok(pair_down(&p));
		done++;
	}
	printf("# %d invalidations\n", done);
	return 0;
}

/* ---- streams --------------------------------------------------------------- */

/*
 * A round: as many messages as the queue holds, of all sizes, posted at once
 * and verified when they have completed, in order and once each.
 */
#define SLOTS 16
#define SLOT 32768
#define RESTART 77

static const uint32_t stream_lens[] = {
	0, 1, 700, 1024, 1025, 3071, 4099, 16389, 2048, 5, 8192, 30001,
};

struct stream {
	enum ibv_wr_opcode ops[6];
	int nops;
	bool duplex;
};

/* rdma_rxe does not answer an empty READ again. */
static uint32_t len_of(enum ibv_wr_opcode op, const struct ep *to,
		       uint32_t seed)
{
	uint32_t len = stream_lens[seed % ARRAY_SIZE(stream_lens)];

	if (!len && op_reads(op) && is_driver(to->h, "rxe"))
		return 6;
	return len;
}

/* The words that atomics are for lie behind the slots. */
static uint64_t *word_of(struct ep *e)
{
	return (uint64_t *)(e->buf + SLOTS * SLOT);
}

static uint8_t *result_of(struct ep *e, int i)
{
	return e->buf + SLOTS * SLOT + 64 + 8 * i;
}

static int round_post(struct ep *from, struct ep *to, const struct stream *s,
		      size_t base, uint32_t seed)
{
	int i;

	for (i = 0; i < SLOTS; i++) {
		enum ibv_wr_opcode op = s->ops[(seed + i) % s->nops];
		struct ep *src = op_reads(op) ? to : from;
		struct ep *dst = op_reads(op) ? from : to;
		uint32_t len = len_of(op, to, seed + i);

		if (op_atomic(op))
			continue;
		fill(src->buf + base + i * SLOT, len, seed + i);
		memset(dst->buf + base + i * SLOT, POISON, len + GUARD);
		if (op_sends(op) || op_imm(op))
			check_ok(post_recv(to, seed + i, base + i * SLOT,
					   op_sends(op) ? len : 0));
	}
	*word_of(to) = seed;
	for (i = 0; i < SLOTS; i++) {
		enum ibv_wr_opcode op = s->ops[(seed + i) % s->nops];
		struct wr w = {
			.id = seed + i, .op = op,
			.flags = IBV_SEND_SIGNALED, .off = base + i * SLOT,
			.len = len_of(op, to, seed + i), .imm = ~(seed + i),
		};
		size_t roff = w.off;

		if (op_atomic(op)) {
			roff = SLOTS * SLOT;
			w.off = result_of(from, i) - from->buf;
			w.len = 8;
			w.add = op == IBV_WR_ATOMIC_FETCH_AND_ADD ? 3 :
				seed + 3 * (i / s->nops);
			w.swap = w.add + 3;
		}
		check_ok(post_to(from, w, to, roff));
	}
	return 0;
}

static int round_check(struct ep *from, struct ep *to, const struct stream *s,
		       size_t base, uint32_t seed)
{
	uint64_t expect = seed;
	struct ibv_wc wc;
	int i;

	for (i = 0; i < SLOTS; i++) {
		int n = get_wc(from->scq, &wc, 25000);

		if (n != 1)
			fail("message %d of the round did not complete", i);
		if (wc.status == IBV_WC_RETRY_EXC_ERR && wc.wr_id == seed + i)
			return RESTART;
		if (wc.status || wc.wr_id != seed + i)
			fail("message %llu: %s; expected %u",
			     (unsigned long long)wc.wr_id,
			     ibv_wc_status_str(wc.status), seed + i);
	}
	for (i = 0; i < SLOTS; i++) {
		enum ibv_wr_opcode op = s->ops[(seed + i) % s->nops];
		struct ep *dst = op_reads(op) ? from : to;
		uint32_t len = len_of(op, to, seed + i);
		uint64_t was;

		if (op_atomic(op)) {
			memcpy(&was, result_of(from, i), 8);
			if (was != expect)
				fail("%s %d of the round found %llu, not %llu",
				     op_name(op), i, (unsigned long long)was,
				     (unsigned long long)expect);
			expect += 3;
			continue;
		}
		if (op_sends(op) || op_imm(op)) {
			run_ok(expect_wc(to->rcq, seed + i, IBV_WC_SUCCESS,
					 5000, &wc));
			check(wc.byte_len == len);
			check(!op_imm(op) ||
			      ntohl(wc.imm_data) == (uint32_t)~(seed + i));
		}
		if (check_data(dst->buf + base + i * SLOT, len, seed + i))
			fail("%s of %u bytes, number %d of the round",
			     op_name(op), len, i);
	}
	if (*word_of(to) != expect)
		fail("the word is %llu, not %llu",
		     (unsigned long long)*word_of(to),
		     (unsigned long long)expect);
	run_ok(expect_no_wc(to->rcq, 0));
	return 0;
}

static int stream(const struct stream *s)
{
	int rounds = env_int("LINK_ROUNDS", quick ? 4 : 12);
	int restarts = env_int("LINK_RESTARTS", 0), begun = 0, i = 0, r = 0;
	size_t half = s->duplex ? SLOTS * SLOT + 4096 : 0;
	struct opts o = link_opts();
	uint32_t seed = 1;
	struct pair p;

	o.buf = 2 * (SLOTS * SLOT + 4096);
	/* Let numbers of each direction wrap while at it. */
	o.psn = 0xfffff0;
	run_ok(up(&p, &o));
	while (i < rounds) {
		run_ok(round_post(&p.a, &p.b, s, 0, seed));
		if (s->duplex)
			run_ok(round_post(&p.b, &p.a, s, half, seed + 100));
		r = round_check(&p.a, &p.b, s, 0, seed);
		if (!r && s->duplex)
			r = round_check(&p.b, &p.a, s, half, seed + 100);
		if (r == RESTART && begun++ < restarts) {
			run_ok(pair_down(&p));
			run_ok(up(&p, &o));
			continue;
		}
		if (r == RESTART)
			fail("round %d: retries ran out", i);
		if (r)
			fail("round %d", i);
		seed += 17;
		i++;
	}
	if (begun)
		printf("# began anew %d times, as retries ran out\n", begun);
	run_ok(pair_down(&p));
	return 0;
}

#define STREAM(name, n, both, ...) \
	static int name(void) \
	{ \
		return stream(&(struct stream){ { __VA_ARGS__ }, n, both }); \
	}
STREAM(stream_send, 2, false, IBV_WR_SEND, IBV_WR_SEND_WITH_IMM)
STREAM(stream_write, 2, false, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM)
STREAM(stream_read, 1, false, IBV_WR_RDMA_READ)
STREAM(stream_fadd, 1, false, IBV_WR_ATOMIC_FETCH_AND_ADD)
STREAM(stream_cswap, 1, false, IBV_WR_ATOMIC_CMP_AND_SWP)
STREAM(stream_mixed, 6, true, IBV_WR_SEND, IBV_WR_RDMA_READ,
       IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_ATOMIC_FETCH_AND_ADD,
       IBV_WR_RDMA_READ, IBV_WR_RDMA_WRITE)

/* ---- one message for a planned loss ----------------------------------------- */

/* Five packets, in the middle of them a PSN that wraps; B is the responder. */
#define FIVE (4 * 1024 + 5)

static int single(enum ibv_wr_opcode op, uint32_t len)
{
	struct opts o = link_opts();
	struct pair p;

	o.psn = 0xfffffd;
	credits_first = len == FIVE;
	run_ok(up(&p, &o));
	if (op_atomic(op))
		run_ok(atomic(&p.a, &p.b, op));
	else
		run_ok(message(&p.a, &p.b, op, len, 5));
	run_ok(expect_no_wc(p.b.rcq, 20));
	run_ok(pair_down(&p));
	return 0;
}

#define SINGLE(name, op, len) \
	static int name(void) \
	{ \
		return single(op, len); \
	}
SINGLE(one_send, IBV_WR_SEND, FIVE)
SINGLE(one_send_imm, IBV_WR_SEND_WITH_IMM, FIVE)
SINGLE(one_send_small, IBV_WR_SEND, 100)
SINGLE(one_send_small_imm, IBV_WR_SEND_WITH_IMM, 100)
SINGLE(one_write, IBV_WR_RDMA_WRITE, FIVE)
SINGLE(one_write_imm, IBV_WR_RDMA_WRITE_WITH_IMM, FIVE)
SINGLE(one_write_small, IBV_WR_RDMA_WRITE, 100)
SINGLE(one_write_small_imm, IBV_WR_RDMA_WRITE_WITH_IMM, 100)
SINGLE(one_read, IBV_WR_RDMA_READ, FIVE)
SINGLE(one_read_small, IBV_WR_RDMA_READ, 100)
SINGLE(one_fadd, IBV_WR_ATOMIC_FETCH_AND_ADD, 8)

/* Ten small SENDs at once: what comes after the lost one shows the loss. */
static int ten_sends(void)
{
	struct opts o = link_opts();
	struct pair p;
	int i;

	run_ok(up(&p, &o));
	for (i = 0; i < 10; i++) {
		fill(p.a.buf + i * 256, 100 + i, i);
		memset(p.b.buf + i * 256, POISON, 256);
		check_ok(post_recv(&p.b, i, i * 256, 128));
	}
	for (i = 0; i < 10; i++)
		check_ok(post(&p.a, &(struct wr){
			.id = i, .op = IBV_WR_SEND, .off = i * 256,
			.len = 100 + i, .flags = IBV_SEND_SIGNALED }));
	for (i = 0; i < 10; i++) {
		run_ok(expect_wc(p.a.scq, i, IBV_WC_SUCCESS, 5000, NULL));
		run_ok(expect_wc(p.b.rcq, i, IBV_WC_SUCCESS, 5000, NULL));
		run_ok(check_data(p.b.buf + i * 256, 100 + i, i));
	}
	run_ok(expect_no_wc(p.b.rcq, 20));
	run_ok(pair_down(&p));
	return 0;
}

/* A SEND whose receive comes late: RNR NAKs, and then it arrives. */
static int late_receive(void)
{
	struct opts o = link_opts();
	struct pair p;

	o.rnr_timer = 18;	/* 5.12 ms */
	run_ok(up(&p, &o));
	fill(p.a.buf, FIVE, 6);
	memset(p.b.buf, POISON, FIVE + GUARD);
	check_ok(post(&p.a, &(struct wr){ .id = 1, .op = IBV_WR_SEND,
		.len = FIVE, .flags = IBV_SEND_SIGNALED }));
	run_ok(expect_no_wc(p.a.scq, 20));
	check_ok(post_recv(&p.b, 2, 0, FIVE));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(expect_wc(p.b.rcq, 2, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(check_data(p.b.buf, FIVE, 6));
	run_ok(pair_down(&p));
	return 0;
}

/* The only receive is posted just before the message that it is for. */
static int one_receive(void)
{
	struct opts o = link_opts();
	struct pair p;
	uint32_t i;

	run_ok(up(&p, &o));
	for (i = 0; i < 300; i++)
		run_ok(message(&p.a, &p.b, IBV_WR_SEND, i % 7 ? 100 : FIVE, i));
	run_ok(pair_down(&p));
	return 0;
}

/* ---- everything that can be seen on the wire --------------------------------- */

static int refused(enum ibv_wr_opcode op, uint32_t rkey, uint64_t skew,
		   enum ibv_wc_status st, const struct opts *o)
{
	struct pair p;

	run_ok(up(&p, o));
	check_ok(post(&p.a, &(struct wr){
		.id = 1, .op = op, .len = 8, .flags = IBV_SEND_SIGNALED,
		.raddr = (uintptr_t)p.b.buf + skew,
		.rkey = p.b.mr->rkey ^ rkey }));
	run_ok(expect_wc(p.a.scq, 1, st, 5000, NULL));
	run_ok(pair_down(&p));
	return 0;
}

static int emit_inv(uint32_t len)
{
	struct opts o = link_opts();
	struct ibv_sge sg;
	struct ibv_send_wr wr = {
		.wr_id = 1, .opcode = IBV_WR_SEND_WITH_INV,
		.send_flags = IBV_SEND_SIGNALED, .sg_list = &sg,
		.num_sge = !!len, .invalidate_rkey = 0x11223344,
	}, *bad;
	struct pair p;

	o.mtu = IBV_MTU_256;
	run_ok(up(&p, &o));
	sg = (struct ibv_sge){ (uintptr_t)p.a.buf, len, p.a.mr->lkey };
	check_ok(post_recv(&p.b, 1, 0, len));
	check_ok(ibv_post_send(p.a.qp, &wr, &bad));
	/* There is no such key, and the peer says so. */
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_REM_INV_REQ_ERR, 5000, NULL));
	run_ok(pair_down(&p));
	return 0;
}

/* Each opcode with each length of padding, each kind of NAK. */
static int emit(void)
{
	const enum ibv_wr_opcode uc_ops[] = {
		IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
	};
	struct opts o = link_opts();
	uint32_t pad, seed = 1;
	struct ibv_ah *ah;
	struct pair p;
	int k;

	/* RC, around the end of the numbers */
	o.mtu = IBV_MTU_256;
	o.psn = 0xffffe0;
	run_ok(up(&p, &o));
	for (k = 0; k < (int)ARRAY_SIZE(rc_ops); k++) {
		run_ok(message(&p.a, &p.b, rc_ops[k], 0, seed++));
		for (pad = 0; pad < 4; pad++) {
			run_ok(message(&p.a, &p.b, rc_ops[k], 8 - pad, seed++));
			run_ok(message(&p.a, &p.b, rc_ops[k], 768 - pad,
				       seed++));
		}
	}
	run_ok(atomic(&p.a, &p.b, IBV_WR_ATOMIC_FETCH_AND_ADD));
	run_ok(atomic(&p.a, &p.b, IBV_WR_ATOMIC_CMP_AND_SWP));
	/* solicited */
	check_ok(post_recv(&p.b, 1, 0, 600));
	check_ok(post(&p.a, &(struct wr){ .id = 1, .op = IBV_WR_SEND,
		.len = 600, .flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED }));
	run_ok(expect_wc(p.b.rcq, 1, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(pair_down(&p));
	run_ok(late_receive());
	o.psn = 0x123456;
	run_ok(refused(IBV_WR_RDMA_WRITE, 0x5500, 0, IBV_WC_REM_ACCESS_ERR, &o));
	run_ok(refused(IBV_WR_RDMA_READ, 0, 1ull << 40, IBV_WC_REM_ACCESS_ERR,
		       &o));
	/* nothing is permitted at all */
	o.qp_access = 0;
	run_ok(refused(IBV_WR_RDMA_WRITE, 0, 0, IBV_WC_REM_INV_REQ_ERR, &o));
	o.qp_access = opts_default().qp_access;
	for (pad = 0; pad < 4; pad++) {
		run_ok(emit_inv(8 - pad));
		run_ok(emit_inv(768 - pad));
	}
	run_ok(bad_receive());

	/* UC */
	o.type = IBV_QPT_UC;
	run_ok(up(&p, &o));
	for (k = 0; k < (int)ARRAY_SIZE(uc_ops); k++) {
		run_ok(message(&p.a, &p.b, uc_ops[k], 0, seed++));
		for (pad = 0; pad < 4; pad++) {
			run_ok(message(&p.a, &p.b, uc_ops[k], 8 - pad, seed++));
			run_ok(message(&p.a, &p.b, uc_ops[k], 768 - pad,
				       seed++));
		}
	}
	for (pad = 0; pad < 4; pad++)
		for (k = 0; k < 2; k++) {
			check_ok(post_to(&p.a, (struct wr){
				.id = 1, .op = IBV_WR_RDMA_WRITE,
				.flags = IBV_SEND_SIGNALED,
				.len = (k ? 8 : 768) - pad }, &p.b, 0));
			run_ok(expect_wc(p.a.scq, 1, IBV_WC_SUCCESS, 5000,
					 NULL));
		}
	run_ok(pair_down(&p));

	/* UD */
	o.type = IBV_QPT_UD;
	run_ok(up(&p, &o));
	ah = ud_ah(&p.a, &p.b);
	check(ah);
	for (k = 0; k < 2; k++) {
		run_ok(ud_message(&p.a, &p.b, ah, 0, k, seed++));
		for (pad = 0; pad < 4; pad++)
			run_ok(ud_message(&p.a, &p.b, ah, 100 - pad, k,
					  seed++));
	}
	check_ok(ibv_destroy_ah(ah));
	run_ok(pair_down(&p));
	return 0;
}

/* ---- the time that retries take ------------------------------------------------ */

#define TRIES 20
#define LATE 1

/* A busy machine can be late now and then, but never early. */
static int in_time(const char *what, uint64_t us, double formula_us,
		   double trips_us, int try)
{
	double low = formula_us * 0.75 - 1000;
	double high = formula_us * 1.25 + trips_us + 1000;

	printf("# %s: %.2f ms, the formula gives %.2f\n", what, us / 1000.,
	       formula_us / 1000);
	if (us < low)
		fail("%s took %.2f ms only, not %.2f", what, us / 1000.,
		     formula_us / 1000);
	if (us <= high)
		return 0;
	if (try < TRIES) {
		usleep(try * 20000);
		return -LATE;
	}
	fail("%s took %.2f ms, not %.2f", what, us / 1000., formula_us / 1000);
}

/*
 * Nothing reaches the peer, the caller sees to that. The last of retry + 1
 * transmissions is given up after one more timeout; each is exactly
 * 4.096 us * 2^t.
 */
static int retry_time(void)
{
	const struct { int timeout, retry; } v[] = {
		{ 8, 7 }, { 10, 0 }, { 12, 1 }, { 12, 7 }, { 14, 3 }, { 16, 0 },
	};
	int i, r, try = 1;

	for (i = 0; i < (int)ARRAY_SIZE(v); i++) {
		const enum ibv_wr_opcode op = rc_ops[i % 5];
		struct opts o = link_opts();
		uint64_t start;
		struct pair p;
		char what[64];

		o.timeout = v[i].timeout;
		o.retry = v[i].retry;
		run_ok(up(&p, &o));
		start = now_us();
		check_ok(post_to(&p.a, (struct wr){
			.id = 1, .op = op, .len = 3000,
			.flags = IBV_SEND_SIGNALED }, &p.b, 0));
		check_ok(post(&p.a, &(struct wr){ .id = 2, .op = IBV_WR_SEND,
			.len = 100 }));
		run_ok(expect_wc(p.a.scq, 1, IBV_WC_RETRY_EXC_ERR, 10000,
				 NULL));
		start = now_us() - start;
		run_ok(expect_wc(p.a.scq, 2, IBV_WC_WR_FLUSH_ERR, 1000, NULL));
		check(ep_query_state(&p.a) == IBV_QPS_ERR);
		snprintf(what, sizeof(what), "%s, timeout %d, %d retries",
			 op_name(op), v[i].timeout, v[i].retry);
		r = in_time(what, start,
			    4.096 * (1 << v[i].timeout) * (v[i].retry + 1), 0,
			    try);
		run_ok(pair_down(&p));
		if (r > 0)
			return r;
		if (r == -LATE) {
			try++;
			i--;
			continue;
		}
		try = 1;
	}
	return 0;
}

/* The quickest of a few empty WRITEs, there and back. */
static int round_trip(uint64_t *us)
{
	struct opts o = link_opts();
	struct pair p;
	uint64_t start;
	int i;

	run_ok(up(&p, &o));
	for (i = 0, *us = ~0ull; i < 10; i++) {
		start = now_us();
		check_ok(post(&p.a, &(struct wr){ .id = 3,
			.op = IBV_WR_RDMA_WRITE, .flags = IBV_SEND_SIGNALED }));
		run_ok(expect_wc(p.a.scq, 3, IBV_WC_SUCCESS, 5000, NULL));
		start = now_us() - start;
		*us = start < *us ? start : *us;
	}
	run_ok(pair_down(&p));
	return 0;
}

/* By how much this machine is late with a short timer, at best. */
static uint64_t lateness(void)
{
	const uint64_t us = 640;
	uint64_t best = ~0ull, start;
	int i;

	for (i = 0; i < 10; i++) {
		start = now_us();
		usleep(us);
		start = now_us() - start;
		best = start < best ? start : best;
	}
	return best > us ? best - us : 0;
}

/*
 * No receive at the peer, ever: each retry waits for what its NAK says, with a
 * timer that is twice as late as a sleep at best may be, and each transmission
 * takes a round trip besides.
 */
static int rnr_time(void)
{
	/*
	 * One retry where the timer is shorter than what it takes to notice
	 * it: an emulated machine is 0.3 ms late each time.
	 */
	const struct { int timer, retry; double us; } v[] = {
		{ 1, 1, 10 }, { 12, 3, 640 }, { 18, 1, 5120 },
		{ 20, 6, 10240 }, { 25, 3, 61440 }, { 30, 1, 327680 },
		{ 14, 0, 1280 },
	};
	uint64_t trip, late = lateness();
	int i, r, try = 1;

	run_ok(round_trip(&trip));
	printf("# at best a round trip takes %" PRIu64 " us, and a timer is %" PRIu64 " us late\n",
	       trip, late);
	for (i = 0; i < (int)ARRAY_SIZE(v); i++) {
		struct opts o = link_opts();
		uint64_t start;
		struct pair p;
		char what[64];

		o.rnr_timer = v[i].timer;
		o.rnr_retry = v[i].retry;
		run_ok(up(&p, &o));
		start = now_us();
		check_ok(post(&p.a, &(struct wr){ .id = 1, .op = IBV_WR_SEND,
			.len = 3000, .flags = IBV_SEND_SIGNALED }));
		check_ok(post(&p.a, &(struct wr){ .id = 2, .op = IBV_WR_SEND,
			.len = 100 }));
		run_ok(expect_wc(p.a.scq, 1, IBV_WC_RNR_RETRY_EXC_ERR, 10000,
				 NULL));
		start = now_us() - start;
		run_ok(expect_wc(p.a.scq, 2, IBV_WC_WR_FLUSH_ERR, 1000, NULL));
		check(ep_query_state(&p.a) == IBV_QPS_ERR);
		snprintf(what, sizeof(what), "RNR timer %d, %d retries",
			 v[i].timer, v[i].retry);
		r = in_time(what, start,
			    v[i].us * v[i].retry,
			    trip * (v[i].retry + 1) + 2 * late * v[i].retry, try);
		run_ok(pair_down(&p));
		if (r > 0)
			return r;
		if (r == -LATE) {
			try++;
			i--;
			continue;
		}
		try = 1;
	}
	return 0;
}

/* With 7 RNR retries it waits for ever: here, for longer than 7 would take. */
static int rnr_for_ever(void)
{
	struct opts o = link_opts();
	struct pair p;

	o.rnr_timer = 16;	/* 2.56 ms */
	run_ok(up(&p, &o));
	check_ok(post(&p.a, &(struct wr){ .id = 1, .op = IBV_WR_SEND,
		.len = 3000, .flags = IBV_SEND_SIGNALED }));
	run_ok(expect_no_wc(p.a.scq, 200));
	check_ok(post_recv(&p.b, 1, 0, 3000));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_SUCCESS, 5000, NULL));
	run_ok(pair_down(&p));
	return 0;
}

static const struct testcase cases[] = {
	{ "ops_rc", ops_rc, 120 },
	{ "ops_uc", ops_uc, 60 },
	{ "uc_write", uc_write, 60 },
	{ "ops_ud", ops_ud, 60 },
	{ "send_inv", send_inv, 0 },
	{ "stream_send", stream_send, 60 },
	{ "stream_write", stream_write, 60 },
	{ "stream_read", stream_read, 60 },
	{ "stream_fadd", stream_fadd, 60 },
	{ "stream_cswap", stream_cswap, 60 },
	{ "stream_mixed", stream_mixed, 120 },
	{ "one_send", one_send, 0 },
	{ "one_send_imm", one_send_imm, 0 },
	{ "one_send_small", one_send_small, 0 },
	{ "one_send_small_imm", one_send_small_imm, 0 },
	{ "one_write", one_write, 0 },
	{ "one_write_imm", one_write_imm, 0 },
	{ "one_write_small", one_write_small, 0 },
	{ "one_write_small_imm", one_write_small_imm, 0 },
	{ "one_read", one_read, 0 },
	{ "one_read_small", one_read_small, 0 },
	{ "one_fadd", one_fadd, 0 },
	{ "ten_sends", ten_sends, 0 },
	{ "late_receive", late_receive, 0 },
	{ "one_receive", one_receive, 60 },
	{ "bad_receive", bad_receive, 0 },
	{ "emit", emit, 60 },
	{ "retry_time", retry_time, 60 },
	{ "rnr_time", rnr_time, 60 },
	{ "rnr_for_ever", rnr_for_ever, 0 },
};

int main(int argc, char **argv)
{
	return rig_main(argc, argv, cases, ARRAY_SIZE(cases));
}
