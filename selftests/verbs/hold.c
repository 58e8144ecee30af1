// SPDX-License-Identifier: GPL-2.0
/*
 * Holds one object of each kind, and two connected queue pairs, prints what
 * they are, and goes when its input ends.
 */
#include "rig.h"

static int hold(void)
{
	struct ibv_srq_init_attr sa = {
		.attr = { .max_wr = 10, .max_sge = 1 },
	};
	struct opts o = opts_default();
	struct ibv_recv_wr wr, *bad;
	struct ibv_srq *srq;
	struct pair p;
	struct ep idle;
	int i;
	char c;

	o.buf = 12288;
	run_ok(host_open(&host_a));
	host_b = host_a;
	run_ok(pair_up(&p, &o));
	o.buf = 4096;
	run_ok(ep_create(&idle, &host_a, &o));
	run_ok(ep_init(&idle, &o));
	printf("qp %u RTS\nqp %u RTS\nqp %u INIT\n", p.a.qp->qp_num,
	       p.b.qp->qp_num, idle.qp->qp_num);
	printf("cq %d\ncq %d\ncq %d\ncq %d\ncq %d\ncq %d\n", p.a.scq->cqe,
	       p.a.rcq->cqe, p.b.scq->cqe, p.b.rcq->cqe, idle.scq->cqe,
	       idle.rcq->cqe);
	/* B's region has another length, to tell them apart */
	check_ok(ibv_dereg_mr(p.b.mr));
	p.b.mr = ibv_reg_mr(host_b.pd, p.b.buf, 8192, ACC_ALL);
	check(p.b.mr);
	srq = ibv_create_srq(host_a.pd, &sa);
	check(srq);
	for (i = 0; i < 3; i++) {
		wr = (struct ibv_recv_wr){ .wr_id = i };
		check_ok(ibv_post_srq_recv(srq, &wr, &bad));
	}
	printf("srq 3\nmr 0x%x\nmr 0x%x\nmr 0x%x\nready\n", p.a.mr->lkey,
	       p.b.mr->lkey, idle.mr->lkey);
	fflush(stdout);
	while (read(0, &c, 1) > 0)
		;
	check_ok(ibv_destroy_srq(srq));
	run_ok(pair_down(&p));
	run_ok(ep_destroy(&idle));
	run_ok(host_close(&host_a));
	return 0;
}

int main(int argc, char **argv)
{
	rig_args(argc, argv);
	return hold();
}
