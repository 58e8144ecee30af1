# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# The programs of rdmacm-utils, and one of our own, between $SERVER and another
# host; to be sourced after tap.sh.

SERVER=b

# cm_rping VERSION CLIENT-HOST ROUNDS SIZE SERVER-ARGS...
cm_rping()
{
	local v=$1 from=$2 n=$3 size=$4 addr
	addr=$(ip_of $SERVER "$v")
	shift 4
	next_port
	pair 60 cm $PORT $SERVER rping -s -a "$addr" -p $PORT -V -v -C "$n" -S "$size" "$@" -- \
		"$from" rping -c -a "$addr" -p $PORT -V -v -C "$n" -S "$size" "$@" || return 1
	expect_line "$TMP/client" client "^ping data: rdma-ping-[0-9]+: " "$n" || return 1
	expect_line "$TMP/server" server "^server ping data: rdma-ping-[0-9]+: " "$n" || return 1
	expect_line "$TMP/client" client "mismatch|error" 0
}

# cm_ucmatose CLIENT-HOST VERSION ARGS...
cm_ucmatose()
{
	local from=$1 addr
	addr=$(ip_of $SERVER "$2")
	shift 2
	next_port
	pair 60 cm $PORT $SERVER ucmatose -b "$addr" -p $PORT -f ip "$@" -- \
		"$from" ucmatose -s "$addr" -p $PORT -f ip "$@" || return 1
	local f
	for f in server client; do
		expect_line "$TMP/$f" $f "^test complete" 1 || return 1
		expect_line "$TMP/$f" $f "^return status 0" 1 || return 1
		expect_line "$TMP/$f" $f "data transfers complete" || return 1
		expect_line "$TMP/$f" $f "failed|error" 0 || return 1
	done
}

cm_udaddy()
{
	local from=$1 addr
	addr=$(ip_of $SERVER "$2")
	shift 2
	next_port
	pair 60 cm 7174 $SERVER udaddy -b "$addr" "$@" -- \
		"$from" udaddy -s "$addr" "$@" || return 1
	local f
	for f in server client; do
		expect_line "$TMP/$f" $f "^test complete" 1 || return 1
		expect_line "$TMP/$f" $f "^return status 0" 1 || return 1
		expect_line "$TMP/$f" $f "data transfers complete" || return 1
	done
}

# cm_nobody CLIENT-HOST: there is none who listens.
cm_nobody()
{
	next_port
	! host "$1" timeout 20 rping -c -a "$(ip_of $SERVER 4)" -p $PORT -V -C 1 >"$TMP/client" 2>&1 || return 1
	expect_line "$TMP/client" client "RDMA_CM_EVENT_REJECTED|cma event"
}

# cm_private CLIENT-HOST VERSION: private data with requests, replies, refusals.
cm_private()
{
	local addr f
	addr=$(ip_of $SERVER "$2")
	next_port
	pair 30 cm $PORT $SERVER "$BIN/cm" "$addr" $PORT -- "$1" "$BIN/cm" "$addr" $PORT to || return 1
	for f in server client; do
		expect_line "$TMP/$f" $f "^well" 1 || return 1
	done
	expect_line "$TMP/client" client "^RDMA_CM_EVENT_REJECTED with 148" 1 &&
		expect_line "$TMP/client" client "^RDMA_CM_EVENT_ESTABLISHED with 196" 1
}
