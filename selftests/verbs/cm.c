// SPDX-License-Identifier: GPL-2.0
/*
 * Private data, of every kind that a connection manager carries between two
 * ends: with a request, with a refusal, with a reply. And how both ends
 * learn that the other is gone.
 *
 *   cm ADDRESS PORT        the server: refuses once, accepts once
 *   cm ADDRESS PORT to     the client
 */
#include <errno.h>
#include <netdb.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/rdma_cma.h>

/* The most that rdma_cm leaves to its users (RC). */
#define REQUEST 56
#define REFUSAL 148
#define REPLY 196

#define die(fmt, ...) \
	do { \
		printf("line %d: " fmt "\n", __LINE__, ##__VA_ARGS__); \
		exit(1); \
	} while (0)
#define must(expr) \
	do { \
		if (!(expr)) \
			die("%s (errno %d, %s)", #expr, errno, strerror(errno)); \
	} while (0)

static struct rdma_event_channel *channel;

/* Waits for an event, which must be this one, with this private data. */
static struct rdma_cm_id *expect(enum rdma_cm_event_type what, int len,
				 uint8_t seed)
{
	struct rdma_cm_event *e;
	struct rdma_cm_id *id;
	const uint8_t *data;
	int i;

	must(!rdma_get_cm_event(channel, &e));
	if (e->event != what)
		die("%s (%d), not %s", rdma_event_str(e->event), e->status,
		    rdma_event_str(what));
	data = e->param.conn.private_data;
	if (len && (!data || e->param.conn.private_data_len < len))
		die("%s with %d bytes, not %d", rdma_event_str(what),
		    data ? e->param.conn.private_data_len : 0, len);
	for (i = 0; i < len; i++)
		if (data[i] != (uint8_t)(seed + i))
			die("%s: byte %d of %d is 0x%02x", rdma_event_str(what),
			    i, len, data[i]);
	printf("%s with %d bytes\n", rdma_event_str(what), len);
	id = e->id;
	must(!rdma_ack_cm_event(e));
	return id;
}

static uint8_t bytes[256];

static const void *data(uint8_t seed)
{
	int i;

	for (i = 0; i < (int)sizeof(bytes); i++)
		bytes[i] = seed + i;
	return bytes;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr a = {
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 1, .max_recv_wr = 1,
			 .max_send_sge = 1, .max_recv_sge = 1 },
	};

	must(!rdma_create_qp(id, NULL, &a));
}

static void server(struct sockaddr *at)
{
	struct rdma_cm_id *listener, *id;
	struct rdma_conn_param reply = {
		.private_data = bytes, .private_data_len = REPLY,
	};

	must(!rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
	must(!rdma_bind_addr(listener, at));
	must(!rdma_listen(listener, 4));

	id = expect(RDMA_CM_EVENT_CONNECT_REQUEST, REQUEST, 1);
	must(!rdma_reject(id, data(2), REFUSAL));
	must(!rdma_destroy_id(id));

	id = expect(RDMA_CM_EVENT_CONNECT_REQUEST, REQUEST, 3);
	make_qp(id);
	data(4);
	must(!rdma_accept(id, &reply));
	expect(RDMA_CM_EVENT_ESTABLISHED, 0, 0);
	expect(RDMA_CM_EVENT_DISCONNECTED, 0, 0);
	rdma_destroy_qp(id);
	must(!rdma_destroy_id(id));
	must(!rdma_destroy_id(listener));
}

static struct rdma_cm_id *call(struct sockaddr *to, uint8_t seed)
{
	struct rdma_conn_param request = {
		.private_data = data(seed), .private_data_len = REQUEST,
		.retry_count = 7, .rnr_retry_count = 7,
	};
	struct rdma_cm_id *id;

	must(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	must(!rdma_resolve_addr(id, NULL, to, 2000));
	expect(RDMA_CM_EVENT_ADDR_RESOLVED, 0, 0);
	must(!rdma_resolve_route(id, 2000));
	expect(RDMA_CM_EVENT_ROUTE_RESOLVED, 0, 0);
	make_qp(id);
	must(!rdma_connect(id, &request));
	return id;
}

static void hang_up(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	must(!rdma_destroy_id(id));
}

static void client(struct sockaddr *to)
{
	struct rdma_cm_id *id = call(to, 1);

	expect(RDMA_CM_EVENT_REJECTED, REFUSAL, 2);
	hang_up(id);

	id = call(to, 3);
	expect(RDMA_CM_EVENT_ESTABLISHED, REPLY, 4);
	must(!rdma_disconnect(id));
	expect(RDMA_CM_EVENT_DISCONNECTED, 0, 0);
	hang_up(id);
}

int main(int argc, char **argv)
{
	struct addrinfo *at;

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 3 || getaddrinfo(argv[1], argv[2], NULL, &at))
		die("usage: cm ADDRESS PORT [to]");
	channel = rdma_create_event_channel();
	must(channel);
	if (argc > 3)
		client(at->ai_addr);
	else
		server(at->ai_addr);
	freeaddrinfo(at);
	rdma_destroy_event_channel(channel);
	printf("well\n");
	return 0;
}
