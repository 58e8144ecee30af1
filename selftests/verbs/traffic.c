// SPDX-License-Identifier: GPL-2.0
/*
 * Verified traffic both ways between two hosts until its time is up (status
 * 0) or until the device says that it is gone (status 3): by an error
 * completion or a fatal event. Silence for some seconds is status 5.
 *
 * "going" is printed once it runs. SIGTERM ends it as its time does.
 *
 * PATIENT=1    the peer may take seconds to answer
 * ALARMS=usec  a signal so often
 */
#include <poll.h>
#include <signal.h>
#include <sys/time.h>
#include "rig.h"

#define LEN 20000

static struct pair pr;
static uint64_t rounds, silence_us = 8000000;
static volatile sig_atomic_t ended, alarms;

static void on_term(int sig)
{
	ended = 1;
}

static void on_alarm(int sig)
{
	alarms++;
}

static void signals(void)
{
	struct sigaction term = { .sa_handler = on_term },
			 alrm = { .sa_handler = on_alarm };
	const char *usec = getenv("ALARMS");
	struct itimerval it = {};

	sigaction(SIGTERM, &term, NULL);
	if (!usec)
		return;
	/* System calls are interrupted, not restarted. */
	sigaction(SIGALRM, &alrm, NULL);
	it.it_interval.tv_usec = it.it_value.tv_usec = atoi(usec);
	setitimer(ITIMER_REAL, &it, NULL);
}

static int told(struct host *h)
{
	struct pollfd pf = { .fd = h->ctx->async_fd, .events = POLLIN };
	struct ibv_async_event ev;

	if (poll(&pf, 1, 0) != 1)
		return 0;
	if (ibv_get_async_event(h->ctx, &ev)) {
		printf("%s: the event channel fails: %s\n", h->dev,
		       strerror(errno));
		return 3;
	}
	printf("%s: event: %s\n", h->dev, ibv_event_type_str(ev.event_type));
	ibv_ack_async_event(&ev);
	return ev.event_type == IBV_EVENT_DEVICE_FATAL ||
	       ev.event_type == IBV_EVENT_QP_FATAL ? 3 : 0;
}

/* 0: success, 3: the device is gone, 5: nothing happens. */
static int wait_wc(struct ibv_cq *cq, const char *what)
{
	uint64_t start = now_us();
	struct ibv_wc wc;
	int n, r;

	for (;;) {
		n = ibv_poll_cq(cq, 1, &wc);
		if (n < 0) {
			printf("%s: the poll fails\n", what);
			return 3;
		}
		if (n == 1 && wc.status != IBV_WC_SUCCESS) {
			printf("%s: completion: %s\n", what,
			       ibv_wc_status_str(wc.status));
			return 3;
		}
		if (n == 1)
			return 0;
		r = told(&host_a);
		if (!r)
			r = told(&host_b);
		if (r)
			return r;
		if (now_us() - start > silence_us) {
			printf("%s: nothing for %d s\n", what,
			       (int)(silence_us / 1000000));
			return 5;
		}
		relax(start);
	}
}

static int one(struct ep *e, struct ep *p)
{
	uint32_t seed = rounds;
	struct wr w = { .flags = IBV_SEND_SIGNALED, .len = LEN };
	int r;

	fill(e->buf, LEN, seed);
	if (post_recv(p, 1, 65536, LEN))
		return 3;
	w.op = IBV_WR_RDMA_WRITE;
	if (post_to(e, w, p, 131072)) {
		printf("the post fails: %s\n", strerror(errno));
		return 3;
	}
	w.op = IBV_WR_SEND;
	if (post(e, &w)) {
		printf("the post fails: %s\n", strerror(errno));
		return 3;
	}
	r = wait_wc(e->scq, "write");
	if (!r)
		r = wait_wc(e->scq, "send");
	if (!r)
		r = wait_wc(p->rcq, "receive");
	if (r)
		return r;
	if (check_fill(p->buf + 65536, LEN, seed) >= 0 ||
	    check_fill(p->buf + 131072, LEN, seed) >= 0) {
		printf("wrong data in round %u\n", seed);
		return 1;
	}
	return 0;
}

static int run(int seconds)
{
	struct opts o = opts_default();
	uint64_t start;
	int r = 0;

	o.retry = 3;
	o.timeout = 12;
	if (getenv("PATIENT")) {
		o.retry = 7;
		o.timeout = 17;
		silence_us = 30000000;
	}
	run_ok(host_open(&host_a));
	run_ok(host_open(&host_b));
	run_ok(pair_up(&pr, &o));
	start = now_us();
	while (!r && !ended && now_us() - start < seconds * 1000000ull) {
		r = one(&pr.a, &pr.b);
		if (!r)
			r = one(&pr.b, &pr.a);
		if (!r && ++rounds == 3)
			puts("going");
	}
	printf("%llu rounds, %d signals\n", (unsigned long long)rounds,
	       (int)alarms);
	/* Objects of a device that is gone can be destroyed nevertheless. */
	if (pair_down(&pr) || host_close(&host_a) || host_close(&host_b)) {
		printf("an object can't be destroyed\n");
		return 1;
	}
	return r;
}

int main(int argc, char **argv)
{
	int i = rig_args(argc, argv);
	int seconds = i < argc ? atoi(argv[i]) : 60;

	if (!getenv("ALARMS"))
		alarm(seconds + 60);
	signals();
	return run(seconds);
}
