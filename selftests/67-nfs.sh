#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
#
# NFS over RDMA between the two hosts: the kernel's server in one namespace, its
# client in the other, data verified. Their kernel verbs: fast registration by
# the client of what the server reads and writes, remote invalidation, READs and
# WRITEs of many pieces, and callbacks over the same connection.

# shellcheck source=selftests/lib/tap.sh
. "$(dirname "$0")/lib/tap.sh"
# shellcheck source=selftests/lib/wire.sh
. "$TESTS/lib/wire.sh"

[ "$RXO_NETNS" = exclusive ] || skip_all "the server's namespace needs a device of its own"
for p in rpc.mountd exportfs mount.nfs; do
	command -v $p >/dev/null || skip_all "nfs-kernel-server is not installed"
done
for m in nfsd nfs nfsv4 rpcrdma; do
	modprobe -q $m || skip_all "no NFS over RDMA in this kernel"
done

NFS_PORT=20049
MNT=$TMP/mnt

# The server's control files, and what it exports, are mounted in a namespace
# that ends with this process. rpc.mountd answers the kernel who may have what:
# without it a client waits for ever.
cat >"$TMP/server.sh" <<'END'
set -e
port=$1
mount -t tmpfs -o size=256m none /srv
mount -t tmpfs none /var/lib/nfs
mkdir -p /var/lib/nfs/rpc_pipefs
touch /var/lib/nfs/etab /var/lib/nfs/rmtab
mount -t nfsd nfsd /proc/fs/nfsd
echo 10 >/proc/fs/nfsd/nfsv4leasetime
echo 10 >/proc/fs/nfsd/nfsv4gracetime
exportfs -i -o rw,insecure,no_root_squash,no_subtree_check,fsid=0 '*:/srv'
rpc.mountd -F -N 2 -N 3 &
mountd=$!
echo "-3 +4 +4.1" >/proc/fs/nfsd/versions
echo "rdma $port" >/proc/fs/nfsd/portlist
echo 4 >/proc/fs/nfsd/threads
cat /proc/fs/nfsd/portlist
echo ready
trap 'echo 0 >/proc/fs/nfsd/threads; kill $mountd; exit 0' TERM INT
while :; do sleep 1 & wait $!; done
END

case_server()
{
	(in_host b bash "$TMP/server.sh" $NFS_PORT) >"$TMP/nfsd" 2>&1 </dev/null &
	SERVER=$!
	trap 'kill $SERVER 2>/dev/null; leftovers_kill; rm -rf "$TMP"' EXIT
	eventually 20 grep -q '^ready' "$TMP/nfsd" && grep -q "^rdma $NFS_PORT" "$TMP/nfsd" ||
		{ cat "$TMP/nfsd"; return 1; }
}

# mounted ADDRESS PROTO COMMANDS: in the mounted file system. The client's mounts are
# in a namespace of their own, too.
mounted()
{
	host a timeout -k 5 120 bash -c '
		set -e
		mkdir -p "$2"
		mount -t nfs4 -o vers=4.1,proto=$4,port=$3,sec=sys,soft,timeo=100 "$1:/" "$2"
		cd "$2"
		eval "$5"
		cd /
		umount "$2"' sh "$1" "$MNT" $NFS_PORT "$2" "$3"
}

DATA=$TMP/data

case_files()
{
	dd if=/dev/urandom of="$DATA" bs=1M count=8 status=none
	mounted $IPB rdma '
		grep "nfs4.*proto=rdma" /proc/mounts
		cp "$DATA" data
		cp -r "$TESTS" tree
		sync
		cmp "$DATA" data
		diff -r "$TESTS" tree'
}

# By another mount, without what the first has in its cache; then each size.
case_again()
{
	mounted "$1" "$2" '
		cmp "$DATA" data
		diff -r "$TESTS" tree
		for bs in 512 4096 12288 65536 1048576; do
			dd if="$DATA" of=direct bs=$bs count=8 oflag=direct conv=fsync status=none
			head -c $((bs * 8)) "$DATA" | cmp - direct
			dd if=direct of="$TMP/back" bs=$bs iflag=direct status=none
			cmp direct "$TMP/back"
			rm direct
		done'
}

case_fio()
{
	command -v fio >/dev/null || { skip "fio is not installed"; return; }
	mounted $IPB rdma '
		fio --name=verify --filename=fio --size=8m --rw=randwrite --bsrange=4k-128k \
			--ioengine=libaio --iodepth=8 --direct=1 --verify=crc32c --verify_fatal=1 \
			--do_verify=1
		rm fio'
}

case_lossy()
{
	local s
	netem loss 1% || return 1
	case_again $IPB rdma
	s=$?
	netem_off
	return $s
}

case_often()
{
	local i
	for i in 1 2 3 4 5; do
		mounted $IPB rdma "echo $i >file && grep -qx $i file" || return 1
	done
}

case_counted()
{
	[ "$RXO_DRIVER" = rxo ] || { skip "a counter of rxo"; return; }
	[ "$(counter b rx_bytes)" -gt 16000000 ] && [ "$(counter a rx_bytes)" -gt 16000000 ]
}

case_ended()
{
	# `ip netns exec` has become the shell itself.
	kill -TERM $SERVER
	ended $SERVER 20 || { echo "the server does not end"; return 1; }
	wait $SERVER 2>/dev/null
	eventually 10 resources_as_before
}

export DATA TMP TESTS
t "server" case_server
if [ $TAP_BAD = 0 ]; then
	t "files, compared" case_files
	t "mounted again, each size" case_again $IPB rdma
	t "by IPv6" case_again "[$IP6B]" rdma6
	t "1 % loss" case_lossy
	t "fio with verify" case_fio
	t "mounted often" case_often
	t "the data came by the device" case_counted
fi
t "server ended" case_ended
finish
