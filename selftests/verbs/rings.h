/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The rings that a process shares with the kernel, and what the hostile
 * programs do with them.
 */
#ifndef RXO_SELFTEST_RINGS_H
#define RXO_SELFTEST_RINGS_H

#include <sys/types.h>
#include <rdma/rdma_user_rxe.h>
#include "rig.h"

#define POISON 0xa5
#define BYSTANDER 65536

struct map {
	void *addr;
	size_t len;
	off_t off;
};

/* What was mapped since nmaps was set to 0. */
extern struct map maps[8];
extern int nmaps;

enum { SCQ, RCQ, RQ, SQ, RINGS };

struct rings {
	struct map m[RINGS];
	struct rxe_queue_buf *q[RINGS];
	uint32_t mask[RINGS], log2[RINGS];
};

/* As ep_create() and pair_up(), and where the rings are. */
int rings_create(struct ep *e, struct host *h, const struct opts *o,
		 struct rings *r);
int victims(struct pair *p, const struct opts *o, struct rings *ra,
	    struct rings *rb);
void *slot(struct rings *r, int which, uint32_t index);
/* Status 0 or an errno. */
int doorbell_raw(struct ep *e, uint32_t handle, uint32_t wr_count,
		 uint32_t sge_count, uint32_t wqe_size);
void doorbell(struct ep *e);

extern uint64_t rng;
uint64_t rnd(void);
/* Often one of those that are on an edge. */
uint32_t odd_u32(void);
void scribble(void *p, size_t len);

/* A work request that works, and one that it was. */
void good_wqe(struct rxe_send_wqe *w, struct ep *e, struct ep *peer, bool ud);
void mutate(struct rxe_send_wqe *w);

/* Memory of another process, and its keys, which mutate() tries. */
extern struct stolen {
	uint32_t lkey, rkey;
	uint64_t addr;
} stolen;

/* Memory that no key covers. */
extern uint8_t *bystander;
int bystander_make(void);
/* It is as it was, and fresh queue pairs work. */
int unharmed(void);
void settle(void);
/* Few and short retries, small queues. */
struct opts opts_short(void);

#endif
