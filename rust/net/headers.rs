// SPDX-License-Identifier: GPL-2.0

//! IP and UDP headers.

use crate::{
    addr::UDP_HEADER_LEN,
    Family,
    IpAddr, //
};

/// The longest IP header and a UDP header.
const MAX_LEN: usize = Family::V6.ip_header_len() + UDP_HEADER_LEN;

/// The number of UDP among the protocols above IP.
const UDP: u8 = 17;
/// The flag of IPv4 that forbids fragments.
const DF: u16 = 0x4000;

/// What the headers of a packet say, but for lengths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TxHeader {
    /// The address of the sender.
    pub saddr: IpAddr,
    /// The address to go to, of the same family.
    pub daddr: IpAddr,
    /// The type of service or traffic class, with the two bits for congestion notification.
    pub tos: u8,
    /// The time to live or hop limit.
    pub ttl: u8,
    /// The flow label, for IPv6.
    pub flow_label: u32,
    /// The identification, for IPv4. It tells fragments of a packet from those of others, so it
    /// is of no importance if `df` is set.
    pub ip_id: u16,
    /// Whether the packet must not be fragmented, for IPv4.
    pub df: bool,
    /// The UDP port of the sender.
    pub sport: u16,
    /// The UDP port to go to.
    pub dport: u16,
}

impl TxHeader {
    /// Writes the headers of a packet with so many bytes of UDP payload. The UDP checksum is zero,
    /// which says that there is none. That of IPv4 is zero too: the network stack sums up what it
    /// sends in any case.
    ///
    /// Returns [`None`] if an IP packet can't be so long, or if the addresses are of two families.
    pub fn emit(&self, payload: usize) -> Option<Headers> {
        let mut h = Headers {
            bytes: [0; MAX_LEN],
            family: self.saddr.family(),
        };

        match (self.saddr, self.daddr) {
            (IpAddr::V4(saddr), IpAddr::V4(daddr)) => {
                h.put(0, [0x45, self.tos]);
                h.put(6, if self.df { DF } else { 0 }.to_be_bytes());
                h.put(8, [self.ttl, UDP]);
                h.put(12, saddr);
                h.put(16, daddr);
            }
            (IpAddr::V6(saddr), IpAddr::V6(daddr)) => {
                let first = 6 << 28 | u32::from(self.tos) << 20 | self.flow_label & 0xf_ffff;

                h.put(0, first.to_be_bytes());
                h.put(6, [UDP, self.ttl]);
                h.put(8, saddr);
                h.put(24, daddr);
            }
            _ => return None,
        }

        let udp = h.family.ip_header_len();

        h.put(udp, self.sport.to_be_bytes());
        h.put(udp + 2, self.dport.to_be_bytes());
        h.of_packet(self.ip_id, payload)
    }
}

/// The IP header, without options or extensions, and the UDP header of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Headers {
    bytes: [u8; MAX_LEN],
    family: Family,
}

impl Headers {
    /// Takes the headers from where they are.
    ///
    /// Returns [`None`] if they are too short.
    pub(crate) fn new(family: Family, ip: &[u8], udp: &[u8]) -> Option<Self> {
        let mut h = Self {
            bytes: [0; MAX_LEN],
            family,
        };
        let len = family.ip_header_len();

        h.bytes.get_mut(..len)?.copy_from_slice(ip.get(..len)?);
        h.bytes
            .get_mut(len..)?
            .get_mut(..UDP_HEADER_LEN)?
            .copy_from_slice(udp.get(..UDP_HEADER_LEN)?);
        Some(h)
    }

    /// Writes a field.
    fn put<const N: usize>(&mut self, at: usize, field: [u8; N]) {
        if let Some(to) = self.bytes.get_mut(at..).and_then(|b| b.first_chunk_mut()) {
            *to = field;
        }
    }

    /// Returns the version of the protocol.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Returns the IP header: 20 bytes for IPv4, 40 for IPv6.
    #[inline]
    pub fn ip(&self) -> &[u8] {
        self.bytes
            .get(..self.family.ip_header_len())
            .unwrap_or_default()
    }

    /// Returns the UDP header, of 8 bytes.
    #[inline]
    pub fn udp(&self) -> &[u8] {
        self.bytes
            .get(self.family.ip_header_len()..)
            .and_then(|b| b.get(..UDP_HEADER_LEN))
            .unwrap_or_default()
    }

    /// Returns both.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        self.bytes
            .get(..self.family.headers_len())
            .unwrap_or_default()
    }

    /// Returns the identification, which is zero for IPv6.
    #[inline]
    pub fn ip_id(&self) -> u16 {
        match (self.family, self.bytes) {
            (Family::V4, [_, _, _, _, a, b, ..]) => u16::from_be_bytes([a, b]),
            (Family::V6, _) => 0,
        }
    }

    /// Returns the headers of a packet that differs from this one by its identification, for IPv4,
    /// and its length: it has so many bytes of UDP payload. Checksums are left as they are.
    ///
    /// Returns [`None`] if an IP packet can't be so long.
    #[inline]
    pub fn of_packet(&self, ip_id: u16, payload: usize) -> Option<Self> {
        let mut h = *self;
        let udp_len = u16::try_from(payload.checked_add(UDP_HEADER_LEN)?).ok()?;
        let ip = self.family.ip_header_len();

        match self.family {
            Family::V4 => {
                // CAST: It is 20.
                h.put(2, udp_len.checked_add(ip as u16)?.to_be_bytes());
                h.put(4, ip_id.to_be_bytes());
            }
            Family::V6 => h.put(4, udp_len.to_be_bytes()),
        }
        h.put(ip + 4, udp_len.to_be_bytes());
        Some(h)
    }

    /// Returns the headers that packet `index` of a train has when that is taken apart, where these
    /// are the train's and the packet has so many bytes of payload. Checksums are left as they
    /// are.
    ///
    /// The identification of IPv4 counts up, as the network stack has it.
    pub fn of_segment(&self, index: usize, payload: usize) -> Self {
        // CAST: It wraps around.
        let ip_id = self.ip_id().wrapping_add(index as u16);

        // A part of a packet is no longer than that.
        self.of_packet(ip_id, payload).unwrap_or(*self)
    }
}
