// SPDX-License-Identifier: GPL-2.0

//! Sending: headers, payload, invariant CRC, and down into the network stack.

use kernel::prelude::*;
use net::{
    Family,
    FlowKey,
    IpAddr,
    Route,
    TxHeader,
    TxResult,
    TxSkb, //
};
use rxo_transport::{
    burst::PacketOut,
    wire::{
        crc32,
        icrc,
        BTH_LEN,
        ICRC_LEN,
        MAX_HEADER_LEN, //
    },
    Burst,
    Qp,
    Source,
    WcStatus, //
};

use crate::{
    ah::Ends,
    host::Host,
    port::Port,
    stats::Stat, //
};

/// The UDP port of RoCEv2 (A17.2).
pub(crate) const ROCE_PORT: u16 = 4791;

/// The way that the packets of a queue pair or address handle take.
pub(crate) struct Way {
    pub(crate) ends: Ends,
    tos: u8,
    ttl: u8,
    flow_label: u32,
    sport: u16,
    route: Option<Route>,
}

impl Way {
    /// The way along a path between two queue pairs.
    pub(crate) fn new(path: &rdma::Path, ends: Ends, local_qpn: u32, remote_qpn: u32) -> Self {
        Self {
            ends,
            tos: path.traffic_class,
            ttl: if path.hop_limit == 0 {
                64
            } else {
                path.hop_limit
            },
            flow_label: path.flow_label,
            sport: source_port(path.flow_label, local_qpn, remote_qpn),
            route: None,
        }
    }

    /// Returns a route that is valid now.
    fn route(&mut self, port: &Port) -> Result<&Route> {
        if !self.route.as_ref().is_some_and(Route::is_valid) {
            let netdev = port.netdev().ok_or(ENODEV)?;
            let key = FlowKey {
                saddr: self.ends.local,
                daddr: self.ends.remote,
                tos: self.tos,
                flow_label: self.flow_label,
                sport: self.sport,
                dport: ROCE_PORT,
                mark: 0,
            };
            self.route = Some(Route::lookup(&netdev, true, &key)?);
        }
        self.route.as_ref().ok_or(ENETUNREACH)
    }
}

/// The source port: as ECMP wants it, from the flow label, or from both numbers if it is 0
/// (`rdma_get_udp_sport`).
fn source_port(flow_label: u32, local_qpn: u32, remote_qpn: u32) -> u16 {
    let mut label = flow_label & 0xf_ffff;
    if label == 0 {
        let mut v = u64::from(local_qpn).wrapping_mul(u64::from(remote_qpn));
        v ^= v >> 20;
        v ^= v >> 40;
        label = (v & 0xf_ffff) as u32;
    }
    // CAST: 14 bits and the two above.
    ((label & 0x3fff) ^ (label >> 14)) as u16 | 0xc000
}

/// Continues a CRC-32 over bytes, in the fastest way that the machine has.
pub(crate) fn crc32(crc: u32, bytes: &[u8]) -> u32 {
    if net::crc32_is_fast() {
        net::crc32_le(crc, bytes)
    } else {
        crc32::update(crc, bytes)
    }
}

/// Begins the invariant CRC of a packet with its IP, UDP and base transport headers. What follows
/// them is added by [`crc32()`]; the complement of that goes on the wire.
///
/// `None` if the headers don't have the lengths that they must have.
pub(crate) fn invariant_crc(ip: &[u8], udp: &[u8], bth: &[u8]) -> Option<u32> {
    let udp = udp.first_chunk()?;
    let bth = bth.first_chunk::<BTH_LEN>()?;
    match ip.len() {
        20 => Some(crc32(!0, &icrc::v4_prefix(ip.first_chunk()?, udp, bth))),
        40 => Some(crc32(!0, &icrc::v6_prefix(ip.first_chunk()?, udp, bth))),
        _ => None,
    }
}

/// Sends the packets of a burst from packet `from` on. Returns the packet that the network refused
/// for now, as its queue is full; what it can't send for another reason counts as lost on the way.
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
) -> Result<Option<u32>, WcStatus> {
    for i in from..burst.count {
        *ip_id = ip_id.wrapping_add(1);
        let packet = burst.packet(i);
        match send_packet(qp, host, way, *ip_id, burst.source, &packet) {
            Ok(Handed::Over) => (),
            Ok(Handed::Back) => return Ok(Some(i)),
            // The transport takes a failed burst for one of which nothing left.
            Err(status) if i == 0 => return Err(status),
            // What is missing counts as lost: the attempt to send it again will fail at once.
            Err(_) => break,
        }
    }
    Ok(None)
}

/// What became of a packet.
enum Handed {
    /// The network has it, or it is lost.
    Over,
    /// The network's queue is full.
    Back,
}

fn send_packet(
    qp: &Qp<Host>,
    host: &Host,
    way: &mut Way,
    ip_id: u16,
    source: Source,
    packet: &PacketOut,
) -> Result<Handed, WcStatus> {
    let stats = &host.port.stats;
    let ends = way.ends;
    let header = TxHeader {
        saddr: ends.local,
        daddr: ends.remote,
        tos: way.tos,
        ttl: way.ttl,
        flow_label: way.flow_label,
        ip_id,
        df: true,
        sport: way.sport,
        dport: ROCE_PORT,
    };
    let Ok(route) = way.route(&host.port) else {
        stats.count(Stat::TxNoRoute);
        return Ok(Handed::Over);
    };
    let mut headers = [0; MAX_HEADER_LEN];
    let header_len = packet.headers.emit(&mut headers);
    let payload = packet.len as usize;
    let pad = usize::from(packet.pad);
    let total = header_len + payload + pad + ICRC_LEN;

    let family = match ends.local {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    };
    let built = (|| {
        let mut skb = TxSkb::alloc(family, route.link_room(), total)?;
        skb.append(headers.get(..header_len).ok_or(EINVAL)?)?;
        Ok::<_, Error>(skb)
    })();
    let Ok(mut skb) = built else {
        stats.count(Stat::TxDropped);
        return Ok(Handed::Over);
    };
    if payload > 0 {
        let to = skb.put_for_overwrite(payload).ok_or(WcStatus::LocQpOpErr)?;
        match source {
            Source::None => to.fill(0),
            Source::Send { slot } => host.gather(slot, packet.offset, to)?,
            Source::Read { resource } => qp
                .region(resource)
                .ok_or(WcStatus::RemOpErr)?
                .read(packet.offset, to)
                .map_err(|_| WcStatus::RemAccessErr)?,
        }
    }
    // Padding and the place of the CRC, zeroed.
    if skb.put(pad + ICRC_LEN).is_none() {
        stats.count(Stat::TxDropped);
        return Ok(Handed::Over);
    }
    let Ok(mut out) = skb.finish(route, &header) else {
        stats.count(Stat::TxDropped);
        return Ok(Handed::Over);
    };
    let end = total - ICRC_LEN;
    let bytes = out.payload();
    let crc = invariant_crc(out.ip(), out.udp(), bytes)
        .and_then(|begun| Some(!crc32(begun, bytes.get(BTH_LEN..end)?)));
    let Some(crc) = crc else {
        stats.count(Stat::TxDropped);
        return Ok(Handed::Over);
    };
    let place = out.payload_mut().get_mut(end..);
    if let Some(to) = place.and_then(|p| p.first_chunk_mut()) {
        *to = crc.to_le_bytes();
    }
    match out.send() {
        TxResult::Sent | TxResult::Congested => {
            stats.count(Stat::TxPackets);
            stats.add(Stat::TxBytes, total as u64);
        }
        TxResult::Dropped => {
            stats.count(Stat::TxRefused);
            return Ok(Handed::Back);
        }
        TxResult::Error(_) => stats.count(Stat::TxDropped),
    }
    Ok(Handed::Over)
}
