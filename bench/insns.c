// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin of QEMU's emulator: how often each block of the kernel's code is
 * executed, from when a file appears until the machine ends.
 *
 * -plugin file=insns.so,begin=FILE,out=FILE
 *
 * A line of the output is the address of a block, its instructions, how often it was
 * executed, and 1 if the emulator has to look up what comes after it: it does so after
 * each return and indirect call, and where the next block is in another page. That
 * takes it as long as some ten instructions. Time is no part of it, so what else the host does makes no
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
struct qemu_plugin_insn;
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
struct qemu_plugin_insn *
qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t i);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *to,
			     size_t len);
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
	bool looks_up;		/* what comes next */
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

/* The length of the prefixes of an instruction of x86-64. */
static size_t prefixes(const uint8_t *code, size_t len)
{
	size_t i = 0;

	while (i < len && (strchr("\x26\x2e\x36\x3e\x64\x65\x66\x67\xf2\xf3", code[i]) ||
			   (code[i] & 0xf0) == 0x40))
		i++;
	return i;
}

/* Where an instruction at an address jumps, or what follows it; 0 if it can't be told. */
static uint64_t next_of(const uint8_t *code, size_t len, uint64_t at)
{
	const uint8_t *op = code + prefixes(code, len), *end = code + len;
	uint64_t next = at + len;
	int8_t near;
	int32_t far;

	if (op >= end)
		return next;
	/* Returns, and what goes where a register or memory says. */
	if ((*op & 0xfe) == 0xc2 || *op == 0xcf ||
	    (*op == 0xff && op + 1 < end && (op[1] & 0x38) >= 0x10 &&
	     (op[1] & 0x38) <= 0x28))
		return 0;
	memcpy(&near, end - 1, 1);
	if (*op == 0xeb || (*op & 0xf0) == 0x70)
		return next + near;
	if (len < 5)
		return next;
	memcpy(&far, end - 4, 4);
	if (*op == 0xe8 || *op == 0xe9 || (*op == 0x0f && (op[1] & 0xf0) == 0x80))
		return next + far;
	return next;
}

static bool looks_up(const struct qemu_plugin_tb *tb)
{
	const struct qemu_plugin_insn *last =
		qemu_plugin_tb_get_insn(tb, qemu_plugin_tb_n_insns(tb) - 1);
	uint8_t code[16];
	size_t len = qemu_plugin_insn_data(last, code, sizeof(code));
	uint64_t next = next_of(code, len, qemu_plugin_insn_vaddr(last));

	return !next || (next ^ qemu_plugin_tb_vaddr(tb)) >> 12;
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
	blocks[i].looks_up = looks_up(tb);
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
			fprintf(f, "%" PRIx64 " %" PRIu32 " %" PRIu64 " %d\n",
				blocks[i].at, blocks[i].insns, times,
				blocks[i].looks_up);
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
