// SPDX-License-Identifier: GPL-2.0

//! BTH opcodes: one table says which headers follow, how long the payload may be, who handles the packet and how it is
//! acknowledged (chapter 9; congestion notification: annex A17).

/// A BTH opcode: three bits of service, five of operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Opcode(u8);

/// The service that an opcode belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Congestion notification.
    Cnp,
}

/// The operation of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Part of a SEND.
    Send,
    /// Part of an RDMA WRITE.
    Write,
    /// An RDMA READ request.
    ReadRequest,
    /// Part of an RDMA READ response.
    ReadResponse,
    /// An ACK or a NAK.
    Ack,
    /// The answer to an atomic.
    AtomicAck,
    /// Compare and swap.
    CmpSwap,
    /// Fetch and add.
    FetchAdd,
    /// A FLUSH.
    Flush,
    /// An ATOMIC WRITE.
    AtomicWrite,
    /// A congestion notification.
    Cnp,
}

/// The place of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// The first of several.
    First,
    /// Neither first nor last.
    Middle,
    /// The last of several.
    Last,
    /// The only one.
    Only,
}

impl Position {
    /// Whether a message begins here.
    pub const fn begins(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Whether a message ends here.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }

    /// The place of packet `i` of `total`.
    pub const fn of(i: u32, total: u32) -> Self {
        match (i == 0, i.saturating_add(1) >= total) {
            (true, true) => Self::Only,
            (true, false) => Self::First,
            (false, true) => Self::Last,
            (false, false) => Self::Middle,
        }
    }
}

/// The payload that a packet may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// None.
    None,
    /// A path MTU exactly.
    Full,
    /// From one byte to the path MTU.
    Some,
    /// From nothing to the path MTU.
    Any,
    /// This many bytes exactly.
    Exact(u8),
}

impl Payload {
    /// Whether `len` bytes are legal where the path MTU is `mtu`.
    pub const fn permits(self, len: u32, mtu: u32) -> bool {
        match self {
            Self::None => len == 0,
            Self::Full => len == mtu,
            Self::Some => len >= 1 && len <= mtu,
            Self::Any => len <= mtu,
            Self::Exact(n) => len == n as u32,
        }
    }
}

/// Which machine handles a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A request: the responder.
    Request,
    /// A response: the completer.
    Response,
    /// A congestion notification.
    Congestion,
}

/// How a request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckRule {
    /// Never.
    Never,
    /// By an ACK, which may cover several, when the AckReq bit is set.
    Coalesced,
    /// By a response of its own.
    Response,
}

/// The extension headers that follow the BTH, in wire order: a bit for each, and above them the bytes that they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeaderSet(u16);

macro_rules! headers {
    ($($(#[$doc:meta])* $name:ident = $bit:expr, $len:expr;)*) => {
        impl HeaderSet {
            $($(#[$doc])* pub const $name: Self = Self(1 << $bit | $len << 8);)*
        }

        const _: () = {
            $(assert!($bit < 8);)*
        };
    };
}

headers! {
    /// Datagram extended transport header.
    DETH = 0, 8;
    /// Flush extended transport header.
    FETH = 1, 4;
    /// RDMA extended transport header.
    RETH = 2, 16;
    /// Atomic extended transport header.
    ATOMIC = 3, 28;
    /// ACK extended transport header.
    AETH = 4, 4;
    /// Atomic ACK extended transport header.
    ATOMIC_ACK = 5, 8;
    /// Immediate data.
    IMM = 6, 4;
    /// Invalidate extended transport header.
    IETH = 7, 4;
}

impl HeaderSet {
    /// No extension header.
    pub const NONE: Self = Self(0);

    /// Whether all of `h` are present.
    pub const fn has(self, h: Self) -> bool {
        let bits = h.0 & 0xff;
        self.0 & bits == bits
    }

    /// The headers of both, of which none is the same.
    const fn and(self, h: Self) -> Self {
        Self(self.0 + h.0)
    }

    /// The length of the BTH and these headers.
    pub const fn wire_len(self) -> usize {
        // CAST: one byte.
        crate::wire::BTH_LEN + (self.0 >> 8) as usize
    }
}

/// What is known of an opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// The opcode.
    pub opcode: Opcode,
    /// Its name.
    pub name: &'static str,
    /// The service.
    pub service: Service,
    /// The operation.
    pub op: Op,
    /// The place in the message.
    pub position: Position,
    /// The headers after the BTH.
    pub headers: HeaderSet,
    /// The legal payload.
    pub payload: Payload,
    /// Who handles it.
    pub role: Role,
    /// How it is answered.
    pub ack: AckRule,
}

macro_rules! opcodes {
    ($($name:ident = $code:literal: $service:ident $op:ident $pos:ident, [$($h:ident)*], $payload:expr, $role:ident $ack:ident;)*) => {
        impl Opcode {
            $(#[doc = concat!("`", stringify!($name), "`")] pub const $name: Self = Self($code);)*
        }

        /// All opcodes known, in order of their code.
        pub const TABLE: &[Info] = &[
            $(Info {
                opcode: Opcode::$name,
                name: stringify!($name),
                service: Service::$service,
                op: Op::$op,
                position: Position::$pos,
                headers: HeaderSet::NONE$(.and(HeaderSet::$h))*,
                payload: { use Payload::*; $payload },
                role: Role::$role,
                ack: AckRule::$ack,
            },)*
        ];
    };
}

opcodes! {
    // Name                    code    service, op, place        headers       payload   handled by, answered
    RC_SEND_FIRST            = 0x00: Rc Send First,             [],           Full,     Request Coalesced;
    RC_SEND_MIDDLE           = 0x01: Rc Send Middle,            [],           Full,     Request Coalesced;
    RC_SEND_LAST             = 0x02: Rc Send Last,              [],           Some,     Request Coalesced;
    RC_SEND_LAST_IMM         = 0x03: Rc Send Last,              [IMM],        Some,     Request Coalesced;
    RC_SEND_ONLY             = 0x04: Rc Send Only,              [],           Any,      Request Coalesced;
    RC_SEND_ONLY_IMM         = 0x05: Rc Send Only,              [IMM],        Any,      Request Coalesced;
    RC_WRITE_FIRST           = 0x06: Rc Write First,            [RETH],       Full,     Request Coalesced;
    RC_WRITE_MIDDLE          = 0x07: Rc Write Middle,           [],           Full,     Request Coalesced;
    RC_WRITE_LAST            = 0x08: Rc Write Last,             [],           Some,     Request Coalesced;
    RC_WRITE_LAST_IMM        = 0x09: Rc Write Last,             [IMM],        Some,     Request Coalesced;
    RC_WRITE_ONLY            = 0x0a: Rc Write Only,             [RETH],       Any,      Request Coalesced;
    RC_WRITE_ONLY_IMM        = 0x0b: Rc Write Only,             [RETH IMM],   Any,      Request Coalesced;
    RC_READ_REQUEST          = 0x0c: Rc ReadRequest Only,       [RETH],       None,     Request Response;
    RC_READ_RESPONSE_FIRST   = 0x0d: Rc ReadResponse First,     [AETH],       Full,     Response Never;
    RC_READ_RESPONSE_MIDDLE  = 0x0e: Rc ReadResponse Middle,    [],           Full,     Response Never;
    RC_READ_RESPONSE_LAST    = 0x0f: Rc ReadResponse Last,      [AETH],       Some,     Response Never;
    RC_READ_RESPONSE_ONLY    = 0x10: Rc ReadResponse Only,      [AETH],       Any,      Response Never;
    RC_ACKNOWLEDGE           = 0x11: Rc Ack Only,               [AETH],       None,     Response Never;
    RC_ATOMIC_ACKNOWLEDGE    = 0x12: Rc AtomicAck Only,         [AETH ATOMIC_ACK], None, Response Never;
    RC_COMPARE_SWAP          = 0x13: Rc CmpSwap Only,           [ATOMIC],     None,     Request Response;
    RC_FETCH_ADD             = 0x14: Rc FetchAdd Only,          [ATOMIC],     None,     Request Response;
    RC_SEND_LAST_INV         = 0x16: Rc Send Last,              [IETH],       Some,     Request Coalesced;
    RC_SEND_ONLY_INV         = 0x17: Rc Send Only,              [IETH],       Any,      Request Coalesced;
    RC_FLUSH                 = 0x1c: Rc Flush Only,             [FETH RETH],  None,     Request Response;
    RC_ATOMIC_WRITE          = 0x1d: Rc AtomicWrite Only,       [RETH],       Exact(8), Request Response;
    UC_SEND_FIRST            = 0x20: Uc Send First,             [],           Full,     Request Never;
    UC_SEND_MIDDLE           = 0x21: Uc Send Middle,            [],           Full,     Request Never;
    UC_SEND_LAST             = 0x22: Uc Send Last,              [],           Some,     Request Never;
    UC_SEND_LAST_IMM         = 0x23: Uc Send Last,              [IMM],        Some,     Request Never;
    UC_SEND_ONLY             = 0x24: Uc Send Only,              [],           Any,      Request Never;
    UC_SEND_ONLY_IMM         = 0x25: Uc Send Only,              [IMM],        Any,      Request Never;
    UC_WRITE_FIRST           = 0x26: Uc Write First,            [RETH],       Full,     Request Never;
    UC_WRITE_MIDDLE          = 0x27: Uc Write Middle,           [],           Full,     Request Never;
    UC_WRITE_LAST            = 0x28: Uc Write Last,             [],           Some,     Request Never;
    UC_WRITE_LAST_IMM        = 0x29: Uc Write Last,             [IMM],        Some,     Request Never;
    UC_WRITE_ONLY            = 0x2a: Uc Write Only,             [RETH],       Any,      Request Never;
    UC_WRITE_ONLY_IMM        = 0x2b: Uc Write Only,             [RETH IMM],   Any,      Request Never;
    UD_SEND_ONLY             = 0x64: Ud Send Only,              [DETH],       Any,      Request Never;
    UD_SEND_ONLY_IMM         = 0x65: Ud Send Only,              [DETH IMM],   Any,      Request Never;
    CNP                      = 0x81: Cnp Cnp Only,              [],           Exact(16), Congestion Never;
}

/// The row of [`TABLE`] by code; 255 where there is none.
const ROWS: [u8; 256] = {
    let mut rows = [255; 256];
    let mut i = 0;
    while i < TABLE.len() {
        rows[TABLE[i].opcode.0 as usize] = i as u8;
        i += 1;
    }
    rows
};

impl Opcode {
    /// The opcode with this code.
    pub const fn from_raw(code: u8) -> Self {
        Self(code)
    }

    /// The code.
    pub const fn raw(self) -> u8 {
        self.0
    }

    /// What is known of it; [`None`] if it is reserved or not spoken here.
    pub fn info(self) -> Option<&'static Info> {
        TABLE.get(usize::from(ROWS[usize::from(self.0)]))
    }

    /// Whether it is that of the middle of a message.
    pub fn is_middle(self) -> bool {
        self.info()
            .is_some_and(|info| info.position == Position::Middle)
    }
}

#[cfg(any(test, rxo_kunit))]
#[cfg_attr(rxo_kunit, kernel::macros::kunit_tests(rxo_transport_opcode))]
mod tests {
    use super::*;

    #[test]
    fn table_is_sorted_and_found() {
        for pair in TABLE.windows(2) {
            assert!(pair[0].opcode.raw() < pair[1].opcode.raw());
        }
        for row in TABLE {
            assert_eq!(row.opcode.info(), Some(row));
        }
        assert_eq!(
            (0..=255u8)
                .filter(|c| Opcode::from_raw(*c).info().is_some())
                .count(),
            TABLE.len()
        );
        assert_eq!(Opcode::from_raw(0x15).info(), None);
        assert_eq!(Opcode::from_raw(0xff).info(), None);
    }

    #[test]
    fn header_lengths() {
        const LENGTHS: &[(u8, usize)] = &[
            (0x00, 12),
            (0x01, 12),
            (0x02, 12),
            (0x03, 16),
            (0x04, 12),
            (0x05, 16),
            (0x06, 28),
            (0x07, 12), //
            (0x08, 12),
            (0x09, 16),
            (0x0a, 28),
            (0x0b, 32),
            (0x0c, 28),
            (0x0d, 16),
            (0x0e, 12),
            (0x0f, 16), //
            (0x10, 16),
            (0x11, 16),
            (0x12, 24),
            (0x13, 40),
            (0x14, 40),
            (0x16, 16),
            (0x17, 16),
            (0x1c, 32), //
            (0x1d, 28),
            (0x2b, 32),
            (0x64, 20),
            (0x65, 24),
            (0x81, 12),
        ];
        for (code, len) in LENGTHS {
            assert_eq!(
                Opcode::from_raw(*code).info().map(|i| i.headers.wire_len()),
                Some(*len)
            );
        }
    }

    #[test]
    fn uc_mirrors_rc() {
        for code in 0..0x0c {
            let rc = Opcode::from_raw(code)
                .info()
                .map(|i| (i.op, i.position, i.headers, i.payload));
            let uc = Opcode::from_raw(code | 0x20)
                .info()
                .map(|i| (i.op, i.position, i.headers, i.payload));
            assert_eq!(rc, uc);
        }
    }

    #[test]
    fn positions() {
        assert_eq!(Position::of(0, 1), Position::Only);
        assert_eq!(Position::of(0, 2), Position::First);
        assert_eq!(Position::of(1, 3), Position::Middle);
        assert_eq!(Position::of(2, 3), Position::Last);
    }
}
