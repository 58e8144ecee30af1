// SPDX-License-Identifier: GPL-2.0
/*
 * A program of plain sockets, for 77-ecosystem.sh: it is run with librspreload,
 * which puts RDMA below it. Sends a pattern both ways and checks it.
 *
 * stream server ADDRESS PORT | stream client ADDRESS PORT
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TOTAL (8u << 20)

static uint8_t byte_at(uint32_t i)
{
	return (i * 2654435761u) >> 23;
}

static int send_all(int fd)
{
	static uint8_t buf[100000];
	uint32_t at = 0, i;

	while (at < TOTAL) {
		/* Of many lengths. */
		uint32_t n = 1 + at * 7 % sizeof(buf);
		ssize_t sent;

		if (n > TOTAL - at)
			n = TOTAL - at;
		for (i = 0; i < n; i++)
			buf[i] = byte_at(at + i);
		for (i = 0; i < n; i += sent) {
			sent = send(fd, buf + i, n - i, 0);
			if (sent <= 0) {
				perror("send");
				return 1;
			}
		}
		at += n;
	}
	return 0;
}

static int receive_all(int fd)
{
	static uint8_t buf[65536];
	uint32_t at = 0;

	while (at < TOTAL) {
		ssize_t n = recv(fd, buf, sizeof(buf), 0), i;

		if (n <= 0) {
			perror("recv");
			return 1;
		}
		for (i = 0; i < n; i++, at++)
			if (buf[i] != byte_at(at)) {
				printf("byte %u is wrong\n", at);
				return 1;
			}
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	int fd, conn, one = 1, r;

	if (argc != 4 || !inet_pton(AF_INET, argv[2], &to.sin_addr))
		return 2;
	to.sin_port = htons(atoi(argv[3]));
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0) {
		perror("socket");
		return 1;
	}
	if (!strcmp(argv[1], "server")) {
		if (bind(fd, (struct sockaddr *)&to, sizeof(to)) ||
		    listen(fd, 1)) {
			perror("bind or listen");
			return 1;
		}
		conn = accept(fd, NULL, NULL);
		if (conn < 0) {
			perror("accept");
			return 1;
		}
		r = receive_all(conn) || send_all(conn);
		/* Until the peer has it all. */
		r |= recv(conn, &one, 1, 0) != 1;
	} else {
		if (connect(fd, (struct sockaddr *)&to, sizeof(to))) {
			perror("connect");
			return 1;
		}
		conn = fd;
		setsockopt(conn, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		r = send_all(conn) || receive_all(conn);
		r |= send(conn, "!", 1, 0) != 1;
	}
	shutdown(conn, SHUT_RDWR);
	close(conn);
	if (!r)
		printf("all is right\n");
	return r;
}
