// SPDX-License-Identifier: GPL-2.0

//! RNR NAK timer codes of the AETH.

use crate::time::Duration;

/// The waiting times by code, in units of 10 us.
const TENS_OF_MICROS: [u32; 32] = [
    65536, 1, 2, 3, 4, 6, 8, 12, //
    16, 24, 32, 48, 64, 96, 128, 192, //
    256, 384, 512, 768, 1024, 1536, 2048, 3072, //
    4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

/// The shortest wait that the 5-bit code `code` asks for.
pub const fn delay(code: u8) -> Duration {
    Duration::from_micros(TENS_OF_MICROS[(code & 0x1f) as usize] as u64 * 10)
}

#[cfg(any(test, rxo_kunit))]
#[cfg_attr(rxo_kunit, kernel::macros::kunit_tests(rxo_transport_rnr))]
mod tests {
    use super::*;

    #[test]
    fn rnr_table_is_exact() {
        for (code, us) in [
            (0, 655_360),
            (1, 10),
            (5, 60),
            (12, 640),
            (14, 1_280),
            (20, 10_240),
            (25, 61_440),
            (31, 491_520),
        ] {
            assert_eq!(delay(code), Duration::from_micros(us));
        }
    }

    #[test]
    fn rnr_table_rises_after_code_0() {
        for code in 1..31 {
            assert!(delay(code) < delay(code + 1));
        }
    }
}
