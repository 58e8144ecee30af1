// SPDX-License-Identifier: GPL-2.0
/*
 * Every uverbs ioctl method and write command with arguments that are good,
 * nearly good, or anything. What is nearly good comes from the provider
 * library: its calls are recorded while it uses all verbs, and then made again
 * with changes, by processes that die afterwards with all that they made.
 * Meanwhile the process that watches has traffic of its own.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include "rings.h"

/* ---- records -------------------------------------------------------------- */

#define ATTRS 24
#define DATA 256
#define HANDLES 16

struct call {
	uint16_t object, method, n;
	uint32_t driver;
	struct ib_uverbs_attr attr[ATTRS];
	/* What an attribute points to, if it does. */
	bool points[ATTRS];
	uint8_t data[ATTRS][DATA];
};

static struct call calls[400];
static int ncalls;
static bool recording;

static bool is_pointer(uint64_t v)
{
	return v >= 0x100000 && v < 1ull << 47;
}

static void record(const struct ib_uverbs_ioctl_hdr *h)
{
	struct call *c = &calls[ncalls];
	int i;

	if (ncalls == ARRAY_SIZE(calls) || h->num_attrs > ATTRS)
		return;
	*c = (struct call){ h->object_id, h->method_id, h->num_attrs,
			    h->driver_id };
	for (i = 0; i < c->n; i++) {
		const struct ib_uverbs_attr *a = &h->attrs[i];

		c->attr[i] = *a;
		/* Small inputs lie in the attribute itself; those that look
		 * like pointers are replaced by such all the same. */
		c->points[i] = a->len && is_pointer(a->data);
		if (c->points[i] && a->len > 8)
			memcpy(c->data[i], (void *)(uintptr_t)a->data,
			       a->len < DATA ? a->len : DATA);
	}
	ncalls++;
}

/* The libraries find this before the C library's. */
int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (recording && request == RDMA_VERBS_IOCTL)
		record(arg);
	return syscall(SYS_ioctl, fd, request, arg);
}

/* The library has none of this for the provider. */
static void rereg_record(void)
{
	struct ib_uverbs_rereg_mr m = {
		.flags = IB_UVERBS_ACCESS_LOCAL_WRITE, .start = 0x400000,
		.length = 4096, .access_flags = 7,
	};
	struct call c = { UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, 3,
			  .driver = calls[0].driver };

	c.attr[0] = (struct ib_uverbs_attr){ UVERBS_ATTR_CORE_IN, sizeof(m),
					     UVERBS_ATTR_F_MANDATORY };
	c.attr[1] = (struct ib_uverbs_attr){ UVERBS_ATTR_CORE_OUT, 8,
					     UVERBS_ATTR_F_MANDATORY };
	c.attr[2] = (struct ib_uverbs_attr){ UVERBS_ATTR_WRITE_CMD, 8,
		UVERBS_ATTR_F_MANDATORY, .data = IB_USER_VERBS_CMD_REREG_MR };
	c.points[0] = c.points[1] = true;
	memcpy(c.data[0], &m, sizeof(m));
	calls[ncalls++] = c;
}

/* All that the library can do, so that it is seen how. */
static int use_everything(void)
{
	struct opts o = opts_short();
	struct ibv_srq_init_attr sa = { .attr = { .max_wr = 8, .max_sge = 2 } };
	struct ibv_srq_attr sq = { .max_wr = 16, .srq_limit = 2 };
	struct ibv_cq_init_attr_ex ca = { .cqe = 8 };
	struct ibv_ah_attr aa = { .is_global = 1, .port_num = 1 };
	struct ibv_qp_init_attr_ex xa = {
		.qp_type = IBV_QPT_RC, .comp_mask = IBV_QP_INIT_ATTR_PD |
			IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
		.cap = { 4, 4, 1, 1, 16 },
	};
	struct ibv_gid_entry gids[4];
	struct ibv_device_attr_ex da;
	struct ibv_qp_init_attr ia;
	struct ibv_port_attr pa;
	struct ibv_qp_attr qa;
	struct ibv_sge sge;
	union ibv_gid gid = { .raw = { 0xff, 0x0e, [15] = 9 } };
	struct ibv_cq_ex *cx;
	struct ibv_srq *srq;
	struct ibv_qp *qp;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_mw *mw;
	struct ibv_ah *ah;
	struct pair p;
	struct ep u;

	o.channel = true;
	run_ok(pair_up(&p, &o));
	check_ok(ibv_resize_cq(p.a.scq, 100));
	check_ok(ibv_req_notify_cq(p.a.scq, 0));
	check_ok(ibv_query_qp(p.a.qp, &qa, IBV_QP_STATE, &ia));
	check_ok(ibv_query_device_ex(host_a.ctx, NULL, &da));
	check_ok(ibv_query_device(host_a.ctx, &da.orig_attr));
	check_ok(ibv_query_port(host_a.ctx, 1, &pa));
	check(ibv_query_gid_table(host_a.ctx, gids, 4, 0) > 0);
	check_ok(ibv_query_gid_ex(host_a.ctx, 1, host_a.gidx, gids, 0));
	pd = ibv_alloc_pd(host_a.ctx);
	check(pd);
	mr = ibv_reg_mr(pd, p.a.buf, 64,
			IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	check(mr);
	sge = (struct ibv_sge){ (uintptr_t)p.a.buf, 64, mr->lkey };
	check_ok(advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
	check_ok(ibv_dereg_mr(mr));
	mw = ibv_alloc_mw(host_a.pd, IBV_MW_TYPE_2);
	check(mw);
	check_ok(ibv_dealloc_mw(mw));
	srq = ibv_create_srq(host_a.pd, &sa);
	check(srq);
	check_ok(ibv_modify_srq(srq, &sq, IBV_SRQ_LIMIT));
	check_ok(ibv_modify_srq(srq, &sq, IBV_SRQ_MAX_WR));
	check_ok(ibv_query_srq(srq, &sq));
	check_ok(ibv_destroy_srq(srq));
	cx = ibv_create_cq_ex(host_a.ctx, &ca);
	check(cx);
	xa.pd = host_a.pd;
	xa.send_cq = xa.recv_cq = ibv_cq_ex_to_cq(cx);
	qp = ibv_create_qp_ex(host_a.ctx, &xa);
	check(qp);
	check_ok(ibv_destroy_qp(qp));
	check_ok(ibv_destroy_cq(ibv_cq_ex_to_cq(cx)));
	aa.grh.sgid_index = host_a.gidx;
	aa.grh.dgid = host_b.gid;
	ah = ibv_create_ah(host_a.pd, &aa);
	check(ah);
	check_ok(ibv_destroy_ah(ah));
	o.type = IBV_QPT_UD;
	run_ok(ep_create(&u, &host_a, &o));
	run_ok(ep_init(&u, &o));
	if (ip_version == 4) {
		memset(gid.raw, 0, 16);
		memcpy(gid.raw + 10, "\xff\xff\xef\x01\x01\x01", 6);
	}
	check_ok(ibv_attach_mcast(u.qp, &gid, 0));
	check_ok(ibv_detach_mcast(u.qp, &gid, 0));
	run_ok(ep_destroy(&u));
	check_ok(ibv_dealloc_pd(pd));
	run_ok(pair_down(&p));
	rereg_record();
	return 0;
}

/* ---- calls ---------------------------------------------------------------- */

#define OBJECTS 20
#define METHODS 16
#define COMMANDS 64

/* By kind: how many calls were made, and how many succeeded. */
static struct tally {
	uint32_t made, good;
} by_method[OBJECTS][METHODS], by_command[COMMANDS];

static uint32_t last_command;
static uint8_t *arena;	/* for what attributes point to, and answers */
#define ARENA 65536

/* A pointer that the kernel must not follow, or may. */
static uint64_t pointer(void *good)
{
	switch (rnd() % 12) {
	case 0: return 0;
	case 1: return 0xffff888000000000ull;
	case 2: return ~0ull - rnd() % 64;
	case 3: return 0x1000;
	case 4: return (uintptr_t)arena + ARENA - rnd() % 8;
	case 5: return rnd();
	default: return (uintptr_t)good;
	}
}

static void change_bytes(uint8_t *p, size_t len)
{
	uint32_t v = rnd() & 1 ? odd_u32() : rnd() % HANDLES;
	size_t at;

	if (!len)
		return;
	at = rnd() % len;
	if (rnd() & 1)
		at &= ~3ull;
	if (rnd() % 4 == 0)
		p[at] = rnd();
	else if (at + 4 <= len)
		memcpy(p + at, &v, 4);
}

static void change_call(struct call *c)
{
	int i = c->n ? rnd() % c->n : 0;

	if (!c->n) {
		c->method = rnd() % 16;
		return;
	}
	switch (rnd() % 18) {
	case 0: c->object = rnd() % OBJECTS; break;
	case 1: c->method = rnd() % 16; break;
	case 2: c->attr[i].attr_id = rnd() % 20; break;
	case 3: c->attr[i].attr_id = 0x1000 + rnd() % 4; break;
	case 4: c->attr[i].len = rnd() % 3 ? rnd() % 64 : odd_u32(); break;
	case 5: c->attr[i].flags = rnd(); break;
	case 6: c->attr[i].attr_data.reserved = rnd(); break;
	case 7: c->attr[i] = c->attr[rnd() % c->n]; break;
	case 8: c->n = rnd() % (ATTRS + 1); break;
	case 9: c->attr[i].data = pointer(arena); c->points[i] = false; break;
	case 10: c->driver = rnd() % 30; break;
	case 11: case 12: c->attr[i].data = rnd() % HANDLES;
		 c->points[i] = false; break;
	case 13: c->attr[i].data = odd_u32(); c->points[i] = false; break;
	default:
		if (c->points[i] && c->attr[i].len > 8)
			change_bytes(c->data[i], c->attr[i].len < DATA ?
				     c->attr[i].len : DATA);
		else
			change_bytes((void *)&c->attr[i].data, 8);
	}
}

static struct call one_of_them(void)
{
	struct call c = calls[rnd() % ncalls];

	if (rnd() % 8 == 0) {
		/* any method, with any attributes */
		c.object = rnd() % OBJECTS;
		c.method = rnd() % 12;
		for (int i = 0; i < c.n; i++)
			c.attr[i].attr_id = rnd() % 3 ? (uint64_t)i : rnd() % 20;
	}
	for (int k = rnd() % 4; k > 0; k--)
		change_call(&c);
	return c;
}

static void by_ioctl(int fd)
{
	struct call c = one_of_them();
	struct {
		struct ib_uverbs_ioctl_hdr h;
		struct ib_uverbs_attr a[ATTRS];
	} cmd = { .h = {
		.length = sizeof(cmd.h) + c.n * sizeof(cmd.a[0]),
		.object_id = c.object, .method_id = c.method,
		.num_attrs = c.n, .driver_id = c.driver,
	} };
	struct tally *t = &by_method[c.object % OBJECTS][c.method % METHODS];
	int i;

	for (i = 0; i < c.n; i++) {
		cmd.a[i] = c.attr[i];
		if (c.points[i]) {
			uint8_t *to = arena + i * DATA;

			memcpy(to, c.data[i], DATA);
			cmd.a[i].data = (uintptr_t)to;
		}
	}
	switch (rnd() % 40) {
	case 0: cmd.h.length = rnd(); break;
	case 1: cmd.h.num_attrs = rnd() % ATTRS; break;
	case 2: cmd.h.reserved1 = rnd(); break;
	case 3: cmd.h.reserved2 = rnd(); break;
	}
	t->made++;
	if (!syscall(SYS_ioctl, fd, RDMA_VERBS_IOCTL, &cmd))
		t->good++;
}

static const uint8_t *attr_of(const struct call *c, int id, size_t *len)
{
	int i;

	for (i = 0; i < c->n; i++)
		if (c->attr[i].attr_id == id) {
			*len = c->attr[i].len < DATA ? c->attr[i].len : DATA;
			return *len > 8 ? c->data[i] :
			       (const uint8_t *)&c->attr[i].data;
		}
	*len = 0;
	return NULL;
}

/*
 * Commands that the library makes by ioctl today, word for word: R where to
 * answer, A an address, H a handle, S a small number, s a smaller one, C a
 * completion channel, G a group, T a type of queue pair, W the length of a
 * work request, 0 and 1.
 */
static const struct {
	uint32_t cmd;
	const char *words;
} commands[] = {
	{ IB_USER_VERBS_CMD_GET_CONTEXT, "R" },
	{ IB_USER_VERBS_CMD_QUERY_PORT, "R10" },
	{ IB_USER_VERBS_CMD_ALLOC_PD, "R" },
	{ IB_USER_VERBS_CMD_DEALLOC_PD, "H" },
	{ IB_USER_VERBS_CMD_DESTROY_AH, "H" },
	{ IB_USER_VERBS_CMD_DEREG_MR, "H" },
	{ IB_USER_VERBS_CMD_DEALLOC_MW, "H" },
	{ IB_USER_VERBS_CMD_CREATE_CQ, "RAS0C0" },
	{ IB_USER_VERBS_CMD_CREATE_CQ, "RAS0C0" },
	{ IB_USER_VERBS_CMD_DESTROY_CQ, "RH0" },
	{ IB_USER_VERBS_CMD_POLL_CQ, "RHS" },
	{ IB_USER_VERBS_CMD_CREATE_QP, "RAHHHHSSssST" },
	{ IB_USER_VERBS_CMD_CREATE_QP, "RAHHHHSSssST" },
	{ IB_USER_VERBS_CMD_DESTROY_QP, "RH0" },
	{ IB_USER_VERBS_CMD_POST_SEND, "RH00W" },
	{ IB_USER_VERBS_CMD_POST_RECV, "RH00W" },
	{ IB_USER_VERBS_CMD_ATTACH_MCAST, "GH0" },
	{ IB_USER_VERBS_CMD_DETACH_MCAST, "GH0" },
	{ IB_USER_VERBS_CMD_CREATE_SRQ, "RAHSs0" },
	{ IB_USER_VERBS_CMD_QUERY_SRQ, "RH0" },
	{ IB_USER_VERBS_CMD_DESTROY_SRQ, "RH0" },
	{ IB_USER_VERBS_CMD_POST_SRQ_RECV, "RH00W" },
	{ IB_USER_VERBS_CMD_OPEN_XRCD, "RC0" },
};

static size_t spell(uint8_t *to, const char *words)
{
	static const uint8_t group[16] = { [10] = 255, 255, 239, 1, 1, 1 };
	uint8_t *at = to;
	uint64_t v = 0;

	for (; *words; words++) {
		size_t n = 4;

		switch (*words) {
		case 'R': v = pointer(arena); n = 8; break;
		case 'A': v = rnd(); n = 8; break;
		case 'H': v = rnd() % HANDLES; break;
		case 'S': v = rnd() % 100; break;
		case 's': v = rnd() % 5; break;
		case 'C': v = rnd() % 3 ? -1 : (int)(rnd() % 20); break;
		case 'G': memcpy(at, group, 16); at += 16; continue;
		case 'T': v = (2 + rnd() % 3) << 8 | (rnd() & 1) |
			      (rnd() % 5 == 0) << 16; break;
		case 'W': v = 128; break;
		default: v = *words - '0';
		}
		memcpy(at, &v, n);
		at += n;
	}
	return at - to;
}

static int spelled(int fd)
{
	uint8_t buf[512] = {};
	struct ib_uverbs_cmd_hdr *h = (void *)buf;
	size_t k = rnd() % ARRAY_SIZE(commands), len;
	int i;

	len = sizeof(*h) + spell((uint8_t *)(h + 1), commands[k].words);
	*h = (struct ib_uverbs_cmd_hdr){ commands[k].cmd, len / 4, 64 };
	for (i = rnd() % 4 ? 0 : rnd() % 4; i > 0; i--)
		change_bytes(buf, len);
	by_command[commands[k].cmd].made++;
	last_command = h->command;
	if (syscall(SYS_write, fd, buf, len) == (ssize_t)len)
		by_command[commands[k].cmd].good++;
	return 0;
}

static void recorded(int fd)
{
	struct call c = calls[rnd() % ncalls];
	uint32_t cmd = rnd() % 56;
	uint8_t buf[1024] = {};
	struct ib_uverbs_cmd_hdr *h = (void *)buf;
	struct ib_uverbs_ex_cmd_hdr *x = (void *)(h + 1);
	size_t len = rnd() % 200, n, driver = 0;
	const uint8_t *in, *drv;
	struct tally *t;
	bool ex;
	int i;

	for (i = 0; i < 200 && (c.object || c.method); i++)
		c = calls[rnd() % ncalls];
	for (i = 0; i < c.n; i++)
		if (c.attr[i].attr_id == UVERBS_ATTR_WRITE_CMD)
			cmd = c.attr[i].data;
	if (rnd() % 30 == 0)
		cmd = rnd();
	else if (rnd() % 10 == 0)
		cmd = rnd() % 56;
	ex = cmd & IB_USER_VERBS_CMD_FLAG_EXTENDED || rnd() % 60 == 0;
	if (ex)
		cmd |= IB_USER_VERBS_CMD_FLAG_EXTENDED;
	t = &by_command[(cmd & 0xff) % COMMANDS];
	in = attr_of(&c, UVERBS_ATTR_CORE_IN, &n);
	drv = attr_of(&c, UVERBS_ATTR_UHW_IN, &driver);
	if (ex) {
		/* The core's part and the driver's, each in units of 8. */
		uint8_t *body = (uint8_t *)(x + 1);

		len = 0;
		if (in)
			memcpy(body, in, len = n);
		len = (len + 7) & ~7ull;
		if (drv)
			memcpy(body + len, drv, driver);
		driver = (driver + 7) / 8;
		x->response = pointer(arena);
		x->provider_in_words = driver;
		x->provider_out_words = 8;
		h->in_words = len / 8;
		h->out_words = 32;
		len = sizeof(*h) + sizeof(*x) + len + 8 * driver;
	} else {
		uint64_t response = pointer(arena);

		if (in)
			memcpy(h + 1, in, len = n);
		if (drv)
			memcpy((uint8_t *)(h + 1) + len, drv, driver);
		len = (sizeof(*h) + len + driver + 3) & ~3ull;
		/* Most commands begin with where to answer. */
		if (len >= 16 && is_pointer(*(uint64_t *)(h + 1)))
			memcpy(h + 1, &response, 8);
		h->in_words = len / 4;
		h->out_words = 64;
	}
	h->command = cmd;
	for (i = rnd() % 4; i > 0; i--)
		change_bytes(buf + (rnd() % 6 ? sizeof(*h) : 0),
			     len > 8 ? len - 8 : len);
	if (rnd() % 20 == 0)
		len = rnd() % sizeof(buf);
	t->made++;
	last_command = h->command;
	if (syscall(SYS_write, fd, buf, len) == (ssize_t)len)
		t->good++;
}

/* The same commands as they were before there were ioctls. */
static void by_write(int fd)
{
	if (rnd() & 1) {
		spelled(fd);
		return;
	}
	recorded(fd);
}

/* ---- processes ------------------------------------------------------------ */

/* A process tells what it did; answers that went astray may have hit that. */
static void hand_over(int fd)
{
	if (write(fd, by_method, sizeof(by_method)) < 0 ||
	    write(fd, by_command, sizeof(by_command)) < 0)
		printf("# nothing handed over\n");
}

static void add(struct tally *to, int fd, int n, uint32_t most)
{
	struct tally t;

	for (; n > 0; n--, to++) {
		if (read(fd, &t, sizeof(t)) != sizeof(t))
			return;
		if (t.made > most || t.good > t.made)
			continue;
		to->made += t.made;
		to->good += t.good;
	}
}

/* Objects with small handles, of each kind; then calls at random. */
static int caller(uint64_t seed, void (*one)(int), int n, int fd)
{
	struct opts o = opts_short();
	struct ibv_srq_init_attr sa = { .attr = { .max_wr = 8, .max_sge = 2 } };
	struct pair p, u;
	int i;

	rng = seed * 0x9e3779b97f4a7c15ull | 1;
	if (host_open(&host_a) || host_open(&host_b))
		return 1;
	o.depth = 4;
	o.buf = 16384;
	o.channel = true;
	run_ok(pair_up(&p, &o));
	o.type = IBV_QPT_UD;
	run_ok(pair_up(&u, &o));
	check(ibv_create_srq(host_a.pd, &sa));
	check(ibv_alloc_mw(host_a.pd, IBV_MW_TYPE_1));
	memset(by_method, 0, sizeof(by_method));
	memset(by_command, 0, sizeof(by_command));
	for (i = 0; i < n; i++) {
		uint64_t begin = now_us();

		/* The core waits for a second for an address that nobody has. */
		one(host_a.ctx->cmd_fd);
		if (now_us() - begin > 5000000)
			printf("# call %d (command 0x%x) took %llu ms\n", i,
			       last_command, (unsigned long long)(now_us() - begin) / 1000);
	}
	hand_over(fd);
	return 0;
}

/* The calls that a storm makes, and how many kinds are to succeed in the end. */
struct calls {
	const char *what;
	void (*one)(int);
	const struct tally *t;
	int n, width, least;
};

static int kinds(const struct calls *c)
{
	int i, found = 0;

	for (i = 0; i < c->n; i++)
		found += !!c->t[i].good;
	return found;
}

static void tell(const struct calls *c)
{
	uint64_t made = 0, good = 0;
	int i;

	printf("# %s that succeeded:", c->what);
	for (i = 0; i < c->n; i++) {
		made += c->t[i].made;
		good += c->t[i].good;
		if (!c->t[i].good)
			continue;
		if (c->width)
			printf(" %d.%d", i / c->width, i % c->width);
		else
			printf(" %d", i);
	}
	printf("\n# %llu calls, %llu good, %d kinds\n",
	       (unsigned long long)made, (unsigned long long)good, kinds(c));
}

/*
 * Some rounds of n calls each, and more, up to four times as many, if chance
 * will have it that too few kinds succeeded in them.
 */
static int storm(const struct calls *c, int rounds, int n)
{
	uint64_t seed = getenv("RXO_SEED") ? strtoull(getenv("RXO_SEED"), 0, 0) :
					     (uint64_t)getpid();
	int r, status, died = 0;

	printf("# RXO_SEED=%llu\n", (unsigned long long)seed);
	arena = mmap(NULL, ARENA + 4096, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(arena != MAP_FAILED);
	check_ok(munmap(arena + ARENA, 4096));
	recording = true;
	run_ok(use_everything());
	recording = false;
	check(ncalls > 40);
	run_ok(bystander_make());
	for (r = 0; r < rounds || (kinds(c) < c->least && r < 4 * rounds); r++) {
		int fds[2];
		pid_t pid;

		check_ok(pipe(fds));
		fflush(stdout);
		pid = fork();
		check(pid >= 0);
		if (!pid) {
			int s;

			alarm(60);
			s = caller(seed + r, c->one, n, fds[1]);
			fflush(stdout);
			_exit(s);
		}
		close(fds[1]);
		run_ok(sanity());
		add(&by_method[0][0], fds[0], OBJECTS * METHODS, n);
		add(by_command, fds[0], COMMANDS, n);
		close(fds[0]);
		check(waitpid(pid, &status, 0) == pid);
		if (WIFSIGNALED(status)) {
			/* answers may have gone anywhere in its memory */
			check(WTERMSIG(status) != SIGALRM);
			died++;
		} else {
			check(WEXITSTATUS(status) == 0);
		}
		check(check_byte(bystander, BYSTANDER, POISON) < 0);
	}
	if (died)
		printf("# %d of %d processes died\n", died, r);
	check(died < r / 2 + 1);
	run_ok(sanity());
	tell(c);
	check(kinds(c) >= c->least);
	return 0;
}

static int ioctls(void)
{
	static const struct calls c = {
		"methods", by_ioctl, &by_method[0][0], OBJECTS * METHODS,
		METHODS,
		10,	/* of the objects that there are, most methods */
	};

	return storm(&c, quick ? 12 : 100, quick ? 1500 : 2000);
}

static int writes(void)
{
	static const struct calls c = {
		"commands", by_write, by_command, COMMANDS, 0, 18,
	};

	return storm(&c, quick ? 12 : 60, 1000);
}

static const struct testcase cases[] = {
	{ "ioctls", ioctls, 300 },
	{ "writes", writes, 300 },
};

int main(int argc, char **argv)
{
	return rig_main(argc, argv, cases, ARRAY_SIZE(cases));
}
