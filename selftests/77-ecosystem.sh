#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# Other people's users of verbs, unmodified: UCX, OpenMPI over it, libfabric,
# qperf, fio, rsockets and what runs on them, the other programs of
# rdmacm-utils, the rest of perftest. Data is verified where the program can.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"

# need PROGRAM...: they are in the build root (scripts/rootfs.packages).
need()
{
	local p
	for p; do
		command -v "$p" >/dev/null || { skip "$p is not installed"; return 1; }
	done
}

# ---- UCX ----------------------------------------------------------------------

# ucx_env HOST TRANSPORTS IP-VERSION: the device, the GID, and nothing but these
# transports (rc_v and ud_v: with what it takes to connect them).
#
# With GIDs of IPv4, UCX takes the service level of a completion for what mlx5
# says there of the kind of the packet, and drops what does not fit. So that
# check is off, as it must be with rdma_rxe.
ucx_env()
{
	echo "UCX_NET_DEVICES=$(dev_of "$1"):1 UCX_TLS=$2,self UCX_LOG_LEVEL=error \
		UCX_IB_GID_INDEX=$(gid_index "$1" "$(ip_of "$1" "$3")") UCX_WARN_UNUSED_ENV_VARS=n"
	[ "$3" = 6 ] || echo "UCX_UD_VERBS_ETH_DGID_CHECK=n"
}

# ucx IP-VERSION TRANSPORTS CLIENT-HOST TEST ARGS...
ucx()
{
	local v=$1 tls=$2 from=$3 what=$4
	shift 4
	need ucx_perftest || return
	next_port
	# Without a terminal it takes itself for a part of MPI (-P).
	# shellcheck disable=SC2046
	pair 60 tcp $PORT b env $(ucx_env b "$tls" "$v") ucx_perftest -P 0 -p $PORT -- \
		"$from" env $(ucx_env "$from" "$tls" "$v") ucx_perftest -P 0 -p $PORT $IPB -t "$what" "$@" || return 1
	expect_line "$TMP/client" client "^ *Final: +[0-9]+ " 1 || return 1
	# What it says of verbs that aren't mlx5's, and does without.
	sed -i '/flush(remote) is not supported\|error during flush: Unsupported/d' "$TMP/client"
	expect_line "$TMP/client" client " UCX +ERROR" 0
}

for tls in rc_v ud_v; do
	t "UCX $tls tag_lat" ucx 6 $tls a tag_lat -n "$(polls 200)" -w 10 -s 1000
	t "UCX $tls tag_bw 64 KiB" ucx 6 $tls a tag_bw -n "$(polls 200)" -w 10 -s 65536
	t "UCX $tls ucp_put_lat" ucx 6 $tls a ucp_put_lat -n "$(polls 200)" -w 10 -s 1000
	t "UCX $tls ucp_get" ucx 6 $tls a ucp_get -n "$(polls 200)" -w 10 -s 1000
	t "UCX $tls ucp_fadd" ucx 6 $tls a ucp_fadd -n "$(polls 200)" -w 10 -s 8
	t "UCX $tls stream_bw" ucx 6 $tls a stream_bw -n "$(polls 200)" -w 10 -s 8192
	t "UCX $tls IPv4 tag_lat" ucx 4 $tls a tag_lat -n "$(polls 200)" -w 10 -s 1000
	t "here: UCX $tls tag_lat" ucx 6 $tls b tag_lat -n "$(polls 200)" -w 10 -s 1000
done

# ---- OpenMPI ------------------------------------------------------------------

# Two ranks; each rank checks what it gets from the other.
cat >"$TMP/ranks.py" <<'END'
import socket
import sys
from array import array
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
assert size == 2, size
for n in (1, 1000, 100000):
    mine = array("q", [(rank + 1) * i for i in range(n)])
    other = array("q", [0] * n)
    comm.Sendrecv(mine, dest=1 - rank, recvbuf=other, source=1 - rank)
    assert other == array("q", [(2 - rank) * i for i in range(n)]), n
    total = array("q", [0] * n)
    comm.Allreduce(mine, total)
    assert total == array("q", [3 * i for i in range(n)]), n
    root = mine if rank == 0 else array("q", [0] * n)
    comm.Bcast(root, root=0)
    assert root == array("q", list(range(n))), n
    both = array("q", [0] * (2 * n))
    comm.Allgather(mine, both)
    assert both == array("q", [i for i in range(n)] + [2 * i for i in range(n)])
if "rma" not in sys.argv:
    print("rank", rank, "on", socket.gethostname(), "is right", flush=True)
    sys.exit(0)
win = MPI.Win.Allocate(4096, comm=comm)
win.Fence()
win.Put([bytes([rank + 65] * 4096), MPI.BYTE], 1 - rank)
win.Fence()
assert bytes(win.tomemory()) == bytes([66 - rank] * 4096)
win.Free()
comm.Barrier()
print("rank", rank, "on", socket.gethostname(), "is right", flush=True)
END

# How mpirun reaches another host: what it takes for ssh gets a name and a command.
cat >"$TMP/agent" <<'END'
#!/bin/sh
shift
exec unshare --uts sh -c 'hostname hostb && exec ip netns exec hostb sh -c "$*"' sh "$@"
END
chmod +x "$TMP/agent"

# mpi HOST-OF-THE-2ND-RANK TRANSPORT [rma]: each message leaves by a device and
# comes in by one, also where both ranks are on one host: nothing else is allowed.
mpi()
{
	need mpirun || return
	python3 -c 'import mpi4py' 2>/dev/null || { skip "mpi4py is not installed"; return; }
	local h before after
	for h in a b; do
		ucx_env $h "$2" 6 >"$TMP/env.host$h"
	done
	before=$(counter "$1" rx_requests)
	host a env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR="$TMP" \
		timeout -k 5 100 unshare --uts sh -c 'hostname hosta && exec "$@"' sh \
		mpirun --prtemca plm_ssh_agent "$TMP/agent" --oversubscribe --bind-to none \
		--mca pml ucx --mca osc ucx --mca btl ^openib,ofi,uct,vader,sm \
		-np 2 --host "$IPA:1,$(ip_of "$1" 4):1" \
		sh -c 'exec env $(cat "$0".$(hostname)) python3 "$@"' "$TMP/env" "$TMP/ranks.py" "${@:3}" \
		>"$TMP/mpi" 2>&1 </dev/null || { show_end "$TMP/mpi" 30; return 1; }
	expect_line "$TMP/mpi" mpirun "^rank 0 on hosta is right" 1 || return 1
	expect_line "$TMP/mpi" mpirun "^rank 1 on host$1 is right" 1 || return 1
	after=$(counter "$1" rx_requests)
	[ "$RXO_DRIVER" != rxo ] || [ "$after" -gt $((before + 100)) ] ||
		{ echo "few messages came by the device: $before, $after"; return 1; }
}
for tls in rc_v ud_v; do
	t "OpenMPI over UCX $tls" mpi b $tls
	t "here: OpenMPI over UCX $tls" mpi a $tls
done
t "OpenMPI over UCX ud_v, one-sided" mpi b ud_v rma
t "here: OpenMPI over UCX ud_v, one-sided" mpi a ud_v rma
# UCX has no flush(remote) for rc_verbs, on which OpenMPI's fence relies: the data
# comes too late with rdma_rxe, too.

# ---- libfabric ----------------------------------------------------------------

# fabric CLIENT-HOST PROVIDER ENDPOINT SIZE [DOMAIN-SUFFIX]: -c verifies. The first
# GID, which it would take for datagrams, is made of the MAC address: other tests
# may have taken the IPv6 address away that goes with it.
fabric()
{
	need fi_pingpong || return
	local s c
	s="FI_VERBS_IFACE=eth0 FI_VERBS_GID_IDX=$(gid_index b $IPB)"
	c="FI_VERBS_IFACE=eth0 FI_VERBS_GID_IDX=$(gid_index "$1" "$(ip_of "$1" 4)")"
	next_port
	# shellcheck disable=SC2086
	pair 90 tcp $PORT b env $s fi_pingpong -B $PORT -p "$2" -e "$3" -S "$4" -I "$(polls 200)" -c -d "$DEVB${5:-}" -- \
		"$1" env $c fi_pingpong -P $PORT -p "$2" -e "$3" -S "$4" -I "$(polls 200)" -c -d "$(dev_of "$1")${5:-}" $IPB || return 1
	expect_line "$TMP/client" client "^[0-9]+k? " || return 1
	expect_line "$TMP/client" client "error|fail" 0
}
for size in 1 4096 65536; do
	t "libfabric verbs, messages of $size" fabric a verbs msg $size
	t "libfabric verbs;ofi_rxm, messages of $size" fabric a "verbs;ofi_rxm" rdm $size
done
t "libfabric verbs, datagrams" fabric a verbs dgram 1024 -dgram
t "here: libfabric verbs" fabric b verbs msg 4096

# ---- qperf ---------------------------------------------------------------------

# qperf_run CLIENT-HOST TEST...: by rdma_cm; those called ver_ verify
qperf_run()
{
	need qperf || return
	local from=$1
	shift
	next_port
	start server b 120 qperf -lp $PORT
	listening b tcp $PORT $! || return 1
	host "$from" timeout -k 3 100 qperf $IPB -lp $PORT -cm 1 -t 1 -m 4096 "$@" >"$TMP/client" 2>&1 </dev/null ||
		{ show_end "$TMP/client"; show_end "$TMP/server"; return 1; }
	expect_line "$TMP/client" client "(bw|rate|latency) += +[0-9]" || return 1
	expect_line "$TMP/client" client "failed|error|mismatch" 0
}
# (It connects UC and UD without GIDs, which RoCE needs: EINVAL with rdma_rxe, too.)
for c in rc_bw rc_bi_bw rc_lat rc_rdma_write_bw rc_rdma_read_bw rc_rdma_write_lat rc_rdma_read_lat; do
	t "qperf $c" qperf_run a $c
done
for c in ver_rc_compare_swap ver_rc_fetch_add rc_compare_swap_mr rc_fetch_add_mr; do
	t "qperf $c" qperf_run a $c
done

# ---- fio -----------------------------------------------------------------------

fio_rdma() # VERB
{
	need fio || return
	fio --enghelp=rdma >"$TMP/o" 2>&1 && ! grep -q "not loadable\|No such" "$TMP/o" ||
		{ skip "fio was built without rdma"; return; }
	next_port
	pair 90 cm $PORT b fio --name=server --ioengine=rdma --port=$PORT --bs=16k --size=4m --iodepth=4 --rw=read -- \
		a fio --name=client --ioengine=rdma --hostname=$IPB --port=$PORT --verb="$1" --bs=16k --size=4m --iodepth=4 --iodepth_batch_complete=4 \
		--rw=write || return 1
	expect_line "$TMP/client" client "err= *0"
}
for v in write read send; do
	t "fio, rdma engine, $v" fio_rdma $v
done

# ---- rsockets ------------------------------------------------------------------

# rs PROGRAM CLIENT-HOST ARGS...: -T v verifies
rs()
{
	local prog=$1 from=$2
	shift 2
	next_port
	pair 90 cm $PORT b "$prog" -b $IPB -p $PORT "$@" -- "$from" "$prog" -s $IPB -p $PORT "$@" || return 1
	expect_line "$TMP/client" client "^custom +[0-9]+k? " || return 1
	expect_line "$TMP/client" client "error|mismatch|data" 0
}
for size in 64 4096 100000; do
	t "rstream $size, verified" rs rstream a -T v -S $size -C "$(polls 200)" -I 1
	t "riostream $size, verified" rs riostream a -T v -S $size -C "$(polls 200)" -I 1
done
t "rstream, non-blocking" rs rstream a -T n -S 4096 -C "$(polls 500)"
t "rstream, resolved by rdma_getaddrinfo" rs rstream a -f ip -S 4096 -C "$(polls 200)"
t "here: rstream, verified" rs rstream b -T v -S 4096 -C "$(polls 200)" -I 1

PRELOAD=$(ls /usr/lib/*/rsocket/librspreload.so 2>/dev/null | head -n 1)

# A program of sockets that knows nothing of RDMA. (iperf3 runs, but asks for
# TCP_INFO, which rsockets don't have on any driver, and doesn't end.)
preloaded()
{
	[ -n "$PRELOAD" ] || { skip "no librspreload"; return; }
	gcc -O2 -Wall -Wextra -Werror -o "$TMP/stream" "$TESTS/verbs/stream.c" || return 1
	next_port
	pair 60 cm $PORT b env LD_PRELOAD="$PRELOAD" "$TMP/stream" server $IPB $PORT -- \
		"$1" env LD_PRELOAD="$PRELOAD" "$TMP/stream" client $IPB $PORT || return 1
	expect_line "$TMP/client" client "all is right"
}
t "sockets over rsockets, verified" preloaded a
t "here: sockets over rsockets, verified" preloaded b

# ---- rdmacm-utils --------------------------------------------------------------

copied()
{
	next_port
	dd if=/dev/urandom of="$TMP/file" bs=100k count=37 status=none || return 1
	start server b 60 rcopy -p $PORT
	listening b cm $PORT $! || return 1
	host a timeout 40 rcopy "$TMP/file" "$IPB:$TMP/copy" -p $PORT >"$TMP/client" 2>&1 ||
		{ show_end "$TMP/client"; show_end "$TMP/server"; return 1; }
	cmp "$TMP/file" "$TMP/copy"
}
t "rcopy, compared" copied

connections() # CONNECTIONS ARGS...
{
	local n=$1
	shift
	next_port
	pair 90 cm $PORT b cmtime -b $IPB -p $PORT -c "$n" "$@" -- \
		a cmtime -b $IPA -s $IPB -p $PORT -c "$n" "$@" || return 1
	expect_line "$TMP/client" client "^(full connect|connect) "
}
t "cmtime, 100 connections" connections 100
t "cmtime, 20 connections, by 4 threads" connections 20 -n 4
finish
