// SPDX-License-Identifier: GPL-2.0

//! End-to-end credit codes of the AETH (9.7.7.2).

/// The code which says that credits are not counted.
pub const UNLIMITED: u8 = 0x1f;

/// Receives by code.
const RECEIVES: [u16; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, //
    16, 24, 32, 48, 64, 96, 128, 192, //
    256, 384, 512, 768, 1024, 1536, 2048, 3072, //
    4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

/// How many receives `code` announces; [`None`]: no limit.
pub fn decode(code: u8) -> Option<u32> {
    RECEIVES
        .get(usize::from(code & 0x1f))
        .map(|n| u32::from(*n))
}

/// The largest code that does not announce more than `posted` receives; [`None`] posts without limit.
pub fn encode(posted: Option<u32>) -> u8 {
    let Some(posted) = posted else {
        return UNLIMITED;
    };
    let above = RECEIVES.partition_point(|n| u32::from(*n) <= posted);
    // CAST: at most 31, and at least 1, as the first entry is 0.
    above.saturating_sub(1) as u8
}

#[cfg(any(test, rxo_kunit))]
#[cfg_attr(rxo_kunit, kernel::macros::kunit_tests(rxo_transport_credit))]
mod tests {
    use super::*;

    #[test]
    fn credit_codes() {
        for (code, n) in [
            (0, 0),
            (4, 4),
            (5, 6),
            (0xa, 32),
            (0x10, 256),
            (0x1e, 32768),
        ] {
            assert_eq!(decode(code), Some(n));
            assert_eq!(encode(Some(n)), code);
        }
        assert_eq!(decode(UNLIMITED), None);
        assert_eq!(encode(None), UNLIMITED);
    }

    #[test]
    fn credit_never_announces_more_than_posted() {
        for n in 0..70_000 {
            let code = encode(Some(n));
            assert!(decode(code).is_some_and(|c| c <= n));
            assert!(code == 30 || decode(code + 1).is_none_or(|c| c > n));
        }
    }
}
