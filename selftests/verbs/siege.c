// SPDX-License-Identifier: GPL-2.0
/*
 * Processes that write garbage into all that they share with the kernel, from
 * several threads, while they post, modify, notify and close. They know the
 * keys of the process that watches: its memory must stay as it is, and its own
 * traffic right.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <rdma/ib_user_verbs.h>
#include "rings.h"

#define ATTACKERS 2
#define VAULT 65536

/* ---- an attacker ---------------------------------------------------------- */

/* The rings once more: these stay mapped when the objects go. */
struct view {
	struct rxe_queue_buf *q[RINGS];
	size_t len[RINGS];
	struct rings *r;
	struct ep *e, *peer;
	uint32_t qp, scq, rcq;
};

static struct view views[2];
static volatile bool stop;
static enum ibv_qp_type qp_type;
static uint64_t seed_base;

static int look(struct view *v, struct rings *r, struct ep *e, struct ep *peer)
{
	int i;

	*v = (struct view){ .r = r, .e = e, .peer = peer,
			    .qp = e->qp->handle, .scq = e->scq->handle,
			    .rcq = e->rcq->handle };
	for (i = 0; i < RINGS; i++) {
		void *m = (void *)syscall(SYS_mmap, NULL, r->m[i].len,
			PROT_READ | PROT_WRITE, MAP_SHARED, e->h->ctx->cmd_fd,
			r->m[i].off);

		if (m == MAP_FAILED)
			fail("ring %d cannot be mapped twice", i);
		v->q[i] = m;
		v->len[i] = r->m[i].len;
	}
	return 0;
}

static void look_away(struct view *v)
{
	int i;

	for (i = 0; i < RINGS; i++)
		munmap(v->q[i], v->len[i]);
}

static uint64_t mix(uint64_t *x)
{
	*x ^= *x << 13;
	*x ^= *x >> 7;
	*x ^= *x << 17;
	return *x;
}

/* What was good when the attack began; the endpoints may be gone by now. */
static struct rxe_send_wqe *models;
static struct rxe_sge good_sge[2];
#define MODELS 64
#define WQE_LEN 256

static void *element(struct view *v, int which, uint64_t x)
{
	return v->q[which]->data + ((x & v->r->mask[which]) <<
				    v->r->log2[which]);
}

static void *scribbler(void *arg)
{
	uint64_t x = seed_base + 77 * (uintptr_t)arg, n;
	struct rxe_recv_wqe *rw;
	struct rxe_send_wqe *sw;
	struct view *v;

	while (!stop) {
		n = mix(&x);
		v = &views[n >> 60 & 1];
		switch (n >> 32 & 15) {
		case 0: v->q[n & 3]->producer_index = n >> 8; break;
		case 1: v->q[n & 3]->consumer_index = n >> 8; break;
		case 2: v->q[n & 3]->producer_index++; break;
		case 3: v->q[n & 3]->consumer_index++; break;
		case 4: v->q[n & 3]->producer_index = (n >> 8) & 0xffff; break;
		case 5: v->q[n & 3]->log2_elem_size = n >> 8;
			v->q[n & 3]->index_mask = n >> 3; break;
		case 6: case 7: case 8: case 9: case 10:
			sw = element(v, SQ, n);
			memcpy(sw, (char *)models +
			       (n >> 40) % MODELS * WQE_LEN,
			       v->r->log2[SQ] < 8 ? 1 << v->r->log2[SQ] :
			       WQE_LEN);
			break;
		case 11: case 12: case 13:
			rw = element(v, RQ, n);
			rw->wr_id = n;
			rw->dma.num_sge = n >> 40 & 1 ? 1 : n >> 41;
			rw->dma.cur_sge = 0;
			rw->dma.length = n & 0xffff;
			rw->dma.sge[0] = good_sge[v == &views[1]];
			if (!(n & 0x700))
				rw->dma.sge[0] = (struct rxe_sge){
					stolen.addr, 4096, stolen.lkey };
			break;
		case 14:
			((uint64_t *)element(v, SQ, n))[n >> 40 & 15] = n;
			break;
		default:
			((uint64_t *)element(v, n & 3, n >> 8))[0] = n;
		}
	}
	return NULL;
}

static int command(int fd, uint32_t cmd, void *buf, size_t len, size_t out)
{
	struct ib_uverbs_cmd_hdr *h = buf;

	*h = (struct ib_uverbs_cmd_hdr){ .command = cmd, .in_words = len / 4,
					 .out_words = out / 4 };
	return write(fd, buf, len) == (ssize_t)len ? 0 : errno;
}

static void modify_raw(struct view *v, uint64_t n)
{
	struct {
		struct ib_uverbs_cmd_hdr h;
		struct ib_uverbs_modify_qp c;
	} m = { .c = {
		.qp_handle = v->qp, .attr_mask = IBV_QP_STATE,
		.qp_state = n & 7, .cur_qp_state = n >> 3 & 7,
		.port_num = 1, .qp_access_flags = 7, .qkey = QKEY,
	} };

	if (n >> 8 & 1)
		m.c.attr_mask = n >> 16;
	if (n >> 9 & 1)
		m.c.attr_mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				 IBV_QP_ACCESS_FLAGS;
	command(v->e->h->ctx->cmd_fd, IB_USER_VERBS_CMD_MODIFY_QP, &m,
		sizeof(m), 0);
}

static void notify_raw(struct view *v, uint64_t n)
{
	struct {
		struct ib_uverbs_cmd_hdr h;
		struct ib_uverbs_req_notify_cq c;
	} m = { .c = { .cq_handle = n & 1 ? v->scq : v->rcq,
		       .solicited_only = n >> 1 & 1 } };

	command(v->e->h->ctx->cmd_fd, IB_USER_VERBS_CMD_REQ_NOTIFY_CQ, &m,
		sizeof(m), 0);
}

/* The context of an endpoint outlives it, as do these handles, useless then. */
static void *caller(void *arg)
{
	uint64_t x = seed_base + 99 * (uintptr_t)arg, n;
	struct host *hosts[2] = { &host_a, &host_b };

	while (!stop) {
		int side = (n = mix(&x)) >> 60 & 1;
		struct ep e = { .h = hosts[side] };
		struct view v = views[side];

		v.e = &e;
		if ((n & 31) == 0)
			modify_raw(&v, n >> 8);
		else if ((n & 31) < 4)
			notify_raw(&v, n >> 8);
		else
			doorbell_raw(&e, v.qp, 0, 0, 128);
	}
	return NULL;
}

/* An object in use by a call of another thread is busy for that long. */
#define DESTROY(destroy, object) \
	do { \
		uint64_t begin_ = now_us(); \
		int r_; \
		while ((r_ = destroy(object)) == EBUSY && \
		       now_us() - begin_ < 10000000) \
			; \
		check_errno(r_, 0); \
		object = NULL; \
	} while (0)

static int close_under_fire(struct ep *e)
{
	DESTROY(ibv_destroy_qp, e->qp);
	DESTROY(ibv_destroy_cq, e->scq);
	DESTROY(ibv_destroy_cq, e->rcq);
	return ep_destroy(e);
}

static int assault(int round)
{
	struct opts o = opts_short();
	pthread_t th[4];
	struct rings ra, rb;
	struct pair p;
	int i;

	o.type = qp_type;
	run_ok(victims(&p, &o, &ra, &rb));
	run_ok(look(&views[0], &ra, &p.a, &p.b));
	run_ok(look(&views[1], &rb, &p.b, &p.a));
	for (i = 0; i < MODELS; i++) {
		struct rxe_send_wqe *w = (void *)((char *)models + i * WQE_LEN);
		struct ep *e = i & 1 ? &p.a : &p.b, *f = i & 1 ? &p.b : &p.a;

		good_wqe(w, e, f, o.type == IBV_QPT_UD);
		w->dma.sge[0].length = rnd() % 20000;
		w->dma.length = w->dma.resid = w->dma.sge[0].length;
		if (o.type != IBV_QPT_UD)
			w->wr.opcode = rnd() % 6;
		if (i & 6)
			mutate(w);
	}
	good_sge[0] = (struct rxe_sge){ (uintptr_t)p.a.buf, 8192,
					p.a.mr->lkey };
	good_sge[1] = (struct rxe_sge){ (uintptr_t)p.b.buf, 8192,
					p.b.mr->lkey };
	stop = false;
	for (i = 0; i < 4; i++)
		check_ok(pthread_create(&th[i], NULL,
					i & 1 ? caller : scribbler,
					(void *)(uintptr_t)(8 * round + i)));
	usleep(2000 + rnd() % 20000);
	run_ok(close_under_fire(&p.a));
	run_ok(close_under_fire(&p.b));
	usleep(1000);
	stop = true;
	for (i = 0; i < 4; i++)
		pthread_join(th[i], NULL);
	look_away(&views[0]);
	look_away(&views[1]);
	return 0;
}

static int attacker(uint64_t seed, uint64_t end)
{
	int rounds = 0;

	rng = seed * 2654435761u | 1;
	seed_base = rng;
	models = calloc(MODELS, WQE_LEN);
	check(models);
	bystander = calloc(1, BYSTANDER);
	check(bystander);
	if (host_open(&host_a) || host_open(&host_b))
		return 1;
	while (now_us() < end) {
		run_ok(assault(rounds));
		rounds++;
	}
	printf("# attacker %llu: %d pairs of queue pairs\n",
	       (unsigned long long)seed, rounds);
	return rounds ? 0 : 1;
}

/* ---- the watch ------------------------------------------------------------ */

static int siege(enum ibv_qp_type type)
{
	uint64_t end = now_us() + (quick ? 4000000 : 20000000);
	uint64_t seed = getenv("RXO_SEED") ? strtoull(getenv("RXO_SEED"), 0, 0) :
					     (uint64_t)getpid();
	pid_t pid[ATTACKERS];
	struct ibv_mr *mr;
	uint8_t *vault;
	int i, n = 0, status;

	printf("# RXO_SEED=%llu\n", (unsigned long long)seed);
	vault = mmap(NULL, VAULT, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(vault != MAP_FAILED);
	memset(vault, POISON, VAULT);
	mr = ibv_reg_mr(host_a.pd, vault, VAULT, ACC_ALL);
	check(mr);
	stolen = (struct stolen){ mr->lkey, mr->rkey, (uintptr_t)vault };
	qp_type = type;
	fflush(stdout);
	for (i = 0; i < ATTACKERS; i++) {
		pid[i] = fork();
		check(pid[i] >= 0);
		if (!pid[i]) {
			int r = attacker(seed + i, end);

			fflush(stdout);
			_exit(r);
		}
	}
	while (now_us() < end) {
		run_ok(sanity());
		check(check_byte(vault, VAULT, POISON) < 0);
		n++;
	}
	for (i = 0; i < ATTACKERS; i++) {
		check(waitpid(pid[i], &status, 0) == pid[i]);
		/* The provider library may fall over the garbage: its affair. */
		if (WIFSIGNALED(status))
			printf("# attacker %d died of %s\n", i,
			       strsignal(WTERMSIG(status)));
		else
			check(WEXITSTATUS(status) == 0);
	}
	printf("# %d good rounds meanwhile\n", n);
	check(n > 0);
	check(check_byte(vault, VAULT, POISON) < 0);
	check_ok(ibv_dereg_mr(mr));
	return sanity();
}

static int siege_rc(void) { return siege(IBV_QPT_RC); }
static int siege_uc(void) { return siege(IBV_QPT_UC); }
static int siege_ud(void) { return siege(IBV_QPT_UD); }

static const struct testcase cases[] = {
	{ "siege_rc", siege_rc, 120 },
	{ "siege_uc", siege_uc, 120 },
	{ "siege_ud", siege_ud, 120 },
};

int main(int argc, char **argv)
{
	return rig_main(argc, argv, cases, ARRAY_SIZE(cases));
}
