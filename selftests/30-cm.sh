#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Connection management: the programs of rdmacm-utils. "here" is one host to
# itself.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
# shellcheck source=selftests/lib/cm.sh
. "$TESTS/lib/cm.sh"
LIBS=-lrdmacm must_build cm cm.c

# A server for many clients, one after another and some at a time.
cm_persistent()
{
	local i p r=0
	local -a ps=()
	next_port
	start server b 60 rping -s -P -a $IPB -p $PORT -V -v
	listening b cm $PORT $! || return 1
	for i in 1 2 3; do
		host a timeout 20 rping -c -a $IPB -p $PORT -V -C 20 >"$TMP/client" 2>&1 || {
			echo "client $i:"; show_end "$TMP/client"; return 1; }
	done
	for i in 1 2 3 4; do
		start client$i a 30 rping -c -a $IPB -p $PORT -V -v -C 50
		ps+=($!)
	done
	for i in 1 2 3 4; do
		p=${ps[$((i - 1))]}
		ended "$p" 30 && wait "$p" || { echo "client $i of 4:"; show_end "$TMP/client$i"; r=1; }
		expect_line "$TMP/client$i" "client $i" "^ping data" 50 || r=1
	done
	return $r
}

# The server disappears: the client hears of it and ends.
cm_disconnect()
{
	local server client
	next_port
	start server b 60 rping -s -a $IPB -p $PORT -V
	server=$!
	listening b cm $PORT $server || return 1
	start client a 60 rping -c -a $IPB -p $PORT -V -v -C 10000000
	client=$!
	eventually 10 grep -q 'ping data' "$TMP/client" || return 1
	kill -KILL "$(pgrep -P $server rping)" || return 1
	ended $client 20 || { echo "the client still runs"; show_end "$TMP/client"; return 1; }
	expect_line "$TMP/client" client "DISCONNECT EVENT|cq completion failed"
}

for v in 4 6; do
	t "rping -V IPv$v 100 rounds" cm_rping $v a 100 64
	t "rping -V IPv$v again" cm_rping $v a 10 64
	t "rping -V IPv$v 65535 bytes" cm_rping $v a 10 65535
	t "ucmatose IPv$v" cm_ucmatose a $v
	t "udaddy IPv$v" cm_udaddy a $v
	t "private data, refusal IPv$v" cm_private a $v
done
t "rping -V IPv4 23 bytes" cm_rping 4 a 20 23
t "rping -V -q, its own QP" cm_rping 4 a 20 1000 -q
t "rping -P, a server of many clients" cm_persistent
t "a killed server disconnects" cm_disconnect
t "nobody listens" cm_nobody a
t "ucmatose 20 connections, 1000 messages of 4096 bytes" cm_ucmatose a 4 -c 20 -C 1000 -S 4096
t "udaddy 10 endpoints, 100 messages of 512 bytes" cm_udaddy a 4 -c 10 -C 100 -S 512
for v in 4 6; do
	t "here: rping -V IPv$v" cm_rping $v b 100 1000
	t "here: ucmatose IPv$v" cm_ucmatose b $v
	t "here: udaddy IPv$v" cm_udaddy b $v
done
finish
