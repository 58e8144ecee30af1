// SPDX-License-Identifier: GPL-2.0

//! The states of a queue pair: one table says which transitions there are, and which attributes each must and may bring
//! (10.3.1).

use crate::psn::Psn;
use crate::verbs::{
    Access,
    Mtu,
    QpState,
    QpType, //
};

/// Attributes to change, or all attributes as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpAttr {
    /// The state to enter.
    pub state: Option<QpState>,
    /// The state that the caller takes the queue pair to be in.
    pub cur_state: Option<QpState>,
    /// Raise [`crate::AsyncEvent::SqDrained`].
    pub en_sqd_async_notify: Option<bool>,
    /// What the peer may do.
    pub access: Option<Access>,
    /// The P_Key index: only remembered. The key itself is told by [`crate::Qp::set_pkey`].
    pub pkey_index: Option<u16>,
    /// The port: only remembered.
    pub port: Option<u8>,
    /// The Q_Key.
    pub qkey: Option<u32>,
    /// The primary path was given; the path itself is the caller's.
    pub path: bool,
    /// The path MTU.
    pub path_mtu: Option<Mtu>,
    /// The 5-bit ACK timeout code.
    pub timeout: Option<u8>,
    /// Transport retries, 0 to 7.
    pub retry_cnt: Option<u8>,
    /// RNR retries, 0 to 6, or 7 for ever.
    pub rnr_retry: Option<u8>,
    /// The first PSN expected.
    pub rq_psn: Option<Psn>,
    /// READs and atomics to have outstanding.
    pub max_rd_atomic: Option<u8>,
    /// READs and atomics of the peer to remember.
    pub max_dest_rd_atomic: Option<u8>,
    /// An alternate path was given; it is not used.
    pub alt_path: bool,
    /// A path migration state was given; it is not used.
    pub path_mig_state: bool,
    /// The 5-bit code for RNR NAKs.
    pub min_rnr_timer: Option<u8>,
    /// The first PSN to send.
    pub sq_psn: Option<Psn>,
    /// The peer's queue pair.
    pub dest_qpn: Option<u32>,
}

/// Why [`crate::Qp::modify`] refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModifyError {
    /// There is no such transition, or the queue pair is not in the state named.
    Transition,
    /// A required attribute is missing.
    Missing,
    /// An attribute is not permitted in this transition.
    NotPermitted,
    /// The value of an attribute is out of range.
    Value,
}

/// A set of attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Set(u32);

macro_rules! attributes {
    ($($name:ident = $bit:literal, $given:expr;)*) => {
        impl Set {
            $(const $name: Self = Self(1 << $bit);)*

            /// The attributes that `a` brings, its target state left out.
            fn of(a: &QpAttr) -> Self {
                let mut set = 0;
                $(if $given(a) { set |= Self::$name.0; })*
                Self(set)
            }
        }
    };
}

attributes! {
    CUR_STATE = 0, |a: &QpAttr| a.cur_state.is_some();
    SQD_NOTIFY = 1, |a: &QpAttr| a.en_sqd_async_notify.is_some();
    ACCESS = 2, |a: &QpAttr| a.access.is_some();
    PKEY = 3, |a: &QpAttr| a.pkey_index.is_some();
    PORT = 4, |a: &QpAttr| a.port.is_some();
    QKEY = 5, |a: &QpAttr| a.qkey.is_some();
    PATH = 6, |a: &QpAttr| a.path;
    MTU = 7, |a: &QpAttr| a.path_mtu.is_some();
    TIMEOUT = 8, |a: &QpAttr| a.timeout.is_some();
    RETRY = 9, |a: &QpAttr| a.retry_cnt.is_some();
    RNR_RETRY = 10, |a: &QpAttr| a.rnr_retry.is_some();
    RQ_PSN = 11, |a: &QpAttr| a.rq_psn.is_some();
    MAX_RD = 12, |a: &QpAttr| a.max_rd_atomic.is_some();
    MAX_DEST_RD = 13, |a: &QpAttr| a.max_dest_rd_atomic.is_some();
    ALT_PATH = 14, |a: &QpAttr| a.alt_path;
    MIG_STATE = 15, |a: &QpAttr| a.path_mig_state;
    RNR_TIMER = 16, |a: &QpAttr| a.min_rnr_timer.is_some();
    SQ_PSN = 17, |a: &QpAttr| a.sq_psn.is_some();
    DEST_QPN = 18, |a: &QpAttr| a.dest_qpn.is_some();
}

/// The unconditional "no attributes".
const NONE: Set = Set(0);

/// The union of sets.
const fn all(sets: &[Set]) -> Set {
    let mut bits = 0;
    let mut i = 0;
    while i < sets.len() {
        bits |= sets[i].0;
        i += 1;
    }
    Set(bits)
}

/// One transition of some types of queue pair.
struct Row {
    from: QpState,
    to: QpState,
    types: &'static [QpType],
    required: Set,
    optional: Set,
}

macro_rules! transitions {
    ($($from:ident => $to:ident, [$($ty:ident)*]: [$($req:ident)*], [$($opt:ident)*];)*) => {
        &[$(Row {
            from: QpState::$from,
            to: QpState::$to,
            types: &[$(QpType::$ty),*],
            required: all(&[NONE, $(Set::$req),*]),
            optional: all(&[NONE, $(Set::$opt),*]),
        },)*]
    };
}

/// Transitions by state and type; those to RESET and ERR, which need nothing, are not listed.
#[rustfmt::skip]
const TRANSITIONS: &[Row] = transitions! {
    // from => to, types: required, optional
    Reset => Init, [Rc Uc]:     [PKEY PORT ACCESS], [];
    Reset => Init, [Ud]:        [PKEY PORT QKEY], [];
    Reset => Init, [Gsi]:       [PKEY QKEY], [PORT];
    Init => Init, [Rc Uc]:      [], [PKEY PORT ACCESS];
    Init => Init, [Ud]:         [], [PKEY PORT QKEY];
    Init => Init, [Gsi]:        [], [PKEY QKEY];
    Init => Rtr, [Rc]:          [PATH MTU DEST_QPN RQ_PSN MAX_DEST_RD RNR_TIMER], [ALT_PATH ACCESS PKEY];
    Init => Rtr, [Uc]:          [PATH MTU DEST_QPN RQ_PSN], [ALT_PATH ACCESS PKEY];
    Init => Rtr, [Ud Gsi]:      [], [PKEY QKEY];
    Rtr => Rts, [Rc]:           [TIMEOUT RETRY RNR_RETRY SQ_PSN MAX_RD], [CUR_STATE ALT_PATH ACCESS RNR_TIMER MIG_STATE];
    Rtr => Rts, [Uc]:           [SQ_PSN], [CUR_STATE ALT_PATH ACCESS MIG_STATE];
    Rtr => Rts, [Ud Gsi]:       [SQ_PSN], [CUR_STATE QKEY];
    Rts => Rts, [Rc]:           [], [CUR_STATE ACCESS ALT_PATH RNR_TIMER MIG_STATE];
    Rts => Rts, [Uc]:           [], [CUR_STATE ACCESS ALT_PATH MIG_STATE];
    Rts => Rts, [Ud Gsi]:       [], [CUR_STATE QKEY];
    Rts => Sqd, [Rc Uc Ud Gsi]: [], [CUR_STATE SQD_NOTIFY];
    Sqd => Rts, [Rc]:           [], [CUR_STATE ALT_PATH ACCESS RNR_TIMER MIG_STATE];
    Sqd => Rts, [Uc]:           [], [CUR_STATE ALT_PATH ACCESS MIG_STATE];
    Sqd => Rts, [Ud Gsi]:       [], [CUR_STATE QKEY];
    Sqd => Sqd, [Rc]:           [], [PORT PATH TIMEOUT RETRY RNR_RETRY MAX_RD MAX_DEST_RD ALT_PATH ACCESS PKEY RNR_TIMER MIG_STATE];
    Sqd => Sqd, [Uc]:           [], [PATH ALT_PATH ACCESS PKEY MIG_STATE];
    Sqd => Sqd, [Ud Gsi]:       [], [PKEY QKEY];
    Sqe => Rts, [Uc]:           [], [CUR_STATE ACCESS];
    Sqe => Rts, [Ud Gsi]:       [], [CUR_STATE QKEY];
};

/// Checks a transition of a queue pair of type `ty` against the table.
pub(crate) fn check(ty: QpType, from: QpState, to: QpState, a: &QpAttr) -> Result<(), ModifyError> {
    if a.cur_state.is_some_and(|s| s != from) {
        return Err(ModifyError::Transition);
    }
    if matches!(to, QpState::Reset | QpState::Err) {
        return Ok(());
    }
    let row = TRANSITIONS
        .iter()
        .find(|r| r.from == from && r.to == to && r.types.contains(&ty))
        .ok_or(ModifyError::Transition)?;
    let given = Set::of(a).0;
    if row.required.0 & !given != 0 {
        return Err(ModifyError::Missing);
    }
    if given & !(row.required.0 | row.optional.0) != 0 {
        return Err(ModifyError::NotPermitted);
    }
    let in_range = a.timeout.is_none_or(|v| v < 32)
        && a.min_rnr_timer.is_none_or(|v| v < 32)
        && a.retry_cnt.is_none_or(|v| v < 8)
        && a.rnr_retry.is_none_or(|v| v < 8)
        && a.dest_qpn.is_none_or(|v| v >> 24 == 0);
    if in_range {
        Ok(())
    } else {
        Err(ModifyError::Value)
    }
}

/// What a queue pair does in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// Send work requests may be posted.
    pub post_send: bool,
    /// Receives may be posted.
    pub post_recv: bool,
    /// Inbound requests are carried out.
    pub receive: bool,
    /// Requests are sent, and their responses taken.
    pub send: bool,
    /// Work requests that were not begun may be begun.
    pub begin: bool,
    /// Posted sends are flushed.
    pub flush_send: bool,
}

impl QpState {
    /// What is permitted in this state (10.3.1).
    pub const fn permits(self) -> Permissions {
        const fn row(bits: [u8; 6]) -> Permissions {
            Permissions {
                post_send: bits[0] != 0,
                post_recv: bits[1] != 0,
                receive: bits[2] != 0,
                send: bits[3] != 0,
                begin: bits[4] != 0,
                flush_send: bits[5] != 0,
            }
        }
        match self {
            //          post: send, recv; receive, send, begin, flush
            Self::Reset => row([0, 0, 0, 0, 0, 0]),
            Self::Init => row([0, 1, 0, 0, 0, 0]),
            Self::Rtr => row([0, 1, 1, 0, 0, 0]),
            Self::Rts => row([1, 1, 1, 1, 1, 0]),
            Self::Sqd => row([1, 1, 1, 1, 0, 0]),
            Self::Sqe => row([1, 1, 1, 0, 0, 1]),
            Self::Err => row([1, 1, 0, 0, 0, 1]),
        }
    }
}
