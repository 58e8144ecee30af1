// SPDX-License-Identifier: GPL-2.0
/*
 * The rings that a process shares with the kernel, as the hostile programs
 * find them, and their random numbers.
 */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/syscall.h>
#include <rdma/ib_user_verbs.h>
#include "rings.h"

struct map maps[8];
int nmaps;

/* The provider library finds these before the C library's. */
void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off64_t off);
void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off64_t off)
{
	void *p = (void *)syscall(SYS_mmap, addr, len, prot, flags, fd, off);

	if (p != MAP_FAILED && fd >= 0 && (flags & MAP_TYPE) == MAP_SHARED &&
	    (prot & PROT_WRITE) && nmaps < (int)ARRAY_SIZE(maps))
		maps[nmaps++] = (struct map){ p, len, off };
	return p;
}

void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t off)
{
	return mmap64(addr, len, prot, flags, fd, off);
}

int rings_create(struct ep *e, struct host *h, const struct opts *o,
		 struct rings *r)
{
	int i;

	nmaps = 0;
	run_ok(ep_create(e, h, o));
	if (nmaps < RINGS)
		fail("saw %d rings only", nmaps);
	for (i = 0; i < RINGS; i++) {
		r->m[i] = maps[i];
		r->q[i] = maps[i].addr;
		r->mask[i] = r->q[i]->index_mask;
		r->log2[i] = r->q[i]->log2_elem_size;
		check(r->mask[i] && r->log2[i] >= 4 && r->log2[i] < 16);
	}
	return 0;
}

int victims(struct pair *p, const struct opts *o, struct rings *ra,
	    struct rings *rb)
{
	p->o = *o;
	run_ok(rings_create(&p->a, &host_a, o, ra));
	run_ok(rings_create(&p->b, &host_b, o, rb));
	return pair_connect(p);
}

void *slot(struct rings *r, int which, uint32_t index)
{
	return r->q[which]->data + ((size_t)(index & r->mask[which])
				    << r->log2[which]);
}

int doorbell_raw(struct ep *e, uint32_t handle, uint32_t wr_count,
		 uint32_t sge_count, uint32_t wqe_size)
{
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		__u64 response;
		__u32 qp_handle, wr_count, sge_count, wqe_size;
	} cmd = {
		.hdr = { .command = IB_USER_VERBS_CMD_POST_SEND,
			 .in_words = sizeof(cmd) / 4, .out_words = 1 },
		.qp_handle = handle, .wr_count = wr_count,
		.sge_count = sge_count, .wqe_size = wqe_size,
	};
	struct ib_uverbs_post_send_resp resp;

	cmd.response = (uintptr_t)&resp;
	return write(e->h->ctx->cmd_fd, &cmd, sizeof(cmd)) == sizeof(cmd) ?
	       0 : errno;
}

void doorbell(struct ep *e)
{
	doorbell_raw(e, e->qp->handle, 0, 0, sizeof(struct ibv_send_wr));
}

uint64_t rng = 88172645463325252ull;

uint64_t rnd(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return rng;
}

uint32_t odd_u32(void)
{
	static const uint32_t odd[] = {
		0, 1, 2, 5, 31, 32, 33, 255, 256, 4096, 0x7fff, 0x8000, 0xffff,
		0x10000, 0x7fffffff, 0x80000000, 0x80000001, 0xfffffff0,
		0xfffffffe, 0xffffffff,
	};

	return rnd() & 1 ? odd[rnd() % ARRAY_SIZE(odd)] : (uint32_t)rnd();
}

void scribble(void *p, size_t len)
{
	uint8_t *b = p;
	size_t i;

	for (i = 0; i < len; i++)
		b[i] = rnd();
}

uint8_t *bystander;

int bystander_make(void)
{
	bystander = malloc(BYSTANDER);
	check(bystander);
	memset(bystander, POISON, BYSTANDER);
	return 0;
}

int unharmed(void)
{
	check(check_byte(bystander, BYSTANDER, POISON) < 0);
	return sanity();
}

void settle(void)
{
	usleep(2000);
}

struct opts opts_short(void)
{
	struct opts o = opts_default();

	o.retry = 1;
	o.timeout = 8;
	o.rnr_retry = 1;
	o.rnr_timer = 1;
	o.buf = 65536;
	o.depth = 16;
	return o;
}

void good_wqe(struct rxe_send_wqe *w, struct ep *e, struct ep *peer, bool ud)
{
	memset(w, 0, sizeof(*w));
	w->wr.wr_id = 99;
	w->wr.opcode = ud ? IBV_WR_SEND : IBV_WR_RDMA_WRITE;
	w->wr.send_flags = IBV_SEND_SIGNALED;
	w->iova = (uintptr_t)peer->buf;
	if (ud) {
		w->wr.wr.ud.remote_qpn = peer->qp->qp_num;
		w->wr.wr.ud.remote_qkey = QKEY;
		w->wr.wr.ud.ah_num = 1;
	} else {
		w->wr.wr.rdma.remote_addr = (uintptr_t)peer->buf;
		w->wr.wr.rdma.rkey = peer->mr->rkey;
	}
	w->dma.length = w->dma.resid = 256;
	w->dma.num_sge = 1;
	w->dma.sge[0] = (struct rxe_sge){ (uintptr_t)e->buf, 256, e->mr->lkey };
}

struct stolen stolen;

void mutate(struct rxe_send_wqe *w)
{
	int n = 1 + rnd() % 4;

	while (n--)
		switch (rnd() % 24) {
		case 0: w->wr.opcode = rnd() % 20; break;
		case 1: w->wr.opcode = odd_u32(); break;
		case 2: w->wr.send_flags = odd_u32(); break;
		case 3: w->dma.num_sge = odd_u32(); break;
		case 4: w->dma.cur_sge = odd_u32(); break;
		case 5: w->dma.sge_offset = odd_u32(); break;
		case 6: w->dma.length = odd_u32(); break;
		case 7: w->dma.resid = odd_u32(); break;
		case 8: w->dma.sge[0].length = odd_u32(); break;
		case 9: w->dma.sge[0].lkey = odd_u32(); break;
		case 10: w->dma.sge[0].addr = rnd(); break;
		case 11: w->dma.sge[0].addr = (uintptr_t)bystander; break;
		case 12: w->dma.sge[1] = w->dma.sge[0]; w->dma.num_sge = 2;
			 break;
		case 13: w->wr.wr.rdma.remote_addr = rnd(); break;
		case 14: w->wr.wr.rdma.rkey = odd_u32(); break;
		case 15: w->state = odd_u32(); break;
		case 16: w->status = odd_u32(); w->mask = odd_u32(); break;
		case 17: w->first_psn = odd_u32(); w->last_psn = odd_u32();
			 w->ssn = odd_u32(); break;
		case 18: w->iova = rnd(); w->has_rd_atomic = odd_u32(); break;
		case 19: w->wr.wr.ud.ah_num = odd_u32();
			 w->wr.wr.ud.remote_qpn = odd_u32(); break;
		case 20: w->wr.send_flags |= IBV_SEND_INLINE; break;
		case 21: scribble(w, sizeof(*w)); break;
		case 22: w->dma.sge[0].lkey = stolen.lkey;
			 w->dma.sge[0].addr = stolen.addr; break;
		case 23: w->wr.wr.rdma.rkey = stolen.rkey;
			 w->wr.wr.rdma.remote_addr = stolen.addr; break;
		}
}
