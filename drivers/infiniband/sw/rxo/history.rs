// SPDX-License-Identifier: GPL-2.0

//! What happened: a bounded record for each queue pair, and one for each device.
//!
//! A record is a ring of fixed size. To note an event allocates nothing and takes no lock of its
//! own. What happens again and again becomes one record with a count, so that a storm doesn't wash
//! away how it began.

use kernel::prelude::*;
use rxo_transport::{
    wire::Parsed,
    AsyncEvent,
    Counter,
    Idle,
    KeyFault,
    NakKind,
    QpState,
    QpType,
    RetransmitCause,
    Trace,
    WcStatus, //
};
use softirq::{
    new_bh_spinlock,
    BhSpinLock, //
};

use crate::{
    detail::Listener,
    host::Host,
    mr::Refusal,
    stats::Stat, //
};

/// Something that happened.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Event {
    /// Nothing: an unused record.
    #[default]
    None,
    /// A change of state.
    State(QpState, QpState),
    /// Packets are sent again; so many retries are left.
    Retransmit(RetransmitCause, u8),
    /// A NAK was sent.
    NakSent(NakKind),
    /// A NAK came.
    NakReceived(NakKind),
    /// The sender began to wait for receives of the peer.
    CreditStall,
    /// That is over.
    CreditStallEnd,
    /// A send failed.
    SendFailed(WcStatus),
    /// A receive failed.
    RecvFailed(WcStatus),
    /// An event was raised.
    Raised(AsyncEvent),
    /// A peer named a key that does not serve.
    KeyFault(Stat),
    /// The transport dropped a packet.
    Dropped(Counter),
    /// The driver dropped a packet.
    Refused(Stat),
    /// A completion found no room in its queue.
    CqOverrun,
    /// The port became active, or is no more.
    Port(bool),
}

impl Event {
    /// What happened, and the word that tells why or which.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::None => ("none", ""),
            Self::State(_, to) => ("state", to.name()),
            Self::Retransmit(cause, _) => ("retransmit", cause.name()),
            Self::NakSent(kind) => ("nak_sent", kind.name()),
            Self::NakReceived(kind) => ("nak_received", kind.name()),
            Self::CreditStall => ("stall", Idle::Credit.name()),
            Self::CreditStallEnd => ("stall_end", Idle::Credit.name()),
            Self::SendFailed(status) => ("send_failed", status.name()),
            Self::RecvFailed(status) => ("recv_failed", status.name()),
            Self::Raised(event) => ("event", event.name()),
            Self::KeyFault(why) => ("key_fault", why.name()),
            Self::Dropped(why) => ("drop", why.name()),
            Self::Refused(why) => ("drop", why.name()),
            Self::CqOverrun => ("error", "cq_overrun"),
            Self::Port(true) => ("port", "active"),
            Self::Port(false) => ("port", "down"),
        }
    }

    /// What the number of its record is.
    fn number(self) -> Option<&'static str> {
        match self {
            Self::Retransmit(..)
            | Self::NakSent(_)
            | Self::NakReceived(_)
            | Self::CreditStall
            | Self::Dropped(_)
            | Self::Refused(Stat::RxWrongAddress | Stat::RxBadPkey) => Some("psn"),
            Self::CreditStallEnd => Some("us"),
            Self::SendFailed(_) => Some("slot"),
            Self::KeyFault(_) => Some("key"),
            Self::Refused(Stat::RxNoQp) => Some("qpn"),
            _ => None,
        }
    }

    /// Whether the two are the same but for numbers.
    fn is_like(self, other: Self) -> bool {
        self.words() == other.words()
    }

    /// Whether it is no part of a life without faults.
    fn is_trouble(self) -> bool {
        !matches!(
            self,
            Self::None
                | Self::State(..)
                | Self::CreditStall
                | Self::CreditStallEnd
                | Self::Raised(AsyncEvent::CommEst | AsyncEvent::SqDrained)
        )
    }

    /// What a step of the transport is in the history, and its number.
    fn of(t: Trace) -> Option<(Self, u32)> {
        Some(match t {
            Trace::State { from, to } => (Self::State(from, to), 0),
            Trace::Retransmit { cause, psn, left } => (Self::Retransmit(cause, left), psn.get()),
            Trace::NakSent { kind, psn } => (Self::NakSent(kind), psn.get()),
            Trace::NakReceived { kind, psn } => (Self::NakReceived(kind), psn.get()),
            // The other stalls are a part of any transfer that is large enough.
            Trace::Stall {
                why: Idle::Credit,
                psn,
            } => (Self::CreditStall, psn.get()),
            Trace::StallEnd {
                why: Idle::Credit,
                us,
                ..
            } => (Self::CreditStallEnd, us),
            Trace::Stall { .. } | Trace::StallEnd { .. } => return None,
            Trace::Drop { why, psn } => (Self::Dropped(why), psn.get()),
            Trace::SendFailed { slot, status } => (Self::SendFailed(status), slot),
            Trace::RecvFailed { status } => (Self::RecvFailed(status), 0),
            Trace::Event(event) => (Self::Raised(event), 0),
        })
    }
}

/// An event, or a run of events that are alike.
#[derive(Clone, Copy, Default)]
pub(crate) struct Record {
    /// When it happened first.
    first_ns: u64,
    /// How much later it happened last.
    span_us: u32,
    /// How often it happened.
    times: u32,
    /// Of the last time.
    number: u32,
    event: Event,
}

impl Record {
    /// Tells what is recorded.
    pub(crate) fn tell(&self, to: &mut impl Listener) {
        let (what, why) = self.event.words();
        to.number("at_ns", self.first_ns);
        to.word("event", what);
        to.word("what", why);
        if let Event::State(from, _) = self.event {
            to.word("from", from.name());
        }
        if let Event::Retransmit(_, left) = self.event {
            to.number("left", u64::from(left));
        }
        if let Some(name) = self.event.number() {
            to.number(name, u64::from(self.number));
        }
        if self.times > 1 {
            to.number("times", u64::from(self.times));
            let span = u64::from(self.span_us).saturating_mul(1000);
            to.number("last_ns", self.first_ns.saturating_add(span));
        }
    }
}

/// How many records a history has.
const RECORDS: usize = 18;
/// How many records back one is looked for that an event is like: storms are made of several
/// kinds that take turns.
const LOOK_BACK: usize = 4;

/// The last events, oldest first.
#[derive(Clone, Copy)]
pub(crate) struct History {
    ring: [Record; RECORDS],
    /// How many records there ever were.
    count: u32,
}

// Each queue pair has one.
const _: () = assert!(size_of::<History>() <= 512);

impl History {
    /// Nothing happened yet.
    pub(crate) fn new() -> Self {
        Self {
            ring: [Record::default(); RECORDS],
            count: 0,
        }
    }

    fn at(&mut self, index: u32) -> Option<&mut Record> {
        self.ring.get_mut(index as usize % RECORDS)
    }

    /// Notes an event and its number.
    pub(crate) fn note(&mut self, event: Event, number: u32) {
        let now = softirq::now_ns();
        for back in 1..=LOOK_BACK as u32 {
            let Some(index) = self.count.checked_sub(back) else {
                break;
            };
            let Some(r) = self.at(index) else {
                break;
            };
            // Each change of state counts, and what comes before it stays before it.
            if matches!(r.event, Event::State(..)) {
                break;
            }
            if r.event.is_like(event) {
                let us = now.saturating_sub(r.first_ns) / 1000;
                r.span_us = u32::try_from(us).unwrap_or(u32::MAX);
                r.times = r.times.saturating_add(1);
                r.number = number;
                r.event = event;
                return;
            }
        }
        let count = self.count;
        if let Some(r) = self.at(count) {
            *r = Record {
                first_ns: now,
                span_us: 0,
                times: 1,
                number,
                event,
            };
        }
        // After 2^32 records it begins anew.
        self.count = count.wrapping_add(1);
    }

    /// How many records were overwritten.
    pub(crate) fn lost(&self) -> u32 {
        self.count.saturating_sub(RECORDS as u32)
    }

    /// The records, oldest first.
    pub(crate) fn records(&self) -> impl Iterator<Item = &Record> {
        (self.lost()..self.count).filter_map(|i| self.ring.get(i as usize % RECORDS))
    }

    /// Whether anything went wrong.
    fn has_trouble(&self) -> bool {
        self.records().any(|r| r.event.is_trouble())
    }
}

impl Host {
    /// Traces a step of the transport, and notes it if it belongs here.
    pub(crate) fn note_step(&mut self, t: Trace) {
        self.trace_step(t);
        if let Some((event, number)) = Event::of(t) {
            self.history.note(event, number);
        }
    }

    /// Counts and notes a packet that does not get as far as the transport.
    pub(crate) fn refuse(&mut self, why: Stat, packet: &Parsed) {
        self.stats.count(why);
        let psn = packet.headers.bth.psn.get();
        self.history.note(Event::Refused(why), psn);
        self.trace_refused(why, psn);
    }

    /// Notes that a peer named a key that does not serve; what the transport makes of that.
    pub(crate) fn key_fault(&mut self, key: u32, why: Refusal) -> KeyFault {
        if let Some(why) = why.stat() {
            self.history.note(Event::KeyFault(why), key);
            self.trace_key_fault(key, why);
        }
        KeyFault::Access
    }
}

/// A queue pair that was destroyed, and in whose life something went wrong.
#[derive(Clone, Copy)]
pub(crate) struct Ended {
    pub(crate) number: u32,
    pub(crate) kind: QpType,
    pub(crate) at_ns: u64,
    pub(crate) history: History,
}

/// How many of those are remembered.
const ENDED: usize = 8;

/// What is remembered of a device.
pub(crate) struct Memory {
    own: History,
    ended: KVec<Ended>,
    /// The place of the next one, once all are taken.
    next: usize,
}

/// The history of a device: of what no queue pair was concerned by, and of queue pairs that are
/// no more.
#[pin_data]
pub(crate) struct DeviceHistory {
    #[pin]
    memory: BhSpinLock<Memory>,
}

impl DeviceHistory {
    /// Nothing happened yet.
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            memory <- {
                let ended = KVec::with_capacity(ENDED, GFP_KERNEL)?;
                new_bh_spinlock!(Memory {
                    own: History::new(),
                    ended,
                    next: 0,
                }, "DeviceHistory::memory")
            },
        })
    }

    /// Notes an event. Any context.
    pub(crate) fn note(&self, event: Event, number: u32) {
        self.memory.lock().own.note(event, number);
    }

    /// Keeps the history of a queue pair that is being destroyed, if there is anything in it.
    pub(crate) fn keep(&self, number: u32, kind: QpType, history: &History) {
        if !history.has_trouble() {
            return;
        }
        let ended = Ended {
            number,
            kind,
            at_ns: softirq::now_ns(),
            history: *history,
        };
        let mut memory = self.memory.lock();
        let memory = &mut *memory;
        if memory.ended.push_within_capacity(ended).is_err() {
            if let Some(oldest) = memory.ended.get_mut(memory.next) {
                *oldest = ended;
            }
            memory.next = (memory.next + 1) % ENDED;
        }
    }

    /// What happened to the device itself.
    pub(crate) fn own(&self) -> History {
        self.memory.lock().own
    }

    /// The `i`th queue pair that is no more, oldest first.
    pub(crate) fn ended(&self, i: usize) -> Option<Ended> {
        let memory = self.memory.lock();
        let at = (memory.next + i) % ENDED;
        memory.ended.get(at).copied().filter(|_| i < ENDED)
    }
}
