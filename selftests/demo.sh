#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What there is to see: two hosts, RDMA between them with the distribution's
# own programs.  Runs in a guest with the topology up.

set -u
# shellcheck source=selftests/lib/topology.sh
. "$(dirname "$0")/lib/topology.sh"

failed=0
results=()
title=

headline()
{
	title=$*
	tries=0
	printf '\n== %s\n' "$title"
}

# show COMMAND...: must succeed.
show()
{
	echo "\$ $*"
	if ! "$@"; then
		echo "FAILED: $*"
		failed=$((failed + 1))
	fi
}

# gid DEVICE HOST ADDRESS: the index of the GID of an address.
gid()
{
	local i type

	for i in $(seq 0 15); do
		type=$("on_$2" cat "/sys/class/infiniband/$1/ports/1/gid_attrs/types/$i" 2>/dev/null) || continue
		[ "$type" = "RoCE v2" ] || continue
		if [ "$("on_$2" cat "/sys/class/infiniband/$1/ports/1/gids/$i")" = "$3" ]; then
			echo "$i"
			return
		fi
	done
	echo "no GID $3 on $1" >&2
	return 1
}

# outcome PROGRAM LOG: its result in a few words.
outcome()
{
	case $1 in
	*pingpong) sed -n 's/^.* = \(.*\) usec\/iter$/\1 us a round trip/p' "$2" ;;
	*_bw) awk '$1 == 65536 && NF >= 4 { bw = $4 } END { print bw " MiB/s" }' "$2" ;;
	*_lat) awk '$1 == 8 && NF >= 6 { t = $5 } END { print t " us, typically" }' "$2" ;;
	*) echo "worked" ;;
	esac
}

# pair SERVER-COMMAND -- CLIENT-ARGUMENTS: the same program on both hosts, the
# server's output kept back unless something fails.
pair()
{
	local server=() pid s=0 log=/tmp/server.log

	while [ "$1" != -- ]; do
		server+=("$1")
		shift
	done
	shift
	echo "hostb \$ ${server[*]}"
	timeout 120 ip netns exec hostb "${server[@]}" >$log 2>&1 &
	pid=$!
	# Until it listens, for TCP or for rdma_cm.
	for _ in $(seq 50); do
		sleep 0.2
		[ -z "$(on_b ss -Hltn 2>/dev/null)" ] || break
		! on_b rdma resource show cm_id 2>/dev/null | grep -q 'state LISTEN' || break
	done
	echo "hosta \$ $*"
	timeout 120 ip netns exec hosta "$@" 2>&1 | tee /tmp/client.log
	[ "${PIPESTATUS[0]}" = 0 ] || s=1
	wait $pid || s=1
	if [ $s != 0 ]; then
		echo "FAILED; the server said:"
		cat $log
		failed=$((failed + 1))
		results+=("$(printf '%-48s FAILED' "$title")")
		return
	fi
	s=$(outcome "$1" /tmp/client.log)
	case $s in
	"" | "0.00 "* | inf* | " "*)
		# perftest first measures the clock, which a busy machine upsets.
		tries=$((tries + 1))
		if [ $tries -lt 3 ]; then
			pair "${server[@]}" -- "$@"
			return
		fi
		s="worked, but the clock is too unsteady to tell"
		;;
	esac
	results+=("$(printf '%-48s %s' "$title" "$s")")
}

# RXO_DEMO_MESSAGES: how many messages a measurement sends.
messages=${RXO_DEMO_MESSAGES:-1000}

headline "the kernel of this guest"
show uname -srvm
show grep -m 1 'model name' /proc/cpuinfo

headline "a device on each of two hosts"
show ip netns exec hosta rdma link show "$DEVA/1"
show ip netns exec hostb rdma link show "$DEVB/1"
show ip -color=never -netns hosta -brief addr

headline "how a program sees it"
show ip netns exec hosta ibv_devinfo -d "$DEVA"

g4a=$(gid "$DEVA" a 0000:0000:0000:0000:0000:ffff:0a07:0001) || failed=$((failed + 1))
g4b=$(gid "$DEVB" b 0000:0000:0000:0000:0000:ffff:0a07:0002) || failed=$((failed + 1))
g6a=$(gid "$DEVA" a fd07:0000:0000:0000:0000:0000:0000:0001) || failed=$((failed + 1))
g6b=$(gid "$DEVB" b fd07:0000:0000:0000:0000:0000:0000:0002) || failed=$((failed + 1))

headline "reliable connection, IPv4"
pair ibv_rc_pingpong -d "$DEVB" -g "$g4b" -- ibv_rc_pingpong -d "$DEVA" -g "$g4a" $IPB

headline "reliable connection, IPv6"
pair ibv_rc_pingpong -d "$DEVB" -g "$g6b" -- ibv_rc_pingpong -d "$DEVA" -g "$g6a" $IPB

headline "connection manager, with every byte compared"
pair rping -s -a $IPB -V -C 20 -S 4096 -- rping -c -a $IPB -V -C 20 -S 4096

headline "RDMA write, 64 KiB"
pair ib_write_bw -d "$DEVB" -x "$g4b" -s 65536 -n "$messages" -F \
	-- ib_write_bw -d "$DEVA" -x "$g4a" -s 65536 -n "$messages" -F $IPB

headline "RDMA read, 64 KiB"
pair ib_read_bw -d "$DEVB" -x "$g4b" -s 65536 -n "$messages" -F \
	-- ib_read_bw -d "$DEVA" -x "$g4a" -s 65536 -n "$messages" -F $IPB

headline "send, latency"
pair ib_send_lat -d "$DEVB" -x "$g4b" -s 8 -n "$messages" -F \
	-- ib_send_lat -d "$DEVA" -x "$g4a" -s 8 -n "$messages" -F $IPB

headline "what the device counted"
show ip netns exec hosta rdma statistic show link "$DEVA/1"

headline "results, driver $RXO_DRIVER"
printf '%s\n' "${results[@]}"
echo
if [ $failed != 0 ]; then
	echo "demo: $failed failed"
	exit 1
fi
echo "demo: everything worked"
