// SPDX-License-Identifier: GPL-2.0

//! How work requests and receives end: one by one, or all of them in ERR, SQE and RESET.

use super::Settings;
use crate::completer::Completer;
use crate::env::{
    AsyncEvent,
    Counter,
    Env,
    RecvCompletion,
    RecvOp,
    Trace, //
};
use crate::qp::Qp;
use crate::responder::Responder;
use crate::ring::Progress;
use crate::verbs::{
    QpState,
    SendOp,
    WcStatus, //
};

impl<E: Env> Qp<E> {
    /// Completes the oldest send work request.
    pub(super) fn complete_oldest(&mut self, status: WcStatus, env: &mut E) {
        let Some((slot, entry)) = self.sq.pop() else {
            return;
        };
        let wqe = entry.wqe;
        if wqe.op.needs_response() && entry.progress != Progress::Posted {
            self.req.outstanding_reads = self.req.outstanding_reads.saturating_sub(1);
        }
        match status {
            WcStatus::Success => env.count(Counter::SendCompletions),
            WcStatus::WrFlushErr => env.count(Counter::Flushes),
            _ => {
                env.count(Counter::ErrorCompletions);
                env.trace(Trace::SendFailed { slot, status });
            }
        }
        let signal = self.sig_all || wqe.flags.signaled || status != WcStatus::Success;
        let byte_len = match (status, wqe.op) {
            (WcStatus::Success, SendOp::Local | SendOp::Flush(_)) => 0,
            (WcStatus::Success, _) => wqe.length,
            _ => 0,
        };
        env.complete_send(slot, &wqe, status, byte_len, signal);
    }

    /// Completes what is ready to, in order. A failure takes the queue pair to ERR, or to SQE if it is unreliable.
    pub(crate) fn pump(&mut self, env: &mut E) {
        while let Some((_, entry)) = self.sq.oldest() {
            match entry.progress {
                Progress::Done => self.complete_oldest(WcStatus::Success, env),
                Progress::Failed(status) => {
                    self.complete_oldest(status, env);
                    if self.ty.is_reliable() {
                        self.enter_error(env);
                    } else {
                        self.enter(QpState::Sqe, env);
                        self.flush_sends(env);
                    }
                    return;
                }
                _ => break,
            }
        }
        self.check_drained(env);
    }

    /// In SQD, notes that everything begun has completed.
    pub(super) fn check_drained(&mut self, env: &mut E) {
        let busy = self
            .sq
            .oldest()
            .is_some_and(|(_, s)| s.progress != Progress::Posted);
        if self.state != QpState::Sqd || self.req.drained || busy {
            return;
        }
        self.req.drained = true;
        if self.set.sqd_notify {
            self.raise(AsyncEvent::SqDrained, env);
        }
    }

    /// Flushes all send work requests.
    pub(super) fn flush_sends(&mut self, env: &mut E) {
        while self.sq.used() != 0 {
            self.complete_oldest(WcStatus::WrFlushErr, env);
        }
        self.sq.cur = self.sq.head;
        self.req.halt();
        self.comp.halt();
    }

    /// Ends the current receive with an error.
    pub(crate) fn fail_receive(&mut self, status: WcStatus, env: &mut E) {
        if self.resp.recv.take().is_none() {
            return;
        }
        env.count(match status {
            WcStatus::WrFlushErr => Counter::Flushes,
            _ => Counter::ErrorCompletions,
        });
        if status != WcStatus::WrFlushErr {
            env.trace(Trace::RecvFailed { status });
        }
        env.complete_recv(RecvCompletion {
            status,
            op: RecvOp::Recv,
            byte_len: 0,
            imm: None,
            invalidated: None,
            src_qp: self.set.dest_qpn,
            solicited: false,
            grh: false,
            vendor_err: 0,
        });
    }

    /// Flushes the current receive and, without a shared receive queue, all that are posted.
    pub(super) fn flush_receives(&mut self, env: &mut E) {
        self.fail_receive(WcStatus::WrFlushErr, env);
        if self.has_srq {
            return;
        }
        // As many as there are now: a process could post for ever what is being flushed.
        for _ in 0..env.posted_recvs().unwrap_or(u32::MAX) {
            let Some(r) = env.take_recv() else {
                break;
            };
            self.resp.recv = Some(r.unwrap_or_default());
            self.fail_receive(WcStatus::WrFlushErr, env);
        }
    }

    /// Goes to ERR: nothing is carried out any more, and everything posted is flushed.
    pub(crate) fn enter_error(&mut self, env: &mut E) {
        let first = self.state != QpState::Err;
        self.enter(QpState::Err, env);
        self.flush_sends(env);
        self.resp.halt();
        self.flush_receives(env);
        if !self.resp.is_closing() {
            self.forget_resources();
        }
        if first && self.has_srq {
            self.raise(AsyncEvent::LastWqeReached, env);
        }
    }

    /// Goes to RESET: everything is forgotten, nothing completes.
    pub(super) fn reset(&mut self, env: &mut E) {
        self.enter(QpState::Reset, env);
        let (pkey, mtu) = (self.set.pkey, self.set.mtu);
        self.set = Settings::new();
        self.set.pkey = pkey;
        if self.ty.is_datagram() {
            self.set.mtu = mtu;
        }
        self.sq.reset();
        self.req.reset();
        self.comp = Completer::new();
        self.resp = Responder::new();
        self.forget_resources();
    }
}
