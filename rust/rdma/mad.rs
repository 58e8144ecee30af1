// SPDX-License-Identifier: GPL-2.0

//! Management datagrams that a port answers by itself: those of performance management (IBTA
//! vol. 1, 16.1), which sysfs and `perfquery` read the port's counters by.

use rdma_bindings as bindings;

/// Bytes of a management datagram.
pub(crate) const MAD: usize = bindings::MAD_SIZE as usize;
/// Where the attribute begins in one of this class.
const ATTRIBUTE: usize = 64;

// The header (13.4.2).
const BASE_VERSION: usize = 0;
const CLASS: usize = 1;
const CLASS_VERSION: usize = 2;
const METHOD: usize = 3;
const STATUS: usize = 4;
const ATTRIBUTE_ID: usize = 16;

const GET: u8 = bindings::IB_MGMT_METHOD_GET as u8;
const GET_RESP: u8 = bindings::IB_MGMT_METHOD_GET_RESP as u8;
const PERF_MGMT: u8 = bindings::IB_MGMT_CLASS_PERF_MGMT as u8;
/// The bit of a method that makes it a response.
const RESPONSE: u8 = 0x80;

/// Status codes (13.4.7): not this method, or not with this attribute.
const BAD_METHOD: u16 = 2 << 2;
const BAD_ATTRIBUTE: u16 = 3 << 2;
const BAD_VALUE: u16 = 7 << 2;

// Attributes of the class (16.1.3).
const CLASS_PORT_INFO: u16 = 0x0001;
const PORT_COUNTERS: u16 = 0x0012;
const PORT_COUNTERS_EXTENDED: u16 = 0x001d;
/// There is the extended attribute, with counters of unicast and multicast.
const EXTENDED_WIDTH: u16 = 1 << 9;
/// The port whose counters are asked for: any of them.
const ALL_PORTS: u8 = 0xff;

/// What is counted for a port.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortCounters {
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets received.
    pub received: u64,
    /// Of those, the ones to a multicast group.
    pub received_multicast: u64,
    /// Packets received that were damaged.
    pub receive_errors: u64,
    /// Packets that could not be sent.
    pub send_discards: u64,
}

/// A datagram being written.
struct Reply<'a>(&'a mut [u8; MAD]);

impl Reply<'_> {
    fn put<const N: usize>(&mut self, at: usize, bytes: [u8; N]) {
        if let Some(to) = self.0.get_mut(at..).and_then(|b| b.first_chunk_mut()) {
            *to = bytes;
        }
    }

    /// Counters don't wrap around: they stay at the largest value (16.1.3.5).
    fn count16(&mut self, at: usize, n: u64) {
        let n = u16::try_from(n).unwrap_or(u16::MAX);
        self.put(ATTRIBUTE + at, n.to_be_bytes());
    }

    fn count32(&mut self, at: usize, n: u64) {
        let n = u32::try_from(n).unwrap_or(u32::MAX);
        self.put(ATTRIBUTE + at, n.to_be_bytes());
    }

    fn count64(&mut self, at: usize, n: u64) {
        self.put(ATTRIBUTE + at, n.to_be_bytes());
    }
}

/// Answers a datagram; `None` if that is not for the port itself to do.
pub(crate) fn answer(
    asked: &[u8; MAD],
    port: u8,
    counters: impl FnOnce() -> PortCounters,
) -> Option<[u8; MAD]> {
    let byte = |at: usize| asked.get(at).copied().unwrap_or(0);
    let is_request = byte(METHOD) & RESPONSE == 0;
    if (byte(BASE_VERSION), byte(CLASS), byte(CLASS_VERSION)) != (1, PERF_MGMT, 1) || !is_request {
        return None;
    }
    let mut out = *asked;
    if let Some(attribute) = out.get_mut(ATTRIBUTE..) {
        attribute.fill(0);
    }
    let mut reply = Reply(&mut out);
    reply.put(METHOD, [GET_RESP]);
    let attribute = u16::from_be_bytes([byte(ATTRIBUTE_ID), byte(ATTRIBUTE_ID + 1)]);
    let selected = byte(ATTRIBUTE + 1);
    let mine = selected == port || selected == ALL_PORTS;
    let status = match (byte(METHOD), attribute) {
        (GET, CLASS_PORT_INFO) => {
            reply.put(ATTRIBUTE, [1, 1]);
            reply.put(ATTRIBUTE + 2, EXTENDED_WIDTH.to_be_bytes());
            0
        }
        (GET, PORT_COUNTERS | PORT_COUNTERS_EXTENDED) if !mine => BAD_VALUE,
        (GET, PORT_COUNTERS) => {
            let c = counters();
            reply.put(ATTRIBUTE + 1, [selected]);
            reply.count16(8, c.receive_errors);
            reply.count16(14, c.send_discards);
            // Data are counted by four bytes.
            reply.count32(24, c.sent_bytes / 4);
            reply.count32(28, c.received_bytes / 4);
            reply.count32(32, c.sent);
            reply.count32(36, c.received);
            0
        }
        (GET, PORT_COUNTERS_EXTENDED) => {
            let c = counters();
            reply.put(ATTRIBUTE + 1, [selected]);
            reply.count64(8, c.sent_bytes / 4);
            reply.count64(16, c.received_bytes / 4);
            reply.count64(24, c.sent);
            reply.count64(32, c.received);
            // Those sent to groups are not told from others.
            reply.count64(40, c.sent);
            reply.count64(48, c.received.saturating_sub(c.received_multicast));
            reply.count64(64, c.received_multicast);
            0
        }
        (GET, _) => BAD_ATTRIBUTE,
        _ => BAD_METHOD,
    };
    reply.put(STATUS, u16::to_be_bytes(status));
    Some(out)
}
