// SPDX-License-Identifier: GPL-2.0

//! Why requests are not carried out, and what follows from that.

use crate::env::{
    AsyncEvent,
    Counter,
    KeyFault,
    PlaceFault, //
};
use crate::verbs::WcStatus;
use crate::wire::NakCode;

/// Why a request is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No receive is posted.
    NotReady,
    /// The request is invalid.
    Invalid,
    /// It is longer than the receive.
    TooLong,
    /// The key does not serve.
    Key(KeyFault),
    /// The receive does not serve: the status that it completes with.
    Receive(WcStatus),
}

impl From<KeyFault> for Refusal {
    fn from(f: KeyFault) -> Self {
        Self::Key(f)
    }
}

impl From<PlaceFault> for Refusal {
    fn from(f: PlaceFault) -> Self {
        match f {
            PlaceFault::Status(status) => Self::Receive(status),
            PlaceFault::Absent => Self::ABSENT,
        }
    }
}

/// What a refusal means on a reliable connection.
pub(super) struct Consequence {
    pub(super) code: NakCode,
    /// For the receive, if one was taken.
    pub(super) status: WcStatus,
    /// Else (C9-222).
    pub(super) event: AsyncEvent,
    pub(super) counter: Counter,
}

impl Refusal {
    /// It is put off: there are no consequences.
    pub(super) const ABSENT: Self = Self::Key(KeyFault::Absent);

    pub(super) fn consequence(self) -> Consequence {
        let (code, status, event, counter) = match self {
            Self::NotReady | Self::Invalid => (
                NakCode::InvalidRequest,
                WcStatus::RemInvReqErr,
                AsyncEvent::QpReqErr,
                Counter::InvalidRequests,
            ),
            Self::TooLong => (
                NakCode::InvalidRequest,
                WcStatus::LocLenErr,
                AsyncEvent::QpReqErr,
                Counter::ReceiveTooShort,
            ),
            Self::Key(KeyFault::Access) => (
                NakCode::RemoteAccess,
                WcStatus::RemAccessErr,
                AsyncEvent::QpAccessErr,
                Counter::AccessErrors,
            ),
            Self::Key(KeyFault::Operational | KeyFault::Absent) => (
                NakCode::RemoteOperational,
                WcStatus::RemOpErr,
                AsyncEvent::QpFatal,
                Counter::OperationalErrors,
            ),
            Self::Receive(status) => (
                NakCode::RemoteOperational,
                status,
                AsyncEvent::QpFatal,
                Counter::OperationalErrors,
            ),
        };
        Consequence {
            code,
            status,
            event,
            counter,
        }
    }

    /// The counter where the packet is dropped without a word.
    pub(super) fn drop_counter(self) -> Counter {
        match self {
            Self::NotReady => Counter::DropNoReceive,
            Self::Invalid => Counter::DropMessage,
            Self::TooLong => Counter::DropLength,
            Self::Key(_) => Counter::DropAccess,
            Self::Receive(_) => Counter::OperationalErrors,
        }
    }
}
