// SPDX-License-Identifier: GPL-2.0

//! What the invariant CRC covers (annex A17).
//!
//! The CRC runs over eight bytes of ones in the place of a local route header, then the packet from the IP header on, where
//! each field that a router may change counts as ones. The functions here give that changed beginning, up to the end of the
//! base transport header; the rest of the packet is covered as it is.

use super::BTH_LEN;

/// Bytes of the stand-in for a local route header.
const LRH_LEN: usize = 8;
/// Bytes of a UDP header.
const UDP_LEN: usize = 8;
/// Bytes of an IPv4 header without options.
const IPV4_LEN: usize = 20;
/// Bytes of an IPv6 header.
const IPV6_LEN: usize = 40;

/// Bytes of an IPv4 prefix.
pub const V4_PREFIX_LEN: usize = LRH_LEN + IPV4_LEN + UDP_LEN + BTH_LEN;
/// Bytes of an IPv6 prefix.
pub const V6_PREFIX_LEN: usize = LRH_LEN + IPV6_LEN + UDP_LEN + BTH_LEN;

/// The state of the CRC after the eight bytes of ones.
pub const SEED: u32 = 0xdebb_20e3;

/// An update step over bytes without inversion at either end, such as the kernel's `crc32_le`.
pub type Crc32Le = fn(u32, &[u8]) -> u32;

/// Puts headers behind eight bytes of ones, and sets the masked bytes to ones.
fn prefix<const N: usize, const IP: usize>(
    ip: &[u8; IP],
    udp: &[u8; UDP_LEN],
    bth: &[u8; BTH_LEN],
    masked: &[(usize, u8)],
) -> [u8; N] {
    let mut out = [0xff; N];
    if let Some((_, rest)) = out.split_first_chunk_mut::<LRH_LEN>() {
        if let Some((to, rest)) = rest.split_first_chunk_mut() {
            *to = *ip;
            if let Some((to, rest)) = rest.split_first_chunk_mut() {
                *to = *udp;
                if let Some((to, _)) = rest.split_first_chunk_mut() {
                    *to = *bth;
                }
            }
        }
    }
    for (at, mask) in masked {
        if let Some(b) = out.get_mut(*at) {
            *b |= *mask;
        }
    }
    out
}

/// The prefix over IPv4: type of service, time to live, both checksums and the congestion byte of the BTH are masked.
pub fn v4_prefix(
    ip: &[u8; IPV4_LEN],
    udp: &[u8; UDP_LEN],
    bth: &[u8; BTH_LEN],
) -> [u8; V4_PREFIX_LEN] {
    const IP: usize = LRH_LEN;
    const UDP: usize = IP + IPV4_LEN;
    const BTH: usize = UDP + UDP_LEN;
    const MASKED: &[(usize, u8)] = &[
        (IP + 1, 0xff),
        (IP + 8, 0xff),
        (IP + 10, 0xff),
        (IP + 11, 0xff),
        (UDP + 6, 0xff),
        (UDP + 7, 0xff),
        (BTH + 4, 0xff),
    ];
    prefix(ip, udp, bth, MASKED)
}

/// The prefix over IPv6: traffic class, flow label, hop limit, the checksum and the congestion byte of the BTH are masked.
pub fn v6_prefix(
    ip: &[u8; IPV6_LEN],
    udp: &[u8; UDP_LEN],
    bth: &[u8; BTH_LEN],
) -> [u8; V6_PREFIX_LEN] {
    const IP: usize = LRH_LEN;
    const UDP: usize = IP + IPV6_LEN;
    const BTH: usize = UDP + UDP_LEN;
    const MASKED: &[(usize, u8)] = &[
        (IP, 0x0f),
        (IP + 1, 0xff),
        (IP + 2, 0xff),
        (IP + 3, 0xff),
        (IP + 7, 0xff),
        (UDP + 6, 0xff),
        (UDP + 7, 0xff),
        (BTH + 4, 0xff),
    ];
    prefix(ip, udp, bth, MASKED)
}

/// The ICRC of a prefix and the rest of the packet (extension headers, payload and padding): the bytes to append.
pub fn compute(crc32_le: Crc32Le, prefix: &[u8], rest: &[u8]) -> [u8; 4] {
    (!crc32_le(crc32_le(!0, prefix), rest)).to_le_bytes()
}

#[cfg(any(test, rxo_kunit))]
#[cfg_attr(rxo_kunit, kernel::macros::kunit_tests(rxo_transport_icrc))]
mod tests {
    use super::*;

    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let mut c = i as u32;
            let mut bit = 0;
            while bit < 8 {
                c = (c >> 1) ^ if c & 1 != 0 { 0xedb8_8320 } else { 0 };
                bit += 1;
            }
            table[i] = c;
            i += 1;
        }
        table
    };

    fn crc32_le(crc: u32, bytes: &[u8]) -> u32 {
        bytes
            .iter()
            .fold(crc, |c, b| (c >> 8) ^ TABLE[usize::from((c as u8) ^ b)])
    }

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

    fn udp(len: usize) -> [u8; 8] {
        let mut h = [0xc1, 0x23, 0x12, 0xb7, 0, 0, 0x12, 0x34];
        h[4..6].copy_from_slice(&((len + 8) as u16).to_be_bytes());
        h
    }

    /// 10.0.0.1 to 10.0.0.2.
    fn ipv4(len: usize, id: u8, tos: u8, ttl: u8) -> [u8; 20] {
        let mut h = [
            0x45, tos, 0, 0, 0, id, 0x40, 0, ttl, 17, 0xab, 0xcd, 10, 0, 0, 1, 10, 0, 0, 2,
        ];
        h[2..4].copy_from_slice(&((len + 28) as u16).to_be_bytes());
        h
    }

    fn check_v4(packet: &str, id: u8, tos: u8, ttl: u8) {
        let (bytes, len) = unhex(packet);
        let bth: &[u8; 12] = bytes.first_chunk().unwrap();
        let p = v4_prefix(&ipv4(len, id, tos, ttl), &udp(len), bth);
        assert_eq!(
            compute(crc32_le, &p, &bytes[12..len - 4])[..],
            bytes[len - 4..len]
        );
    }

    #[test]
    fn seed_is_the_state_after_the_ones() {
        assert_eq!(crc32_le(!0, &[0xff; 8]), SEED);
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
        let bth: &[u8; 12] = bytes.first_chunk().unwrap();
        let p = v6_prefix(&ip, &udp(len), bth);
        assert_eq!(
            compute(crc32_le, &p, &bytes[12..len - 4])[..],
            bytes[len - 4..len]
        );
    }
}
