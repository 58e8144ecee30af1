#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# run.sh [TEST...]: the selftests, in a guest that has the topology
# (lib/topology.sh) up; those whose names contain a TEST, or all. One TAP
# stream on stdout; exits non-zero if anything fails.
#
#   RXO_DRIVER=rxo|rxe|siw   the driver under test
#   RXO_QUICK=1              smaller matrices
#   RXO_TEST_TIME=seconds    the longest that one test may take (1200)
#
# Cases listed in known.DRIVER ("test: case", a tab, a reason) are expected to
# fail with that driver: they are run and marked TODO.

set -u
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=selftests/lib/topology.sh
. "$here/lib/topology.sh"
export RXO_DRIVER

n=0 bad=0 skipped=0 todo=0
known=$here/known.$RXO_DRIVER
begin=$SECONDS

out() # ok|"not ok" NAME [DIRECTIVE]
{
	local why
	n=$((n + 1))
	if [ "$1" = "not ok" ]; then
		why=
		[ ! -e "$known" ] || why=$(awk -F'\t' -v c="$2" '$1 == c { print $2; exit }' "$known")
		if [ -n "$why" ]; then
			todo=$((todo + 1))
			echo "not ok $n - $2 # TODO $why"
			return
		fi
		bad=$((bad + 1))
	fi
	echo "$1 $n - $2${3:+ # $3}"
}

tests=()
for f in "$here"/[0-9][0-9]-*.sh; do
	name=$(basename "$f" .sh)
	wanted=$([ $# = 0 ] && echo 1)
	for w; do
		[[ $name != *"$w"* ]] || wanted=1
	done
	[ -z "$wanted" ] || tests+=("$f")
done
if [ ${#tests[@]} = 0 ]; then
	echo "run.sh: no test is called like that: $*" >&2
	exit 2
fi

echo "TAP version 13"
for f in "${tests[@]}"; do
	name=$(basename "$f" .sh)
	name=${name#[0-9][0-9]-}
	echo "# ---- $name"
	start=$SECONDS plan=none seen=0 before=$bad
	exec 7< <(
		timeout -k 10 "${RXO_TEST_TIME:-1200}" bash "$f" </dev/null 2>&1
		echo "exit status $?"
	)
	while IFS= read -r line <&7; do
		case $line in
		"exit status "*) status=${line##* } ;;
		"1..0 # SKIP "*)
			plan=0 skipped=$((skipped + 1))
			out ok "$name" "SKIP ${line#1..0 # SKIP }" ;;
		1..*) plan=${line#1..} ;;
		"ok "*" # SKIP"*)
			seen=$((seen + 1)) skipped=$((skipped + 1))
			c=${line#ok * - }
			out ok "$name: ${c%% # SKIP*}" "SKIP${c##* # SKIP}" ;;
		"ok "*) seen=$((seen + 1)); out ok "$name: ${line#ok * - }" ;;
		"not ok "*) seen=$((seen + 1)); out "not ok" "$name: ${line#not ok * - }" ;;
		"#"*) echo "$line" ;;
		*) echo "# $line" ;;
		esac
	done
	exec 7<&-
	if [ "$plan" != "$seen" ]; then
		echo "# $name: status $status (124 is too late), $seen results, plan $plan"
		out "not ok" "$name: ran to its end"
	elif [ "$status" != 0 ] && [ "$bad" = "$before" ] && [ $todo = 0 ]; then
		out "not ok" "$name: exit status $status"
	fi
	echo "# $name: $seen cases, $((SECONDS - start)) s"
done

echo "1..$n"
echo "# $((n - bad - skipped - todo)) passed, $bad failed, $todo known to fail, $skipped skipped, $((SECONDS - begin)) s"
[ $bad = 0 ]
