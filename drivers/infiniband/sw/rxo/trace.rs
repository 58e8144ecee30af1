// SPDX-License-Identifier: GPL-2.0

//! What goes to the tracepoints, and from where.

use rxo_transport::{
    wire::Headers,
    Trace, //
};
use trace::At;

use crate::{
    host::Host,
    mr::ListFault,
    port::Port,
    stats::Stat, //
};

/// The syndrome of a packet that has none.
const NO_SYNDROME: u32 = 0xff;

impl Host {
    #[inline(always)]
    fn trace_packet(
        &self,
        f: impl FnOnce(At, u32, u32, u32, u32, u32, u32),
        headers: &Headers,
        len: u32,
    ) {
        let bth = &headers.bth;
        let (syndrome, msn) = headers.aeth().map_or((NO_SYNDROME, 0), |a| {
            (u32::from(a.syndrome.to_byte()), a.msn.get())
        });
        f(
            self.port.at(self.number),
            bth.dest_qp,
            u32::from(bth.opcode.raw()),
            bth.psn.get(),
            len,
            syndrome,
            msn,
        );
    }

    /// A packet goes to the network.
    #[inline(always)]
    pub(crate) fn trace_tx(&self, headers: &Headers, len: u32) {
        self.trace_packet(trace::tx, headers, len);
    }

    /// A packet came.
    #[inline(always)]
    pub(crate) fn trace_rx(&self, headers: &Headers, len: u32) {
        self.trace_packet(trace::rx, headers, len);
    }

    /// Whether each packet that comes is to be told of.
    #[inline(always)]
    pub(crate) fn traces_rx() -> bool {
        trace::rx_is_on()
    }

    /// The transport took a step.
    pub(crate) fn trace_step(&self, t: Trace) {
        let at = self.port.at(self.number);
        match t {
            Trace::State { from, to } => trace::qp_state(at, from.name(), to.name()),
            Trace::Retransmit { cause, psn, left } => {
                trace::retransmit(at, psn.get(), u32::from(left), cause.name());
            }
            Trace::NakSent { kind, psn } => trace::nak_sent(at, psn.get(), kind.name()),
            Trace::NakReceived { kind, psn } => {
                trace::nak_received(at, psn.get(), kind.name());
            }
            Trace::Stall { why, psn } => trace::stall(at, psn.get(), why.name()),
            Trace::StallEnd { why, psn, us } => {
                trace::stall_end(at, psn.get(), us, why.name());
            }
            Trace::Drop { why, psn } => trace::drop(at, psn.get(), why.name()),
            Trace::SendFailed { status, .. } => trace::error(at, "send", status.name()),
            Trace::RecvFailed { status } => trace::error(at, "recv", status.name()),
            Trace::Event(event) => trace::error(at, "event", event.name()),
        }
    }

    /// A packet does not get as far as the transport.
    pub(crate) fn trace_refused(&self, why: Stat, psn: u32) {
        trace::drop(self.port.at(self.number), psn, why.name());
    }

    /// A peer named a key that does not serve.
    pub(crate) fn trace_key_fault(&self, key: u32, why: Stat) {
        trace::key_fault(self.port.at(self.number), key, why.name());
    }
}

impl Port {
    /// A queue pair of this port as tracepoints name it.
    #[inline(always)]
    fn at(&self, qpn: u32) -> At {
        At {
            netns: self.netns,
            ifindex: self.ifindex,
            qpn,
        }
    }

    /// A work request of a queue pair names memory that it can't use.
    pub(crate) fn trace_list_fault(&self, qpn: u32, fault: ListFault) {
        if let (Some(key), Some(why)) = (fault.key, fault.why.stat()) {
            trace::local_key_fault(self.at(qpn), key, why.name());
        }
    }

    /// A packet is dropped that no queue pair is concerned by.
    pub(crate) fn trace_refused(&self, why: Stat, number: u32) {
        trace::drop(self.at(number), 0, why.name());
    }
}
