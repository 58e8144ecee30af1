// SPDX-License-Identifier: GPL-2.0

//! CRC-32 for machines that have no fast instruction for it: without tables while the data are long, by tables what is left.
//!
//! The polynomial is that of Ethernet, bit-reflected. An entry of table `k` is the effect of a byte with `k` zero bytes after
//! it, so the effects of sixteen bytes are looked up independently of each other and summed.
//!
//! Data have the same CRC when a multiple of the polynomial is added to them. One multiple has but five terms, see `TAPS`:
//! so a bit can be moved into four later ones, and all bits of a word at once by shifts. That leaves forty bytes to the
//! tables, however long the data were.

/// The polynomial, bit-reflected.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// A bit that is set equals bits set so much later.
const TAPS: [u32; 4] = [145, 183, 211, 300];
/// Words that follow a word and take up its bits, as the last tap wants it.
const REACH: usize = TAPS[3].div_ceil(u64::BITS) as usize;
/// Bytes of a word.
const WORD: usize = 8;
/// From so many bytes on it pays to begin without tables.
const LONG: usize = 128;

// That it is a multiple of the polynomial: the remainders of its terms add up to nothing.
const _: () = {
    let last = TAPS[TAPS.len() - 1];
    let mut sum = shifted(1, last);
    let mut i = 0;
    while i < TAPS.len() {
        sum ^= shifted(1, last - TAPS[i]);
        i += 1;
    }
    assert!(sum == 0);
};

/// A remainder with so many zero bits behind it.
const fn shifted(crc: u32, bits: u32) -> u32 {
    let mut crc = crc;
    let mut i = 0;
    while i < bits {
        crc = (crc >> 1) ^ if crc & 1 != 0 { POLYNOMIAL } else { 0 };
        i += 1;
    }
    crc
}

/// Bytes a step.
pub(super) const STEP: usize = 16;

/// Effects of a byte by its distance from the end of a step.
static TABLES: [[u32; 256]; STEP] = tables();

const fn tables() -> [[u32; 256]; STEP] {
    let mut t = [[0; 256]; STEP];
    t[0] = effects(0);
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

/// What a byte does to the CRC, by its value, when so many other bytes come after it.
pub(super) const fn effects(after: u32) -> [u32; 256] {
    let mut t = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        // CAST: below 256.
        t[byte] = shifted(byte as u32, (after + 1) * 8);
        byte += 1;
    }
    t
}

/// Continues a CRC over bytes, without inversion at either end.
pub fn update(crc: u32, bytes: &[u8]) -> u32 {
    if bytes.len() < LONG {
        by_tables(crc, bytes)
    } else {
        by_shifts(crc, &[], bytes)
    }
}

/// Continues it over a step and what comes after that.
pub(super) fn update_after(crc: u32, step: &[u8; STEP], bytes: &[u8]) -> u32 {
    if bytes.len() < LONG {
        by_tables(by_table(crc, step), bytes)
    } else {
        by_shifts(crc, step.as_chunks().0, bytes)
    }
}

fn by_tables(crc: u32, bytes: &[u8]) -> u32 {
    let mut crc = crc;
    let (steps, rest) = bytes.as_chunks::<STEP>();
    for step in steps {
        crc = by_table(crc, step);
    }
    let mut rest = rest;
    if let Some((eight, after)) = rest.split_first_chunk::<8>() {
        (crc, rest) = (by_table(crc, eight), after);
    }
    if let Some((four, after)) = rest.split_first_chunk::<4>() {
        (crc, rest) = (by_table(crc, four), after);
    }
    for b in rest {
        let [low, ..] = crc.to_le_bytes();
        crc = (crc >> 8) ^ TABLES[0][usize::from(low ^ b)];
    }
    crc
}

/// Several bytes at once, at least as many as the CRC has.
#[inline(always)]
fn by_table<const N: usize>(crc: u32, bytes: &[u8; N]) -> u32 {
    let mut block = *bytes;
    for (b, c) in block.iter_mut().zip(crc.to_le_bytes()) {
        *b ^= c;
    }
    let mut crc = 0;
    for (table, b) in TABLES[..N].iter().rev().zip(block) {
        crc ^= table[usize::from(b)];
    }
    crc
}

/// As [`update`], over words and bytes that are more than the bits of a word are moved.
#[inline(always)]
fn by_shifts(crc: u32, begin: &[[u8; WORD]], bytes: &[u8]) -> u32 {
    let words = bytes.len().saturating_sub(REACH * WORD) / WORD;
    let (moved, end) = bytes.split_at(words.saturating_mul(WORD).min(bytes.len()));
    let mut due = [0; REACH];
    due[0] = u64::from(crc);
    for word in begin {
        due = move_on(due, u64::from_le_bytes(*word));
    }
    // After so many words each place of `due` is what it was: a step has nothing to move between them.
    let (steps, rest) = moved.as_chunks::<{ REACH * WORD }>();
    for step in steps {
        for word in step.as_chunks::<WORD>().0 {
            due = move_on(due, u64::from_le_bytes(*word));
        }
    }
    for word in rest.as_chunks::<WORD>().0 {
        due = move_on(due, u64::from_le_bytes(*word));
    }
    let mut last = [0; (REACH + 1) * WORD];
    for (to, from) in last.iter_mut().zip(end) {
        *to = *from;
    }
    for (to, due) in last.as_chunks_mut::<WORD>().0.iter_mut().zip(due) {
        *to = (u64::from_le_bytes(*to) ^ due).to_le_bytes();
    }
    by_tables(0, last.get(..end.len()).unwrap_or(&last))
}

/// Moves the bits of a word into the words that follow it. `due` is what is to be added to this one
/// and to the next ones; what is returned, to the next ones.
#[inline(always)]
fn move_on(due: [u64; REACH], word: u64) -> [u64; REACH] {
    let [this, a, b, c, d] = due;
    let word = word ^ this;
    let mut due = [a, b, c, d, 0];
    for tap in TAPS {
        // CAST: below `REACH`. What a shift pushes out of a word is in the next.
        let (after, shift) = ((tap / u64::BITS) as usize, tap % u64::BITS);
        due[after - 1] ^= word << shift;
        due[after] ^= word >> (u64::BITS - shift);
    }
    due
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
        let mut data = [0; 2 * LONG + 60];
        for (i, b) in data.iter_mut().enumerate() {
            *b = (i * 37 + 11) as u8;
        }
        for from in 0..8 {
            for to in from..data.len() {
                let bytes = &data[from..to];
                let crc = by_bits(0xdebb_20e3, bytes);
                assert_eq!(update(0xdebb_20e3, bytes), crc);
                if let Some((step, rest)) = bytes.split_first_chunk() {
                    assert_eq!(update_after(0xdebb_20e3, step, rest), crc);
                }
            }
        }
    }
}
