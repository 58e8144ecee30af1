// SPDX-License-Identifier: GPL-2.0

//! CRC-32 by tables, sixteen bytes a step, for machines that have no instruction for it.
//!
//! The polynomial is that of Ethernet, bit-reflected. An entry of table `k` is the effect of a byte with `k` zero bytes after
//! it, so the effects of sixteen bytes are looked up independently of each other and summed.

/// The polynomial, bit-reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// Bytes a step.
const STEP: usize = 16;

/// Effects of a byte by its distance from the end of a step.
static TABLES: [[u32; 256]; STEP] = tables();

const fn tables() -> [[u32; 256]; STEP] {
    let mut t = [[0; 256]; STEP];
    let mut byte = 0;
    while byte < 256 {
        // CAST: below 256.
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 != 0 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        t[0][byte] = crc;
        byte += 1;
    }
    let mut k = 1;
    while k < STEP {
        let mut byte = 0;
        while byte < 256 {
            let before = t[k - 1][byte];
            t[k][byte] = (before >> 8) ^ t[0][(before & 0xff) as usize];
            byte += 1;
        }
        k += 1;
    }
    t
}

/// Continues a CRC over bytes, without inversion at either end.
pub fn update(crc: u32, bytes: &[u8]) -> u32 {
    let mut crc = crc;
    let (steps, rest) = bytes.as_chunks::<STEP>();
    for step in steps {
        let mut block = *step;
        for (b, c) in block.iter_mut().zip(crc.to_le_bytes()) {
            *b ^= c;
        }
        crc = 0;
        for (table, b) in TABLES.iter().rev().zip(block) {
            crc ^= table[usize::from(b)];
        }
    }
    for b in rest {
        let [low, ..] = crc.to_le_bytes();
        crc = (crc >> 8) ^ TABLES[0][usize::from(low ^ b)];
    }
    crc
}

#[cfg(any(test, rxo_kunit))]
#[cfg_attr(rxo_kunit, kernel::macros::kunit_tests(rxo_transport_crc32))]
mod tests {
    use super::*;

    fn by_bits(crc: u32, bytes: &[u8]) -> u32 {
        bytes.iter().fold(crc, |crc, b| {
            (0..8).fold(crc ^ u32::from(*b), |crc, _| {
                (crc >> 1) ^ if crc & 1 != 0 { POLYNOMIAL } else { 0 }
            })
        })
    }

    #[test]
    fn check_value() {
        assert_eq!(!update(!0, b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn each_length_equals_bit_by_bit() {
        let mut data = [0; 100];
        for (i, b) in data.iter_mut().enumerate() {
            *b = (i * 37 + 11) as u8;
        }
        for from in 0..20 {
            for to in from..data.len() {
                let bytes = &data[from..to];
                assert_eq!(update(0xdebb_20e3, bytes), by_bits(0xdebb_20e3, bytes));
            }
        }
    }
}
