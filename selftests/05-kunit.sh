#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# The unit tests that are built into the module, run in the kernel (KUnit).
# Guests are booted with kunit.enable=1 kunit.autorun=0: the suites wait in
# debugfs, and run when told to.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"

suites=/sys/kernel/debug/kunit

no_kunit()
{
	skip "$1"
}

# All of a suite's cases, with what a failed one says.
case_suite()
{
	local results

	echo 1 >"$suites/$1/run" || return 1
	results=$(cat "$suites/$1/results")
	if ! grep -qE '^    ok ' <<<"$results" ||
		! grep -qE "^ok [0-9]+ $1\$" <<<"$results"; then
		echo "$results"
		return 1
	fi
	cases=$(grep -cE '^    ok ' <<<"$results")
	echo "# $1: $cases cases"
}

shopt -s nullglob
found=("$suites"/rxo_*)
if [ "$RXO_DRIVER" != rxo ]; then
	t "suites" no_kunit "they are rxo's"
elif [ ! -d "$suites" ] || dmesg | grep -q 'kunit: disabled'; then
	t "suites" no_kunit "this kernel has no KUnit, or not enabled"
elif [ ${#found[@]} = 0 ]; then
	t "the module has suites" false
else
	for s in "${found[@]}"; do
		t "$(basename "$s")" case_suite "$(basename "$s")"
	done
fi
finish
