# SPDX-License-Identifier: GPL-2.0
#
# Sourced by the other scripts: where things are, and how to say so.
#
# RXO_CACHE  root file system, kernel source, kernel and module builds
# RXO_SRC    the checkout to build and test, if not the one of these scripts
# RXO_JOBS   parallel jobs of a build

SCRIPTS=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
SRC=${RXO_SRC:-$(dirname "$SCRIPTS")}
SRC=$(cd "$SRC" && pwd -P)
HOME_SRC=$(dirname "$SCRIPTS")
CACHE=${RXO_CACHE:-$HOME/.cache/rxo}
case $CACHE in /*) ;; *) CACHE=$PWD/$CACHE ;; esac
ROOTFS=$CACHE/rootfs
LINUX=$CACHE/linux
STAMPS=$CACHE/stamps
LOGS=$CACHE/log
JOBS=${RXO_JOBS:-$(nproc)}

export RXO_CACHE=$CACHE RXO_SRC=$SRC

die()
{
	echo "${0##*/}: $*" >&2
	exit 1
}

need_root()
{
	[ "$(id -u)" = 0 ] || die "must run as root (chroot, mounts and a package archive need it)"
}

check_lane()
{
	case $1 in
	vm | uml | debug) ;;
	*) die "unknown lane '$1': vm, uml or debug" ;;
	esac
}

# lane_make LANE: the arguments of make that belong to a lane.
lane_make()
{
	case $1 in
	vm) ;;
	uml) echo "ARCH=um" ;;
	debug) echo "ARCH=um LLVM=-19" ;;
	esac
}

# module_make LANE: and those of a module build. With the tests for KUnit.
module_make()
{
	lane_make "$1"
	echo "RXO_KUNIT=m"
	# A warning about each C file, from UML's own header.
	[ "$1" != debug ] || echo "KCFLAGS=-Wno-null-pointer-arithmetic"
}

# kvm: on or off, as KVM says or, if that is auto, a probe.
kvm()
{
	case ${KVM:-auto} in
	auto) "$SCRIPTS/kvm-probe" ;;
	on | off) echo "$KVM" ;;
	*) die "KVM=$KVM: auto, on or off" ;;
	esac
}

# src_key: a name for this checkout's own output below the lane's.
src_key()
{
	echo "$(basename "$SRC")-$(echo "$SRC" | cksum | cut -d' ' -f1)"
}

# source_files: all files of the checkout but those that .gitignore names, no matter
# whether it is a repository: a release is none, and the machine may have no git.
source_files()
{
	# shellcheck disable=SC2016
	RXO_PWD=$SRC "$SCRIPTS/chroot" sh -c '
		git init -q --bare /tmp/none &&
			git --git-dir=/tmp/none --work-tree=. ls-files -o --exclude-standard'
}

# need_lane LANE: a built kernel tree and a root file system are there.
need_lane()
{
	[ -x "$ROOTFS/usr/bin/make" ] || die "no root file system in $CACHE: run 'scripts/setup $1'"
	[ -e "$CACHE/build/$1/mods/lib/modules" ] || die "no kernel of lane $1 in $CACHE: run 'scripts/setup $1'"
}
