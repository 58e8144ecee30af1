// SPDX-License-Identifier: GPL-2.0

//! The invariant CRC, in the fastest way that the machine has.
//!
//! The kernel has code for the machine's carry-less multiplications, if it has them. Most of the time
//! that is much faster than what the transport does without; where it is emulated, it is slower. So
//! what is faster is found out when the module is loaded.

use core::hint::black_box;

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};
use net::Headers;
use rxo_transport::wire::{
    crc32,
    icrc::{
        self,
        Below, //
    }, //
};

/// From so many bytes on the machine's instructions, whose registers have to be saved first, may be
/// faster.
const LONG: usize = 256;
/// Bytes that are tried: the payload of a packet on Ethernet.
const TRIED: usize = 1024;
static DATA: [u8; TRIED] = [0x5a; TRIED];
/// How often they are tried. The best counts, as others may run in between.
const TRIES: u32 = 32;
/// How often at a time, for clocks that are not fine.
const REPEATS: u32 = 8;

/// Whether the kernel's is taken for long data.
static KERNELS: Atomic<u32> = Atomic::new(0);

/// How long a way takes at best, in nanoseconds.
fn time(crc: impl Fn(u32, &[u8]) -> u32) -> u64 {
    let once = |_| {
        let begin = softirq::now_ns();
        for _ in 0..REPEATS {
            black_box(crc(!0, black_box(&DATA)));
        }
        softirq::now_ns().saturating_sub(begin)
    };
    (0..TRIES).map(once).min().unwrap_or(u64::MAX)
}

/// Finds out what is fastest. Process context.
pub(crate) fn choose() {
    let kernels = net::crc32_is_fast() && time(net::crc32_le) < time(crc32::update);
    KERNELS.store(kernels.into(), Relaxed);
}

/// Tells whether the kernel's is to be taken for so many bytes.
fn kernels(len: usize) -> bool {
    len >= LONG && KERNELS.load(Relaxed) != 0
}

/// Continues a CRC-32 over bytes.
pub(crate) fn update(crc: u32, bytes: &[u8]) -> u32 {
    if kernels(bytes.len()) {
        net::crc32_le(crc, bytes)
    } else {
        crc32::update(crc, bytes)
    }
}

/// The invariant CRC of a packet, of which all but the CRC itself is given from the base transport
/// header on, or the first 16 bytes at least: what follows is added by [`update`]. The complement
/// goes on the wire. `below` is the CRC of the headers before.
///
/// `None` if the packet is too short.
pub(crate) fn invariant(below: u32, packet: &[u8]) -> Option<u32> {
    if !kernels(packet.len()) {
        return icrc::add(below, packet);
    }
    let (crc, rest) = icrc::begin(below, packet)?;
    Some(net::crc32_le(crc, rest))
}

/// The CRC of what is below the base transport headers of packets that travel as one.
pub(crate) struct Segments {
    first: Headers,
    /// Bytes of UDP payload of each but the last.
    size: usize,
    below: Below,
}

impl Segments {
    /// `headers` are those of the first packet, or of all as one.
    pub(crate) fn new(headers: &Headers, size: usize) -> Option<Self> {
        let first = headers.of_segment(0, size);
        Some(Self {
            first,
            size,
            below: Below::new(first.ip(), first.udp())?,
        })
    }

    /// That of a packet of `len` bytes.
    pub(crate) fn below(&self, index: usize, len: usize) -> Option<u32> {
        if len == self.size {
            return Some(self.below.of_segment(index));
        }
        let headers = self.first.of_segment(index, len);
        below(headers.ip(), headers.udp())
    }
}

/// The CRC of what is below the base transport header of a packet: its IP and UDP headers.
pub(crate) fn below(ip: &[u8], udp: &[u8]) -> Option<u32> {
    Some(Below::new(ip, udp)?.of_segment(0))
}
