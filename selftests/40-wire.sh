#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# What goes over the wire, seen from outside: each opcode with each length of
# padding, the acknowledgements and NAKs, over IPv4 and IPv6, judged by scapy
# and by tshark.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
# shellcheck source=selftests/lib/wire.sh
. "$TESTS/lib/wire.sh"
must_build link link.c rig.c

emit() # IP-VERSION
{
	local option=() status
	[ "$1" = 4 ] || option=(-6)
	# The third of all middle packets goes missing: a NAK, and a repetition.
	lose b @th,64,8 0x01 numgen inc mod 1000000 2 || return 1
	capture_start "$TMP/ipv$1.pcap" || return 1
	LINK_PAIRS=1 link "${option[@]}" emit
	status=$?
	cp "$TMP/link" "$TMP/ipv$1.pairs"
	capture_stop || status=1
	lose_off
	return $status
}

judge() # CAPTURE...
{
	"$TESTS/wire/check.py" --want all --flip "$TMP/$1.pcap" "$TMP/$1.pairs" >"$TMP/judge"
	local status=$?

	cat "$TMP/judge"
	sed -n '/ packets, /s/^/# /p' "$TMP/judge" >&3
	return $status
}

# tshark takes payload for protocols that it isn't, some of it malformed ones.
NOT=()
for heuristic in rpcrdma_infiniband mellanox_eoib eth_over_ib lnet_ib iser_infiniband \
	smb_direct_infiniband smcr_infiniband sdp_infiniband fc_infiniband nvme_rdma; do
	NOT+=(--disable-heuristic $heuristic)
done

# Every packet is understood, its CRC found, and nothing complained about. (A UDP
# checksum of 0 is what RoCEv2 has, over IPv6 as well.)
dissect() # CAPTURE
{
	local out=$TMP/tshark

	tshark -n -r "$TMP/$1.pcap" "${NOT[@]}" -o udp.ignore_ipv6_zero_checksum:TRUE -T fields -E separator=/t \
		-e frame.number -e infiniband.bth.opcode -e infiniband.invariant.crc \
		-e _ws.malformed -e _ws.expert.severity -e _ws.expert.message \
		>"$out" 2>"$out.err" || { cat "$out.err"; return 1; }
	# Severities: 0x200000 chat, 0x400000 note, 0x600000 warning.
	awk -F'\t' '
		{ bad = $2 == "" || $3 == "" || $4 != "" }
		{ n = split($5, s, ","); for (i = 1; i <= n; i++) if (s[i] + 0 >= 6291456) bad = 1 }
		bad && ++wrong <= 10
		END { print NR " packets, " wrong + 0 " not understood"; exit wrong != 0 || NR == 0 }' "$out"
}

# ATOMIC WRITE and FLUSH, which tshark doesn't know.
rare()
{
	local status

	capture_start "$TMP/rare.pcap" || return 1
	"$TMP/flush" -a "$HOSTA" -b "$HOSTB" "ATOMIC WRITE: eight*" "FLUSH of*"
	status=$?
	capture_stop || return 1
	[ $status = 0 ] && "$TESTS/wire/check.py" --want 0x1c,0x1d,0x10 "$TMP/rare.pcap"
}
gcc -O2 -Wall -o "$TMP/flush" "$TESTS"/verbs/{flush,rig}.c -libverbs -lpthread

exec 3>&1
no_trains || exit 1
for v in 4 6; do
	t "IPv$v: all of it arrives" emit $v
	t "IPv$v: scapy agrees with headers and invariant CRCs, and nothing is missing" judge ipv$v
	t "IPv$v: tshark dissects it without complaint" dissect ipv$v
done
t "scapy agrees with ATOMIC WRITE and FLUSH" rare
trains
finish
