// SPDX-License-Identifier: GPL-2.0

//! What the invariant CRC covers (annex A17).
//!
//! The CRC runs over eight bytes of ones in the place of a local route header, then the packet from the IP header on, where
//! each field that a router may change counts as ones. [`Below`] is the CRC of what is below the base transport header,
//! [`begin`] adds that header; the rest of the packet is covered as it is.

use super::crc32;
use super::BTH_LEN;

/// Bytes of a UDP header.
const UDP_LEN: usize = 8;
/// Bytes of an IPv4 header without options.
const IPV4_LEN: usize = 20;
/// Bytes of an IPv6 header.
const IPV6_LEN: usize = 40;

/// The state of the CRC after the eight bytes of ones.
const SEED: u32 = 0xdebb_20e3;

/// The congestion byte of the base transport header.
const BTH_ECN: usize = 4;

/// What is masked over IPv4: type of service, time to live and both checksums.
const V4_MASKED: &[usize] = &[1, 8, 10, 11, IPV4_LEN + 6, IPV4_LEN + 7];
/// What is masked over IPv6: traffic class, flow label, hop limit and the checksum. Of the first byte it is half.
const V6_MASKED: &[usize] = &[1, 2, 3, 7, IPV6_LEN + 6, IPV6_LEN + 7];
/// The traffic class begins in the byte of the version.
const V6_CLASS: u8 = 0x0f;

/// Where the identification of IPv4 ends.
const ID_END: usize = 6;
/// Bytes of IP and UDP header behind that.
// CAST: it is 22.
const BEHIND_ID: u32 = (IPV4_LEN - ID_END + UDP_LEN) as u32;
/// What a change of the identification's bytes does to the CRC behind the UDP header.
static ID_EFFECTS: [[u32; 256]; 2] = [crc32::effects(BEHIND_ID + 1), crc32::effects(BEHIND_ID)];

/// The CRC of IP and UDP headers, for the packets of a train: they differ in the identification of IPv4, which counts up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Below {
    crc: u32,
    /// That of the first, for IPv4.
    id: Option<u16>,
}

impl Below {
    /// That of the headers of a first packet. [`None`] if they don't have the lengths that they must have.
    pub fn new(ip: &[u8], udp: &[u8]) -> Option<Self> {
        let udp = udp.first_chunk()?;
        match ip.len() {
            IPV4_LEN => Some(Self::v4(ip.first_chunk()?, udp)),
            IPV6_LEN => Some(Self::v6(ip.first_chunk()?, udp)),
            _ => None,
        }
    }

    /// Over IPv4.
    fn v4(ip: &[u8; IPV4_LEN], udp: &[u8; UDP_LEN]) -> Self {
        let [_, _, _, _, a, b, ..] = *ip;
        let bytes: [u8; IPV4_LEN + UDP_LEN] = masked(ip, udp, V4_MASKED);
        Self {
            crc: crc32::update(SEED, &bytes),
            id: Some(u16::from_be_bytes([a, b])),
        }
    }

    /// Over IPv6.
    fn v6(ip: &[u8; IPV6_LEN], udp: &[u8; UDP_LEN]) -> Self {
        let mut bytes: [u8; IPV6_LEN + UDP_LEN] = masked(ip, udp, V6_MASKED);
        bytes[0] |= V6_CLASS;
        Self {
            crc: crc32::update(SEED, &bytes),
            id: None,
        }
    }

    /// That of the packet that comes so many after the first, and is as long.
    pub fn of_segment(&self, index: usize) -> u32 {
        // CAST: it wraps around.
        self.id
            .map_or(self.crc, |id| self.of_id(id.wrapping_add(index as u16)))
    }

    /// That of a packet which differs from the first by its identification alone, which IPv6 doesn't have.
    pub fn of_id(&self, id: u16) -> u32 {
        let Some(first) = self.id else {
            return self.crc;
        };
        let [high, low] = (first ^ id).to_be_bytes();
        self.crc ^ ID_EFFECTS[0][usize::from(high)] ^ ID_EFFECTS[1][usize::from(low)]
    }
}

/// Puts headers together and sets the masked bytes to ones.
fn masked<const N: usize, const IP: usize>(
    ip: &[u8; IP],
    udp: &[u8; UDP_LEN],
    masked: &[usize],
) -> [u8; N] {
    let mut out = [0; N];
    if let Some((to, rest)) = out.split_first_chunk_mut() {
        *to = *ip;
        if let Some((to, _)) = rest.split_first_chunk_mut() {
            *to = *udp;
        }
    }
    for at in masked {
        if let Some(b) = out.get_mut(*at) {
            *b = 0xff;
        }
    }
    out
}

/// Continues the CRC of what is below over a packet from its base transport header on, but for its own CRC. [`None`] if it is
/// shorter than that header.
pub fn add(below: u32, packet: &[u8]) -> Option<u32> {
    match first::<{ crc32::STEP }>(packet) {
        Some((bytes, rest)) => Some(crc32::update_after(below, &bytes, rest)),
        None => begin(below, packet).map(|(crc, rest)| crc32::update(crc, rest)),
    }
}

/// Continues it over the base transport header only, and as much more as the CRC takes at a time, if there is so much.
/// Returns it with what is left of the packet.
pub fn begin(below: u32, packet: &[u8]) -> Option<(u32, &[u8])> {
    fn over<const N: usize>(below: u32, packet: &[u8]) -> Option<(u32, &[u8])> {
        first::<N>(packet).map(|(bytes, rest)| (crc32::update(below, &bytes), rest))
    }
    over::<{ crc32::STEP }>(below, packet).or_else(|| over::<BTH_LEN>(below, packet))
}

/// So many bytes that a packet begins with as the CRC has them, and the others.
fn first<const N: usize>(packet: &[u8]) -> Option<([u8; N], &[u8])> {
    const { assert!(N >= BTH_LEN) };
    let (bytes, rest) = packet.split_first_chunk::<N>()?;
    let mut bytes = *bytes;
    bytes[BTH_ECN] = 0xff;
    Some((bytes, rest))
}

#[cfg(any(test, rxo_kunit))]
#[cfg_attr(rxo_kunit, kernel::macros::kunit_tests(rxo_transport_icrc))]
mod tests {
    use super::*;

    fn nibble(c: u8) -> u8 {
        match c {
            b'0'..=b'9' => c - b'0',
            _ => c - b'a' + 10,
        }
    }

    /// Bytes of a hex string, and how many.
    fn unhex(s: &str) -> ([u8; 64], usize) {
        let mut out = [0; 64];
        let s = s.as_bytes();
        for (o, pair) in out.iter_mut().zip(s.chunks(2)) {
            *o = (nibble(pair[0]) << 4) | nibble(pair[1]);
        }
        (out, s.len() / 2)
    }

    fn icrc(below: u32, packet: &[u8]) -> [u8; 4] {
        let (crc, rest) = begin(below, packet).unwrap();
        let crc = crc32::update(crc, rest);
        assert_eq!(add(below, packet), Some(crc));
        (!crc).to_le_bytes()
    }

    fn udp(len: usize) -> [u8; 8] {
        let mut h = [0xc1, 0x23, 0x12, 0xb7, 0, 0, 0x12, 0x34];
        h[4..6].copy_from_slice(&((len + 8) as u16).to_be_bytes());
        h
    }

    /// 10.0.0.1 to 10.0.0.2.
    fn ipv4(len: usize, id: u16, tos: u8, ttl: u8) -> [u8; 20] {
        let mut h = [
            0x45, tos, 0, 0, 0, 0, 0x40, 0, ttl, 17, 0xab, 0xcd, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        h[4..6].copy_from_slice(&id.to_be_bytes());
        h[2..4].copy_from_slice(&((len + 28) as u16).to_be_bytes());
        h
    }

    fn check_v4(packet: &str, id: u8, tos: u8, ttl: u8) {
        let (bytes, len) = unhex(packet);
        // It may be any of a train.
        for index in [0, 1, 5, 300, 0xffff] {
            let first = ipv4(len, u16::from(id).wrapping_sub(index), tos, ttl);
            let below = Below::v4(&first, &udp(len)).of_segment(index.into());
            assert_eq!(icrc(below, &bytes[..len - 4])[..], bytes[len - 4..len]);
        }
    }

    #[test]
    fn seed_is_the_state_after_the_ones() {
        assert_eq!(crc32::update(!0, &[0xff; 8]), SEED);
    }

    #[test]
    fn icrc_vectors_v4() {
        check_v4("0400ffff000000118000000568656c6c6f31323318879537", 1, 2, 64);
        const WRITE: &str =
            "0a30ffff0000001180000005000010000000200012345678000000056162636465000000583adfcc";
        check_v4(WRITE, 1, 2, 64);
        check_v4(WRITE, 1, 0xff, 1);
        check_v4(
            "0a30ffff00000011800000050000100000002000123456780000000561626364650000004b340b77",
            2,
            2,
            64,
        );
        check_v4(
            "0c00ffff0000001180fffffe00001000000020001234567800001000274da66b",
            1,
            2,
            64,
        );
        check_v4("1100ffff00000011000000050c0000078885dde8", 1, 2, 64);
        check_v4("1100ffff00000011000000052c000007b62aef48", 1, 2, 64);
        check_v4("1100ffff00000011000000056000000733cd2d99", 1, 2, 64);
        check_v4(
            "8100ffff400000110000000000000000000000000000000000000000107cae6d",
            1,
            0xc0,
            64,
        );
    }

    #[test]
    fn icrc_vector_v6() {
        let (bytes, len) = unhex("0400ffff000000118000000568656c6c6f3132339ff978cb");
        let mut ip = [0; 40];
        ip[..8].copy_from_slice(&[0x60, 0x21, 0x23, 0x45, 0, (len + 8) as u8, 17, 64]);
        ip[8] = 0xfd;
        ip[23] = 1;
        ip[24] = 0xfd;
        ip[39] = 2;
        for index in [0, 7] {
            let below = Below::v6(&ip, &udp(len)).of_segment(index);
            assert_eq!(icrc(below, &bytes[..len - 4])[..], bytes[len - 4..len]);
        }
    }
}
