// SPDX-License-Identifier: GPL-2.0

//! Time as the caller tells it: nanoseconds of a monotonic clock.

/// A point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

/// A span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

impl Instant {
    /// The instant `ns` nanoseconds after the clock's origin.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the clock's origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// `d` later, or the end of time.
    pub const fn saturating_add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(d.0))
    }

    /// The span since `earlier`; zero if that is not earlier.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// `ns` nanoseconds.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// `us` microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Self(us.saturating_mul(1000))
    }

    /// In nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// In whole microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1000
    }

    /// `n` times as long, or the longest.
    pub const fn saturating_mul(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}

/// The ACK timeout of the 5-bit code `t`: 4.096 us times 2^`t`. Code 0 switches the timer off.
pub const fn ack_timeout(t: u8) -> Option<Duration> {
    match t & 0x1f {
        0 => None,
        t => Some(Duration(4096 << t)),
    }
}

#[cfg(any(test, rxo_kunit))]
#[cfg_attr(rxo_kunit, kernel::macros::kunit_tests(rxo_transport_time))]
mod tests {
    use super::*;

    #[test]
    fn ack_timeout_is_a_power_of_two() {
        assert_eq!(ack_timeout(0), None);
        assert_eq!(ack_timeout(1), Some(Duration::from_nanos(8_192)));
        assert_eq!(ack_timeout(14), Some(Duration::from_nanos(67_108_864)));
        assert_eq!(ack_timeout(31), Some(Duration::from_nanos(4096 << 31)));
    }

    #[test]
    fn time_saturates() {
        let end = Instant::from_nanos(u64::MAX);
        assert_eq!(end.saturating_add(Duration::from_nanos(1)), end);
        assert_eq!(Instant::from_nanos(1).saturating_since(end), Duration::ZERO);
    }
}
