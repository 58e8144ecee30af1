#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# rdma-core's own tests (python3-pyverbs), each module in a process of its own,
# on the driver under test and on rdma_rxe in the same boot. Prints a table;
# fails where a test fails that has not failed on rdma_rxe too, and where
# fewer tests pass than there.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"

MODULES=${*:-addr atomic cq cq_events cqex device flow fork mr odp parent_domain pd qp qpex
	rdmacm relaxed_ordering shared_pd srq}
SUITE=/usr/share/doc/rdma-core/tests
WORK=$TMP/suite

if [ ! -d $SUITE ] || ! python3 -c 'import pyverbs' 2>/dev/null; then
	echo "1..0 # SKIP the tests of rdma-core are not installed"
	exit 0
fi
mkdir "$WORK" && cp -r $SUITE "$WORK/tests" && gunzip -f "$WORK"/tests/*.gz

# gid_of NAMESPACE DEVICE ADDRESS: index of the RoCEv2 GID.
gid_of()
{
	local i hex dir=/sys/class/infiniband/$2/ports/1
	printf -v hex '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x' ${3//./ }
	for ((i = 0; i < 64; i++)); do
		[ "$($1 cat "$dir/gids/$i" 2>/dev/null)" = "$hex" ] &&
			$1 grep -q v2 "$dir/gid_attrs/types/$i" 2>/dev/null && echo $i && return
	done
	return 1
}

# suite TAG PREFIX DEVICE ADDRESS: results in $TMP/TAG.MODULE
suite()
{
	local tag=$1 prefix=$2 dev=$3 gid m
	gid=$(gid_of "$prefix" "$dev" "$4") || { echo "$dev has no GID"; return 1; }
	for m in $MODULES; do
		(cd "$WORK" && $prefix timeout -k 5 180 python3 tests/run_tests.py --dev "$dev" \
			--gid "$gid" -v -k "tests.test_$m.") >"$TMP/$tag.$m" 2>&1
		echo "status $?" >>"$TMP/$tag.$m"
	done
}

# Names of tests with a verdict: verdicts TAG MODULE ok|skipped|FAIL|ERROR. The
# name may be on the line before, where the test has a description.
verdicts()
{
	awk -v want="$3" '
		match($0, /\(tests\.test_[A-Za-z0-9_.]+\)/) { name = substr($0, RSTART + 1, RLENGTH - 2) }
		match($0, /\.\.\. (ok|skipped|FAIL|ERROR)/) {
			if (substr($0, RSTART + 4, RLENGTH - 4) == want) {
				sub(/^.*\.test_/, "test_", name); why = ""
				if (want == "skipped") { why = $0; sub(/^.*skipped /, "\t", why) }
				print name why
			}
		}' "$TMP/$1.$2"
}

count() { verdicts "$1" "$2" "$3" | grep -c .; }

rxe_up()
{
	modprobe -q rdma_rxe && ip link add rxet0 type veth peer name rxet1 &&
		ip addr add 10.8.0.1/24 dev rxet0 && ip link set lo up &&
		ip link set rxet0 mtu 4200 up && ip link set rxet1 mtu 4200 up &&
		rdma link add rxet type rxe netdev rxet0
}

# No address is being looked for elsewhere any more.
rxe_ready() { [ -z "$(ip -o addr show tentative)" ] && grep -q ACTIVE /sys/class/infiniband/rxet/ports/1/state; }

PEER=
if [ "$RXO_DRIVER" != rxe ] && rxe_up >"$TMP/out" 2>&1; then
	eventually 10 rxe_ready >"$TMP/out"
	PEER=rxe
	suite rxe "" rxet 10.8.0.1 >"$TMP/out" 2>&1 || PEER=
	rdma link delete rxet
	ip link del rxet0
fi
suite own "ip netns exec hosta" "$DEVA" "$IPA" 2>&1 | diag

printf '# %-18s %20s   %20s\n' module "$RXO_DRIVER ok/skip/fail" "${PEER:+rxe ok/skip/fail}"
own=0 theirs=0
for m in $MODULES; do
	line=
	for tag in own $PEER; do
		ok=$(count "$tag" "$m" ok)
		bad=$(($(count "$tag" "$m" FAIL) + $(count "$tag" "$m" ERROR)))
		line+=$(printf ' %20s  ' "$ok/$(count "$tag" "$m" skipped)/$bad$(grep -qE '^status (0|1)$' "$TMP/$tag.$m" || echo ' crash')")
		if [ $tag = own ]; then own=$((own + ok)); else theirs=$((theirs + ok)); fi
	done
	printf '# %-18s %s\n' "$m" "$line"
done
printf '# %-18s %20s   %20s\n' "sum of ok" "$own" "${PEER:+$theirs}"

verdict() # MODULE
{
	local name v bad=0
	for v in FAIL ERROR; do
		while read -r name; do
			if [ -n "$PEER" ] && { verdicts rxe "$1" FAIL; verdicts rxe "$1" ERROR; } | grep -qxF "$name"; then
				echo "fails on rdma_rxe too: $name"
				continue
			fi
			echo "$v: $name"
			bad=1
		done < <(verdicts own "$1" "$v")
	done
	[ $bad = 0 ] || grep -A12 -E '^(FAIL|ERROR): ' "$TMP/own.$1"
	if ! grep -qE '^status (0|1)$' "$TMP/own.$1"; then
		if [ -n "$PEER" ] && ! grep -qE '^status (0|1)$' "$TMP/rxe.$1"; then
			echo "ends early on rdma_rxe too"
		else
			tail -n 3 "$TMP/own.$1"
			bad=1
		fi
	fi
	return $bad
}

for m in $MODULES; do
	verdicts own "$m" skipped | sed -E "s/^/$m skipped: /" | sort | uniq | diag
	t "rdma-core: $m" verdict "$m"
done
more_than_rxe() { [ "$own" -gt "$theirs" ]; }
[ -z "$PEER" ] || [ $# != 0 ] || t "more tests pass than on rdma_rxe" more_than_rxe
finish
