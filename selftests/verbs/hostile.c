// SPDX-License-Identifier: GPL-2.0
/*
 * A process that writes what it likes into the rings that it shares with the
 * kernel. It may lose its own queue pair by that; nobody else loses anything:
 * after each attack fresh queue pairs must work, objects must go, and memory
 * that no key covers is as it was.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "rings.h"

/* ---- attacks -------------------------------------------------------------- */

static int producer_index(int which)
{
	struct opts o = opts_short();
	struct rings ra, rb;
	struct pair p;
	int i;

	run_ok(bystander_make());
	for (i = 0; i < 24; i++) {
		uint32_t v;

		run_ok(victims(&p, &o, &ra, &rb));
		v = i == 0 ? ra.mask[which] + 1 : i == 1 ? ra.mask[which] :
		    i == 2 ? 0xffffffff : odd_u32();
		if (which == SQ) {
			if (i & 1)
				scribble(ra.q[SQ]->data, ra.m[SQ].len - 384);
			__atomic_store_n(&ra.q[SQ]->producer_index, v,
					 __ATOMIC_RELEASE);
			doorbell(&p.a);
			doorbell(&p.a);
		} else {
			if (i & 1)
				scribble(rb.q[RQ]->data, rb.m[RQ].len - 384);
			__atomic_store_n(&rb.q[RQ]->producer_index, v,
					 __ATOMIC_RELEASE);
			check_ok(post(&p.a, &(struct wr){ .op = IBV_WR_SEND,
				.len = 5000, .flags = IBV_SEND_SIGNALED }));
			check_ok(post(&p.a, &(struct wr){ .op = IBV_WR_SEND,
				.len = 8, .flags = IBV_SEND_SIGNALED }));
		}
		settle();
		run_ok(pair_down(&p));
		if (unharmed())
			fail("after producer index 0x%x, mask 0x%x", v,
			     ra.mask[which]);
	}
	return 0;
}

static int sq_producer(void) { return producer_index(SQ); }
static int rq_producer(void) { return producer_index(RQ); }

/* The indices that the kernel writes are no input to it. */
static int kernel_indices(void)
{
	struct opts o = opts_short();
	struct rings ra, rb;
	struct ibv_wc wc;
	struct pair p;
	int i;

	run_ok(bystander_make());
	for (i = 0; i < 20; i++) {
		run_ok(victims(&p, &o, &ra, &rb));
		/* the consumer index of queues, the producer index of CQs */
		ra.q[SQ]->consumer_index = odd_u32();
		rb.q[RQ]->consumer_index = odd_u32();
		post_recv(&p.b, 1, 0, 64);
		post(&p.a, &(struct wr){ .op = IBV_WR_SEND, .len = 64,
					 .flags = IBV_SEND_SIGNALED });
		settle();
		ra.q[SCQ]->producer_index = odd_u32();
		rb.q[RCQ]->producer_index = odd_u32();
		post(&p.a, &(struct wr){ .op = IBV_WR_SEND, .len = 64,
					 .flags = IBV_SEND_SIGNALED });
		settle();
		run_ok(pair_down(&p));
		run_ok(unharmed());
	}
	/* only the kernel's own count says where the next WQE is */
	run_ok(victims(&p, &o, &ra, &rb));
	ra.q[SQ]->consumer_index = 7;
	check_ok(post_to(&p.a, (struct wr){ .id = 5, .op = IBV_WR_RDMA_WRITE,
		.len = 64, .flags = IBV_SEND_SIGNALED }, &p.b, 0));
	check(get_wc(p.a.scq, &wc, 3000) == 1);
	check(wc.wr_id == 5 && wc.status == IBV_WC_SUCCESS);
	run_ok(pair_down(&p));
	return 0;
}

static int cq_consumer(void)
{
	struct opts o = opts_short();
	struct rings ra, rb;
	struct pair p;
	int i, k;

	run_ok(bystander_make());
	for (i = 0; i < 20; i++) {
		run_ok(victims(&p, &o, &ra, &rb));
		for (k = 0; k < 12; k++) {
			ra.q[SCQ]->consumer_index = odd_u32();
			post_to(&p.a, (struct wr){ .len = 8,
				.op = IBV_WR_RDMA_WRITE,
				.flags = IBV_SEND_SIGNALED }, &p.b, 0);
		}
		settle();
		run_ok(pair_down(&p));
		run_ok(unharmed());
	}
	return 0;
}

/* The geometry in a ring's head is for the process to read. */
static int geometry(void)
{
	struct opts o = opts_short();
	struct rings ra, rb;
	struct pair p;
	int i, k;

	run_ok(bystander_make());
	for (i = 0; i < 20; i++) {
		run_ok(victims(&p, &o, &ra, &rb));
		check_ok(post_recv(&p.b, 1, 0, 64));
		for (k = 0; k < RINGS; k++) {
			ra.q[k]->log2_elem_size = odd_u32();
			ra.q[k]->index_mask = odd_u32();
			rb.q[k]->log2_elem_size = odd_u32();
			rb.q[k]->index_mask = odd_u32();
			scribble(ra.q[k]->pad_1, sizeof(ra.q[k]->pad_1));
		}
		ra.q[SQ]->producer_index = i % 3 ? 1 : odd_u32();
		doorbell(&p.a);
		settle();
		run_ok(pair_down(&p));
		run_ok(unharmed());
	}
	return 0;
}

static int wqe_fuzz(enum ibv_qp_type type)
{
	struct opts o = opts_short();
	struct rings ra, rb;
	int i, k, rounds = quick ? 150 : 600;
	struct ibv_wc wc;
	struct pair p;
	bool up = false;

	run_ok(bystander_make());
	o.type = type;
	for (i = 0; i < rounds; i++) {
		if (up && ep_query_state(&p.a) != IBV_QPS_RTS) {
			run_ok(pair_down(&p));
			up = false;
			if (i % 5 == 0 && unharmed())
				fail("before round %d", i);
		}
		if (!up)
			run_ok(victims(&p, &o, &ra, &rb));
		up = true;
		post_recv(&p.b, i, 0, 4096);
		for (k = 0; k < 3; k++) {
			uint32_t prod = ra.q[SQ]->producer_index;
			struct rxe_send_wqe *w = slot(&ra, SQ, prod);

			good_wqe(w, &p.a, &p.b, type == IBV_QPT_UD);
			mutate(w);
			__atomic_store_n(&ra.q[SQ]->producer_index,
					 (prod + 1) & ra.mask[SQ],
					 __ATOMIC_RELEASE);
			doorbell(&p.a);
		}
		get_wc(p.a.scq, &wc, 2);
		while (ibv_poll_cq(p.a.scq, 1, &wc) == 1)
			;
		while (ibv_poll_cq(p.b.rcq, 1, &wc) == 1)
			;
	}
	run_ok(pair_down(&p));
	return unharmed();
}

static int wqe_fuzz_rc(void) { return wqe_fuzz(IBV_QPT_RC); }
static int wqe_fuzz_ud(void) { return wqe_fuzz(IBV_QPT_UD); }
static int wqe_fuzz_uc(void) { return wqe_fuzz(IBV_QPT_UC); }

/* One WQE of an opcode, good but for that; @length is said for all of it. */
static int wqe_opcode(enum ibv_qp_type type, int op, uint32_t length)
{
	struct opts o = opts_short();
	struct rxe_send_wqe *w;
	struct rings ra, rb;
	struct ibv_wc wc;
	struct pair p;

	o.type = type;
	run_ok(victims(&p, &o, &ra, &rb));
	check_ok(post_recv(&p.b, 1, 0, 4096));
	w = slot(&ra, SQ, 0);
	good_wqe(w, &p.a, &p.b, type == IBV_QPT_UD);
	w->wr.opcode = op;
	w->dma.length = length;
	if (op == IBV_WR_FLUSH) {
		w->wr.wr.flush.type = 1;
		w->wr.wr.flush.level = 0;
	}
	__atomic_store_n(&ra.q[SQ]->producer_index, 1, __ATOMIC_RELEASE);
	doorbell(&p.a);
	if (get_wc(p.a.scq, &wc, 3000) != 1)
		fail("type %d, opcode %d, length %u: no completion", type, op,
		     length);
	if (op > 20 && wc.status == IBV_WC_SUCCESS)
		fail("opcode %d succeeds", op);
	return pair_down(&p);
}

/* Each opcode that there is, and that there is not, in an otherwise good WQE:
 * a completion, of success or not, for each, on queue pairs of each type. */
static int wqe_opcodes(void)
{
	static const enum ibv_qp_type types[] = {
		IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD
	};
	unsigned int i;
	int op;

	run_ok(bystander_make());
	for (i = 0; i < ARRAY_SIZE(types); i++)
		for (op = 0; op < 40; op++) {
			run_ok(wqe_opcode(types[i], op, 256));
			run_ok(wqe_opcode(types[i], op, UINT32_MAX));
		}
	return unharmed();
}

/* What a copy was checked for must not change after the check. */
static volatile bool flip_stop;

static void *flipper(void *arg)
{
	struct rxe_send_wqe *w = arg;

	while (!flip_stop) {
		w->dma.num_sge = 1;
		w->dma.sge[0].length = 256;
		w->dma.num_sge = 0xffff;
		w->dma.length = 0xfffffff0;
		w->dma.sge[0].addr ^= 0x5555555555ull;
		w->dma.cur_sge = 0x10000;
		w->dma.length = 256;
		w->dma.cur_sge = 0;
		w->wr.opcode = IBV_WR_SEND;
		w->dma.sge[0].addr ^= 0x5555555555ull;
		w->wr.opcode = 0xff;
		w->wr.send_flags ^= IBV_SEND_INLINE;
		w->wr.opcode = IBV_WR_RDMA_WRITE;
	}
	return NULL;
}

static int double_fetch(void)
{
	struct opts o = opts_short();
	uint64_t end = now_us() + (quick ? 2000000 : 6000000);
	struct rings ra, rb;
	struct pair p;
	pthread_t th;
	int i, pairs = 0;

	run_ok(bystander_make());
	while (now_us() < end) {
		struct rxe_send_wqe *w;

		run_ok(victims(&p, &o, &ra, &rb));
		for (i = 0; i < (int)ra.mask[SQ]; i++)
			good_wqe(slot(&ra, SQ, i), &p.a, &p.b, false);
		w = slot(&ra, SQ, 3);
		flip_stop = false;
		check_ok(pthread_create(&th, NULL, flipper, w));
		for (i = 0; i < 200; i++) {
			ra.q[SQ]->producer_index = i & ra.mask[SQ];
			doorbell(&p.a);
		}
		flip_stop = true;
		pthread_join(th, NULL);
		run_ok(pair_down(&p));
		pairs++;
	}
	printf("# %d queue pairs\n", pairs);
	return unharmed();
}

/* More work requests than the ring has room for: those that are under way stay
 * what they were when the kernel took them. */
static int overposted(void)
{
	struct opts o = opts_short();
	struct rings ra, rb;
	struct ibv_wc wc;
	struct pair p;
	uint32_t i, n;

	run_ok(bystander_make());
	o.retry = 7;
	o.timeout = 12;
	run_ok(rings_create(&p.a, &host_a, &o, &ra));
	run_ok(rings_create(&p.b, &host_b, &o, &rb));
	p.b.psn = (o.psn + 0x1000) & 0xffffff;
	run_ok(ep_init(&p.a, &o));
	run_ok(ep_init(&p.b, &o));
	run_ok(ep_rtr(&p.a, &p.b, &o));
	run_ok(ep_rts(&p.a, &o));
	/* B is not ready, so nothing is answered, and all stays under way. */
	n = ra.mask[SQ] + 1;
	fill(p.a.buf, 256, 1);
	memset(p.a.buf + 256, POISON, 256);
	memset(p.b.buf, 0, p.b.len);
	for (i = 0; i < 3 * n; i++) {
		struct rxe_send_wqe *w = slot(&ra, SQ, i);

		good_wqe(w, &p.a, &p.b, false);
		w->wr.wr_id = i;
		w->wr.wr.rdma.remote_addr += 256 * i;
		if (i >= n)
			w->dma.sge[0].addr += 256;
		__atomic_store_n(&ra.q[SQ]->producer_index,
				 (i + 1) & ra.mask[SQ], __ATOMIC_RELEASE);
		doorbell(&p.a);
	}
	run_ok(ep_rtr(&p.b, &p.a, &o));
	run_ok(ep_rts(&p.b, &o));
	for (i = 0; i < n; i++) {
		if (get_wc(p.a.scq, &wc, 5000) != 1)
			fail("no completion of work request %u", i);
		if (wc.wr_id != i || wc.status != IBV_WC_SUCCESS)
			fail("work request %u: wr_id %llu, %s", i,
			     (unsigned long long)wc.wr_id,
			     ibv_wc_status_str(wc.status));
		if (check_fill(p.b.buf + 256 * i, 256, 1) >= 0)
			fail("work request %u has the data of another", i);
	}
	run_ok(pair_down(&p));
	return unharmed();
}

/* Receives are posted as fast as they are flushed: the kernel must not stay
 * in its loop as long as the process likes. */
static void *chaser(void *arg)
{
	struct rings *r = arg;

	while (!flip_stop)
		r->q[RQ]->producer_index =
			(r->q[RQ]->consumer_index + r->mask[RQ] / 2) &
			r->mask[RQ];
	return NULL;
}

static int chased(void)
{
	struct opts o = opts_short();
	struct rings ra, rb;
	struct pair p;
	pthread_t th;
	int i;

	run_ok(bystander_make());
	for (i = 0; i < 5; i++) {
		o.depth = i & 1 ? 16 : 1000;
		run_ok(victims(&p, &o, &ra, &rb));
		flip_stop = false;
		check_ok(pthread_create(&th, NULL, chaser, &rb));
		usleep(1000);
		run_ok(ep_state(&p.b, IBV_QPS_ERR));
		usleep(200000);
		check(ep_query_state(&p.b) == IBV_QPS_ERR);
		flip_stop = true;
		pthread_join(th, NULL);
		run_ok(pair_down(&p));
	}
	return unharmed();
}

/* Mappings: those that were given, and no others. */
static int mappings(void)
{
	struct opts o = opts_short();
	int fd = host_a.ctx->cmd_fd, i;
	struct rings r;
	struct ep e;
	void *m;

	run_ok(bystander_make());
	run_ok(rings_create(&e, &host_a, &o, &r));
	for (i = 0; i < RINGS; i++) {
		m = mmap(NULL, r.m[i].len + (1 << 20), PROT_READ | PROT_WRITE,
			 MAP_SHARED, fd, r.m[i].off);
		if (m != MAP_FAILED)
			fail("ring %d: a mapping of 1 MiB too much", i);
	}
	for (i = 0; i < 200; i++) {
		m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
			 (off_t)(rnd() & 0x7ffffffff000ull) + (1ll << 45));
		if (m != MAP_FAILED)
			fail("a mapping of nothing");
	}
	/* what goes away under a mapping stays readable, and is no one's */
	m = r.q[SCQ];
	run_ok(ep_destroy(&e));
	for (i = 0; i < RINGS; i++) {
		m = mmap(NULL, r.m[i].len, PROT_READ | PROT_WRITE, MAP_SHARED,
			 fd, r.m[i].off);
		if (m != MAP_FAILED)
			fail("ring %d can be mapped after its end", i);
	}
	return unharmed();
}

static volatile off_t race_off;
static volatile size_t race_len;

static void *map_racer(void *arg)
{
	long mapped = 0;

	while (!flip_stop) {
		uint32_t *m = (void *)syscall(SYS_mmap, NULL, race_len,
			PROT_READ | PROT_WRITE, MAP_SHARED,
			host_a.ctx->cmd_fd, race_off);

		if (m == MAP_FAILED)
			continue;
		mapped++;
		m[0] ^= 1;
		m[race_len / 4 - 1] ^= 1;
		munmap(m, race_len);
	}
	return (void *)mapped;
}

static int mapping_race(void)
{
	uint64_t end = now_us() + (quick ? 1000000 : 4000000);
	struct ibv_cq *cq;
	pthread_t th;
	void *mapped;
	int n = 0;

	run_ok(bystander_make());
	flip_stop = false;
	race_len = 4096;
	check_ok(pthread_create(&th, NULL, map_racer, NULL));
	while (now_us() < end) {
		nmaps = 0;
		cq = ibv_create_cq(host_a.ctx, 64, NULL, NULL, 0);
		check(cq && nmaps == 1);
		race_off = maps[0].off;
		race_len = maps[0].len;
		check_ok(ibv_destroy_cq(cq));
		n++;
	}
	flip_stop = true;
	pthread_join(th, &mapped);
	printf("# %d CQs, mapped %ld times\n", n, (long)mapped);
	return unharmed();
}

static int unmapped_rings(void)
{
	struct opts o = opts_short();
	struct rings ra, rb;
	struct pair p;
	int i;

	run_ok(bystander_make());
	run_ok(victims(&p, &o, &ra, &rb));
	for (i = 0; i < 10; i++)
		check_ok(post_recv(&p.b, i, 0, 4096));
	check_ok(post_to(&p.a, (struct wr){ .id = 1, .len = 4096,
		.op = IBV_WR_RDMA_WRITE, .flags = IBV_SEND_SIGNALED },
		&p.b, 0));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_SUCCESS, 3000, NULL));
	for (i = 0; i < RINGS; i++) {
		check_ok(munmap(rb.m[i].addr, rb.m[i].len));
		if (i != SQ)
			check_ok(munmap(ra.m[i].addr, ra.m[i].len));
	}
	for (i = 0; i < 10; i++)
		check_ok(post(&p.a, &(struct wr){ .op = IBV_WR_SEND,
			.len = 100, .flags = IBV_SEND_SIGNALED }));
	settle();
	check_ok(munmap(ra.m[SQ].addr, ra.m[SQ].len));
	doorbell(&p.a);
	run_ok(pair_down(&p));
	return unharmed();
}

/* The doorbell's own arguments. */
static int doorbells(void)
{
	struct opts o = opts_short();
	struct rings ra, rb;
	struct pair p;
	int i;

	run_ok(bystander_make());
	run_ok(victims(&p, &o, &ra, &rb));
	for (i = 0; i < 300; i++) {
		uint32_t count = odd_u32();

		if (!doorbell_raw(&p.a, odd_u32() | 0x10000, 0, 0, 128))
			fail("a doorbell of no queue pair");
		if (count && !doorbell_raw(&p.a, p.a.qp->handle, count,
					   odd_u32(), 128))
			fail("%u work requests of nothing", count);
		doorbell_raw(&p.a, p.a.qp->handle, 0, 0, odd_u32());
	}
	/* none of it hurt the queue pair */
	check_ok(post_to(&p.a, (struct wr){ .id = 1, .len = 4096,
		.op = IBV_WR_RDMA_WRITE, .flags = IBV_SEND_SIGNALED },
		&p.b, 0));
	run_ok(expect_wc(p.a.scq, 1, IBV_WC_SUCCESS, 3000, NULL));
	run_ok(pair_down(&p));
	return unharmed();
}

/* A process dies with all its queues full. */
static int sudden_death(void)
{
	int i, k, status;

	run_ok(bystander_make());
	for (i = 0; i < (quick ? 10 : 40); i++) {
		pid_t pid = fork();

		if (!pid) {
			struct opts o = opts_default();
			struct pair p;

			if (host_open(&host_a) || host_open(&host_b) ||
			    pair_up(&p, &o))
				_exit(1);
			for (k = 0; k < 60; k++) {
				post_recv(&p.b, k, 0, 65536);
				post_to(&p.a, (struct wr){ .len = 65536,
					.op = k % 3 ? IBV_WR_RDMA_READ :
					IBV_WR_SEND }, &p.b, 65536);
				post_to(&p.b, (struct wr){ .len = 65536,
					.op = IBV_WR_RDMA_WRITE }, &p.a,
					131072);
			}
			usleep(i * 100);
			kill(getpid(), SIGKILL);
			_exit(2);
		}
		check(pid > 0);
		check(waitpid(pid, &status, 0) == pid);
		check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
		if (i % 5 == 0)
			run_ok(unharmed());
	}
	return unharmed();
}

/* One process attacks while another one's data must stay right. */
static int two_processes(void)
{
	uint64_t end = now_us() + (quick ? 2000000 : 5000000);
	pid_t pid = fork();
	int status, n = 0;

	if (!pid) {
		if (host_open(&host_a) || host_open(&host_b))
			_exit(1);
		while (now_us() < end)
			if (wqe_fuzz(IBV_QPT_RC))
				_exit(1);
		_exit(0);
	}
	check(pid > 0);
	while (now_us() < end) {
		run_ok(sanity());
		n++;
	}
	check(waitpid(pid, &status, 0) == pid);
	printf("# %d good rounds meanwhile\n", n);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	return 0;
}

static const struct testcase cases[] = {
	{ "sq_producer", sq_producer, 60 },
	{ "rq_producer", rq_producer, 60 },
	{ "kernel_indices", kernel_indices, 60 },
	{ "cq_consumer", cq_consumer, 60 },
	{ "geometry", geometry, 60 },
	{ "wqe_opcodes", wqe_opcodes, 120 },
	{ "wqe_fuzz_rc", wqe_fuzz_rc, 120 },
	{ "wqe_fuzz_ud", wqe_fuzz_ud, 120 },
	{ "wqe_fuzz_uc", wqe_fuzz_uc, 120 },
	{ "double_fetch", double_fetch, 60 },
	{ "overposted", overposted, 60 },
	{ "chased", chased, 60 },
	{ "mappings", mappings },
	{ "mapping_race", mapping_race, 60 },
	{ "unmapped_rings", unmapped_rings },
	{ "doorbells", doorbells },
	{ "sudden_death", sudden_death, 120 },
	{ "two_processes", two_processes, 120 },
};

int main(int argc, char **argv)
{
	if (getenv("RXO_SEED"))
		rng = strtoull(getenv("RXO_SEED"), NULL, 0) | 1;
	return rig_main(argc, argv, cases, ARRAY_SIZE(cases));
}
