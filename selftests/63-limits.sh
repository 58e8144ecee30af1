#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Limits (verbs/limits.c): those of the device, RLIMIT_MEMLOCK, and those of an
# RDMA control group.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
must_build limits limits.c rig.c

all="max_pd max_ah max_mw max_mcast max_rd_atomic"
# These take memory or time, and each ring a mapping of the process.
rings="max_srq max_cq max_qp"
if [ "$QUICK" != 1 ]; then
	sysctl -qw vm.max_map_count=300000
	all+=" max_mr"
	if [ "$RXO_LANE" = vm ]; then
		all+=" $rings"
	else
		t "$rings" skip "each page of a ring is a mapping of UML's on its host, where it may have 65530"
	fi
fi
LIMITS=("$BIN/limits" -a "hosta:$DEVA" -b "hostb:$DEVB")

case_memlock()
{
	"${LIMITS[@]}" memlock
}

# in_cgroup OBJECTS: one that allows so many of hosta's device.
in_cgroup()
{
	local cg=/sys/fs/cgroup/rxo-test s
	[ -e /sys/fs/cgroup/cgroup.controllers ] || mount -t cgroup2 none /sys/fs/cgroup || return 1
	grep -qw rdma /sys/fs/cgroup/cgroup.controllers || { skip "no RDMA control groups here"; return; }
	echo +rdma >/sys/fs/cgroup/cgroup.subtree_control && mkdir $cg || return 1
	echo "$DEVA hca_handle=4 hca_object=$1" >$cg/rdma.max || { rmdir $cg; return 1; }
	grep "^$DEVA " $cg/rdma.max
	RXO_CGROUP_OBJECTS=$1 bash -c 'echo $$ >'$cg'/cgroup.procs && exec "$@"' sh "${LIMITS[@]}" cgroup
	s=$?
	grep "^$DEVA " $cg/rdma.current
	# All that was charged was given back.
	grep -qE "^$DEVA hca_handle=0 hca_object=0" $cg/rdma.current || s=1
	rmdir $cg
	return $s
}

# shellcheck disable=SC2086
tap_program 900 "" "${LIMITS[@]}" $all
t "RLIMIT_MEMLOCK" case_memlock
t "a control group's objects" in_cgroup 32
finish
