// SPDX-License-Identifier: GPL-2.0

//! Sequence numbers of 24 bits, compared modulo 2^24.

/// Half of the space: what lies less than this ahead is "after".
pub const HALF: u32 = 1 << 23;

const MASK: u32 = 0x00ff_ffff;

macro_rules! sequence {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(u32);

        impl $name {
            /// The low 24 bits of `v`.
            pub const fn new(v: u32) -> Self {
                Self(v & MASK)
            }

            /// The value, below 2^24.
            pub const fn get(self) -> u32 {
                self.0
            }

            /// The number that follows.
            #[must_use]
            pub const fn next(self) -> Self {
                self.add(1)
            }

            /// The number that precedes.
            #[must_use]
            pub const fn prev(self) -> Self {
                Self(self.0.wrapping_sub(1) & MASK)
            }

            /// The number `n` further on.
            #[must_use]
            pub const fn add(self, n: u32) -> Self {
                Self(self.0.wrapping_add(n) & MASK)
            }

            /// How far `self` is ahead of `other`: in `-2^23..2^23`.
            pub const fn diff(self, other: Self) -> i32 {
                // CAST: the sign of the 24-bit difference is moved to bit 31 and spread.
                ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
            }

            /// How many steps lead from `other` on to `self`: in `0..2^24`.
            pub const fn distance_from(self, other: Self) -> u32 {
                self.0.wrapping_sub(other.0) & MASK
            }

            /// Whether `self` comes before `other`.
            pub const fn before(self, other: Self) -> bool {
                self.diff(other) < 0
            }

            /// Whether `self` comes after `other`.
            pub const fn after(self, other: Self) -> bool {
                self.diff(other) > 0
            }
        }
    };
}

sequence! {
    /// A packet sequence number.
    Psn
}

sequence! {
    /// A message sequence number: how many messages the responder has completed.
    Msn
}

sequence! {
    /// A send sequence number: the place of a message among all that were sent, from 1. Limits on it (LSN) have this type too.
    Ssn
}

impl Ssn {
    /// The send sequence number of the message that made the responder count up to `msn`.
    pub const fn of_msn(msn: Msn) -> Self {
        Self(msn.0)
    }
}

#[cfg(any(test, rxo_kunit))]
#[cfg_attr(rxo_kunit, kernel::macros::kunit_tests(rxo_transport_psn))]
mod tests {
    use super::*;

    #[test]
    fn psn_wraps() {
        assert_eq!(Psn::new(0xff_ffff).next(), Psn::new(0));
        assert_eq!(Psn::new(0).prev(), Psn::new(0xff_ffff));
        assert_eq!(Psn::new(0xff_fff0).add(0x20), Psn::new(0x10));
        assert_eq!(Psn::new(0x1ff_ffff), Psn::new(0xff_ffff));
        assert_eq!(Psn::new(5).add(u32::MAX), Psn::new(4));
    }

    #[test]
    fn psn_compares_modulo_2_24() {
        assert_eq!(Psn::new(0x10).diff(Psn::new(0xff_fff0)), 0x20);
        assert_eq!(Psn::new(0xff_fff0).diff(Psn::new(0x10)), -0x20);
        assert!(Psn::new(0xff_ffff).before(Psn::new(0)));
        assert!(Psn::new(0).after(Psn::new(0xff_ffff)));
        assert!(!Psn::new(7).after(Psn::new(7)));
        assert!(!Psn::new(7).before(Psn::new(7)));
    }

    #[test]
    fn psn_half_way_round_is_before() {
        assert_eq!(Psn::new(0).diff(Psn::new(HALF)), -0x80_0000);
        assert_eq!(Psn::new(HALF - 1).diff(Psn::new(0)), 0x7f_ffff);
        assert_eq!(Psn::new(0).distance_from(Psn::new(HALF)), HALF);
        assert_eq!(Psn::new(3).distance_from(Psn::new(4)), 0xff_ffff);
    }
}
