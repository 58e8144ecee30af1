// SPDX-License-Identifier: GPL-2.0

//! What the transport asks of its surroundings, and what it tells them.

use core::ops::DerefMut;

use crate::psn::Psn;
use crate::requester::Idle;
use crate::responder::Resource;
use crate::ring::SendSlot;
use crate::verbs::{
    FlushKind,
    QpState,
    SendWqe,
    WcStatus, //
};

/// What a remote peer wants to do with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteAccess {
    /// RDMA READ.
    Read,
    /// RDMA WRITE.
    Write,
    /// An atomic.
    Atomic,
}

/// Why a remote key does not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFault {
    /// The key, its range, domain or rights forbid it: the peer is told "remote access error".
    Access,
    /// The access is permitted but failed: the peer is told "remote operational error".
    Operational,
    /// The memory isn't there now and will be: see [`Verdict::Absent`].
    Absent,
}

/// Why data can't be put where a work request says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceFault {
    /// The work request completes with this status.
    Status(WcStatus),
    /// The memory isn't there now and will be: see [`Verdict::Absent`].
    Absent,
}

impl From<WcStatus> for PlaceFault {
    fn from(status: WcStatus) -> Self {
        Self::Status(status)
    }
}

/// What became of a packet.
#[must_use = "a packet that found memory absent is to be given again"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was taken in, or dropped.
    Done,
    /// Memory that it names is not there now, as memory paged on demand may be. Nothing has come of the packet: it is to be
    /// given again when the memory may be there, before those that came after it. Or it counts as lost.
    Absent,
}

/// An atomic to carry out on eight aligned bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// Compare and swap.
    CmpSwap {
        /// Swap if the target equals this.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Fetch and add.
    FetchAdd {
        /// The addend.
        add: u64,
    },
}

/// A receive that was taken from the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecvInfo {
    /// The bytes that it can hold.
    pub capacity: u32,
}

/// What completed a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvOp {
    /// A SEND.
    Recv,
    /// An RDMA WRITE with immediate data.
    WriteImm,
}

/// The completion of the current receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvCompletion {
    /// How it ended.
    pub status: WcStatus,
    /// What completed it.
    pub op: RecvOp,
    /// Bytes received; for datagrams with the 40 bytes of the routing header.
    pub byte_len: u32,
    /// Immediate data: the bits of a `__be32`.
    pub imm: Option<u32>,
    /// The local key that the peer invalidated.
    pub invalidated: Option<u32>,
    /// The sender: from the packet for datagrams, else the connected queue pair.
    pub src_qp: u32,
    /// The sender asked for a solicited event.
    pub solicited: bool,
    /// The buffer begins with a routing header.
    pub grh: bool,
    /// A detail for `vendor_err`.
    pub vendor_err: u32,
}

/// Affiliated asynchronous events. Discriminants equal `enum ib_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvent {
    /// The queue pair failed on its own account.
    QpFatal = 1,
    /// The peer sent an invalid request (C9-222).
    QpReqErr = 2,
    /// The peer violated a key (C9-222).
    QpAccessErr = 3,
    /// The first packet arrived in RTR.
    CommEst = 4,
    /// The send queue is drained.
    SqDrained = 5,
    /// A queue pair in error will take no more from its shared receive queue.
    LastWqeReached = 16,
}

impl AsyncEvent {
    /// The name, as tools print it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::QpFatal => "qp_fatal",
            Self::QpReqErr => "qp_req_err",
            Self::QpAccessErr => "qp_access_err",
            Self::CommEst => "comm_est",
            Self::SqDrained => "sq_drained",
            Self::LastWqeReached => "last_wqe_reached",
        }
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)*) => {
        /// Everything that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Counter {
            $($(#[$doc])* $variant,)*
        }

        impl Counter {
            /// All counters, in the order of their discriminants.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name, as statistics show it.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

counters! {
    /// Request packets handed out, retransmissions included.
    TxRequests = "tx_requests",
    /// READ response packets handed out, those that answer an ATOMIC WRITE or a FLUSH included.
    TxReadResponses = "tx_read_responses",
    /// ACK packets handed out.
    TxAcks = "tx_acks",
    /// Atomic responses handed out.
    TxAtomicAcks = "tx_atomic_acks",
    /// Request packets handed out for a second time or more.
    TxRetransmits = "tx_retransmits",
    /// Packets handed out for no other reason than to ask for acknowledgements.
    TxAckProbes = "tx_ack_probes",
    /// PSN sequence NAKs handed out.
    TxSeqNaks = "tx_seq_naks",
    /// RNR NAKs handed out.
    TxRnrNaks = "tx_rnr_naks",
    /// Fatal NAKs handed out.
    TxFatalNaks = "tx_fatal_naks",
    /// Requests accepted in order.
    RxRequests = "rx_requests",
    /// Requests received again.
    RxDuplicates = "rx_duplicates",
    /// Packets received that do nothing but ask for an acknowledgement.
    RxAckProbes = "rx_ack_probes",
    /// Requests with a response of their own answered again.
    RxReplays = "rx_replays",
    /// Requests that came ahead of a missing one.
    RxOutOfSequence = "rx_out_of_sequence",
    /// ACKs received that were of use.
    RxAcks = "rx_acks",
    /// Responses that acknowledge nothing outstanding.
    RxStaleResponses = "rx_stale_responses",
    /// PSN sequence NAKs received.
    RxSeqNaks = "rx_seq_naks",
    /// RNR NAKs received.
    RxRnrNaks = "rx_rnr_naks",
    /// Fatal NAKs received.
    RxFatalNaks = "rx_fatal_naks",
    /// Responses that show an earlier one to be lost.
    RxImpliedNaks = "rx_implied_naks",
    /// Congestion notifications received.
    RxCnps = "rx_cnps",
    /// ACK timeouts.
    Timeouts = "timeouts",
    /// Waits after RNR NAKs that ran out.
    RnrTimeouts = "rnr_timeouts",
    /// Zero-credit probes sent.
    CreditProbes = "credit_probes",
    /// Times that the requester began to wait for credit.
    CreditStalls = "credit_stalls",
    /// Whole microseconds of those waits, each counted when it ends.
    CreditStallUs = "credit_stall_us",
    /// Times that the requester began to wait for the window.
    WindowStalls = "window_stalls",
    /// Whole microseconds of those waits.
    WindowStallUs = "window_stall_us",
    /// Times that the requester began to wait for the READ limit.
    ReadLimitStalls = "read_limit_stalls",
    /// Whole microseconds of those waits.
    ReadLimitStallUs = "read_limit_stall_us",
    /// Times that the requester began to wait for a fence.
    FenceStalls = "fence_stalls",
    /// Whole microseconds of those waits.
    FenceStallUs = "fence_stall_us",
    /// Transport retry counters that ran out.
    RetryExceeded = "retry_exceeded",
    /// RNR retry counters that ran out.
    RnrRetryExceeded = "rnr_retry_exceeded",
    /// Remote access violations found by the responder.
    AccessErrors = "access_errors",
    /// Invalid requests found by the responder.
    InvalidRequests = "invalid_requests",
    /// Local failures while an inbound request was carried out.
    OperationalErrors = "operational_errors",
    /// Messages longer than their receive.
    ReceiveTooShort = "receive_too_short",
    /// Dropped: the state does not permit the packet.
    DropState = "drop_state",
    /// Dropped: an opcode of another service.
    DropService = "drop_service",
    /// Dropped: no receive is posted (unreliable services).
    DropNoReceive = "drop_no_receive",
    /// Dropped: wrong Q_Key.
    DropQkey = "drop_qkey",
    /// Dropped: wrong payload length (unreliable services).
    DropLength = "drop_length",
    /// Dropped: part of a message that was given up (unreliable services).
    DropMessage = "drop_message",
    /// Dropped: forbidden access (unreliable services).
    DropAccess = "drop_access",
    /// Dropped: a duplicate READ or atomic that is no longer known.
    DropUnknownDuplicate = "drop_unknown_duplicate",
    /// Dropped: came while a missing packet is awaited.
    DropGap = "drop_gap",
    /// Datagrams longer than the MTU, which go nowhere.
    DropSendTooLong = "drop_send_too_long",
    /// Packets of unreliable connections that never came.
    UcSequenceGaps = "uc_sequence_gaps",
    /// Send work requests that completed.
    SendCompletions = "send_completions",
    /// Receives that completed.
    RecvCompletions = "recv_completions",
    /// Work requests that completed in error, flushed ones not counted.
    ErrorCompletions = "error_completions",
    /// Work requests that were flushed.
    Flushes = "flushes",
}

/// Why packets are sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetransmitCause {
    /// No response within the ACK timeout.
    Timeout,
    /// The peer misses a packet.
    SequenceNak,
    /// A response is missing.
    ImpliedNak,
    /// The peer had no receive.
    Rnr,
}

impl RetransmitCause {
    /// The name, as tools print it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::SequenceNak => "sequence_nak",
            Self::ImpliedNak => "implied_nak",
            Self::Rnr => "rnr",
        }
    }
}

/// A NAK as the history shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NakKind {
    /// A packet is missing.
    Sequence,
    /// No receive; with the timer code.
    Rnr(u8),
    /// The request is invalid.
    InvalidRequest,
    /// The access is denied.
    RemoteAccess,
    /// It could not be carried out.
    RemoteOperational,
}

impl NakKind {
    /// The name, as tools print it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sequence => "sequence",
            Self::Rnr(_) => "rnr",
            Self::InvalidRequest => "invalid_request",
            Self::RemoteAccess => "remote_access",
            Self::RemoteOperational => "remote_operational",
        }
    }
}

/// Steps worth a line in the history of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    /// A change of state.
    State {
        /// The state left.
        from: QpState,
        /// The state entered.
        to: QpState,
    },
    /// The requester goes back.
    Retransmit {
        /// Why.
        cause: RetransmitCause,
        /// From this PSN on.
        psn: Psn,
        /// Retries left of the counter concerned.
        left: u8,
    },
    /// A NAK is sent.
    NakSent {
        /// Which.
        kind: NakKind,
        /// Its PSN.
        psn: Psn,
    },
    /// A NAK came.
    NakReceived {
        /// Which.
        kind: NakKind,
        /// Its PSN.
        psn: Psn,
    },
    /// The requester began to wait.
    Stall {
        /// For what.
        why: Idle,
        /// The next PSN.
        psn: Psn,
    },
    /// That wait is over.
    StallEnd {
        /// What it was for.
        why: Idle,
        /// The next PSN.
        psn: Psn,
        /// Whole microseconds that it took.
        us: u32,
    },
    /// A packet was dropped.
    Drop {
        /// The counter that says why.
        why: Counter,
        /// Its PSN.
        psn: Psn,
    },
    /// A work request failed.
    SendFailed {
        /// Its slot.
        slot: u32,
        /// How.
        status: WcStatus,
    },
    /// A receive failed.
    RecvFailed {
        /// How.
        status: WcStatus,
    },
    /// An event was raised.
    Event(AsyncEvent),
}

/// The surroundings of a queue pair: memory, queues, completions.
///
/// "The current packet" is the one that [`crate::Qp::on_packet`] is being called for. "The current receive" is the one that
/// [`Self::take_recv`] returned last and that [`Self::complete_recv`] has not ended yet; there is one at most.
///
/// Offsets and lengths given here are checked against the message: those of a region never exceed what was opened, those of
/// a receive never exceed its capacity, those of a send slot never exceed its length.
pub trait Env {
    /// A range of memory that a peer was found entitled to. Kept for a READ response until its resource is reused.
    type Region;
    /// The send queue; its length is a power of two.
    type SendSlots: DerefMut<Target = [SendSlot]>;
    /// Responder resources: as many as READs and atomics of the peer can be remembered.
    type Resources: DerefMut<Target = [Resource<Self::Region>]>;

    // For the responder.

    /// Takes the next receive, if one is posted. An error is that of a receive which cannot be used, and it is taken as well.
    fn take_recv(&mut self) -> Option<Result<RecvInfo, WcStatus>>;

    /// How many receives are posted; [`None`] if that is not to be told to the peer, as with a shared receive queue.
    fn posted_recvs(&self) -> Option<u32>;

    /// Puts the payload of the current packet into the current receive.
    ///
    /// For datagrams, `offset` is 40, and `len` may be 0; the routing header before it is for the implementation to put there.
    ///
    /// # Errors
    ///
    /// The status that the receive is to complete with, or that its memory is absent.
    fn place_recv(&mut self, offset: u32, len: u32) -> Result<(), PlaceFault>;

    /// Ends the current receive.
    fn complete_recv(&mut self, c: RecvCompletion);

    /// Checks the key for a whole message, before anything moves. Never called for length 0 (C9-88).
    ///
    /// # Errors
    ///
    /// Why not.
    fn open_remote(
        &mut self,
        rkey: u32,
        va: u64,
        len: u32,
        access: RemoteAccess,
    ) -> Result<Self::Region, KeyFault>;

    /// Puts the payload of the current packet into a region.
    ///
    /// # Errors
    ///
    /// Why not.
    fn place_remote(
        &mut self,
        region: &Self::Region,
        offset: u32,
        len: u32,
    ) -> Result<(), KeyFault>;

    /// Carries out an atomic on a region of eight aligned bytes and returns the original value.
    ///
    /// # Errors
    ///
    /// Why not.
    fn atomic(&mut self, region: &Self::Region, op: AtomicOp) -> Result<u64, KeyFault>;

    /// Stores the payload of the current packet, eight bytes, to a region of eight aligned bytes: nobody sees a part of them
    /// without the rest (A19).
    ///
    /// # Errors
    ///
    /// Why not.
    fn atomic_write(&mut self, region: &Self::Region) -> Result<(), KeyFault>;

    /// Makes of everything that the peer wrote before to a range of memory what `kind` says.
    ///
    /// Checks the key, for the right to do so and for the range: address and length, or [`None`] for all that the key covers.
    /// Never called for an empty range.
    ///
    /// # Errors
    ///
    /// Why not.
    fn flush(
        &mut self,
        rkey: u32,
        range: Option<(u64, u32)>,
        kind: FlushKind,
    ) -> Result<(), KeyFault>;

    /// Invalidates a key on behalf of the peer.
    ///
    /// # Errors
    ///
    /// Why not.
    fn invalidate(&mut self, rkey: u32) -> Result<(), KeyFault>;

    // For the completer.

    /// Puts the payload of the current packet, a READ response, into the memory of a send slot.
    ///
    /// # Errors
    ///
    /// The status that the work request is to complete with, or that its memory is absent.
    fn place_send(&mut self, slot: u32, offset: u32, len: u32) -> Result<(), PlaceFault>;

    /// Puts the original value of an atomic's target into the memory of its send slot.
    ///
    /// # Errors
    ///
    /// The status that the work request is to complete with, or that its memory is absent.
    fn place_atomic_result(&mut self, slot: u32, original: u64) -> Result<(), PlaceFault>;

    /// Carries out a [`crate::SendOp::Local`] work request.
    ///
    /// # Errors
    ///
    /// The status that it is to complete with.
    fn local_op(&mut self, slot: u32) -> Result<(), WcStatus>;

    // Reports.

    /// Ends a send work request; called in the order of posting. The slot is free for reuse afterwards.
    ///
    /// `byte_len` is the bytes that came in by a READ or an atomic, else those that went out. Without `signal`, no completion
    /// is to be made.
    fn complete_send(
        &mut self,
        slot: u32,
        wqe: &SendWqe,
        status: WcStatus,
        byte_len: u32,
        signal: bool,
    );

    /// Raises an asynchronous event.
    fn event(&mut self, e: AsyncEvent);

    /// Counts `n` times.
    fn count_n(&mut self, c: Counter, n: u32);

    /// Counts.
    fn count(&mut self, c: Counter) {
        self.count_n(c, 1);
    }

    /// Notes a step for the history.
    fn trace(&mut self, t: Trace) {
        let _ = t;
    }
}

#[cfg(any(test, rxo_kunit))]
#[cfg_attr(rxo_kunit, kernel::macros::kunit_tests(rxo_transport_env))]
mod tests {
    use super::*;

    #[test]
    fn counters_are_indexed_by_discriminant() {
        for (i, c) in Counter::ALL.iter().enumerate() {
            assert_eq!(*c as usize, i);
            assert!(c
                .name()
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b == b'_'));
        }
    }
}
