// SPDX-License-Identifier: GPL-2.0
/*
 * Each allocation of each verb fails, one after the other: /proc/PID/fail-nth
 * makes the nth allocation of a call fail. The call fails or does without;
 * after it all is as if it had not been made, or as if nothing had happened.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <sys/socket.h>
#include <arpa/inet.h>
#include <linux/netlink.h>
#include <rdma/rdma_netlink.h>
#include "rig.h"

static int nth_fd = -1;

static void fail_nth(int n)
{
	char s[16];
	int len = snprintf(s, sizeof(s), "%d", n);

	if (pwrite(nth_fd, s, len, 0) != len)
		perror("fail-nth");
}

/* Whether an allocation failed since fail_nth(); none does from here on. */
static bool failed_one(void)
{
	char s[16] = "";
	bool failed;

	failed = pread(nth_fd, s, sizeof(s) - 1, 0) > 0 && atoi(s) == 0;
	fail_nth(0);
	return failed;
}

static int prepare(void)
{
	nth_fd = open("/proc/thread-self/fail-nth", O_RDWR);
	if (nth_fd < 0)
		skip("this kernel injects no faults");
	return 0;
}

/*
 * ITERATE { setup; TRY(call); if (!tried) the call succeeded ... }
 * ends with the first n that is more than the call allocates.
 */
static int n, injected, refused, tried, stride = 1;

#define ITERATE \
	for (n = 1, injected = refused = 0; n < 3000; n += stride)
#define TRY(call) \
	do { \
		fail_nth(n); \
		tried = (call); \
		if (!failed_one()) { \
			n = 3000; \
			if (tried) \
				fail("%s fails without a reason: %d, %s", \
				     #call, tried, strerror(errno)); \
			break; \
		} \
		injected++; \
		refused += !!tried; \
	} while (0)

static int report(const char *what)
{
	printf("# %s: %d allocations failed, and %d times the call\n", what,
	       injected, refused);
	return 0;
}

static int must(const char *what)
{
	report(what);
	check(injected > 0);
	return 0;
}

/* A verb that returns a pointer, as one that returns a status. */
#define made(p) ((p) ? 0 : errno ? errno : -1)

static int open_close(void)
{
	/* of the namespace that this process is in */
	struct ibv_device *dev = host_b.ctx->device;
	struct ibv_context *ctx;

	run_ok(prepare());
	ITERATE {
		ctx = NULL;
		TRY(made(ctx = ibv_open_device(dev)));
		if (ctx)
			check_ok(ibv_close_device(ctx));
	}
	run_ok(must("open"));
	return sanity();
}

static int domains(void)
{
	struct ibv_pd *pd;
	struct ibv_mw *mw;

	run_ok(prepare());
	ITERATE {
		pd = NULL;
		TRY(made(pd = ibv_alloc_pd(host_a.ctx)));
		if (pd)
			check_ok(ibv_dealloc_pd(pd));
	}
	run_ok(must("alloc_pd"));
	ITERATE {
		mw = NULL;
		TRY(made(mw = ibv_alloc_mw(host_a.pd, IBV_MW_TYPE_1)));
		if (mw)
			check_ok(ibv_dealloc_mw(mw));
	}
	run_ok(must("alloc_mw"));
	return sanity();
}

static int regions(void)
{
	size_t len = 1 << 20;
	uint8_t *buf = malloc(len);
	struct ibv_mr *mr;

	run_ok(prepare());
	check(buf);
	memset(buf, 1, len);
	ITERATE {
		mr = NULL;
		TRY(made(mr = ibv_reg_mr(host_a.pd, buf, len, ACC_ALL)));
		if (mr)
			check_ok(ibv_dereg_mr(mr));
	}
	run_ok(must("reg_mr"));
	mr = ibv_reg_mr(host_a.pd, buf, len, ACC_ALL);
	check(mr);
	ITERATE
		TRY(rereg(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buf,
			  len / 2, 0));
	run_ok(must("rereg_mr"));
	check_ok(ibv_dereg_mr(mr));
	free(buf);
	return sanity();
}

static int queues(void)
{
	struct ibv_srq_init_attr sa = { .attr = { .max_wr = 64, .max_sge = 4 } };
	struct ibv_srq_attr at = { .max_wr = 64 };
	struct ibv_cq *cq;
	struct ibv_srq *srq;

	run_ok(prepare());
	ITERATE {
		cq = NULL;
		TRY(made(cq = ibv_create_cq(host_a.ctx, 100, NULL, NULL, 0)));
		if (cq)
			check_ok(ibv_destroy_cq(cq));
	}
	run_ok(must("create_cq"));
	cq = ibv_create_cq(host_a.ctx, 100, NULL, NULL, 0);
	check(cq);
	ITERATE
		TRY(ibv_resize_cq(cq, 100 + n % 300));
	run_ok(must("resize_cq"));
	check_ok(ibv_destroy_cq(cq));
	ITERATE {
		srq = NULL;
		TRY(made(srq = ibv_create_srq(host_a.pd, &sa)));
		if (srq)
			check_ok(ibv_destroy_srq(srq));
	}
	run_ok(must("create_srq"));
	srq = ibv_create_srq(host_a.pd, &sa);
	check(srq);
	ITERATE {
		at.max_wr = 64 + n % 300;
		TRY(ibv_modify_srq(srq, &at, IBV_SRQ_MAX_WR));
	}
	run_ok(must("modify_srq"));
	check_ok(ibv_destroy_srq(srq));
	return sanity();
}

static int pairs(void)
{
	static const enum ibv_qp_type types[] = { IBV_QPT_RC, IBV_QPT_UC,
						  IBV_QPT_UD };
	struct opts o = opts_default();
	struct ep e, peer;
	size_t k;

	run_ok(prepare());
	run_ok(ep_create(&peer, &host_b, &o));
	for (k = 0; k < ARRAY_SIZE(types); k++) {
		struct ibv_qp_init_attr ia = {
			.qp_type = types[k],
			.cap = { 64, 64, 4, 4, 64 },
		};
		struct ibv_qp *qp;

		o.type = types[k];
		run_ok(ep_create(&e, &host_a, &o));
		ia.send_cq = e.scq;
		ia.recv_cq = e.rcq;
		ITERATE {
			qp = NULL;
			TRY(made(qp = ibv_create_qp(host_a.pd, &ia)));
			if (qp)
				check_ok(ibv_destroy_qp(qp));
		}
		run_ok(must("create_qp"));
		ITERATE {
			/* the parts of the rig print when they fail */
			run_ok(ep_state(&e, IBV_QPS_RESET));
			run_ok(ep_init(&e, &o));
			TRY(ep_rtr(&e, &peer, &o));
		}
		report("RTR");
		ITERATE {
			run_ok(ep_state(&e, IBV_QPS_RESET));
			run_ok(ep_init(&e, &o));
			run_ok(ep_rtr(&e, &peer, &o));
			TRY(ep_rts(&e, &o));
		}
		report("RTS");
		ITERATE
			TRY(ep_state(&e, IBV_QPS_ERR));
		report("ERR");
		run_ok(ep_destroy(&e));
	}
	run_ok(ep_destroy(&peer));
	return sanity();
}

static int addresses(void)
{
	struct ibv_ah_attr aa = { .is_global = 1, .port_num = 1,
		.grh = { .sgid_index = host_a.gidx, .dgid = host_b.gid } };
	union ibv_gid gid = { .raw = { [10] = 0xff, 0xff, 239, 1, 1, 1 } };
	struct opts o = opts_default();
	struct ibv_ah *ah;
	struct ep e, f;

	run_ok(prepare());
	ITERATE {
		ah = NULL;
		TRY(made(ah = ibv_create_ah(host_a.pd, &aa)));
		if (ah)
			check_ok(ibv_destroy_ah(ah));
	}
	run_ok(must("create_ah"));
	o.type = IBV_QPT_UD;
	run_ok(ep_create(&e, &host_a, &o));
	run_ok(ep_create(&f, &host_a, &o));
	run_ok(ep_init(&e, &o));
	run_ok(ep_init(&f, &o));
	ITERATE {
		TRY(ibv_attach_mcast(e.qp, &gid, 0));
		if (!tried)
			check_ok(ibv_detach_mcast(e.qp, &gid, 0));
	}
	run_ok(must("attach_mcast"));
	check_ok(ibv_attach_mcast(f.qp, &gid, 0));
	ITERATE {
		check_ok(ibv_attach_mcast(e.qp, &gid, 0));
		TRY(ibv_detach_mcast(e.qp, &gid, 0));
		/* The command may have been refused before the driver. */
		if (tried)
			check_ok(ibv_detach_mcast(e.qp, &gid, 0));
	}
	report("detach_mcast");
	check_ok(ibv_detach_mcast(f.qp, &gid, 0));
	run_ok(ep_destroy(&e));
	run_ok(ep_destroy(&f));
	return sanity();
}

/* What is destroyed is destroyed; at the second attempt at the latest. */
#define GONE(call) \
	do { \
		TRY(call); \
		if (tried) \
			check_ok(call); \
	} while (0)

static int ends(void)
{
	struct ibv_srq_init_attr sa = { .attr = { .max_wr = 64, .max_sge = 4 } };
	struct opts o = opts_default();
	struct ibv_srq *srq;
	struct pair p;

	run_ok(prepare());
	ITERATE {
		run_ok(pair_up(&p, &o));
		check_ok(post_to(&p.a, (struct wr){ .op = IBV_WR_RDMA_WRITE,
						    .len = 5000 }, &p.b, 0));
		GONE(ibv_destroy_qp(p.a.qp));
		p.a.qp = NULL;
		run_ok(pair_down(&p));
	}
	report("destroy_qp");
	ITERATE {
		run_ok(ep_create(&p.a, &host_a, &o));
		GONE(ibv_dereg_mr(p.a.mr));
		p.a.mr = NULL;
		run_ok(ep_destroy(&p.a));
	}
	report("dereg_mr");
	ITERATE {
		run_ok(ep_create(&p.a, &host_a, &o));
		check_ok(ibv_destroy_qp(p.a.qp));
		p.a.qp = NULL;
		GONE(ibv_destroy_cq(p.a.scq));
		p.a.scq = NULL;
		run_ok(ep_destroy(&p.a));
	}
	report("destroy_cq");
	ITERATE {
		srq = ibv_create_srq(host_a.pd, &sa);
		check(srq);
		GONE(ibv_destroy_srq(srq));
	}
	report("destroy_srq");
	return sanity();
}

/* Packets that there is no memory for are packets lost. */
static int doorbell(void)
{
	struct opts o = opts_default();
	struct pair p;

	run_ok(prepare());
	run_ok(pair_up(&p, &o));
	ITERATE {
		struct wr w = { .op = IBV_WR_RDMA_WRITE, .len = 40000,
				.flags = IBV_SEND_SIGNALED, .id = n };
		struct wr r = { .op = IBV_WR_RDMA_READ, .len = 40000,
				.flags = IBV_SEND_SIGNALED, .id = n,
				.off = 131072 };

		fill(p.a.buf, w.len, n);
		/* The command may be refused before the driver; what was
		 * posted is there, and goes with the next. */
		TRY(post_to(&p.a, w, &p.b, 0));
		check_ok(post_to(&p.a, r, &p.b, 0));
		run_ok(expect_wc(p.a.scq, w.id, IBV_WC_SUCCESS, 10000, NULL));
		run_ok(expect_wc(p.a.scq, r.id, IBV_WC_SUCCESS, 10000, NULL));
		check(check_fill(p.b.buf, w.len, w.id) < 0);
		check(check_fill(p.a.buf + 131072, w.len, w.id) < 0);
	}
	run_ok(must("post_send"));
	return pair_down(&p);
}

/* ---- devices -------------------------------------------------------------- */

static void attribute(struct nlmsghdr *h, int type, const char *s)
{
	struct nlattr *a = (void *)((char *)h + NLMSG_ALIGN(h->nlmsg_len));

	a->nla_type = type;
	a->nla_len = NLA_HDRLEN + strlen(s) + 1;
	strcpy((char *)a + NLA_HDRLEN, s);
	h->nlmsg_len = NLMSG_ALIGN(h->nlmsg_len) + NLA_ALIGN(a->nla_len);
}

static int new_link(int fd, const char *type)
{
	char buf[4096] = {};
	struct nlmsghdr *h = (void *)buf;
	struct nlmsgerr *e;
	ssize_t len;

	h->nlmsg_len = NLMSG_HDRLEN;
	h->nlmsg_type = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_NEWLINK);
	h->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
	attribute(h, RDMA_NLDEV_ATTR_DEV_NAME, "faulty");
	attribute(h, RDMA_NLDEV_ATTR_LINK_TYPE, type);
	attribute(h, RDMA_NLDEV_ATTR_NDEV_NAME, "spare");
	if (send(fd, buf, h->nlmsg_len, 0) < 0)
		return errno;
	/* The answer to a command may be lost for want of memory, too. */
	len = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
	if (len < (ssize_t)NLMSG_LENGTH(sizeof(*e)))
		return -1;
	e = NLMSG_DATA(h);
	return h->nlmsg_type == NLMSG_ERROR ? -e->error : -1;
}

static int links(void)
{
	char path[128], type[16];
	int fd, ns, status;

	run_ok(prepare());
	snprintf(path, sizeof(path), "/run/netns/%s", host_a.ns);
	ns = open(path, O_RDONLY);
	check(ns >= 0);
	check_ok(setns(ns, CLONE_NEWNET));
	snprintf(type, sizeof(type), "%.*s", (int)strlen(host_a.dev) - 1,
		 host_a.dev);
	check_ok(system("ip link add spare type dummy && ip link set spare up"));
	/* There are more than a thousand, most of them the core's. */
	stride = quick ? 41 : 7;
	ITERATE {
		fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_RDMA);
		check(fd >= 0);
		TRY(new_link(fd, type));
		close(fd);
		status = system("rdma link delete faulty 2>/dev/null");
		if (!tried && status)
			fail("the device is not there, at %d", n);
	}
	run_ok(must("newlink"));
	check_ok(system("ip link delete spare"));
	return sanity();
}

static const struct testcase cases[] = {
	{ "open_close", open_close, 120 },
	{ "domains", domains, 120 },
	{ "regions", regions, 300 },
	{ "queues", queues, 300 },
	{ "pairs", pairs, 300 },
	{ "addresses", addresses, 120 },
	{ "ends", ends, 300 },
	{ "doorbell", doorbell, 300 },
	{ "links", links, 600 },
};

int main(int argc, char **argv)
{
	return rig_main(argc, argv, cases, ARRAY_SIZE(cases));
}
