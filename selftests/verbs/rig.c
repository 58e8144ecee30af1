// SPDX-License-Identifier: GPL-2.0
#define _GNU_SOURCE
#include <fcntl.h>
#include <fnmatch.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <arpa/inet.h>
#include <rdma/ib_user_verbs.h>
#include "rig.h"

struct host host_a, host_b;
char *skip_reason;
int ip_version = 4;
bool quick;

uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000ull + t.tv_nsec / 1000;
}

/* Polling must not starve the kernel's workers where there is one CPU. */
void relax(uint64_t since)
{
	if (now_us() - since < 300)
		sched_yield();
	else
		usleep(50);
}

bool unreachable(int err, uint64_t until_us)
{
	if ((err != ENETUNREACH && err != EHOSTUNREACH) || now_us() >= until_us)
		return false;
	usleep(10000);
	return true;
}

/* ---- hosts ---------------------------------------------------------------- */

static int enter_ns(const char *ns)
{
	char path[128];
	int fd, r;

	if (!*ns)
		return 0;
	snprintf(path, sizeof(path), "/run/netns/%s", ns);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	r = setns(fd, CLONE_NEWNET);
	close(fd);
	return r;
}

static bool gid_fits(const struct ibv_gid_entry *e)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	bool v4 = !memcmp(e->gid.raw, mapped, 12);
	bool ll = e->gid.raw[0] == 0xfe && (e->gid.raw[1] & 0xc0) == 0x80;

	return e->gid_type == IBV_GID_TYPE_ROCE_V2 &&
	       v4 == (ip_version == 4) && !ll;
}

int host_open(struct host *h)
{
	struct ibv_gid_entry gids[64];
	struct ibv_device **list;
	ssize_t n;
	int i;

	if (enter_ns(h->ns))
		fail("cannot enter namespace %s: %s", h->ns, strerror(errno));
	list = ibv_get_device_list(NULL);
	check(list);
	for (i = 0; list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), h->dev))
			break;
	if (!list[i])
		fail("no device %s in %s", h->dev, h->ns);
	h->ctx = ibv_open_device(list[i]);
	if (!h->ctx)
		fail("cannot open %s: %s", h->dev, strerror(errno));
	ibv_free_device_list(list);
	check_ok(ibv_query_device(h->ctx, &h->attr));
	check_ok(ibv_query_port(h->ctx, 1, &h->port));
	h->pd = ibv_alloc_pd(h->ctx);
	check(h->pd);
	n = ibv_query_gid_table(h->ctx, gids, ARRAY_SIZE(gids), 0);
	if (n < 0)
		fail("ibv_query_gid_table: %zd", n);
	for (i = 0; i < n; i++)
		if (gid_fits(&gids[i])) {
			h->gidx = gids[i].gid_index;
			h->gid = gids[i].gid;
			return 0;
		}
	fail("%s has no routable IPv%d RoCE v2 GID among %zd", h->dev,
	     ip_version, n);
}

int host_close(struct host *h)
{
	check_ok(ibv_dealloc_pd(h->pd));
	check_ok(ibv_close_device(h->ctx));
	return 0;
}

bool is_driver(const struct host *h, const char *type)
{
	return !strncmp(h->dev, type, strlen(type));
}

/* ---- endpoints ------------------------------------------------------------ */

struct opts opts_default(void)
{
	return (struct opts){
		.type = IBV_QPT_RC, .depth = 64, .sge = 4, .inl = 64,
		.psn = 0x123456, .timeout = 14, .retry = 7, .rnr_retry = 7,
		.rnr_timer = 12, .rd_atomic = 4,
		.qp_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
			     IBV_ACCESS_REMOTE_ATOMIC,
		.mr_access = ACC_ALL, .buf = 1 << 20,
	};
}

int mtu_bytes(enum ibv_mtu mtu)
{
	return 128 << mtu;
}

enum ibv_mtu pair_mtu(void)
{
	enum ibv_mtu a = host_a.port.active_mtu, b = host_b.port.active_mtu;

	return a < b ? a : b;
}

static bool on_demand(void)
{
	return getenv("RIG_ON_DEMAND");
}

/*
 * The data stays and so do the rights that matter, yet the kernel tells all
 * who look at the page tables that the pages go.
 */
void evict(void *p, size_t len)
{
	static int exec;

	exec ^= PROT_EXEC;
	if (mprotect(p, len, PROT_READ | PROT_WRITE | exec))
		perror("mprotect");
}

/*
 * Libraries for rxe that know of it hand advice to the kernel with this function
 * of libibverbs, which others lack.
 */
int ibv_cmd_advise_mr(struct ibv_pd *pd, enum ibv_advise_mr_advice advice,
		      uint32_t flags, struct ibv_sge *list, uint32_t n);

int advise_mr(struct ibv_pd *pd, int advice, uint32_t flags,
	      struct ibv_sge *list, uint32_t n)
{
	int err = ibv_advise_mr(pd, advice, flags, list, n);

	if (err == EOPNOTSUPP)
		err = ibv_cmd_advise_mr(pd, advice, flags, list, n);
	return err;
}

int ep_create(struct ep *e, struct host *h, const struct opts *o)
{
	struct ibv_qp_init_attr ia = {
		.qp_type = o->type,
		.sq_sig_all = o->sq_sig_all,
		.cap = {
			.max_send_wr = o->depth, .max_recv_wr = o->depth,
			.max_send_sge = o->sge, .max_recv_sge = o->sge,
			.max_inline_data = o->inl,
		},
	};
	int cqe = o->cqe ? o->cqe : 2 * o->depth + 16;

	memset(e, 0, sizeof(*e));
	e->h = h;
	if (o->channel) {
		e->ch = ibv_create_comp_channel(h->ctx);
		check(e->ch);
	}
	e->borrows_scq = o->send_cq;
	e->scq = o->send_cq ?: ibv_create_cq(h->ctx, cqe, NULL, e->ch, 0);
	check(e->scq);
	e->rcq = ibv_create_cq(h->ctx, cqe, NULL, e->ch, 0);
	check(e->rcq);
	e->len = o->buf;
	e->buf = mmap(NULL, e->len, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(e->buf != MAP_FAILED);
	e->mr = ibv_reg_mr(h->pd, e->buf, e->len,
			   o->mr_access |
			   (on_demand() ? IBV_ACCESS_ON_DEMAND : 0));
	if (!e->mr)
		fail("ibv_reg_mr of %zu bytes, access 0x%x: %s", e->len,
		     o->mr_access, strerror(errno));
	ia.send_cq = e->scq;
	ia.recv_cq = e->rcq;
	e->qp = ibv_create_qp(h->pd, &ia);
	if (!e->qp)
		fail("ibv_create_qp type %d: %s", o->type, strerror(errno));
	e->psn = o->psn;
	return 0;
}

int ep_destroy(struct ep *e)
{
	if (e->qp)
		check_ok(ibv_destroy_qp(e->qp));
	if (e->mr)
		check_ok(ibv_dereg_mr(e->mr));
	if (e->scq && !e->borrows_scq)
		check_ok(ibv_destroy_cq(e->scq));
	if (e->rcq)
		check_ok(ibv_destroy_cq(e->rcq));
	if (e->ch)
		check_ok(ibv_destroy_comp_channel(e->ch));
	if (e->buf)
		munmap(e->buf, e->len);
	memset(e, 0, sizeof(*e));
	return 0;
}

int ep_init(struct ep *e, const struct opts *o)
{
	struct ibv_qp_attr at = {
		.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY,
		.qp_access_flags = o->qp_access,
	};
	int mask = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_PKEY_INDEX;

	mask |= o->type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	check_ok(ibv_modify_qp(e->qp, &at, mask));
	return 0;
}

int ep_rtr(struct ep *e, const struct ep *peer, const struct opts *o)
{
	struct ibv_qp_attr at = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = o->mtu ? o->mtu : pair_mtu(),
		.max_dest_rd_atomic = o->rd_atomic,
		.min_rnr_timer = o->rnr_timer,
		.ah_attr = {
			.is_global = 1, .port_num = 1,
			.grh = { .hop_limit = 64, .sgid_index = e->h->gidx },
		},
	};
	uint64_t until = now_us() + o->patience_ms * 1000ull;
	int mask = IBV_QP_STATE, r;

	if (o->type != IBV_QPT_UD) {
		at.dest_qp_num = peer->qp->qp_num;
		at.rq_psn = peer->psn;
		at.ah_attr.grh.dgid = peer->h->gid;
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
			IBV_QP_RQ_PSN;
	}
	if (o->type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	do
		r = ibv_modify_qp(e->qp, &at, mask);
	while (unreachable(r, until));
	check_ok(r);
	return 0;
}

int ep_rts(struct ep *e, const struct opts *o)
{
	struct ibv_qp_attr at = {
		.qp_state = IBV_QPS_RTS, .sq_psn = e->psn,
		.timeout = o->timeout, .retry_cnt = o->retry,
		.rnr_retry = o->rnr_retry, .max_rd_atomic = o->rd_atomic,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (o->type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	check_ok(ibv_modify_qp(e->qp, &at, mask));
	return 0;
}

int ep_state(struct ep *e, enum ibv_qp_state to)
{
	struct ibv_qp_attr at = { .qp_state = to };

	check_ok(ibv_modify_qp(e->qp, &at, IBV_QP_STATE));
	return 0;
}

int ep_query_state(struct ep *e)
{
	struct ibv_qp_init_attr ia;
	struct ibv_qp_attr at;

	if (ibv_query_qp(e->qp, &at, IBV_QP_STATE, &ia))
		return -1;
	return at.qp_state;
}

int pair_connect(struct pair *p)
{
	const struct opts *o = &p->o;

	p->b.psn = (o->psn + 0x1000) & 0xffffff;
	run_ok(ep_init(&p->a, o));
	run_ok(ep_init(&p->b, o));
	run_ok(ep_rtr(&p->a, &p->b, o));
	run_ok(ep_rtr(&p->b, &p->a, o));
	run_ok(ep_rts(&p->a, o));
	run_ok(ep_rts(&p->b, o));
	return 0;
}

int pair_up(struct pair *p, const struct opts *o)
{
	p->o = *o;
	run_ok(ep_create(&p->a, &host_a, o));
	run_ok(ep_create(&p->b, &host_b, o));
	return pair_connect(p);
}

int pair_down(struct pair *p)
{
	run_ok(ep_destroy(&p->a));
	run_ok(ep_destroy(&p->b));
	return 0;
}

int rereg(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
		 size_t len, int access)
{
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		struct ib_uverbs_rereg_mr cmd;
	} c = { };
	struct ib_uverbs_rereg_mr_resp resp = { };

	c.hdr.command = IB_USER_VERBS_CMD_REREG_MR;
	c.hdr.in_words = sizeof(c) / 4;
	c.hdr.out_words = sizeof(resp) / 4;
	c.cmd.response = (uintptr_t)&resp;
	c.cmd.mr_handle = mr->handle;
	c.cmd.flags = flags;
	c.cmd.start = (uintptr_t)addr;
	c.cmd.hca_va = (uintptr_t)addr;
	c.cmd.length = len;
	c.cmd.access_flags = access;
	c.cmd.pd_handle = pd ? pd->handle : 0;
	if (write(mr->context->cmd_fd, &c, sizeof(c)) != sizeof(c))
		return errno;
	if (resp.lkey != mr->lkey || resp.rkey != mr->rkey)
		return ESTALE;
	return 0;
}

/* ---- data ----------------------------------------------------------------- */

static uint8_t pattern(size_t i, uint32_t seed)
{
	uint32_t x = (uint32_t)i * 0x9e3779b1u + seed * 0x85ebca6bu;

	return (x >> 24) ^ (x >> 11);
}

void fill(uint8_t *p, size_t len, uint32_t seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		p[i] = pattern(i, seed);
}

long check_fill(const uint8_t *p, size_t len, uint32_t seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (p[i] != pattern(i, seed))
			return i;
	return -1;
}

long check_byte(const uint8_t *p, size_t len, uint8_t byte)
{
	size_t i;

	for (i = 0; i < len; i++)
		if (p[i] != byte)
			return i;
	return -1;
}

/* ---- work requests and completions ---------------------------------------- */

int post(struct ep *e, const struct wr *w)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)e->buf + w->off, .length = w->len,
		.lkey = w->lkey ? w->lkey : e->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = w->id, .opcode = w->op, .send_flags = w->flags,
		.sg_list = &sge, .num_sge = w->len ? 1 : 0,
		.imm_data = htonl(w->imm),
	}, *bad;

	if (w->op == IBV_WR_ATOMIC_CMP_AND_SWP ||
	    w->op == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = w->raddr;
		wr.wr.atomic.rkey = w->rkey;
		wr.wr.atomic.compare_add = w->add;
		wr.wr.atomic.swap = w->swap;
	} else {
		wr.wr.rdma.remote_addr = w->raddr;
		wr.wr.rdma.rkey = w->rkey;
	}
	if (on_demand())
		evict(e->buf, e->len);
	return ibv_post_send(e->qp, &wr, &bad);
}

int post_to(struct ep *e, struct wr w, struct ep *peer, size_t roff)
{
	if (on_demand())
		evict(peer->buf, peer->len);
	w.raddr = (uintptr_t)peer->buf + roff;
	w.rkey = peer->mr->rkey;
	return post(e, &w);
}

int post_recv(struct ep *e, uint64_t id, size_t off, uint32_t len)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)e->buf + off, .length = len,
		.lkey = e->mr->lkey,
	};
	struct ibv_recv_wr wr = {
		.wr_id = id, .sg_list = &sge, .num_sge = len ? 1 : 0,
	}, *bad;

	return ibv_post_recv(e->qp, &wr, &bad);
}

int get_wc(struct ibv_cq *cq, struct ibv_wc *wc, int ms)
{
	uint64_t start = now_us();
	int n;

	for (;;) {
		n = ibv_poll_cq(cq, 1, wc);
		if (n)
			return n;
		if (now_us() - start > ms * 1000ull)
			return 0;
		relax(start);
	}
}

int expect_wc(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status st, int ms,
	      struct ibv_wc *out)
{
	struct ibv_wc wc;
	int n = get_wc(cq, &wc, ms);

	if (n != 1)
		fail("no completion of wr %llu within %d ms (poll: %d)",
		     (unsigned long long)id, ms, n);
	if (wc.wr_id != id || wc.status != st)
		fail("completion of wr %llu: %s; expected wr %llu: %s",
		     (unsigned long long)wc.wr_id,
		     ibv_wc_status_str(wc.status), (unsigned long long)id,
		     ibv_wc_status_str(st));
	if (out)
		*out = wc;
	return 0;
}

int expect_no_wc(struct ibv_cq *cq, int ms)
{
	struct ibv_wc wc;
	int n = get_wc(cq, &wc, ms);

	if (n)
		fail("unexpected completion of wr %llu: %s (poll: %d)",
		     (unsigned long long)wc.wr_id,
		     ibv_wc_status_str(wc.status), n);
	return 0;
}

int get_cq_event(struct ep *e, int ms)
{
	struct pollfd pf = { .fd = e->ch->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *ctx;

	if (poll(&pf, 1, ms) != 1)
		return 0;
	if (ibv_get_cq_event(e->ch, &cq, &ctx))
		return -1;
	ibv_ack_cq_events(cq, 1);
	return 1;
}

static int next_event(struct host *h, struct ibv_async_event *ev, int ms)
{
	struct pollfd pf = { .fd = h->ctx->async_fd, .events = POLLIN };

	if (poll(&pf, 1, ms) != 1)
		return 0;
	if (ibv_get_async_event(h->ctx, ev))
		return -1;
	ibv_ack_async_event(ev);
	return 1;
}

int expect_event(struct host *h, enum ibv_event_type type,
		 const void *element, int ms)
{
	uint64_t end = now_us() + ms * 1000ull;
	struct ibv_async_event ev;

	for (;;) {
		int64_t left = (int64_t)(end - now_us()) / 1000;

		if (next_event(h, &ev, left > 0 ? left : 0) != 1)
			fail("no event '%s' on %s within %d ms",
			     ibv_event_type_str(type), h->dev, ms);
		if (ev.event_type != type) {
			printf("# passing over event '%s' on %s\n",
			       ibv_event_type_str(ev.event_type), h->dev);
			continue;
		}
		if (element && ev.element.qp != element)
			fail("event '%s' names another object",
			     ibv_event_type_str(type));
		return 0;
	}
}

int saw_event(struct host *h, enum ibv_event_type type, int ms)
{
	uint64_t end = now_us() + ms * 1000ull;
	struct ibv_async_event ev;

	for (;;) {
		int64_t left = (int64_t)(end - now_us()) / 1000;

		if (next_event(h, &ev, left > 0 ? left : 0) != 1)
			return 0;
		if (ev.event_type == type)
			return 1;
	}
}

static int one_way(struct ep *from, struct ep *to, uint32_t seed)
{
	const uint32_t len = 3 * 4096 + 7;
	struct ibv_wc wc;
	long bad;

	fill(from->buf, len, seed);
	memset(to->buf + 65536, 0xa5, len + 64);
	check_ok(post_recv(to, 7, 65536, len));
	check_ok(post(from, &(struct wr){
		.id = 8, .op = IBV_WR_SEND, .flags = IBV_SEND_SIGNALED,
		.len = len }));
	run_ok(expect_wc(to->rcq, 7, IBV_WC_SUCCESS, 5000, &wc));
	run_ok(expect_wc(from->scq, 8, IBV_WC_SUCCESS, 5000, NULL));
	check(wc.byte_len == len);
	bad = check_fill(to->buf + 65536, len, seed);
	if (bad >= 0)
		fail("byte %ld of %u differs", bad, len);
	check(check_byte(to->buf + 65536 + len, 64, 0xa5) < 0);
	return 0;
}

int sanity(void)
{
	struct opts o = opts_default();
	struct pair p;

	o.buf = 1 << 17;
	run_ok(pair_up(&p, &o));
	run_ok(one_way(&p.a, &p.b, 1));
	run_ok(one_way(&p.b, &p.a, 2));
	run_ok(pair_down(&p));
	return 0;
}

/* ---- runner --------------------------------------------------------------- */

static int split_host(struct host *h, char *arg)
{
	char *colon = strchr(arg, ':');

	if (!colon)
		return -1;
	*colon = 0;
	h->ns = arg;
	h->dev = colon + 1;
	return 0;
}

static bool listing;

int rig_args(int argc, char **argv)
{
	int c;

	setvbuf(stdout, NULL, _IOLBF, 0);
	quick = getenv("RXO_QUICK") && strcmp(getenv("RXO_QUICK"), "0");
	while ((c = getopt(argc, argv, "a:b:6l")) != -1) {
		if ((c == 'a' && !split_host(&host_a, optarg)) ||
		    (c == 'b' && !split_host(&host_b, optarg)))
			continue;
		if (c == '6') {
			ip_version = 6;
		} else if (c == 'l') {
			listing = true;
		} else {
			fprintf(stderr, "usage: %s -a ns:dev -b ns:dev [-6] [-l] [case...]\n",
				argv[0]);
			exit(2);
		}
	}
	if (!host_b.dev)
		host_b = host_a;
	if (!listing && !host_a.dev) {
		fprintf(stderr, "%s: -a ns:dev is missing\n", argv[0]);
		exit(2);
	}
	return optind;
}

static int run_case(const struct testcase *t)
{
	int r;

	alarm(t->seconds ? t->seconds : 30);
	run_ok(host_open(&host_a));
	run_ok(host_open(&host_b));
	r = t->fn();
	if (r)
		return r;
	run_ok(host_close(&host_a));
	run_ok(host_close(&host_b));
	return 0;
}

int rig_main(int argc, char **argv, const struct testcase *cases, int n)
{
	int first = rig_args(argc, argv), i, j, k = 0, bad = 0;

	skip_reason = mmap(NULL, SKIP_LEN, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (skip_reason == MAP_FAILED) {
		perror("mmap");
		return 2;
	}
	for (i = 0; i < n; i++) {
		const struct testcase *t = &cases[i];
		bool wanted = first == argc;
		int status, code;
		uint64_t start;
		pid_t pid;

		for (j = first; j < argc; j++)
			wanted |= !fnmatch(argv[j], t->name, 0);
		if (!wanted)
			continue;
		if (listing) {
			puts(t->name);
			continue;
		}
		fflush(stdout);
		start = now_us();
		pid = fork();
		if (!pid) {
			int r = run_case(t);

			fflush(stdout);
			_exit(r);
		}
		while (waitpid(pid, &status, 0) != pid)
			;
		k++;
		code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
		if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
			printf("# still running after %d s: killed\n",
			       t->seconds ? t->seconds : 30);
		else if (WIFSIGNALED(status))
			printf("# killed by signal %d (%s)\n",
			       WTERMSIG(status), strsignal(WTERMSIG(status)));
		if (now_us() - start > 2000000)
			printf("# took %llu ms\n", (unsigned long long)
			       (now_us() - start) / 1000);
		if (code == SKIP)
			printf("ok %d - %s # SKIP %s\n", k, t->name,
			       skip_reason);
		else
			printf("%s %d - %s\n", code ? "not ok" : "ok", k,
			       t->name);
		if (code && code != SKIP)
			bad++;
	}
	if (listing)
		return 0;
	printf("1..%d\n", k);
	if (!k) {
		fprintf(stderr, "%s: no such case\n", argv[0]);
		return 2;
	}
	return bad ? 1 : 0;
}
