// SPDX-License-Identifier: GPL-2.0
/*
 * What there is to reach: the rate of a TCP stream, of a UDP stream with
 * segmentation offload, and of a memory copy.
 *
 * ceiling tcp|udp|copy FROM TO ADDRESS SIZE SECONDS
 * ceiling clock
 *
 * From network namespace FROM to ADDRESS in namespace TO, SIZE bytes a call.
 * Prints bytes, seconds, and the CPU seconds that the whole machine spent; or the
 * cycles of a microsecond (clock.c).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#define UDP_GRO 104
#endif
#ifndef SOL_UDP
#define SOL_UDP 17
#endif

enum {
	PORT = 5201,
	SEGMENT = 4096,		/* as the path MTU of the RDMA devices */
	SUPER = 15 * SEGMENT,	/* the most that a UDP packet takes */
	BUFFER = 1 << 20,
};

struct meter {
	double start, cpu;
	uint64_t bytes;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* All CPU time but idle, I/O wait and stolen. */
static double busy(void)
{
	unsigned long long user, nice, sys, idle, wait, irq, soft;
	FILE *f = fopen("/proc/stat", "r");

	if (!f || fscanf(f, "cpu %llu %llu %llu %llu %llu %llu %llu", &user,
			 &nice, &sys, &idle, &wait, &irq, &soft) != 7)
		errx(1, "/proc/stat");
	fclose(f);
	return (double)(user + nice + sys + irq + soft) / sysconf(_SC_CLK_TCK);
}

static void begin(struct meter *m)
{
	*m = (struct meter){ .start = now(), .cpu = busy() };
}

static void end(const struct meter *m)
{
	printf("%llu %.6f %.2f\n", (unsigned long long)m->bytes,
	       now() - m->start, busy() - m->cpu);
}

static void enter(const char *ns)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "/run/netns/%s", ns);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET))
		err(1, "%s", path);
	close(fd);
}

static int open_socket(int type, const char *ns)
{
	int fd;

	enter(ns);
	fd = socket(AF_INET, type, 0);
	if (fd < 0)
		err(1, "socket");
	return fd;
}

static char *buffer(size_t size)
{
	char *p = aligned_alloc(4096, (size + 4095) & ~4095ul);

	if (!p)
		errx(1, "no memory");
	memset(p, 1, size);
	return p;
}

static void send_forever(int fd, int type, size_t size)
{
	size_t most = type == SOCK_STREAM ? size : SUPER, at, n;
	char *p = buffer(size);

	for (;;)
		for (at = 0; at < size; at += n) {
			n = size - at < most ? size - at : most;
			if (send(fd, p + at, n, 0) < 0)
				exit(0);
		}
}

static void receive(int fd, double seconds)
{
	char *p = buffer(BUFFER);
	struct meter m;
	ssize_t n;

	if (recv(fd, p, BUFFER, 0) <= 0)
		err(1, "recv");
	begin(&m);
	while (now() - m.start < seconds) {
		n = recv(fd, p, BUFFER, 0);
		if (n <= 0)
			err(1, "recv");
		m.bytes += n;
	}
	end(&m);
}

static void stream(int type, char **names, size_t size, double seconds)
{
	int one = 1, segment = SEGMENT, room = 16 << 20, to, from, conn;
	struct sockaddr_in sin = {
		.sin_family = AF_INET, .sin_port = htons(PORT),
	};
	pid_t child;

	if (!inet_aton(names[2], &sin.sin_addr))
		errx(1, "%s: no address", names[2]);
	to = open_socket(type, names[1]);
	setsockopt(to, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (type == SOCK_DGRAM) {
		setsockopt(to, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof(room));
		if (setsockopt(to, SOL_UDP, UDP_GRO, &one, sizeof(one)))
			err(1, "UDP_GRO");
	}
	if (bind(to, (struct sockaddr *)&sin, sizeof(sin)))
		err(1, "bind");
	if (type == SOCK_STREAM && listen(to, 1))
		err(1, "listen");
	from = open_socket(type, names[0]);
	if (type == SOCK_DGRAM &&
	    setsockopt(from, SOL_UDP, UDP_SEGMENT, &segment, sizeof(segment)))
		err(1, "UDP_SEGMENT");
	if (connect(from, (struct sockaddr *)&sin, sizeof(sin)))
		err(1, "connect");
	conn = type == SOCK_STREAM ? accept(to, NULL, NULL) : to;
	if (conn < 0)
		err(1, "accept");
	child = fork();
	if (child < 0)
		err(1, "fork");
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		send_forever(from, type, size);
	}
	receive(conn, seconds);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
}

static void copy(size_t size, double seconds)
{
	char *from = buffer(size), *to = buffer(size);
	struct meter m;
	size_t done;

	begin(&m);
	while (now() - m.start < seconds)
		for (done = 0; done < BUFFER; done += size) {
			memcpy(to, from, size);
			/* The compiler must take it for needed. */
			__asm__ volatile("" ::: "memory");
			m.bytes += size;
		}
	end(&m);
}

/* Counter and clock at the same time, as nearly as it can be had. */
static void both(uint64_t *tsc, double *seconds)
{
	uint64_t best = UINT64_MAX, a, b;
	double t;
	int i;

	for (i = 0; i < 1000; i++) {
		a = __rdtsc();
		t = now();
		b = __rdtsc();
		if (b - a < best) {
			best = b - a;
			*tsc = a + best / 2;
			*seconds = t;
		}
	}
}

static void cycles(void)
{
	uint64_t first, last;
	double start, stop;

	both(&first, &start);
	sleep(1);
	both(&last, &stop);
	printf("%.3f\n", (last - first) / (stop - start) / 1e6);
}

int main(int argc, char **argv)
{
	double seconds;
	size_t size;

	if (argc == 2 && !strcmp(argv[1], "clock")) {
		cycles();
		return 0;
	}
	if (argc != 7)
		errx(2, "usage: ceiling tcp|udp|copy FROM TO ADDRESS SIZE SECONDS");
	size = strtoul(argv[5], NULL, 0);
	seconds = strtod(argv[6], NULL);
	if (!size || !(seconds > 0))
		errx(2, "nothing to measure");
	signal(SIGPIPE, SIG_IGN);
	if (!strcmp(argv[1], "tcp"))
		stream(SOCK_STREAM, argv + 2, size, seconds);
	else if (!strcmp(argv[1], "udp"))
		stream(SOCK_DGRAM, argv + 2, size, seconds);
	else if (!strcmp(argv[1], "copy"))
		copy(size, seconds);
	else
		errx(2, "tcp, udp or copy, not %s", argv[1]);
	return 0;
}
