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
use rxo_transport::wire::{
    crc32,
    icrc,
    BTH_LEN, //
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

/// Continues a CRC-32 over bytes.
pub(crate) fn update(crc: u32, bytes: &[u8]) -> u32 {
    if bytes.len() >= LONG && KERNELS.load(Relaxed) != 0 {
        net::crc32_le(crc, bytes)
    } else {
        crc32::update(crc, bytes)
    }
}

/// Begins the invariant CRC of a packet: that of its IP and UDP headers and of what of the rest is
/// in `begin`, which is the base transport header at least. The bytes that follow, but for the CRC
/// itself, are added by [`update`]; the complement of that goes on the wire.
///
/// `None` if the headers don't have the lengths that they must have.
pub(crate) fn invariant(ip: &[u8], udp: &[u8], begin: &[u8]) -> Option<u32> {
    let udp = udp.first_chunk()?;
    let (bth, rest) = begin.split_first_chunk::<BTH_LEN>()?;
    let crc = match ip.len() {
        20 => update(!0, &icrc::v4_prefix(ip.first_chunk()?, udp, bth)),
        40 => update(!0, &icrc::v6_prefix(ip.first_chunk()?, udp, bth)),
        _ => return None,
    };
    Some(update(crc, rest))
}
