#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# perftest: that it works, not how fast it is. "here" is one host to itself.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"

# A result line has a size, iterations, and a figure that is not zero: the
# message rate, or the typical latency. Where the clock is too unsteady for
# perftest ("Correlation coefficient"), it has none: 0 or inf.
result_lines() # FILE PROGRAM
{
	local unsteady=0
	! grep -q "Correlation coefficient" "$1" || unsteady=1
	awk -v lat="${2##*_}" -v unsteady=$unsteady '
		!/^ *[0-9]+[ \t]+[0-9]+[ \t]+([0-9.]+|inf)[ \t]/ { next }
		unsteady { print; next }
		lat == "bw" && NF == 5 && $5 > 0
		lat == "lat" && NF >= 6 && $5 != "inf" && $5 > 0' "$1" | wc -l
}

# perf VIA CLIENT-HOST LINES PROGRAM ARGS...; VIA is tcp or cm (-R)
perf()
{
	local via=$1 from=$2 lines=$3 prog=$4 n
	local -a sx cx
	shift 4
	next_port
	if [ "$via" = cm ]; then
		sx=(-R)
		cx=(-R)
	else
		sx=(-x "$(gid_index b $IPB)")
		cx=(-x "$(gid_index "$from" "$(ip_of "$from" 4)")")
	fi
	pair "${LIMIT:-90}" "$via" $PORT b "$prog" -d "$DEVB" -F -p $PORT "${sx[@]}" "$@" -- \
		"$from" "$prog" -d "$(dev_of "$from")" -F -p $PORT "${cx[@]}" "$@" $IPB || return 1
	n=$(result_lines "$TMP/client" "$prog")
	if [ "$n" != "$lines" ]; then
		echo "$n result lines with a figure, expected $lines:"
		show_end "$TMP/client" 30
		return 1
	fi
	if grep -hE "Completion with error|Failed status|Couldn't|Unable|mismatch" "$TMP/client" "$TMP/server"; then
		show_end "$TMP/client" 30
		return 1
	fi
}

six="ib_send_bw ib_write_bw ib_read_bw ib_send_lat ib_write_lat ib_read_lat"
bws="ib_send_bw ib_write_bw ib_read_bw"

# -a is 2 bytes to 8 MiB: 23 sizes
for prog in $six; do
	t "$prog -a" perf tcp a 23 $prog -a -n 5
	if [ "$QUICK" = 0 ]; then
		t "$prog -a -R" perf cm a 23 $prog -a -n 5
	else
		t "$prog -R" perf cm a 1 $prog -s 65536 -n 20
	fi
done
for prog in $bws; do
	t "$prog -b -a" perf tcp a 23 $prog -b -a -n 5
	t "$prog -b -R" perf cm a 1 $prog -b -s 65536 -n 50
	for q in 4 16; do
		t "$prog -q $q" perf tcp a 1 $prog -q $q -s 65536 -n 20
	done
	t "$prog -q 4 -R" perf cm a 1 $prog -q 4 -s 4096 -n 40
	t "$prog -q 4 -b" perf tcp a 1 $prog -q 4 -b -s 65536 -n 20
	for m in 256 $([ "$QUICK" = 1 ] || echo 512 1024 2048) 4096; do
		t "$prog -m $m" perf tcp a 1 $prog -m $m -s 65536 -n 20
	done
	t "$prog -l 8" perf tcp a 1 $prog -l 8 -s 4096 -n 800
	t "$prog -l 8 -q 4" perf tcp a 1 $prog -l 8 -q 4 -s 1024 -n 160
	t "$prog -D 1" perf tcp a 1 $prog -D 1 -s 65536
done
for m in 256 4096; do
	for prog in ib_send_lat ib_write_lat ib_read_lat; do
		t "$prog -m $m" perf tcp a 1 $prog -m $m -s 10000 -n "$(polls 200)"
	done
done
for prog in ib_send_bw ib_write_bw ib_send_lat ib_write_lat; do
	t "$prog -I 64" perf tcp a 1 $prog -I 64 -s 64 -n "$(polls 1000)"
	t "$prog -I 200 -l 8" perf tcp a 1 $prog -I 200 -s 199 -n "$(polls 800)"
done
for prog in ib_send_bw ib_read_bw ib_send_lat; do
	t "$prog -e" perf tcp a 1 $prog -e -s 4096 -n 500
	t "$prog -e -R" perf cm a 1 $prog -e -s 4096 -n 200
done
for a in FETCH_AND_ADD CMP_AND_SWAP; do
	t "ib_atomic_bw $a" perf tcp a 1 ib_atomic_bw -A $a -n 200
	t "ib_atomic_lat $a" perf tcp a 1 ib_atomic_lat -A $a -n "$(polls 200)"
done
t "ib_atomic_bw -q 4 -o 1" perf tcp a 1 ib_atomic_bw -q 4 -o 1 -n 100
t "ib_read_bw -o 1" perf tcp a 1 ib_read_bw -o 1 -s 65536 -n 20
t "ib_write_bw --write_with_imm" perf tcp a 1 ib_write_bw --write_with_imm -s 65536 -n 20

# UD: up to the path MTU; the receiver must have room for all of it.
t "ib_send_bw -c UD" perf tcp a 1 ib_send_bw -c UD -s 2048 -n 200
t "ib_send_bw -c UD -a" perf tcp a 12 ib_send_bw -c UD -a -n 100
t "ib_send_lat -c UD -a" perf tcp a 12 ib_send_lat -c UD -a -n "$(polls 100)"
t "ib_send_lat -c UD -R" perf cm a 1 ib_send_lat -c UD -s 512 -n "$(polls 100)"
t "ib_send_bw -c UD -q 4" perf tcp a 1 ib_send_bw -c UD -q 4 -s 1024 -n 50

# A shared receive queue; a multicast group.
t "ib_send_bw --use-srq" perf tcp a 1 ib_send_bw --use-srq -s 65536 -n 100
t "ib_send_bw --use-srq -q 4" perf tcp a 1 ib_send_bw --use-srq -q 4 -s 4096 -n 200
t "ib_send_lat --use-srq" perf tcp a 1 ib_send_lat --use-srq -s 4096 -n "$(polls 200)"
t "ib_send_bw -c UD --use-srq" perf tcp a 1 ib_send_bw -c UD --use-srq -s 2048 -n 200
# The default group does not leave the host where it is an IPv6 address (ff01::).
GROUP=0:0:0:0:0:0:0:0:0:0:255:255:239:7:7:7
t "ib_send_bw -c UD -g" perf tcp a 1 ib_send_bw -c UD -g -M $GROUP -s 2048 -n 200
t "ib_send_lat -c UD -g" perf tcp a 1 ib_send_lat -c UD -g -M $GROUP -s 2048 -n "$(polls 200)"

# uc LINES PROGRAM ARGS...: a service that not every driver has
uc()
{
	perf tcp a "$@" && return
	if grep -hqi "not supported\|Unable to create QP\|Failed to create QP" "$TMP/client" "$TMP/server"; then
		lacks "the driver has no UC QPs"
		return
	fi
	return 1
}
for prog in ib_send_bw ib_write_bw ib_send_lat ib_write_lat; do
	t "$prog -c UC" uc 1 $prog -c UC -s 65536 -n 20
done

for prog in $six; do
	t "here: $prog" perf tcp b 1 $prog -s 65536 -n "$(polls 100)"
	t "here: $prog -R" perf cm b 1 $prog -s 4096 -n "$(polls 100)"
done
t "here: ib_send_bw -a" perf tcp b 23 ib_send_bw -a -n 5
t "here: ib_write_bw -b -q 4" perf tcp b 1 ib_write_bw -b -q 4 -s 65536 -n 20
t "here: ib_read_bw -m 256" perf tcp b 1 ib_read_bw -m 256 -s 65536 -n 20
t "here: ib_atomic_bw" perf tcp b 1 ib_atomic_bw -n 100
t "here: ib_send_bw -c UD" perf tcp b 1 ib_send_bw -c UD -s 2048 -n 100
finish
