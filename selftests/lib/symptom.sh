# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# For tests that look at queue pairs while something is wrong with them; to be
# sourced after tap.sh.
#
#   symptom CASE        starts a case of symptom.c; it stops where it says "look"
#   look STAGE          waits until it does
#   go                  lets it go on
#   through STAGE...    both, for each
#   ended_well          its end

# shellcheck source=selftests/lib/wire.sh
. "$TESTS/lib/wire.sh"

# A case that ended is noticed by what it did not do.
trap '' PIPE

SHOT=/sys/kernel/debug/rxo

symptom()
{
	LOOKED=
	rm -f "$TMP/symptom.in"
	mkfifo "$TMP/symptom.in"
	"$BIN/symptom" -a "hosta:$DEVA" -b "hostb:$DEVB" "$1" <"$TMP/symptom.in" >"$TMP/symptom" 2>&1 &
	SYMPTOM=$!
	PIDS+=("$SYMPTOM")
	exec 6>"$TMP/symptom.in"
}

look()
{
	local i

	for ((i = 0; i < 400; i++)); do
		! grep -q "^look $1\$" "$TMP/symptom" || return 0
		kill -0 "$SYMPTOM" 2>/dev/null || break
		sleep 0.05
	done
	echo "it never got to '$1':"
	show_end "$TMP/symptom"
	return 1
}

go() { echo 2>/dev/null >&6; }

through()
{
	local stage

	for stage; do
		look "$stage" && go || return 1
	done
}

ended_well()
{
	exec 6>&-
	ended "$SYMPTOM" 20 && wait "$SYMPTOM" && return
	show_end "$TMP/symptom"
	return 1
}

# told WORD: the number that the program told last for a word ("qp a").
told() { sed -n "s/^$1 \([0-9]*\)\$/\1/p" "$TMP/symptom" | tail -n 1; }

# shot a|b: the snapshot of a device.
shot() { cat "$SHOT/$(dev_of "$1")/snapshot"; }

# qp a|b FILTER: what jq makes of the case's queue pair.
qp() { shot "$1" | jq -r ".qps[] | select(.qpn == $(told "qp $1")) | $2"; }

# detail a|b FIELD: what `rdma resource show qp -dd` says of it.
detail()
{
	host "$1" rdma -j -dd resource show qp link "$(dev_of "$1")/1" |
		jq -r ".[] | select(.lqpn == $(told "qp $1")) | .drv_$2"
}

# happened a|b EVENT [WHAT]: how often, by the queue pair's history.
happened()
{
	qp "$1" "[.history.events[] | select(.event == \"$2\"${3:+ and .what == \"$3\"}) | .times // 1] | add // 0"
}

# is WHAT COMMAND...: the command prints this number or word; "N..": N at least.
is()
{
	local want=$1 have

	shift
	have=$("$@")
	case $want in
	*..) [ -n "$have" ] && [ "$have" -ge "${want%..}" ] 2>/dev/null && return ;;
	*) [ "$have" = "$want" ] && return ;;
	esac
	echo "$*: '$have', not '$want'"
	return 1
}

# none a|b COUNTER...: none of these moved since the snapshot of counters.
none()
{
	local h=$1 c r=0

	shift
	for c; do
		is 0 counted "$h" "$c" || r=1
	done
	return $r
}

# begin CASE: up to where its queue pairs are connected; counters count from there.
begin()
{
	symptom "$1"
	look begin && snapshot
}
