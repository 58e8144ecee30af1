#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The ping-pongs of ibverbs-utils, with their validation of what arrives.
# "here" is one host to itself.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"

# pp PROGRAM VERSION CLIENT-HOST ROUNDS BYTES-A-MESSAGE ARGS...
pp()
{
	local prog=$1 v=$2 from=$3 n=$4 size=$5 ga gb
	shift 5
	gb=$(gid_index b "$(ip_of b "$v")") || { echo "no GID"; gids b; return 1; }
	ga=$(gid_index "$from" "$(ip_of "$from" "$v")") || { echo "no GID"; gids "$from"; return 1; }
	next_port
	pair 60 tcp $PORT b "$prog" -d "$DEVB" -g "$gb" -p $PORT -n "$n" -s "$size" "$@" -- \
		"$from" "$prog" -d "$(dev_of "$from")" -g "$ga" -p $PORT -n "$n" -s "$size" "$@" $IPB || return 1
	local f
	for f in server client; do
		expect_line "$TMP/$f" "$f" "^$((2 * n * size)) bytes in .*Mbit/sec" 1 || return 1
		expect_line "$TMP/$f" "$f" "^$n iters in .*usec/iter" 1 || return 1
		expect_line "$TMP/$f" "$f" "invalid data" 0 || return 1
	done
}

# optional PROGRAM ARGS...: of a service that not every driver has.
optional()
{
	pp "$@" && return
	if grep -hqiE "not supported|Couldn't create (QP|SRQ)" "$TMP/server" "$TMP/client"; then
		lacks "the driver can't: $(grep -hiE "not supported|Couldn't create" "$TMP/server" | head -n 1)"
		return
	fi
	return 1
}

EVENTS=1000
[ "$QUICK" = 0 ] || EVENTS=200
N=$(polls $EVENTS)

for v in 4 6; do
	for events in "" -e; do
		for size in 1 4096 1000000; do
			[ "$events" ] && n=$EVENTS || n=$N
			[ $size -lt 100000 ] || n=$((EVENTS / 50))
			t "ibv_rc_pingpong IPv$v $size bytes${events:+, events}" \
				pp ibv_rc_pingpong $v a $n $size -c $events
		done
		for size in 1 1024; do
			[ "$events" ] && n=$EVENTS || n=$N
			t "ibv_ud_pingpong IPv$v $size bytes${events:+, events}" \
				pp ibv_ud_pingpong $v a $n $size -c $events
		done
	done
done
for m in 256 512 1024 2048 4096; do
	t "ibv_rc_pingpong path MTU $m" pp ibv_rc_pingpong 4 a 40 20001 -c -m $m
done
t "ibv_ud_pingpong 4096 bytes" pp ibv_ud_pingpong 4 a $N 4096 -c
t "ibv_rc_pingpong new post send API" pp ibv_rc_pingpong 4 a $N 4096 -c -N
t "ibv_rc_pingpong 16 receives only" pp ibv_rc_pingpong 4 a $N 4096 -c -r 16
t "ibv_uc_pingpong" optional ibv_uc_pingpong 4 a $N 4096 -c
t "ibv_srq_pingpong" optional ibv_srq_pingpong 4 a $N 4096 -c
t "ibv_srq_pingpong events" optional ibv_srq_pingpong 4 a $EVENTS 4096 -c -e
for v in 4 6; do
	t "here: ibv_rc_pingpong IPv$v" pp ibv_rc_pingpong $v b $N 4096 -c
	t "here: ibv_rc_pingpong IPv$v 1000000 bytes, events" pp ibv_rc_pingpong $v b 20 1000000 -c -e
	t "here: ibv_ud_pingpong IPv$v" pp ibv_ud_pingpong $v b $N 1024 -c
	t "here: ibv_ud_pingpong IPv$v events" pp ibv_ud_pingpong $v b $EVENTS 1024 -c -e
done
finish
