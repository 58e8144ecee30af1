// SPDX-License-Identifier: GPL-2.0

//! The verbs vocabulary: types, states, statuses and work requests. Discriminants equal those of `rdma/ib_verbs.h`.

/// The longest message: 2^31 bytes.
pub const MAX_MSG_LEN: u32 = 1 << 31;

/// The service of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// The general services interface: a datagram queue pair with number 1.
    Gsi,
}

impl QpType {
    /// Whether each message is one packet with a destination of its own.
    pub const fn is_datagram(self) -> bool {
        matches!(self, Self::Ud | Self::Gsi)
    }

    /// Whether messages are acknowledged.
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::Rc)
    }
}

/// The state of a queue pair, as `enum ib_qp_state`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QpState {
    /// Nothing is set.
    #[default]
    Reset = 0,
    /// Receives may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// The send queue drains, or is drained.
    Sqd = 4,
    /// The send queue of an unreliable queue pair failed.
    Sqe = 5,
    /// Everything is flushed.
    Err = 6,
}

impl QpState {
    /// All states, by value.
    pub const ALL: [Self; 7] = [
        Self::Reset,
        Self::Init,
        Self::Rtr,
        Self::Rts,
        Self::Sqd,
        Self::Sqe,
        Self::Err,
    ];

    /// The state of the `enum ib_qp_state` value `v`.
    pub fn from_value(v: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|s| *s as u32 == v)
    }

    /// The name, as tools print it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqd => "SQD",
            Self::Sqe => "SQE",
            Self::Err => "ERR",
        }
    }
}

/// A path MTU, as `enum ib_mtu`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mtu {
    /// 256 bytes.
    Mtu256 = 1,
    /// 512 bytes.
    Mtu512 = 2,
    /// 1024 bytes.
    Mtu1024 = 3,
    /// 2048 bytes.
    Mtu2048 = 4,
    /// 4096 bytes.
    Mtu4096 = 5,
}

impl Mtu {
    /// All MTUs, smallest first.
    pub const ALL: [Self; 5] = [
        Self::Mtu256,
        Self::Mtu512,
        Self::Mtu1024,
        Self::Mtu2048,
        Self::Mtu4096,
    ];

    /// The MTU of the `enum ib_mtu` value `v`.
    pub const fn from_value(v: u32) -> Option<Self> {
        match v {
            1 => Some(Self::Mtu256),
            2 => Some(Self::Mtu512),
            3 => Some(Self::Mtu1024),
            4 => Some(Self::Mtu2048),
            5 => Some(Self::Mtu4096),
            _ => None,
        }
    }

    /// Payload bytes of a full packet.
    pub const fn bytes(self) -> u32 {
        128 << (self as u32)
    }

    /// The number of packets that carry `len` bytes: at least one.
    pub const fn packets(self, len: u32) -> u32 {
        match len.div_ceil(self.bytes()) {
            0 => 1,
            n => n,
        }
    }
}

/// The status of a completion, as `enum ib_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WcStatus {
    /// Success.
    Success = 0,
    /// A message did not fit its buffer.
    LocLenErr = 1,
    /// The local queue pair cannot do this.
    LocQpOpErr = 2,
    /// A local key does not permit the access.
    LocProtErr = 4,
    /// Flushed from a queue pair in error.
    WrFlushErr = 5,
    /// A memory window could not be bound.
    MwBindErr = 6,
    /// The peer answered with an opcode that does not fit.
    BadRespErr = 7,
    /// A local access failed while an inbound request was carried out.
    LocAccessErr = 8,
    /// The responder found the request invalid.
    RemInvReqErr = 9,
    /// The responder denied the access.
    RemAccessErr = 10,
    /// The responder could not carry out the request.
    RemOpErr = 11,
    /// The transport retry counter ran out.
    RetryExcErr = 12,
    /// The RNR retry counter ran out.
    RnrRetryExcErr = 13,
    /// An invalid RD request.
    RemInvRdReqErr = 15,
    /// A fatal error.
    FatalErr = 19,
    /// Any other error.
    GeneralErr = 21,
}

impl WcStatus {
    /// The name, as tools print it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::LocLenErr => "loc_len_err",
            Self::LocQpOpErr => "loc_qp_op_err",
            Self::LocProtErr => "loc_prot_err",
            Self::WrFlushErr => "wr_flush_err",
            Self::MwBindErr => "mw_bind_err",
            Self::BadRespErr => "bad_resp_err",
            Self::LocAccessErr => "loc_access_err",
            Self::RemInvReqErr => "rem_inv_req_err",
            Self::RemAccessErr => "rem_access_err",
            Self::RemOpErr => "rem_op_err",
            Self::RetryExcErr => "retry_exc_err",
            Self::RnrRetryExcErr => "rnr_retry_exc_err",
            Self::RemInvRdReqErr => "rem_inv_rd_req_err",
            Self::FatalErr => "fatal_err",
            Self::GeneralErr => "general_err",
        }
    }
}

/// What remote peers may do through a queue pair, as `enum ib_access_flags`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(u32);

impl Access {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// `IB_ACCESS_REMOTE_WRITE`.
    pub const REMOTE_WRITE: Self = Self(1 << 1);
    /// `IB_ACCESS_REMOTE_READ`.
    pub const REMOTE_READ: Self = Self(1 << 2);
    /// `IB_ACCESS_REMOTE_ATOMIC`.
    pub const REMOTE_ATOMIC: Self = Self(1 << 3);
    /// `IB_ACCESS_FLUSH_GLOBAL`.
    pub const FLUSH_GLOBAL: Self = Self(1 << 8);
    /// `IB_ACCESS_FLUSH_PERSISTENT`.
    pub const FLUSH_PERSISTENT: Self = Self(1 << 9);

    /// From the flag bits; bits without a meaning here are kept for the query.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The flag bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The rights of both.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all rights of `other` are held.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// What a FLUSH makes of the data written before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushKind {
    /// Every observer at the responder sees it.
    pub global: bool,
    /// It outlasts a loss of power.
    pub persistent: bool,
    /// That of the whole region, whatever range is named.
    pub whole: bool,
}

impl FlushKind {
    /// The rights that it takes.
    pub const fn rights(self) -> Access {
        let global = if self.global {
            Access::FLUSH_GLOBAL
        } else {
            Access::NONE
        };
        if self.persistent {
            global.union(Access::FLUSH_PERSISTENT)
        } else {
            global
        }
    }
}

/// What a send work request does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendOp {
    /// SEND.
    #[default]
    Send,
    /// SEND with immediate data: the bits of a `__be32`, as they lie in memory.
    SendImm(u32),
    /// SEND that invalidates the given rkey at the peer.
    SendInv(u32),
    /// RDMA WRITE.
    Write,
    /// RDMA WRITE with immediate data: the bits of a `__be32`, as they lie in memory.
    WriteImm(u32),
    /// RDMA READ.
    Read,
    /// Atomic compare and swap.
    CmpSwap {
        /// Swap if the target equals this.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Atomic fetch and add.
    FetchAdd {
        /// The addend.
        add: u64,
    },
    /// ATOMIC WRITE: eight bytes, stored as one step.
    AtomicWrite,
    /// FLUSH of [`SendWqe::length`] bytes, none of which are sent.
    Flush(FlushKind),
    /// LOCAL_INV, REG_MR or BIND_MW: carried out by [`crate::Env::local_op`] when its turn comes.
    Local,
}

impl SendOp {
    /// Whether the request is answered with data: a READ or an atomic.
    pub const fn is_read_or_atomic(self) -> bool {
        matches!(
            self,
            Self::Read | Self::CmpSwap { .. } | Self::FetchAdd { .. }
        )
    }

    /// Whether the request is answered by a response of its own, and counts against the limit of outstanding READs and
    /// atomics.
    pub const fn needs_response(self) -> bool {
        self.is_read_or_atomic() || matches!(self, Self::AtomicWrite | Self::Flush(_))
    }

    /// Whether it is an atomic.
    pub const fn is_atomic(self) -> bool {
        matches!(self, Self::CmpSwap { .. } | Self::FetchAdd { .. })
    }

    /// Whether it uses up a receive of the peer.
    pub const fn takes_receive(self) -> bool {
        matches!(
            self,
            Self::Send | Self::SendImm(_) | Self::SendInv(_) | Self::WriteImm(_)
        )
    }
}

/// Flags of a send work request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendFlags {
    /// Its success is to be reported.
    pub signaled: bool,
    /// Raise a solicited event at the peer.
    pub solicited: bool,
    /// Wait for earlier READs and atomics.
    pub fence: bool,
    /// The data lies in the work request.
    pub inline: bool,
}

/// The destination of a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdDest {
    /// The queue pair number.
    pub qpn: u32,
    /// The Q_Key. With its top bit set, that of the sending queue pair is used instead (10.2.5).
    pub qkey: u32,
    /// The P_Key index, for the GSI.
    pub pkey_index: u16,
    /// The address handle: not looked at here.
    pub ah: u32,
}

/// A send work request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendWqe {
    /// The consumer's id.
    pub wr_id: u64,
    /// What to do.
    pub op: SendOp,
    /// Flags.
    pub flags: SendFlags,
    /// Bytes of the message, at most [`MAX_MSG_LEN`]. Eight for an atomic and an ATOMIC WRITE. Those of the range of a FLUSH,
    /// as many as there may be.
    pub length: u32,
    /// The remote address of WRITE, READ, atomics and FLUSH.
    pub remote_addr: u64,
    /// The remote key of WRITE, READ, atomics and FLUSH.
    pub rkey: u32,
    /// The destination, for datagrams.
    pub ud: Option<UdDest>,
}

#[cfg(any(test, rxo_kunit))]
#[cfg_attr(rxo_kunit, kernel::macros::kunit_tests(rxo_transport_verbs))]
mod tests {
    use super::*;

    #[test]
    fn mtu_values_and_bytes() {
        for (v, bytes) in [(1, 256), (2, 512), (3, 1024), (4, 2048), (5, 4096)] {
            assert_eq!(Mtu::from_value(v).map(Mtu::bytes), Some(bytes));
        }
        assert_eq!(Mtu::from_value(0), None);
        assert_eq!(Mtu::from_value(6), None);
    }

    #[test]
    fn mtu_packets() {
        let m = Mtu::Mtu256;
        for (len, n) in [
            (0, 1),
            (1, 1),
            (256, 1),
            (257, 2),
            (MAX_MSG_LEN, 1 << 23),
            (u32::MAX, 1 << 24),
        ] {
            assert_eq!(m.packets(len), n);
        }
    }

    #[test]
    fn state_values() {
        for (i, s) in QpState::ALL.iter().enumerate() {
            assert_eq!(*s as usize, i);
            assert_eq!(QpState::from_value(i as u32), Some(*s));
        }
        assert_eq!(QpState::from_value(7), None);
    }
}
