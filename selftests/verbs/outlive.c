// SPDX-License-Identifier: GPL-2.0
/*
 * A process that uses devices of network namespaces and is in none of them, with
 * many queue pairs and address handles, all of which have sent something. When
 * told by SIGUSR1 it prefetches memory of a file, whose file system may be frozen:
 * as long as that takes, its device can't go, though the namespace may.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include "rig.h"

#define PAIRS 50

static int use_rc(struct pair *p)
{
	struct opts o = opts_default();

	o.depth = 4;
	o.buf = 4096;
	run_ok(pair_up(p, &o));
	check_ok(post_recv(&p->b, 1, 0, 64));
	check_ok(post_recv(&p->a, 2, 64, 64));
	check_ok(post(&p->a, &(struct wr){ .id = 1, .op = IBV_WR_SEND,
		.flags = IBV_SEND_SIGNALED, .len = 64 }));
	check_ok(post(&p->b, &(struct wr){ .id = 2, .op = IBV_WR_SEND,
		.flags = IBV_SEND_SIGNALED, .off = 64, .len = 64 }));
	run_ok(expect_wc(p->a.scq, 1, IBV_WC_SUCCESS, 5000, NULL));
	return expect_wc(p->b.scq, 2, IBV_WC_SUCCESS, 5000, NULL);
}

static int use_ah(struct ep *e)
{
	struct ibv_sge sge = { (uintptr_t)e->buf, 64, e->mr->lkey };
	struct ibv_ah_attr at = {
		.is_global = 1, .port_num = 1,
		.grh = { .hop_limit = 4, .dgid = host_b.gid,
			 .sgid_index = host_a.gidx },
	};
	struct ibv_send_wr wr = {
		.wr_id = 3, .sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	wr.wr.ud.ah = ibv_create_ah(host_a.pd, &at);
	check(wr.wr.ud.ah);
	wr.wr.ud.remote_qpn = 0xfffff;
	wr.wr.ud.remote_qkey = QKEY;
	check_ok(ibv_post_send(e->qp, &wr, &bad));
	return expect_wc(e->scq, 3, IBV_WC_SUCCESS, 5000, NULL);
}

static int outlive(const char *file)
{
	static struct pair p[PAIRS];
	struct opts o = opts_default();
	int i, sig, fd = open(file, O_RDWR);
	int ns = open("/proc/self/ns/net", O_RDONLY);
	struct ibv_sge sge;
	struct ibv_mr *mr;
	struct ep ud;
	sigset_t set;
	void *m;

	check(ns >= 0 && fd >= 0);
	m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(m != MAP_FAILED);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	check_ok(sigprocmask(SIG_BLOCK, &set, NULL));
	run_ok(host_open(&host_a));
	run_ok(host_open(&host_b));
	for (i = 0; i < PAIRS; i++)
		run_ok(use_rc(&p[i]));
	o.type = IBV_QPT_UD;
	run_ok(ep_create(&ud, &host_a, &o));
	run_ok(ep_init(&ud, &o));
	run_ok(ep_rtr(&ud, NULL, &o));
	run_ok(ep_rts(&ud, &o));
	for (i = 0; i < PAIRS; i++)
		run_ok(use_ah(&ud));
	mr = ibv_reg_mr(host_a.pd, m, 4096, ACC_ALL | IBV_ACCESS_ON_DEMAND);
	check(mr);
	sge = (struct ibv_sge){ (uintptr_t)m, 4096, mr->lkey };
	check_ok(setns(ns, CLONE_NEWNET));
	printf("going\n");
	fflush(stdout);
	check_ok(sigwait(&set, &sig));
	printf("prefetched: %d\n",
	       advise_mr(host_a.pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
			 IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1));
	fflush(stdout);
	pause();
	return 0;
}

int main(int argc, char **argv)
{
	return outlive(argv[rig_args(argc, argv)]);
}
