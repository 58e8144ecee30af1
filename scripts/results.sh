# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# Counts results, for run-tests; to be sourced after lib.sh.
#
#   run NAME COMMAND...     a command that prints TAP
#   selftests LANE TEST...  selftests in a guest
#   pass; fail WHAT         a result of something else
#   summary                 ends with: N passed, N failed, N skipped

passed=0 failed=0 skipped=0
failures=() second=()
out=$(mktemp)

headline() { printf '\n== %s\n' "$*"; }

pass() { passed=$((passed + 1)); }

fail()
{
	failed=$((failed + 1))
	failures+=("$*")
}

# tap NAME STATUS: count the results in $out, and whether they are complete.
tap()
{
	local name=$1 status=$2 line plan=0 results=0 bad=0

	while read -r line; do
		case $line in
		"ok "*"# SKIP"* | "ok "*"# skip"*)
			skipped=$((skipped + 1))
			results=$((results + 1))
			;;
		"ok "*)
			pass
			results=$((results + 1))
			;;
		"not ok "*"# TODO"*)
			skipped=$((skipped + 1))
			results=$((results + 1))
			;;
		"not ok "*)
			fail "$name: ${line#not ok }"
			results=$((results + 1))
			bad=1
			;;
		1..*) plan=$((plan + $(grep -oE '^[0-9]+' <<<"${line#1..}" || echo 0))) ;;
		esac
	done < <(tr -d '\r' <"$out" | grep -E '^(ok|not ok|1\.\.)')
	if [ $results = 0 ]; then
		fail "$name: it gave no result (status $status)"
	elif [ "$plan" != $results ]; then
		fail "$name: $results results where $plan were announced (status $status)"
	elif [ "$status" != 0 ] && [ $bad = 0 ]; then
		fail "$name: all passed, and yet it ended with status $status"
	fi
}

# run NAME COMMAND...: the command's TAP, shown and counted.
run()
{
	local name=$1 status

	shift
	headline "$name"
	set +e
	"$@" 2>&1 | tee "$out"
	status=${PIPESTATUS[0]}
	set -e
	tap "$name" "$status"
}

# again LANE: the tests, one a line, that are to be tried once more, in a fresh guest.
# An emulated CPU, or one that a guest shares with others, loses time now and then:
# that is for a few tests to say, of a run that came to its end. A kernel that
# complained is none of it, and with KVM there is no such excuse.
again()
{
	local tests

	mapfile -t tests < <(sed -n '/# TODO /d; s/^not ok [0-9]* - \([^:]*\):.*/\1/p' "$out" | sort -u)
	[ ${#tests[@]} -gt 0 ] && [ ${#tests[@]} -le 6 ] || return 0
	grep -q '^# [0-9]* passed, ' "$out" && ! grep -q 'the kernel complained' "$out" || return 0
	[ "$1" != vm ] || [ "$(kvm)" != on ] || return 0
	printf '%s\n' "${tests[@]}"
}

# selftests LANE TEST...: in a guest (guest_tests does it); all if none is named. A
# second try counts in place of the first, and the summary tells of it.
selftests()
{
	local lane=$1 before=$failed told=${#failures[@]} tests first had left

	run "selftests, lane $lane" guest_tests "$@"
	[ $failed != "$before" ] || return 0
	mapfile -t tests < <(again "$lane")
	[ ${#tests[@]} -gt 0 ] || return 0
	first=("${failures[@]:$told}")
	had=$passed left=$skipped
	printf 'failed at first: %s\n' "${first[@]}"
	failed=$before
	failures=("${failures[@]:0:$told}")
	run "second try, lane $lane: ${tests[*]}" guest_tests "$lane" "${tests[@]}"
	second+=("${first[@]}")
	passed=$((had + (failed - before < ${#first[@]} ? ${#first[@]} - (failed - before) : 0)))
	skipped=$left
}

summary()
{
	if [ ${#second[@]} != 0 ]; then
		headline "what failed at first, and was tried again"
		printf '%s\n' "${second[@]}"
	fi
	if [ $failed != 0 ]; then
		headline "what failed"
		printf '%s\n' "${failures[@]}"
	fi
	echo
	echo "$passed passed, $failed failed, $skipped skipped"
	[ $failed = 0 ]
}
