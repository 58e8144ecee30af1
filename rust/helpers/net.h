/* SPDX-License-Identifier: GPL-2.0 */
/* What the helpers of the net crate tell it at once. */
#ifndef _RXO_HELPERS_NET_H
#define _RXO_HELPERS_NET_H

#include <linux/types.h>

struct net_device;

/*
 * Where the parts of a packet are.
 *
 * @ip: the IP header
 * @data: the linear part of the data
 * @linear: its length
 * @settled: nobody else writes to the data, and they lie as they usually do
 */
struct rx_view {
	const u8 *ip;
	const u8 *data;
	u32 linear;
	bool settled;
};

/*
 * Bytes of a packet in one piece of memory.
 *
 * @data: where they are
 * @from: where in the data of the packet they begin
 * @len: how many they are
 */
struct rx_piece {
	const u8 *data;
	u32 from;
	u32 len;
};

/*
 * A packet that was taken over.
 *
 * @dev: where it came in
 * @len: the length of its payload
 * @segment: the size of the packets of a train; 0 if it is a single one
 * @eth: whether there is a complete Ethernet header
 * @local: it was sent from here, with a checksum that nobody has needed yet
 */
struct rx_taken {
	struct rx_view view;
	struct net_device *dev;
	u32 len;
	u32 segment;
	bool eth;
	bool local;
};

#endif
