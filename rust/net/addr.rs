// SPDX-License-Identifier: GPL-2.0

//! Addresses.

use kernel::fmt;

/// A version of the Internet Protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Returns the length of the IP header, which never has options here.
    #[inline]
    pub const fn ip_header_len(self) -> usize {
        match self {
            Family::V4 => 20,
            Family::V6 => 40,
        }
    }

    /// Returns the length of the IP and UDP headers.
    #[inline]
    pub const fn headers_len(self) -> usize {
        self.ip_header_len() + UDP_HEADER_LEN
    }
}

/// The length of a UDP header.
pub(crate) const UDP_HEADER_LEN: usize = 8;

/// An IP address, in network byte order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IpAddr {
    /// An IPv4 address.
    V4([u8; 4]),
    /// An IPv6 address.
    V6([u8; 16]),
}

impl IpAddr {
    /// Returns the version of the protocol.
    #[inline]
    pub const fn family(&self) -> Family {
        match self {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }

    /// Returns whether it is an IPv4 address.
    #[inline]
    pub const fn is_v4(&self) -> bool {
        matches!(self, IpAddr::V4(_))
    }

    /// Returns the bytes.
    #[inline]
    pub const fn octets(&self) -> &[u8] {
        match self {
            IpAddr::V4(bytes) => bytes,
            IpAddr::V6(bytes) => bytes,
        }
    }

    /// Returns whether it is that of a group.
    #[inline]
    pub const fn is_multicast(&self) -> bool {
        match self {
            IpAddr::V4(bytes) => bytes[0] & 0xf0 == 0xe0,
            IpAddr::V6(bytes) => bytes[0] == 0xff,
        }
    }

    /// Returns whether it is only valid on the host itself.
    #[inline]
    pub const fn is_loopback(&self) -> bool {
        match self {
            IpAddr::V4(bytes) => bytes[0] == 127,
            IpAddr::V6(bytes) => u128::from_be_bytes(*bytes) == 1,
        }
    }

    /// Returns the IPv6 address, or the one that stands for the IPv4 address.
    #[inline]
    pub const fn to_mapped(&self) -> [u8; 16] {
        match self {
            IpAddr::V6(bytes) => *bytes,
            IpAddr::V4([a, b, c, d]) => [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, *a, *b, *c, *d],
        }
    }

    /// Returns the address, as IPv4 if it stands for an IPv4 address.
    #[inline]
    pub const fn from_mapped(bytes: [u8; 16]) -> Self {
        match bytes {
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d] => IpAddr::V4([a, b, c, d]),
            bytes => IpAddr::V6(bytes),
        }
    }
}

impl fmt::Display for IpAddr {
    /// Writes the usual form, for IPv6 without leaving zeros out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IpAddr::V4([a, b, c, d]) => write!(f, "{a}.{b}.{c}.{d}"),
            IpAddr::V6(bytes) => {
                for (i, pair) in bytes.chunks_exact(2).enumerate() {
                    if i > 0 {
                        f.write_str(":")?;
                    }
                    write!(f, "{:x}", u16::from_be_bytes([pair[0], pair[1]]))?;
                }
                Ok(())
            }
        }
    }
}
