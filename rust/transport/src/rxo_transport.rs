// SPDX-License-Identifier: GPL-2.0

//! The InfiniBand transport as pure logic.
//!
//! Nothing here allocates, sleeps, reads a clock or knows of a kernel: each entry point of [`Qp`] takes the time and an
//! [`Env`] (memory, queues, completions) as arguments. Two runs with the same arguments do the same.
//!
//! A queue pair has three machines with one owner each:
//!
//! | machine   | decides                                                      |
//! |-----------|--------------------------------------------------------------|
//! | requester | what to send next, or why nothing can be sent                |
//! | completer | what an ACK, NAK, READ response or timeout means             |
//! | responder | what a request packet means, and what it is answered with    |
//!
//! # Use
//!
//! After [`Qp::on_packet`], [`Qp::post_send`], [`Qp::modify`], [`Qp::on_deadline`] and [`Qp::sent`]:
//! call [`Qp::poll_transmit`] until it returns [`None`], then arm a timer for [`Qp::deadline`].

// Kbuild passes `no_std` by itself, and sets `CONFIG_RUST`.
#![cfg_attr(not(any(test, CONFIG_RUST)), no_std)]
// The KUnit glue contains unsafe code.
#![cfg_attr(not(rxo_kunit), forbid(unsafe_code))]

pub mod burst;
mod completer;
pub mod credit;
pub mod env;
pub mod opcode;
pub mod psn;
mod qp;
mod requester;
mod responder;
mod ring;
pub mod rnr;
mod run;
pub mod state;
pub mod time;
pub mod verbs;
pub mod wire;

pub use burst::{
    Burst,
    PacketOut,
    Source, //
};
pub use env::{
    AsyncEvent,
    AtomicOp,
    Counter,
    Env,
    KeyFault,
    NakKind,
    PlaceFault,
    RecvCompletion,
    RecvInfo,
    RecvOp,
    RemoteAccess,
    RetransmitCause,
    Trace,
    Verdict, //
};
pub use qp::{
    check_wqe,
    PostError,
    Qp,
    Status,
    Timer, //
};
pub use requester::{
    Idle,
    Mark,
    ACK_INTERVAL,
    DEFAULT_WINDOW, //
};
pub use responder::{
    Resource,
    ACK_BOUND, //
};
pub use ring::SendSlot;
pub use state::{
    ModifyError,
    QpAttr, //
};
pub use verbs::{
    Access,
    FlushKind,
    Mtu,
    QpState,
    QpType,
    SendFlags,
    SendOp,
    SendWqe,
    UdDest,
    WcStatus, //
};
