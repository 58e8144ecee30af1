// SPDX-License-Identifier: GPL-2.0
/*
 * Where the CPU time goes: samples every CPU's instruction pointer for a while
 * and counts them by kernel symbol.
 *
 * profile SECONDS KALLSYMS [PID]
 *
 * Inside a guest, PID is left out and KALLSYMS is /proc/kallsyms. From the host
 * of a User Mode Linux guest, whose kernel is the process PID, KALLSYMS is a copy
 * of the guest's. What runs elsewhere than in that kernel is counted as such.
 * (perf does the same, but is not in the build root, and does not know the
 * modules of User Mode Linux.) $SHOWN symbols are shown, and the modules' shares.
 */
#define _GNU_SOURCE
#include <err.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
	PAGES = 64,		/* of a CPU's ring; a power of two */
	HZ = 997,
	SHOWN = 60,
	MODULES = 16,
};

struct symbol {
	uint64_t at;
	char *name;
	unsigned long hits;
};

struct sample {
	struct perf_event_header h;
	uint64_t ip;
	uint32_t pid, tid;
};

static struct symbol *symbols;
static size_t n_symbols;
static unsigned long total, elsewhere, host;
static long page;

static int by_address(const void *a, const void *b)
{
	const struct symbol *x = a, *y = b;

	return x->at < y->at ? -1 : x->at > y->at;
}

static int by_hits(const void *a, const void *b)
{
	const struct symbol *x = a, *y = b;

	return x->hits > y->hits ? -1 : x->hits < y->hits;
}

static void read_symbols(const char *path)
{
	char *line = NULL, name[512], module[64];
	FILE *f = fopen(path, "r");
	size_t room = 0, size = 0;
	uint64_t at;
	char type;

	if (!f)
		err(1, "%s", path);
	while (getline(&line, &size, f) > 0) {
		*module = 0;
		if (sscanf(line, "%" SCNx64 " %c %511s %63s", &at, &type, name,
			   module) < 3 || !at || !strchr("tTwW", type))
			continue;
		if (n_symbols == room) {
			room = room ? 2 * room : 65536;
			symbols = realloc(symbols, room * sizeof(*symbols));
			if (!symbols)
				errx(1, "no memory");
		}
		symbols[n_symbols].at = at;
		symbols[n_symbols].hits = 0;
		if (asprintf(&symbols[n_symbols].name, "%s %s", name, module) < 0)
			errx(1, "no memory");
		n_symbols++;
	}
	fclose(f);
	if (!n_symbols)
		errx(1, "%s: no addresses", path);
	qsort(symbols, n_symbols, sizeof(*symbols), by_address);
}

static void count(uint64_t ip)
{
	size_t low = 0, high = n_symbols, middle;

	while (high - low > 1) {
		middle = (low + high) / 2;
		if (symbols[middle].at <= ip)
			low = middle;
		else
			high = middle;
	}
	symbols[low].hits++;
}

static void take(const struct sample *s, uint32_t pid)
{
	uint16_t mode = s->h.misc & PERF_RECORD_MISC_CPUMODE_MASK;

	if (s->h.type != PERF_RECORD_SAMPLE)
		return;
	/* The processor is idle, whoever's. */
	if (!s->pid)
		return;
	total++;
	if (pid && s->pid != pid)
		elsewhere++;
	else if (pid && mode == PERF_RECORD_MISC_KERNEL)
		host++;
	else if (!pid && mode != PERF_RECORD_MISC_KERNEL)
		elsewhere++;
	else
		count(s->ip);
}

static void drain(struct perf_event_mmap_page *ring, uint32_t pid)
{
	uint64_t head = __atomic_load_n(&ring->data_head, __ATOMIC_ACQUIRE);
	uint64_t size = PAGES * page, at = ring->data_tail;
	char *data = (char *)ring + page;
	struct sample s;
	size_t i;

	while (at < head) {
		struct perf_event_header *h = (void *)(data + at % size);

		for (i = 0; i < sizeof(s) && i < h->size; i++)
			((char *)&s)[i] = data[(at + i) % size];
		take(&s, pid);
		at += h->size;
	}
	__atomic_store_n(&ring->data_tail, at, __ATOMIC_RELEASE);
}

/* The name that kallsyms has in brackets. */
static const char *module_of(const struct symbol *s)
{
	const char *at = strchr(s->name, ' ');

	return at && at[1] ? at + 1 : "the kernel itself";
}

static void print_modules(unsigned long all)
{
	struct symbol sums[MODULES] = { };
	size_t i, j;

	for (i = 0; i < n_symbols && symbols[i].hits; i++) {
		const char *name = module_of(&symbols[i]);

		for (j = 0; j < MODULES - 1; j++)
			if (!sums[j].name || !strcmp(sums[j].name, name))
				break;
		sums[j].name = (char *)name;
		sums[j].hits += symbols[i].hits;
	}
	qsort(sums, MODULES, sizeof(*sums), by_hits);
	for (j = 0; j < MODULES && sums[j].hits; j++)
		printf("%5.1f %% in %s\n", 100.0 * sums[j].hits / all,
		       sums[j].name);
}

int main(int argc, char **argv)
{
	const char *shown_env = getenv("SHOWN");
	int shown = shown_env ? atoi(shown_env) : SHOWN;
	struct perf_event_attr attr = {
		.size = sizeof(attr), .type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK, .freq = 1,
		.sample_freq = HZ,
		.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID,
	};
	struct timespec pause = { .tv_nsec = 20000000 };
	int cpus = sysconf(_SC_NPROCESSORS_ONLN), i, left;
	struct perf_event_mmap_page **rings;
	uint32_t pid;

	if (argc < 3)
		errx(2, "usage: profile SECONDS KALLSYMS [PID]");
	pid = argc > 3 ? strtoul(argv[3], NULL, 0) : 0;
	page = sysconf(_SC_PAGESIZE);
	read_symbols(argv[2]);
	rings = calloc(cpus, sizeof(*rings));
	for (i = 0; i < cpus; i++) {
		int fd = syscall(SYS_perf_event_open, &attr, -1, i, -1, 0);

		if (fd < 0)
			err(1, "perf_event_open");
		rings[i] = mmap(NULL, (1 + PAGES) * page,
				PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (rings[i] == MAP_FAILED)
			err(1, "mmap");
	}
	for (left = atof(argv[1]) * 50; left > 0; left--) {
		nanosleep(&pause, NULL);
		for (i = 0; i < cpus; i++)
			drain(rings[i], pid);
	}
	if (!total)
		errx(1, "no samples");
	printf("%lu samples; %5.1f %% %s", total, 100.0 * elsewhere / total,
	       pid ? "in other processes, those of the guest among them" :
		     "in user space");
	if (pid)
		printf(", %.1f %% in the host's kernel", 100.0 * host / total);
	printf("\n");
	qsort(symbols, n_symbols, sizeof(*symbols), by_hits);
	total -= elsewhere;
	print_modules(total);
	for (i = 0; i < shown && symbols[i].hits; i++)
		printf("%5.1f %% %s\n", 100.0 * symbols[i].hits / total,
		       symbols[i].name);
	return 0;
}
