// SPDX-License-Identifier: GPL-2.0

//! The way that packets take, and what those before them left behind: a route, headers, and their
//! part of the invariant CRC.

use core::cell::Cell;

use kernel::prelude::*;
use net::{
    FlowKey,
    Headers,
    Route,
    TxHeader, //
};
use rxo_transport::wire::icrc::Below;

use crate::{
    ah::Ends,
    port::Port, //
};

/// The UDP port of RoCEv2 (A17.2).
pub(crate) const ROCE_PORT: u16 = 4791;

/// The way that the packets of a queue pair or address handle take.
pub(crate) struct Way {
    pub(crate) ends: Ends,
    tos: u8,
    flow_label: u32,
    sport: u16,
    /// The headers of an empty packet. [`None`] if the addresses don't go together.
    template: Option<Headers>,
    kept: Kept,
    route: Option<Route>,
}

impl Way {
    /// The way along a path between two queue pairs.
    pub(crate) fn new(path: &rdma::Path, ends: Ends, local_qpn: u32, remote_qpn: u32) -> Self {
        let (tos, flow_label) = (path.traffic_class, path.flow_label);
        let sport = source_port(flow_label, local_qpn, remote_qpn);
        let header = TxHeader {
            saddr: ends.local,
            daddr: ends.remote,
            tos,
            ttl: if path.hop_limit == 0 {
                64
            } else {
                path.hop_limit
            },
            flow_label,
            ip_id: 0,
            df: true,
            sport,
            dport: ROCE_PORT,
        };
        Self {
            ends,
            tos,
            flow_label,
            sport,
            template: header.emit(0),
            kept: Kept::default(),
            route: None,
        }
    }

    /// The same by a route that was found before, if there is one.
    pub(crate) fn by(self, route: Option<Route>) -> Self {
        Self { route, ..self }
    }

    /// The route that was taken.
    pub(crate) fn into_route(self) -> Option<Route> {
        self.route
    }

    /// What the next packet takes, with a route that is valid now.
    pub(crate) fn next(&mut self, port: &Port, ip_id: u16) -> Result<Next<'_>> {
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
        Ok(Next {
            route: self.route.as_ref().ok_or(ENETUNREACH)?,
            template: self.template.as_ref(),
            ip_id,
            kept: &self.kept,
        })
    }
}

/// What the next packet takes.
pub(crate) struct Next<'a> {
    pub(crate) route: &'a Route,
    template: Option<&'a Headers>,
    ip_id: u16,
    kept: &'a Kept,
}

impl Next<'_> {
    /// The headers of a packet, or of a train, with so many bytes of UDP payload.
    pub(crate) fn headers(&self, payload: usize) -> Option<Headers> {
        self.template?.of_packet(self.ip_id, payload)
    }

    /// Those of a single packet, and their CRC.
    pub(crate) fn single(&self, payload: usize) -> Option<(Headers, u32)> {
        let headers = self.headers(payload)?;
        Some((headers, self.kept.below(&headers, payload)?))
    }
}

/// The CRCs of headers by the length of the packet: the others of that length differ by their
/// identification alone.
#[derive(Default)]
struct Kept(Cell<[Option<(usize, Below)>; Kept::LENGTHS]>);

impl Kept {
    /// Of so many lengths that of the last packet: acknowledgements go between data.
    const LENGTHS: usize = 2;

    /// That of a packet's headers.
    fn below(&self, headers: &Headers, payload: usize) -> Option<u32> {
        let mut kept = self.0.get();
        // Lengths are multiples of four.
        let place = kept.get_mut(payload / 4 % Self::LENGTHS)?;
        let below = match *place {
            Some((len, below)) if len == payload => below,
            _ => {
                let below = Below::new(headers.ip(), headers.udp())?;
                *place = Some((payload, below));
                self.0.set(kept);
                below
            }
        };
        Some(below.of_id(headers.ip_id()))
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
