// SPDX-License-Identifier: GPL-2.0

//! The responder: what request packets mean, and what they are answered with.

use crate::burst::Burst;
use crate::env::Env;
use crate::opcode::Info;
use crate::psn::{
    Msn,
    Psn, //
};
use crate::qp::Qp;
use crate::env::RecvInfo;
use crate::verbs::{
    QpState,
    WcStatus, //
};
use crate::wire::Parsed;

/// What is remembered of a READ or an atomic of the peer.
#[derive(Debug)]
pub struct Resource<R> {
    pub(crate) region: Option<R>,
}

impl<R> Default for Resource<R> {
    fn default() -> Self {
        Self {
            region: None,
        }
    }
}

/// State of the responder.
pub(crate) struct Responder<R> {
    pub(crate) expected: Psn,
    pub(crate) msn: Msn,
    pub(crate) recv: Option<RecvInfo>,
    inbound: Option<R>,
}

impl<R> Responder<R> {
    pub(crate) const fn new() -> Self {
        Self { expected: Psn::new(0), msn: Msn::new(0), recv: None, inbound: None }
    }
    pub(crate) fn start(&mut self, psn: Psn) { *self = Self::new(); self.expected = psn; }
    pub(crate) fn halt(&mut self) { self.inbound = None; }
    pub(crate) fn is_closing(&self) -> bool { false }
    pub(crate) fn in_gap(&self) -> bool { false }
    pub(crate) fn expected_or(&self, psn: Psn, state: QpState) -> Psn {
        match state {
            QpState::Reset | QpState::Init => psn,
            _ => self.expected,
        }
    }
}

impl<E: Env> Qp<E> {
    pub(crate) fn forget_resources(&mut self) {
        for r in self.resources.iter_mut() {
            *r = Resource::default();
        }
    }
    pub(crate) fn pending_answers(&self) -> u32 { 0 }
    pub(crate) fn poll_answers(&mut self, _budget: u32, _env: &mut E) -> Option<Burst> { None }
    pub(crate) fn answer_failed(&mut self, _resource: u32, _usage: u32, _psn: Psn, _status: WcStatus, _env: &mut E) {}
    pub(crate) fn on_request(&mut self, _pkt: &Parsed, _info: &Info, _env: &mut E) {}
}
