/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the verbs test programs share: two hosts (each a device in a network
 * namespace) opened by one process, pairs of connected queue pairs between
 * them, completions and events with time limits, and a runner that puts each
 * case into a process of its own and prints TAP.
 */
#ifndef RXO_SELFTEST_RIG_H
#define RXO_SELFTEST_RIG_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <infiniband/verbs.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define ACC_ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | \
		 IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define QKEY 0x11223344

enum { PASS = 0, FAIL = 1, SKIP = 4 };

/* A failed expectation: says where and what, and leaves the case. */
#define fail(fmt, ...) \
	do { \
		printf("# %s:%d: " fmt "\n", __func__, __LINE__, \
		       ##__VA_ARGS__); \
		return FAIL; \
	} while (0)
#define check(cond) \
	do { \
		if (!(cond)) \
			fail("not so: %s", #cond); \
	} while (0)
#define check_ok(expr) \
	do { \
		int _r = (expr); \
		if (_r) \
			fail("%s: %d (errno %d, %s)", #expr, _r, errno, \
			     strerror(errno)); \
	} while (0)
/* A verb that returns an errno value and must return exactly this one. */
#define check_errno(expr, want) \
	do { \
		int _r = (expr); \
		if (_r != (want)) \
			fail("%s: %d (%s), not %s", #expr, _r, \
			     strerror(_r < 0 ? -_r : _r), #want); \
	} while (0)
#define run_ok(expr) \
	do { \
		int _r = (expr); \
		if (_r) { \
			printf("# %s:%d: %s\n", __func__, __LINE__, #expr); \
			return _r; \
		} \
	} while (0)
#define skip(fmt, ...) \
	do { \
		snprintf(skip_reason, SKIP_LEN, fmt, ##__VA_ARGS__); \
		return SKIP; \
	} while (0)

/*
 * A device has not what the case is about. That of another driver may have it
 * not; rxo's must have all that a case asks for.
 */
#define lacks(h, fmt, ...) \
	do { \
		if (is_driver(h, "rxo")) \
			fail(fmt, ##__VA_ARGS__); \
		skip(fmt, ##__VA_ARGS__); \
	} while (0)

struct host {
	const char *ns, *dev;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	int gidx;
	union ibv_gid gid;
};

struct opts {
	enum ibv_qp_type type;
	int depth;		/* entries of each work queue */
	int cqe;		/* entries of each CQ */
	int sge, inl;
	int sq_sig_all;
	uint32_t psn;		/* A sends from here, B from here + 0x1000 */
	enum ibv_mtu mtu;	/* 0: the smaller active MTU */
	int timeout, retry, rnr_retry, rnr_timer;
	int rd_atomic;
	int qp_access, mr_access;
	size_t buf;
	bool channel;
	int patience_ms;	/* so long a link may be down as it connects */
	struct ibv_cq *send_cq;	/* another's, instead of one of its own */
};

struct ep {
	struct host *h;
	struct ibv_comp_channel *ch;
	struct ibv_cq *scq, *rcq;
	bool borrows_scq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	uint8_t *buf;
	size_t len;
	uint32_t psn;
};

struct pair {
	struct opts o;
	struct ep a, b;
};

#define SKIP_LEN 128
extern char *skip_reason;	/* shared with the runner */
extern struct host host_a, host_b;
extern int ip_version;
extern bool quick;

struct opts opts_default(void);
enum ibv_mtu pair_mtu(void);
int mtu_bytes(enum ibv_mtu mtu);

int host_open(struct host *h);
int host_close(struct host *h);
/* Is its device one of this driver: "rxo", "rxe", "siw"? By its name. */
bool is_driver(const struct host *h, const char *type);
int ep_create(struct ep *e, struct host *h, const struct opts *o);
int ep_destroy(struct ep *e);
/* With $RIG_ON_DEMAND memory is paged on demand, and absent at each post. */
void evict(void *p, size_t len);
int advise_mr(struct ibv_pd *pd, int advice, uint32_t flags,
	      struct ibv_sge *list, uint32_t n);
int ep_init(struct ep *e, const struct opts *o);
int ep_rtr(struct ep *e, const struct ep *peer, const struct opts *o);
int ep_rts(struct ep *e, const struct opts *o);
int ep_state(struct ep *e, enum ibv_qp_state to);
/* The state that the kernel reports, -1 if it reports none. */
int ep_query_state(struct ep *e);
/* Connects the ends of a pair that were created, as p->o says. */
int pair_connect(struct pair *p);
int pair_up(struct pair *p, const struct opts *o);
int pair_down(struct pair *p);

/* rdma-core has no ibv_rereg_mr() for this provider: as the library would. */
int rereg(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *addr,
		 size_t len, int access);

void fill(uint8_t *p, size_t len, uint32_t seed);
/* Offset of the first byte that is not of fill()'s pattern, -1 if none. */
long check_fill(const uint8_t *p, size_t len, uint32_t seed);
long check_byte(const uint8_t *p, size_t len, uint8_t byte);

struct wr {
	uint64_t id;
	enum ibv_wr_opcode op;
	unsigned int flags;	/* IBV_SEND_SIGNALED is not implied */
	size_t off;
	uint32_t len;
	uint64_t raddr;
	uint32_t rkey;
	uint32_t lkey;		/* 0: that of the endpoint */
	uint32_t imm;
	uint64_t add, swap;	/* atomics: add or compare, and swap */
};

int post(struct ep *e, const struct wr *w);
/* The same with the remote side at byte roff of the peer's buffer. */
int post_to(struct ep *e, struct wr w, struct ep *peer, size_t roff);
int post_recv(struct ep *e, uint64_t id, size_t off, uint32_t len);

uint64_t now_us(void);
/* Is it worth another try: no route, and the time is not up? Sleeps a bit. */
bool unreachable(int err, uint64_t until_us);
void relax(uint64_t since);
/* 1: one completion, 0: none in time, negative: the poll failed. */
int get_wc(struct ibv_cq *cq, struct ibv_wc *wc, int ms);
int expect_wc(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status st, int ms,
	      struct ibv_wc *out);
int expect_no_wc(struct ibv_cq *cq, int ms);
/* Waits for a completion event; 1 if there was one. Acknowledges it. */
int get_cq_event(struct ep *e, int ms);
/* Waits for an asynchronous event of this type, passing over others. */
int expect_event(struct host *h, enum ibv_event_type type,
		 const void *element, int ms);
/* 1 if an event of this type comes within ms. */
int saw_event(struct host *h, enum ibv_event_type type, int ms);

/* A message each way between fresh queue pairs, verified: all is well. */
int sanity(void);

struct testcase {
	const char *name;
	int (*fn)(void);
	int seconds;		/* 0: 30 */
};

/* -a ns:dev -b ns:dev [-6] [-l] [case...] */
int rig_main(int argc, char **argv, const struct testcase *cases, int n);
int rig_args(int argc, char **argv);

#endif
