// SPDX-License-Identifier: GPL-2.0

//! Between two queue pairs of one host: data go from registration to registration, without packets.
//!
//! The transport does not notice. It makes its bursts, with headers and PSNs, and takes them in
//! as if they had come by the network: keys, credits, order, errors and counters are what they
//! are there. What is left out is what packets are for: the network stack, the invariant CRC,
//! and all copies but one.
//!
//! Both queue pairs are locked for it, see [`softirq::lock_both`].

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::Bytes;
use rxo_transport::{
    burst::PacketOut,
    time::Instant,
    wire::{
        Parsed,
        BTH_LEN,
        ICRC_LEN, //
    },
    Burst,
    Mtu,
    PlaceFault,
    Source,
    Verdict,
    WcStatus, //
};

use crate::{
    host::Packet,
    mr::{
        Mr,
        Refusal,
        Steady, //
    },
    qp::{
        Inner,
        Unsent, //
    },
    stats::Stat,
    tx::{
        self,
        gather,
        Rest,
        Wait, //
    },
};

/// The payload of what would be a packet, where the sender has it.
pub(crate) enum Near {
    /// There is none.
    Nothing,
    /// In a region, from a byte on.
    Region(Arc<Mr>, u64),
    /// In the sender's buffer: it was in a work request, or in several places.
    Copied(KVec<u8>),
}

impl Near {
    /// Calls `f` with each piece of the first `len` bytes, until it fails.
    ///
    /// # Errors
    ///
    /// That of `f`; else `missing` if there are not so many any more.
    pub(crate) fn pieces<E: Copy>(
        &self,
        len: usize,
        missing: E,
        mut f: impl FnMut(Bytes<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Near::Nothing => (len == 0).then_some(()).ok_or(missing),
            Near::Copied(bytes) => f(bytes.get(..len).ok_or(missing)?.into()),
            Near::Region(mr, at) => {
                let mut failed = missing;
                mr.with_bytes(*at, len, |bytes| {
                    f(bytes).map_err(|e| {
                        failed = e;
                        Refusal::Range
                    })
                })
                .map_err(|_| failed)
            }
        }
    }
}

/// Tells whether two queue pairs are connected to each other.
pub(crate) fn are_linked(a: &Inner, b: &Inner) -> bool {
    let (Some(way), Some(back)) = (&a.way, &b.way) else {
        return false;
    };
    way.ends.local == back.ends.remote
        && way.ends.remote == back.ends.local
        && a.qp.qp_type() == b.qp.qp_type()
        && a.qp.dest_qpn() == b.host.number
        && b.qp.dest_qpn() == a.host.number
        && a.host.port.is_up()
        && b.host.port.is_up()
}

/// Takes the next burst of `from`, of `budget` packets at most, to `to`. Returns how many packets
/// that were, which is 0 if there are none to send.
pub(crate) fn pass(from: &mut Inner, to: &mut Inner, budget: u32, now: Instant) -> u32 {
    // It may have begun to leave by the network, or wait for memory.
    let unsent = from.take_unsent().or_else(|| {
        let burst = from.qp.poll_transmit(now, budget, &mut from.host);
        burst.map(Unsent::new)
    });
    let Some(unsent) = unsent else {
        return 0;
    };
    let (burst, at) = (&unsent.burst, unsent.rest.at);
    match carry(from, to, burst, at, now) {
        Ok(Some(rest)) => {
            if let Some(question) = from.ask_before(&unsent, rest) {
                let _ = carry(from, to, &question, 0, now);
            }
            from.put_off(unsent, rest);
            rest.at.saturating_sub(at)
        }
        Ok(None) => {
            from.qp.sent(now, burst, Ok(()), &mut from.host);
            burst.count
        }
        Err(status) => {
            from.qp.sent(now, burst, Err(status), &mut from.host);
            burst.count
        }
    }
}

/// Carries the packets of a burst over, from the one at `at` on. Returns what is left if memory is
/// absent, at either end: what did not get there has not left.
fn carry(
    from: &mut Inner,
    to: &mut Inner,
    burst: &Burst,
    at: u32,
    now: Instant,
) -> Result<Option<Rest>, WcStatus> {
    let absent = |at| {
        let why = Wait::Pages;
        Ok(Some(Rest { at, why }))
    };
    let mut i = at;
    while i < burst.count {
        if let Some((packet, count)) = burst.run(i) {
            if carry_run(from, to, burst, &packet, count, now) {
                i = i.saturating_add(count);
                continue;
            }
        }
        let packet = burst.packet(i);
        let near = match payload_of(from, burst.source, &packet) {
            Ok(Some(near)) => near,
            Ok(None) => {
                to.host.stats.count(Stat::RxNoMemory);
                i = i.saturating_add(1);
                continue;
            }
            Err(PlaceFault::Absent) => return absent(i),
            Err(PlaceFault::Status(status)) if i == 0 => return Err(status),
            // As in `tx::send_burst`.
            Err(PlaceFault::Status(_)) => break,
        };
        let verdict = to.take_in(now, &parsed(&packet), Packet::Near(near));
        if let Some(Packet::Near(Near::Copied(buffer))) = to.host.packet.take() {
            from.buffer = buffer;
        }
        if verdict == Verdict::Absent {
            return absent(i);
        }
        count(from, to, 1, packet.wire_len());
        from.host.trace_tx(&packet.headers, packet.len);
        i = i.saturating_add(1);
    }
    Ok(None)
}

/// Carries the middle of a message over in one piece, if it lies in one and the transport takes it
/// like this; tells whether it did.
fn carry_run(
    from: &mut Inner,
    to: &mut Inner,
    burst: &Burst,
    packet: &PacketOut,
    packets: u32,
    now: Instant,
) -> bool {
    let Some(Steady { mr, at, .. }) = steady_of(from, burst.source, packet) else {
        return false;
    };
    let near = Packet::Near(Near::Region(mr, at));
    let taken = to.take_in_run(now, &parsed(packet), packets, near);
    to.host.packet = None;
    if taken {
        let each = burst.packet_len() as usize + BTH_LEN + ICRC_LEN;
        count(from, to, packets, each.saturating_mul(packets as usize));
        from.host.trace_tx(&packet.headers, packet.len);
    }
    taken
}

/// What the receiver would have read off a packet.
fn parsed(packet: &PacketOut) -> Parsed {
    Parsed {
        headers: packet.headers,
        header_len: 0,
        payload_len: packet.len as usize,
    }
}

/// Counts packets, of `bytes` bytes of UDP payload if they were such.
fn count(from: &Inner, to: &Inner, packets: u32, bytes: usize) {
    let (packets, bytes) = (u64::from(packets), bytes as u64);
    let sent = &from.host.stats;
    sent.add(Stat::TxPackets, packets);
    sent.add(Stat::LoopbackPackets, packets);
    sent.add(Stat::TxBytes, bytes);
    let received = &to.host.stats;
    received.add(Stat::RxPackets, packets);
    received.add(Stat::RxBytes, bytes);
}

/// The place where all of a payload lies, if that is but one.
fn steady_of(from: &Inner, source: Source, packet: &PacketOut) -> Option<Steady> {
    tx::steady(&from.qp, &from.host, source, packet.offset)
        .filter(|steady| u64::from(packet.len) <= steady.len)
}

/// Where the payload of a packet is. `None` if there is no memory to put it in.
fn payload_of(
    from: &mut Inner,
    source: Source,
    packet: &PacketOut,
) -> Result<Option<Near>, PlaceFault> {
    let len = packet.len as usize;
    if len == 0 || source == Source::None {
        return Ok(Some(Near::Nothing));
    }
    if let Some(Steady { mr, at, .. }) = steady_of(from, source, packet) {
        return Ok(Some(Near::Region(mr, at)));
    }
    let mut buffer = core::mem::take(&mut from.buffer);
    if buffer.is_empty() {
        match KVec::from_elem(0, Mtu::Mtu4096.bytes() as usize, GFP_ATOMIC) {
            Ok(new) => buffer = new,
            Err(_) => return Ok(None),
        }
    }
    let gathered = match buffer.get_mut(..len) {
        Some(out) => gather(&from.qp, &from.host, source, packet.offset, out),
        None => Err(WcStatus::LocLenErr.into()),
    };
    match gathered {
        Ok(()) => Ok(Some(Near::Copied(buffer))),
        Err(fault) => {
            from.buffer = buffer;
            Err(fault)
        }
    }
}
