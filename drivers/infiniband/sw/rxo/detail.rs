// SPDX-License-Identifier: GPL-2.0

//! What there is to know of an object, for `rdma resource show -dd` and for the snapshot.
//!
//! An object is looked at once, under its lock, and told of afterwards.

use net::IpAddr;
use rxo_transport::{
    Idle,
    QpAttr,
    QpType,
    Status, //
};

/// Takes in facts.
pub(crate) trait Listener {
    /// A number.
    fn number(&mut self, name: &'static str, value: u64);
    /// A word.
    fn word(&mut self, name: &'static str, value: &'static str);
}

impl Listener for rdma::Detail<'_> {
    fn number(&mut self, name: &'static str, value: u64) {
        rdma::Detail::number(self, name, value);
    }

    fn word(&mut self, name: &'static str, value: &'static str) {
        self.text(name, value);
    }
}

/// What a queue pair was seen to be.
pub(crate) struct QpView {
    pub(crate) kind: QpType,
    pub(crate) status: Status,
    pub(crate) attr: QpAttr,
    /// The host that it is connected to.
    pub(crate) peer: Option<IpAddr>,
    pub(crate) waits_for: Idle,
    /// Nanoseconds until the timer runs out.
    pub(crate) timer_in: Option<u64>,
    pub(crate) sq_size: u32,
    /// Receives posted, and how many may be; `None` with a shared receive queue.
    pub(crate) recvs: Option<(u32, u32)>,
}

impl QpView {
    /// Tells what was seen.
    pub(crate) fn tell(&self, to: &mut impl Listener) {
        let Self { status, attr, .. } = self;
        let connected = !self.kind.is_datagram();
        let reliable = self.kind.is_reliable();

        to.word("waits_for", self.waits_for.name());
        to.number("sq_posted", u64::from(status.send_queue_used));
        to.number("sq_size", u64::from(self.sq_size));
        if let Some((posted, size)) = self.recvs {
            to.number("rq_posted", u64::from(posted));
            to.number("rq_size", u64::from(size));
        }
        if let Some(mtu) = attr.path_mtu {
            to.number("path_mtu", u64::from(mtu.bytes()));
        }
        to.number("next_psn", u64::from(status.next_psn.get()));
        if connected {
            to.number("expected_psn", u64::from(status.expected_psn.get()));
        }
        if !reliable {
            return;
        }
        to.number("sent_psn", u64::from(status.sent_psn.get()));
        to.number("unacked_psn", u64::from(status.unacked_psn.get()));
        to.number("msn", u64::from(status.msn.get()));
        to.number("ssn", u64::from(status.ssn.get()));
        match status.credit_limit {
            Some(limit) => {
                // One message may go beyond the limit, as a probe.
                let left = limit.diff(status.ssn).max(0);
                to.number("credits", u64::from(left.unsigned_abs()));
            }
            None => to.word("credits", "unlimited"),
        }
        to.number("window", u64::from(status.window));
        to.number("reads_outstanding", u64::from(status.outstanding_reads));
        to.number("reads_max", u64::from(attr.max_rd_atomic.unwrap_or(0)));
        to.number("answers_pending", u64::from(status.pending_answers));
        to.number("retries_left", u64::from(status.retries_left));
        to.number("retry_cnt", u64::from(attr.retry_cnt.unwrap_or(0)));
        to.number("rnr_retries_left", u64::from(status.rnr_retries_left));
        to.number("rnr_retry", u64::from(attr.rnr_retry.unwrap_or(0)));
        to.number("awaits_missing", u64::from(status.in_gap));
        match (status.timer, self.timer_in) {
            (Some((_, what)), Some(ns)) => {
                to.word("timer", what.name());
                to.number("timer_us", ns / 1000);
            }
            _ => to.word("timer", "off"),
        }
    }
}
