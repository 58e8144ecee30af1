// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin of QEMU's emulator: how often each block of the kernel's code is
 * executed, from when a file appears until the machine ends.
 *
 * -plugin file=insns.so,begin=FILE,out=FILE
 *
 * A line of the output is the address of a block, its instructions, and how often
 * it was executed. Time is no part of it, so what else the host does makes no
 * difference. (QEMU's header for plugins is not in the build root; what is
 * declared here is all that is used of it.)
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

struct qemu_plugin_tb;
struct qemu_plugin_scoreboard;
typedef struct {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
} qemu_plugin_u64;

enum { QEMU_PLUGIN_INLINE_ADD_U64 };

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id,
		void (*cb)(uint64_t id, struct qemu_plugin_tb *tb));
void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(
		struct qemu_plugin_tb *tb, int op, qemu_plugin_u64 entry,
		uint64_t imm);
void qemu_plugin_register_atexit_cb(uint64_t id,
		void (*cb)(uint64_t id, void *data), void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t size);
uint64_t qemu_plugin_u64_sum(qemu_plugin_u64 entry);

EXPORT int qemu_plugin_version = 4;

enum { BLOCKS = 1 << 19 };

/* Addresses from here on are the kernel's image and modules on x86-64. */
static const uint64_t kernel = 0xffffffff80000000;

static struct block {
	uint64_t at;
	uint64_t before;	/* executions when counting began */
	uint32_t insns;
} blocks[BLOCKS];
static unsigned int used;
static struct qemu_plugin_scoreboard *board;
static char *begin, *out;

static uint64_t executed(unsigned int i)
{
	return qemu_plugin_u64_sum((qemu_plugin_u64){ board, i * sizeof(uint64_t) });
}

static unsigned int n_blocks(void)
{
	unsigned int n = __atomic_load_n(&used, __ATOMIC_ACQUIRE);

	return n < BLOCKS ? n : BLOCKS;
}

static void translated(uint64_t id, struct qemu_plugin_tb *tb)
{
	uint64_t at = qemu_plugin_tb_vaddr(tb);
	unsigned int i;

	(void)id;
	if (at < kernel)
		return;
	i = __atomic_fetch_add(&used, 1, __ATOMIC_ACQ_REL);
	if (i >= BLOCKS)
		return;
	blocks[i].at = at;
	blocks[i].insns = qemu_plugin_tb_n_insns(tb);
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb,
		QEMU_PLUGIN_INLINE_ADD_U64,
		(qemu_plugin_u64){ board, i * sizeof(uint64_t) }, 1);
}

static void *await_begin(void *arg)
{
	unsigned int i, n;

	while (access(begin, F_OK))
		usleep(20000);
	n = n_blocks();
	for (i = 0; i < n; i++)
		blocks[i].before = executed(i);
	return arg;
}

static void ended(uint64_t id, void *data)
{
	unsigned int i, n = n_blocks();
	FILE *f = fopen(out, "w");

	(void)id;
	(void)data;
	if (!f)
		return;
	for (i = 0; i < n; i++) {
		uint64_t times = executed(i) - blocks[i].before;

		if (times)
			fprintf(f, "%" PRIx64 " %" PRIu32 " %" PRIu64 "\n",
				blocks[i].at, blocks[i].insns, times);
	}
	if (used > BLOCKS)
		fprintf(f, "# %u blocks were not counted\n", used - BLOCKS);
	fclose(f);
}

EXPORT int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
	pthread_t thread;
	int i;

	(void)info;
	for (i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "begin=", 6))
			begin = strdup(argv[i] + 6);
		else if (!strncmp(argv[i], "out=", 4))
			out = strdup(argv[i] + 4);
	}
	board = qemu_plugin_scoreboard_new(BLOCKS * sizeof(uint64_t));
	if (!begin || !out || !board || pthread_create(&thread, NULL, await_begin, NULL))
		return 1;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	qemu_plugin_register_atexit_cb(id, ended, NULL);
	return 0;
}
