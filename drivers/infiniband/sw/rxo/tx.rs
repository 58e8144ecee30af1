// SPDX-License-Identifier: GPL-2.0

//! Sending: headers, payload, invariant CRC, and down into the network stack.

use kernel::prelude::*;
use net::{
    Headers,
    Route,
    TxPacket,
    TxResult,
    TxSkb,
    TxTrain, //
};
use rxo_transport::{
    burst::PacketOut,
    psn::Psn,
    wire::{
        AETH_LEN,
        BTH_LEN,
        ICRC_LEN, //
    },
    Burst,
    KeyFault,
    Mark,
    PlaceFault,
    Qp,
    Source,
    WcStatus, //
};

use crate::{
    crc::{
        self,
        Segments, //
    },
    host::Host,
    mr::{
        Opened,
        Steady, //
    },
    stats::{
        Stat,
        Stats, //
    },
    way::{
        Next,
        Way, //
    }, //
};

/// Sends the packets of a burst from packet `from` on. Returns what is left of it for now; what can't
/// be sent for a reason other than those of [`Wait`] counts as lost on the way.
///
/// Packets of one size go as a train where the device takes such.
///
/// # Errors
///
/// The status of a work request whose data could not be read; for a READ response, of the access.
pub(crate) fn send_burst(
    qp: &Qp<Host>,
    host: &Host,
    way: &mut Way,
    ip_id: &mut u16,
    burst: &Burst,
    from: u32,
) -> Result<Option<Rest>, WcStatus> {
    let stats = &host.stats;
    // For a single packet it would not pay.
    let steady = (burst.count > 1)
        .then(|| steady(qp, host, burst.source, burst.offset))
        .flatten();
    let lying = steady.as_ref().and_then(|s| Lying::new(s, burst.offset));
    let mut at = from;
    while at < burst.count {
        let Ok(next) = way.next(&host.port, *ip_id) else {
            stats.add(Stat::TxNoRoute, u64::from(burst.count - at));
            return Ok(None);
        };
        let load = Load {
            qp,
            host,
            burst,
            lying: lying.as_ref(),
        };
        match load.send_from(&next, at) {
            Ok((Handed::Over, count)) => {
                // CAST: it wraps around.
                *ip_id = ip_id.wrapping_add(count as u16);
                at = at.saturating_add(count.max(1));
            }
            Ok((Handed::Back, _)) => {
                return Ok(Some(Rest {
                    at,
                    why: Wait::Network,
                }))
            }
            Err(PlaceFault::Absent) => {
                return Ok(Some(Rest {
                    at,
                    why: Wait::Pages,
                }))
            }
            // The transport takes a failed burst for one of which nothing left.
            Err(PlaceFault::Status(status)) if at == 0 => return Err(status),
            // What is missing counts as lost: the attempt to send it again will fail at once.
            Err(PlaceFault::Status(_)) => break,
        }
    }
    Ok(None)
}

/// Bytes of an acknowledgement above UDP, without the invariant CRC.
const ACK_LEN: usize = BTH_LEN + AETH_LEN;

/// An acknowledgement that is ready to leave: all that is to be known of its queue pair.
pub(crate) struct Ready {
    route: Route,
    /// Of IP and UDP,
    outer: Headers,
    /// and their CRC.
    below: u32,
    bytes: [u8; ACK_LEN],
}

impl Ready {
    /// Bytes of UDP payload.
    const LEN: usize = ACK_LEN + ICRC_LEN;

    /// Takes the only packet of a burst. [`None`] if that can't be done now, or if who sends it could
    /// not count it right.
    pub(crate) fn make(host: &Host, way: &mut Way, ip_id: &mut u16, burst: &Burst) -> Option<Self> {
        if !host.stats.is_unbound() {
            return None;
        }
        let PacketOut { headers, len, .. } = burst.packet(0);
        let mut bytes = [0; ACK_LEN];
        if len != 0 || headers.emit(&mut bytes) != ACK_LEN {
            return None;
        }
        let next = way.next(&host.port, *ip_id).ok()?;
        let (outer, below) = next.single(Self::LEN)?;
        let route = next.route.clone();
        *ip_id = ip_id.wrapping_add(1);
        host.trace_tx(&headers, len);
        Some(Self {
            route,
            outer,
            below,
            bytes,
        })
    }

    /// Sends it. False if the network's queue is full.
    pub(crate) fn send(self, stats: &Stats) -> bool {
        let made = make_packet(&self.route, &self.outer, Self::LEN, |out| {
            if let Some(to) = out.first_chunk_mut() {
                *to = self.bytes;
            }
            seal(self.below, out)
        });
        // What can't be made is lost.
        let packet = made.unwrap_or(Err(EINVAL));
        matches!(hand_over(stats, packet, 1, Self::LEN), Handed::Over)
    }
}

/// What a packet that can't be put together fails with, which is no fault of anyone's memory.
const FAULT: WcStatus = WcStatus::LocQpOpErr;

/// Where trains are possible, so many bytes of UDP payload get a checksum as well, which costs nothing
/// there: should they stay on this machine, then that shows.
const CHECKSUM_LEN: usize = 512;

/// Makes a packet of `total` bytes of UDP payload, which `write` fills. What it returns as a packet may
/// be an error: then there was no memory for it.
fn make_packet(
    route: &Route,
    headers: &Headers,
    total: usize,
    write: impl FnOnce(&mut [u8]) -> Result<(), PlaceFault>,
) -> Result<Result<TxPacket>, PlaceFault> {
    let mut skb = match TxSkb::alloc(route.family(), route.link_room(), total) {
        Ok(skb) => skb,
        Err(e) => return Ok(Err(e)),
    };
    write(skb.put_for_overwrite(total).ok_or(FAULT)?)?;
    let checksum = total >= CHECKSUM_LEN && route.train_len() > 0;
    Ok(skb.finish(route, headers).map(|packet| {
        if checksum {
            packet.with_checksum()
        } else {
            packet
        }
    }))
}

/// Writes the invariant CRC at the end of a packet, where `below` is that of the headers before it.
fn seal(below: u32, packet: &mut [u8]) -> Result<(), PlaceFault> {
    let (rest, icrc) = packet.split_last_chunk_mut().ok_or(FAULT)?;
    let crc = crc::invariant(below, rest).ok_or(FAULT)?;
    *icrc = (!crc).to_le_bytes();
    Ok(())
}

/// What a burst waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Room in the network's queue.
    Network,
    /// Memory that is being paged in.
    Pages,
}

/// What is left of a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rest {
    /// The packet to go on with.
    pub(crate) at: u32,
    /// Why it did not leave.
    pub(crate) why: Wait,
}

/// Copies what a packet carries.
///
/// # Errors
///
/// As for [`send_burst`].
pub(crate) fn gather(
    qp: &Qp<Host>,
    host: &Host,
    source: Source,
    offset: u32,
    to: &mut [u8],
) -> Result<(), PlaceFault> {
    match source {
        Source::None => {
            to.fill(0);
            Ok(())
        }
        Source::Send { slot } => host.gather(slot, offset, to),
        Source::Read { resource } => qp
            .region(resource)
            .ok_or(WcStatus::RemOpErr)?
            .read(offset, to)
            .map_err(|fault| match fault {
                KeyFault::Absent => PlaceFault::Absent,
                _ => WcStatus::RemAccessErr.into(),
            }),
    }
}

/// Where what packets carry lies from byte `offset` on, if that is one plain region.
pub(crate) fn steady(qp: &Qp<Host>, host: &Host, source: Source, offset: u32) -> Option<Steady> {
    match source {
        Source::None => None,
        Source::Send { slot } => host.steady(slot, offset),
        Source::Read { resource } => qp.region(resource)?.steady(offset),
    }
}

/// The memory that the payload of a burst lies in, open to be read.
struct Lying<'a> {
    memory: Opened<'a>,
    /// Where in the region it begins,
    at: u64,
    /// and how long that goes on.
    len: u64,
    /// What is there in the source.
    offset: u32,
}

impl<'a> Lying<'a> {
    /// `steady` is where byte `offset` of the source is.
    fn new(steady: &'a Steady, offset: u32) -> Option<Self> {
        Some(Self {
            memory: steady.mr.open().ok()?,
            at: steady.at,
            len: steady.len,
            offset,
        })
    }

    /// Copies from byte `offset` of the source on. False if that has to be done another way, which
    /// finds out what is wrong, too.
    fn read(&self, offset: u32, to: &mut [u8]) -> bool {
        let skip = u64::from(offset.wrapping_sub(self.offset));
        let end = skip.saturating_add(to.len() as u64);
        end <= self.len && self.memory.read(self.at.saturating_add(skip), to).is_ok()
    }
}

/// What travels as one, and what it takes to have it made anew.
pub(crate) enum Cargo {
    /// Messages. The requester stood there before the first.
    Requests(Mark),
    /// Responses to READs.
    Responses {
        /// The PSN of the first.
        first: Psn,
        /// That of the last.
        last: Psn,
    },
}

impl Cargo {
    /// The only packet of a burst; `mark` is from before it was polled.
    pub(crate) fn of(burst: &Burst, mark: Mark) -> Self {
        if burst.is_request() {
            Self::Requests(mark)
        } else {
            let psn = burst.psn();
            Self::Responses {
                first: psn,
                last: psn,
            }
        }
    }

    /// Tells whether it consists of responses.
    pub(crate) fn is_responses(&self) -> bool {
        matches!(self, Self::Responses { .. })
    }
}

/// Messages of one packet each, or responses, that travel as one, as long as there are more of them.
pub(crate) struct Convoy {
    train: TxTrain,
    ip_id: u16,
    segments: Segments,
    pub(crate) cargo: Cargo,
}

impl Convoy {
    /// So many messages travel as one.
    pub(crate) const MOST: usize = 32;

    /// Begins one with the only packet of a burst. [`None`] if it can't travel with others; nothing
    /// has happened then.
    pub(crate) fn begin(
        qp: &Qp<Host>,
        host: &Host,
        way: &mut Way,
        ip_id: u16,
        burst: &Burst,
        cargo: Cargo,
    ) -> Option<Self> {
        let next = way.next(&host.port, ip_id).ok()?;
        let route = next.route;
        let size = burst.packet(0).wire_len();
        let room = route.train_len().min(size.saturating_mul(Self::MOST));
        if size.saturating_mul(2) > room {
            return None;
        }
        let mut this = Self {
            train: TxTrain::alloc(route.family(), route.link_room(), size, room).ok()?,
            ip_id,
            segments: Segments::new(&next.headers(size)?, size)?,
            cargo,
        };
        this.add(qp, host, burst).then_some(this)
    }

    /// Adds the only packet of a burst. False if it has to go another way; nothing has happened
    /// then.
    pub(crate) fn add(&mut self, qp: &Qp<Host>, host: &Host, burst: &Burst) -> bool {
        let packet = burst.packet(0);
        let len = packet.wire_len();
        let Some(below) = self.segments.below(self.train.count(), len) else {
            return false;
        };
        let load = Load {
            qp,
            host,
            burst,
            lying: None,
        };
        let added = self.train.add(len, |out| load.write(&packet, below, out));
        if !matches!(added, Some(Ok(()))) {
            return false;
        }
        if let Cargo::Responses { last, .. } = &mut self.cargo {
            *last = burst.psn();
        }
        true
    }

    /// Sends it. Gives the cargo back if the network's queue is full: then none of it was sent.
    pub(crate) fn send(self, host: &Host, way: &mut Way, ip_id: &mut u16) -> Option<Cargo> {
        // CAST: both are small, and the number wraps around.
        let count = self.train.count() as u32;
        *ip_id = ip_id.wrapping_add(count as u16);
        let Ok(next) = way.next(&host.port, self.ip_id) else {
            host.stats.add(Stat::TxNoRoute, u64::from(count));
            return None;
        };
        match send_off(&host.stats, &next, self.train) {
            Handed::Over => None,
            Handed::Back => Some(self.cargo),
        }
    }
}

/// What became of packets.
enum Handed {
    /// The network has them, or they are lost.
    Over,
    /// The network's queue is full.
    Back,
}

/// What packets are made of.
struct Load<'a> {
    qp: &'a Qp<Host>,
    host: &'a Host,
    burst: &'a Burst,
    /// Where their payload is, if that was looked up for all of them.
    lying: Option<&'a Lying<'a>>,
}

impl Load<'_> {
    fn stats(&self) -> &Stats {
        &self.host.stats
    }

    /// Writes a packet from its base transport header to its invariant CRC, where `below` is that of
    /// the headers before it. `out` has just room for it.
    fn write(&self, packet: &PacketOut, below: u32, out: &mut [u8]) -> Result<(), PlaceFault> {
        let (rest, _) = out.split_last_chunk_mut::<ICRC_LEN>().ok_or(FAULT)?;
        let at = packet.headers.emit(rest);
        let (payload, pad) = rest
            .get_mut(at..)
            .and_then(|r| r.split_at_mut_checked(packet.len as usize))
            .ok_or(FAULT)?;
        let read = self
            .lying
            .is_some_and(|lying| lying.read(packet.offset, payload));
        if !payload.is_empty() && !read {
            gather(
                self.qp,
                self.host,
                self.burst.source,
                packet.offset,
                payload,
            )?;
        }
        if !pad.is_empty() {
            pad.fill(0);
        }
        seal(below, out)?;
        self.host.trace_tx(&packet.headers, packet.len);
        Ok(())
    }

    /// Sends packet `at` of the burst, and those after it that can go with it as a train. Returns how
    /// many that were.
    fn send_from(&self, next: &Next<'_>, at: u32) -> Result<(Handed, u32), PlaceFault> {
        let first = self.burst.packet(at);
        let (size, room) = (first.wire_len(), next.route.train_len());
        let second = at.saturating_add(1);
        // A train of one would be a detour.
        let pays = second < self.burst.count && {
            let next = self.burst.packet(second).wire_len();
            next <= size && size.saturating_add(next) <= room
        };
        if pays {
            let room = room.saturating_sub(self.kept_for_last(at, size, room));
            self.send_train(next, at, first, room)
        } else {
            self.send_one(next, &first)
        }
    }

    /// How much of the room for packets of a size from `at` on is left for a second train: if one were
    /// to be left over, one of these keeps it company.
    fn kept_for_last(&self, at: u32, size: usize, room: usize) -> usize {
        let left = self.burst.count.saturating_sub(at) as usize;
        let fit = room.checked_div(size).unwrap_or(0);
        let alone = fit > 2
            && left == fit.saturating_add(1)
            && self.burst.packet(u32::MAX).wire_len() <= size;
        if alone {
            size
        } else {
            0
        }
    }

    /// Sends a packet.
    fn send_one(&self, next: &Next<'_>, packet: &PacketOut) -> Result<(Handed, u32), PlaceFault> {
        let total = packet.wire_len();
        let (headers, below) = next.single(total).ok_or(FAULT)?;
        let made = make_packet(next.route, &headers, total, |out| {
            self.write(packet, below, out)
        })?;
        Ok((hand_over(self.stats(), made, 1, total), 1))
    }

    /// Sends as one what fits in a train of `room` bytes: packets from `at` on, which is `first`, of
    /// its size, and one that is shorter. Returns how many became part of it.
    fn send_train(
        &self,
        next: &Next<'_>,
        at: u32,
        first: PacketOut,
        room: usize,
    ) -> Result<(Handed, u32), PlaceFault> {
        let (mut packet, size) = (first, first.wire_len());
        let route = next.route;
        let begun = TxTrain::alloc(route.family(), route.link_room(), size, room);
        let Ok(mut train) = begun else {
            return self.send_one(next, &first);
        };
        let segments = next
            .headers(size)
            .and_then(|first| Segments::new(&first, size))
            .ok_or(FAULT)?;
        for i in 0..self.burst.count.saturating_sub(at) {
            if i > 0 {
                self.burst.step(&mut packet, at.saturating_add(i));
            }
            let len = packet.wire_len();
            // CAST: below 2^16.
            let below = segments.below(i as usize, len).ok_or(FAULT)?;
            match train.add(len, |out| self.write(&packet, below, out)) {
                Some(Ok(())) => (),
                Some(Err(fault)) if i == 0 => return Err(fault),
                // No room or memory for it, or no data: what is there goes, and the rest is looked at
                // anew.
                None | Some(Err(_)) => break,
            }
        }
        // CAST: at most `count`.
        let made = train.count() as u32;
        if made == 0 {
            return self.send_one(next, &first);
        }
        Ok((send_off(self.stats(), next, train), made))
    }
}

/// Puts the headers before a train, which are those of its first packet but for the length, and
/// gives it to the network.
fn send_off(stats: &Stats, next: &Next<'_>, train: TxTrain) -> Handed {
    // CAST: No more than a packet has bytes.
    let (count, total) = (train.count() as u32, train.payload_len());
    let headers = next.headers(total).ok_or(EMSGSIZE);
    let finished = headers.and_then(|headers| train.finish(next.route, &headers));
    if count > 1 {
        stats.count(Stat::TxTrains);
    }
    hand_over(stats, finished, count, total)
}

/// Gives packets to the network: `count`, of `bytes` bytes of UDP payload.
fn hand_over(stats: &Stats, packet: Result<TxPacket>, count: u32, bytes: usize) -> Handed {
    let count = u64::from(count);
    match packet.map(TxPacket::send) {
        Ok(TxResult::Sent | TxResult::Congested) => {
            stats.add(Stat::TxPackets, count);
            stats.add(Stat::TxBytes, bytes as u64);
        }
        Ok(TxResult::Dropped) => {
            stats.add(Stat::TxRefused, count);
            return Handed::Back;
        }
        Ok(TxResult::Error(_)) | Err(_) => stats.add(Stat::TxDropped, count),
    }
    Handed::Over
}
