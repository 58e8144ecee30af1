// SPDX-License-Identifier: GPL-2.0
/*
 * Regions of dma-bufs. The buffer is a memfd behind /dev/udmabuf, so that the
 * test sees the memory too. rdma-core has no ibv_reg_dmabuf_mr() for this
 * provider: as the library would.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include "rig.h"

#define LEN (256 << 10)

static uint8_t *mem;
static int buffer = -1;

struct region {
	uint32_t handle, lkey, rkey;
};

static int make_buffer(void)
{
	struct udmabuf_create c = { .size = LEN };
	int dev;

	dev = open("/dev/udmabuf", O_RDWR);
	if (dev < 0)
		skip("no /dev/udmabuf: %s", strerror(errno));
	c.memfd = memfd_create("dmabuf", MFD_ALLOW_SEALING);
	check((int)c.memfd >= 0);
	check_ok(ftruncate(c.memfd, LEN));
	check_ok(fcntl(c.memfd, F_ADD_SEALS, F_SEAL_SHRINK));
	mem = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, c.memfd, 0);
	check(mem != MAP_FAILED);
	buffer = ioctl(dev, UDMABUF_CREATE, &c);
	if (buffer < 0)
		fail("UDMABUF_CREATE: %s", strerror(errno));
	close(c.memfd);
	close(dev);
	return 0;
}

static struct ib_uverbs_attr attr(int id, int len, uint64_t data)
{
	return (struct ib_uverbs_attr){
		.attr_id = id, .len = len, .flags = UVERBS_ATTR_F_MANDATORY,
		.data = data,
	};
}

/* 0, or an errno. */
static int reg(struct host *h, int fd, uint64_t offset, uint64_t len,
	       uint64_t iova, uint32_t access, struct region *r)
{
	struct {
		struct ib_uverbs_ioctl_hdr hdr;
		struct ib_uverbs_attr attrs[9];
	} c = { .hdr = {
		.length = sizeof(c), .object_id = UVERBS_OBJECT_MR,
		.method_id = UVERBS_METHOD_REG_DMABUF_MR, .num_attrs = 9,
		.driver_id = RDMA_DRIVER_RXE,
	} };
	int i = 0;

	c.attrs[i++] = attr(UVERBS_ATTR_REG_DMABUF_MR_HANDLE, 0, 0);
	c.attrs[i++] = attr(UVERBS_ATTR_REG_DMABUF_MR_PD_HANDLE, 0, h->pd->handle);
	c.attrs[i++] = attr(UVERBS_ATTR_REG_DMABUF_MR_OFFSET, 8, offset);
	c.attrs[i++] = attr(UVERBS_ATTR_REG_DMABUF_MR_LENGTH, 8, len);
	c.attrs[i++] = attr(UVERBS_ATTR_REG_DMABUF_MR_IOVA, 8, iova);
	c.attrs[i++] = attr(UVERBS_ATTR_REG_DMABUF_MR_FD, 4, (uint32_t)fd);
	c.attrs[i++] = attr(UVERBS_ATTR_REG_DMABUF_MR_ACCESS_FLAGS, 4, access);
	c.attrs[i++] = attr(UVERBS_ATTR_REG_DMABUF_MR_RESP_LKEY, 4,
			    (uintptr_t)&r->lkey);
	c.attrs[i++] = attr(UVERBS_ATTR_REG_DMABUF_MR_RESP_RKEY, 4,
			    (uintptr_t)&r->rkey);
	if (ioctl(h->ctx->cmd_fd, RDMA_VERBS_IOCTL, &c))
		return errno;
	r->handle = c.attrs[0].data;
	return 0;
}

static int dereg(struct host *h, const struct region *r)
{
	struct {
		struct ib_uverbs_ioctl_hdr hdr;
		struct ib_uverbs_attr attrs[1];
	} c = { .hdr = {
		.length = sizeof(c), .object_id = UVERBS_OBJECT_MR,
		.method_id = UVERBS_METHOD_MR_DESTROY, .num_attrs = 1,
		.driver_id = RDMA_DRIVER_RXE,
	} };

	c.attrs[0] = attr(UVERBS_ATTR_DESTROY_MR_HANDLE, 0, r->handle);
	return ioctl(h->ctx->cmd_fd, RDMA_VERBS_IOCTL, &c) ? errno : 0;
}

static int one(struct pair *p, enum ibv_wr_opcode op, uint64_t raddr,
	       uint32_t rkey, uint32_t len, enum ibv_wc_status st)
{
	check_ok(post(&p->a, &(struct wr){
		.id = 7, .op = op, .flags = IBV_SEND_SIGNALED, .len = len,
		.raddr = raddr, .rkey = rkey }));
	run_ok(expect_wc(p->a.scq, 7, st, 5000, NULL));
	return 0;
}

/* A peer writes to the buffer and reads from it, by an address of no memory. */
static int remote(void)
{
	const uint64_t iova = 0x700000000000ull;
	struct opts o = opts_default();
	struct region r;
	struct pair p;

	run_ok(make_buffer());
	o.buf = LEN;
	run_ok(pair_up(&p, &o));
	check_ok(reg(&host_b, buffer, 0, LEN, iova, ACC_ALL, &r));
	/* The region keeps the buffer. */
	close(buffer);
	memset(mem, 0, LEN);
	fill(p.a.buf, LEN, 1);
	run_ok(one(&p, IBV_WR_RDMA_WRITE, iova, r.rkey, LEN, IBV_WC_SUCCESS));
	check(check_fill(mem, LEN, 1) < 0);
	fill(mem, LEN, 2);
	memset(p.a.buf, 0, LEN);
	run_ok(one(&p, IBV_WR_RDMA_READ, iova, r.rkey, LEN, IBV_WC_SUCCESS));
	check(check_fill(p.a.buf, LEN, 2) < 0);
	run_ok(one(&p, IBV_WR_RDMA_READ, iova + 1, r.rkey, LEN,
		   IBV_WC_REM_ACCESS_ERR));
	check_ok(dereg(&host_b, &r));
	return pair_down(&p);
}

/* A part of the buffer, atomics in it, and its own sends and receives. */
static int part(void)
{
	const uint32_t at = 8192, len = 12288;
	struct opts o = opts_default();
	struct ibv_sge sge = { .length = 5000 };
	struct ibv_recv_wr rw = { .wr_id = 9, .sg_list = &sge, .num_sge = 1 }, *rb;
	struct wr w = {
		.id = 8, .op = IBV_WR_ATOMIC_FETCH_AND_ADD, .len = 8, .add = 5,
		.flags = IBV_SEND_SIGNALED,
	};
	struct region r;
	struct pair p;

	run_ok(make_buffer());
	run_ok(pair_up(&p, &o));
	check_ok(reg(&host_b, buffer, at, len, at, ACC_ALL, &r));
	memset(mem, 0, LEN);
	w.raddr = at + 16;
	w.rkey = r.rkey;
	check_ok(post(&p.a, &w));
	run_ok(expect_wc(p.a.scq, 8, IBV_WC_SUCCESS, 5000, NULL));
	check(*(uint64_t *)(mem + at + 16) == 5);

	sge.addr = at + 100;
	sge.lkey = r.lkey;
	check_ok(ibv_post_recv(p.b.qp, &rw, &rb));
	fill(p.a.buf, 5000, 3);
	check_ok(post(&p.a, &(struct wr){ .id = 10, .op = IBV_WR_SEND,
		.len = 5000, .flags = IBV_SEND_SIGNALED }));
	run_ok(expect_wc(p.b.rcq, 9, IBV_WC_SUCCESS, 5000, NULL));
	check(check_fill(mem + at + 100, 5000, 3) < 0);
	check(check_byte(mem, at, 0) < 0);
	check(check_byte(mem + at + len, LEN - at - len, 0) < 0);
	check_ok(dereg(&host_b, &r));
	return pair_down(&p);
}

static int refused(void)
{
	struct region r;
	int fd;

	run_ok(make_buffer());
	check_errno(reg(&host_b, -1, 0, LEN, 0, ACC_ALL, &r), EBADF);
	fd = open("/dev/null", O_RDWR);
	check_errno(reg(&host_b, fd, 0, 4096, 0, ACC_ALL, &r), EINVAL);
	check_errno(reg(&host_b, buffer, 0, 0, 0, ACC_ALL, &r), EINVAL);
	check_errno(reg(&host_b, buffer, 0, LEN + 1, 0, ACC_ALL, &r), EINVAL);
	check_errno(reg(&host_b, buffer, LEN, 4096, 0, ACC_ALL, &r), EINVAL);
	check_errno(reg(&host_b, buffer, ~0ull & ~4095, 8192, 0, ACC_ALL, &r),
		    EINVAL);
	check_errno(reg(&host_b, buffer, 0, LEN, ~0ull & ~4095, ACC_ALL, &r),
		    EINVAL);
	return sanity();
}

static const struct testcase cases[] = {
	{ "dmabuf_remote", remote },
	{ "dmabuf_part", part },
	{ "dmabuf_refused", refused },
};

int main(int argc, char **argv)
{
	return rig_main(argc, argv, cases, ARRAY_SIZE(cases));
}
