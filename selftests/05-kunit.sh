#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The transport's own tests, run in the kernel (KUnit): module rxo_kunit.
# Guests are booted with kunit.enable=1 kunit.autorun=0: the suites wait in
# debugfs, and run when told to.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"

suites=/sys/kernel/debug/kunit

no_kunit()
{
	skip "$1"
}

tests=$(dirname "$0")/../rust/transport/tests

# Nothing was left out: each file of tests is a suite, with each test in it.
case_all()
{
	local file suite

	for file in "$tests"/*.rs; do
		suite=rxo_transport_$(basename "$file" .rs)
		diff <(sed -n '/^#\[test\]$/,/^fn /s/^fn \([a-z0-9_]*\)(.*/\1/p' "$file") \
			<(sed -nE 's/^    (not )?ok [0-9]+ ([a-z0-9_]+).*/\2/p' "$suites/$suite/results") ||
			return 1
	done
}

# All of a suite's cases, with what a failed one says.
case_suite()
{
	local results

	echo 1 >"$suites/$1/run" || return 1
	results=$(cat "$suites/$1/results")
	if ! grep -qE '^    ok ' <<<"$results" ||
		! grep -qE "^ok [0-9]+ $1\$" <<<"$results"; then
		grep -vE '^    ok |\.speed: ' <<<"$results"
		return 1
	fi
	cases=$(grep -cE '^    ok ' <<<"$results")
	echo "# $1: $cases cases"
}

if [ "$RXO_DRIVER" != rxo ]; then
	t "suites" no_kunit "they are rxo's"
elif [ ! -d "$suites" ] || dmesg | grep -q 'kunit: disabled'; then
	t "suites" no_kunit "this kernel has no KUnit, or not enabled"
elif ! modprobe rxo_kunit; then
	t "the module of the suites is loaded" false
else
	for s in "$suites"/rxo_*; do
		t "$(basename "$s")" case_suite "$(basename "$s")"
	done
	t "no test of the transport was left out" case_all
	t "the module of the suites is unloaded" rmmod rxo_kunit
fi
finish
