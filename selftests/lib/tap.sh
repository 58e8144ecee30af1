# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the selftests share; to be sourced. A test is a program that prints TAP:
#
#   . lib/tap.sh
#   case_foo() { pair ... ; }        succeeds, fails, or ends in skip "why"
#   t "name of the case" case_foo    runs it and prints its result
#   finish                           the plan; the exit status
#
# A case fails, too, if the kernel's log says something bad meanwhile, and the
# test if there are not as many RDMA objects after it as before.

TESTS=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=selftests/lib/topology.sh
. "$TESTS/lib/topology.sh"
# shellcheck source=selftests/lib/kernel-log.sh
. "$TESTS/lib/kernel-log.sh"

QUICK=${RXO_QUICK:-0}
TAP_N=0 TAP_BAD=0
PORT=$((20000 + (RANDOM % 200) * 100))
KMSG_SEQ=-1
TMP=$(mktemp -d /tmp/rxo-selftest.XXXXXX) || exit 1
trap 'leftovers_kill; rm -rf "$TMP"' EXIT
PIDS=()

# ---- kernel log -------------------------------------------------------------

# What was logged since the last call, without the record headers.
kernel_log_new()
{
	local all
	# One record a read; EAGAIN ends it.
	all=$(dd if=/dev/kmsg iflag=nonblock bs=8192 2>/dev/null | tr -d '\000')
	awk -F'[,;]' -v last="$KMSG_SEQ" '/^[0-9]+,[0-9]+,/ {
		if ($2 + 0 > last + 0) { sub(/^[^;]*;/, ""); print } }' <<<"$all"
	KMSG_SEQ=$(awk -F, '/^[0-9]+,[0-9]+,/ { s = $2 } END { print s + 0 }' <<<"$all")
}

# Prints what is bad in the log since the last call, and fails if there is any.
check_kernel_log()
{
	kernel_log_new >"$TMP/kmsg"
	bad_lines <"$TMP/kmsg" >"$TMP/kmsg.bad" || return 0
	echo "the kernel's log:"
	grep -F -f "$TMP/kmsg.bad" -m 3 -A 25 "$TMP/kmsg" | head -n 40
	return 1
}

# ---- results ----------------------------------------------------------------

diag() { sed 's/^/# /'; }

# The end of an output, for a reader.
show_end() { tail -n "${2:-12}" "$1" | cut -c 1-200; }

SKIP_WHY=
skip() { SKIP_WHY=$*; return 4; }

# lacks WHY: a case of what the driver has not. rxo must have all that is tested.
lacks()
{
	[ "$RXO_DRIVER" != rxo ] || { echo "$*"; return 1; }
	skip "$@"
}

# The test can't be run at all, which shows before its first case.
skip_all() { echo "1..0 # SKIP $*"; exit 0; }

# only_rxo NAME WHY: all of the test is skipped with another driver.
only_rxo()
{
	[ "$RXO_DRIVER" != rxo ] || return 0
	t "$1" skip "$2"
	finish
}

# dared NAME: the same, for what may take another driver's kernel down.
dared()
{
	[ "${RXO_HOSTILE:-0}" != 0 ] ||
		only_rxo "$1" "$RXO_DRIVER may take the kernel down (RXO_HOSTILE=1 tries)"
}

result()
{
	TAP_N=$((TAP_N + 1))
	if [ "$1" = 0 ]; then
		echo "ok $TAP_N - $2"
	else
		TAP_BAD=$((TAP_BAD + 1))
		echo "not ok $TAP_N - $2"
	fi
}

skipped() # NAME WHY
{
	TAP_N=$((TAP_N + 1))
	echo "ok $TAP_N - $1 # SKIP $2"
}

# t NAME COMMAND...: a case.
t()
{
	local name=$1 status start=$SECONDS
	shift
	SKIP_WHY=
	"$@" >"$TMP/out" 2>&1
	status=$?
	leftovers_kill
	check_kernel_log >"$TMP/log" || status=1
	[ $((SECONDS - start)) -lt 5 ] || echo "# $name: $((SECONDS - start)) s"
	if [ "$status" = 4 ] && [ -n "$SKIP_WHY" ]; then
		skipped "$name" "$SKIP_WHY"
		return
	fi
	if [ "$status" != 0 ]; then
		tail -n 30 "$TMP/out" | cut -c 1-240 | diag
		diag <"$TMP/log"
	fi
	result "$status" "$name"
}

# tap_results PREFIX PROGRAM STATUS: takes over the results of a program that prints
# TAP itself, which are in $TMP/tap: as many as it announced, and no others.
TAP_LINE='^(ok|not ok) +[0-9]+ +(- +)?(.*)'
tap_results()
{
	local prefix=$1 program=$2 status=$3 line plan=none seen=0 bad=0
	while IFS= read -r line; do
		if [[ $line =~ $TAP_LINE ]]; then
			seen=$((seen + 1))
			[ "${BASH_REMATCH[1]}" = ok ] || bad=$((bad + 1))
			result "$([ "${BASH_REMATCH[1]}" = ok ]; echo $?)" "$prefix${BASH_REMATCH[3]}"
			continue
		fi
		case $line in
		"1..0 # SKIP "*) plan=0; skipped "${prefix}all" "${line#* SKIP }" ;;
		1..*) plan=${line#1..} ;;
		"#"*) echo "$line" ;;
		*) echo "# $line" ;;
		esac
	done <"$TMP/tap"
	if [ "$plan" != "$seen" ]; then
		echo "# $program: status $status after $seen results of $plan"
		result 1 "${prefix}ran to its end"
	elif [ "$status" != 0 ] && [ "$status$plan" != 40 ] && [ $bad = 0 ]; then
		echo "# $program: status $status though all passed"
		result 1 "${prefix}exit status"
	fi
	check_kernel_log >"$TMP/log"
	status=$?
	diag <"$TMP/log"
	result $status "${prefix}kernel log"
}

# tap_program SECONDS PREFIX COMMAND...: runs it for that.
tap_program()
{
	local limit=$1 prefix=$2
	shift 2
	timeout -k 5 "$limit" "$@" >"$TMP/tap" 2>&1 </dev/null
	tap_results "$prefix" "$1" $?
}

# Objects of both devices; the index of a device is not among them.
resources()
{
	local h
	for h in a b; do
		ip netns exec "host$h" rdma resource show 2>/dev/null | sed 's/^[0-9]*: //'
	done | sort -u
}

resources_as_before()
{
	local i
	for i in $(seq 50); do
		resources >"$TMP/res.after"
		cmp -s "$TMP/res.before" "$TMP/res.after" && return 0
		sleep 0.1
	done
	echo "before:"; cat "$TMP/res.before"
	echo "after:"; cat "$TMP/res.after"
	for i in a b; do
		ip netns exec host$i rdma resource show qp
		ip netns exec host$i rdma resource show cm_id
		ip netns exec host$i rdma resource show mr
	done
	return 1
}

finish()
{
	t "as many objects as before" resources_as_before
	echo "1..$TAP_N"
	[ $TAP_BAD = 0 ]
	exit
}

# ---- processes --------------------------------------------------------------

# in_host a|b COMMAND...: replaces the shell; for background jobs in ( ). In the
# test's own shell it would end the test, with the status of the command.
in_host()
{
	[ "$BASH_SUBSHELL" -gt 0 ] || { echo "in_host outside of ( ): $*"; return 1; }
	exec ip netns exec "host$1" "${@:2}"
}
host() { ip netns exec "host$1" "${@:2}"; }

# start NAME a|b SECONDS COMMAND...: in the background, with a time limit;
# its output is $TMP/NAME, its pid $! (that of timeout, in the namespace).
start()
{
	local name=$1 h=$2 limit=$3
	shift 3
	(in_host "$h" timeout -k 3 "$limit" "$@") >"$TMP/$name" 2>&1 </dev/null &
	PIDS+=($!)
}

# ended PID SECONDS: waits for it; 1 if it is still there then.
ended()
{
	local i
	for ((i = 0; i < $2 * 20; i++)); do
		kill -0 "$1" 2>/dev/null || return 0
		sleep 0.05
	done
	return 1
}

leftovers_kill()
{
	local p
	for p in "${PIDS[@]}"; do
		if kill -0 "$p" 2>/dev/null; then
			kill -TERM "$p" 2>/dev/null
			ended "$p" 4 || kill -KILL "$p" 2>/dev/null
		fi
		wait "$p" 2>/dev/null
	done
	PIDS=()
}

next_port() { PORT=$((PORT + 1)); }

# listening a|b tcp|cm PORT PID: waits until somebody listens.
listening()
{
	local h=$1 kind=$2 port=$3 pid=$4 hex i
	hex=$(printf '%04X' "$port")
	for ((i = 0; i < 200; i++)); do
		if [ "$kind" = tcp ]; then
			grep -qsE ":$hex [0-9A-F]+:0000 0A" "/proc/$pid/net/tcp" "/proc/$pid/net/tcp6" && return 0
		else
			host "$h" rdma resource show cm_id 2>/dev/null |
				grep -qE "state LISTEN .*src-addr [^ ]*:$port( |$)" && return 0
		fi
		if ! kill -0 "$pid" 2>/dev/null; then
			echo "the server ended before it listened:"
			show_end "$TMP/server"
			return 1
		fi
		sleep 0.05
	done
	echo "nobody listens at port $port ($kind) after 10 s"
	return 1
}

# pair SECONDS tcp|cm PORT a|b SERVER... -- a|b CLIENT...
# Both must end with status 0 in time. Outputs: $TMP/server, $TMP/client.
pair()
{
	local limit=$1 kind=$2 port=$3 sh=$4 ch pid cs ss
	local -a server=()
	shift 4
	while [ "$1" != -- ]; do
		server+=("$1")
		shift
	done
	ch=$2
	shift 2
	: >"$TMP/client"
	start server "$sh" "$limit" "${server[@]}"
	pid=$!
	listening "$sh" "$kind" "$port" "$pid" || { leftovers_kill; return 1; }
	host "$ch" timeout -k 3 "$limit" "$@" >"$TMP/client" 2>&1 </dev/null
	cs=$?
	# Whoever fails may leave the other one waiting.
	if [ $cs != 0 ]; then
		ended $pid 2 || kill -TERM $pid 2>/dev/null
	fi
	wait $pid
	ss=$?
	if [ $cs != 0 ] || [ $ss != 0 ]; then
		echo "server (status $ss; 124 is too late): ${server[*]}"
		show_end "$TMP/server"
		echo "client (status $cs): $*"
		show_end "$TMP/client"
		return 1
	fi
}

# expect_line FILE WHAT REGEX [COUNT]: as many lines (default: at least one).
expect_line()
{
	local n
	n=$(grep -cE -- "$3" "$1")
	if [ "${4:-}" = "" ] && [ "$n" -gt 0 ] || [ "${4:-}" = "$n" ]; then
		return 0
	fi
	echo "$2: $n lines match '$3', expected ${4:-some}:"
	show_end "$1" 20
	return 1
}

# ---- devices ----------------------------------------------------------------

dev_of() { case $1 in a) echo "$DEVA" ;; b) echo "$DEVB" ;; esac; }
ip_of() { case $1$2 in a4) echo $IPA ;; b4) echo $IPB ;; a6) echo $IP6A ;; b6) echo $IP6B ;; esac; }

# An address as sysfs writes a GID.
gid_text()
{
	local -a head tail
	case $1 in
	*:*)
		IFS=: read -ra head <<<"${1%%::*}"
		IFS=: read -ra tail <<<"${1##*::}"
		[ "$1" != "${1%%::*}" ] || tail=()
		while [ $((${#head[@]} + ${#tail[@]})) -lt 8 ]; do
			head+=(0)
		done
		head=("${head[@]/#/0x}" "${tail[@]/#/0x}")
		printf '%04x:%04x:%04x:%04x:%04x:%04x:%04x:%04x\n' "${head[@]}" ;;
	*)
		# shellcheck disable=SC2046
		printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x\n' $(tr . ' ' <<<"$1") ;;
	esac
}

# "index type gid" of all GIDs of a|b. (Reading an empty entry is an error.)
gids()
{
	host "$1" grep -rs . "/sys/class/infiniband/$(dev_of "$1")/ports/1/gid_attrs/types/" \
		"/sys/class/infiniband/$(dev_of "$1")/ports/1/gids/" |
		awk '{ sub(/^.*\/ports\/1\//, ""); i = $0; sub(/:.*/, "", i); sub(/.*\//, "", i)
			v = $0; sub(/^[^:]*:/, "", v) }
		/^gids\// { gid[i] = v } /^gid_attrs/ { type[i] = v }
		END { for (i in type) print i, type[i], gid[i] }' | sort -n
}

# gid_index a|b ADDRESS: where its RoCE v2 GID is.
gid_index()
{
	local text
	text=$(gid_text "$2")
	gids "$1" | sed -n "s/^\([0-9]*\) RoCE v2 $text\$/\1/p" | head -n 1 | grep .
}

# counter a|b NAME: a number (0 if the device has no such counter).
counter()
{
	host "$1" rdma statistic show link "$(dev_of "$1")/1" |
		tr -s ' ' '\n' | awk -v n="$2" 'p == n { v = $1 } { p = $1 } END { print v + 0 }'
}

# recorded SYSTEM/EVENT FILTER COMMAND...: what the kernel's event tells while a command
# runs, in $TMP/recorded; 0 is no filter.
recorded()
{
	local trace=/sys/kernel/tracing/instances/selftest status=0
	mkdir $trace || return 1
	echo "$2" >"$trace/events/$1/filter" && echo 1 >"$trace/events/$1/enable" || status=1
	[ $status != 0 ] || "${@:3}" || status=1
	echo 0 >"$trace/events/$1/enable"
	cat $trace/trace >"$TMP/recorded"
	rmdir $trace
	return $status
}

port_state() { cat "/sys/class/infiniband/$(dev_of "$1")/ports/1/state"; }

# devinfo a|b FIELD: of ibv_devinfo. (-v asks for each of 1024 GIDs: slow.)
devinfo()
{
	host "$1" ibv_devinfo -d "$(dev_of "$1")" | sed -n "s/^[ \t]*$2:[ \t]*//p" | head -n 1
}

# eventually SECONDS COMMAND...: until it succeeds.
eventually()
{
	local i limit=$1
	shift
	for ((i = 0; i < limit * 20; i++)); do
		"$@" >"$TMP/eventually" 2>&1 && return 0
		sleep 0.05
	done
	echo "not within $limit s: $*"
	cat "$TMP/eventually"
	return 1
}

# build NAME SOURCES...: a C program of verbs/; $BIN/NAME. LIBS: more libraries.
BIN=${RXO_TEST_BIN:-/tmp/rxo-selftest-bin}
build()
{
	local name=$1 src
	shift
	mkdir -p "$BIN"
	[ ! -x "$BIN/$name" ] || return 0
	src=("${@/#/$TESTS/verbs/}")
	gcc -O2 -g -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -Werror -pthread -rdynamic \
		-o "$BIN/$name" "${src[@]}" -libverbs ${LIBS:-}
}

# must_build NAME SOURCES...: without it there is no test.
must_build()
{
	build "$@" >"$TMP/out" 2>&1 && return
	diag <"$TMP/out"
	result 1 "$1 compiles"
	echo "1..$TAP_N"
	exit 1
}

# Without a link-local address a host asks for no neighbour unless a packet of
# an address of its own is at hand, which ib_core hasn't when it resolves one.
link_local()
{
	ip -n hosta addr replace fe80::a/64 dev eth0 nodad &&
		ip -n hostb addr replace fe80::b/64 dev eth0 nodad
}

# Rounds for programs that poll: with one CPU each round costs a time slice.
polls() { [ "$(nproc)" -gt 1 ] && echo "$1" || echo $(($1 < 60 ? $1 : 60)); }

# ---- start ------------------------------------------------------------------

link_local 2>/dev/null

kernel_log_new >/dev/null
resources >"$TMP/res.before"
