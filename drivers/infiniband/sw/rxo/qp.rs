// SPDX-License-Identifier: GPL-2.0

//! Queue pairs: the transport's state and its surroundings under one lock.
//!
//! Whoever comes by (a doorbell, a packet, the timer, a modification) takes the lock, lets the
//! transport do what is due, sends what it wants sent, arms the timer for its next deadline, and
//! makes the calls to consumers after the lock has been released.

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        ArcBorrow, //
    }, //
};
use net::{
    IpAddr,
    RxBuf, //
};
use rdma::{
    access,
    MmapEntry,
    Path,
    QpAttrs,
    QpCap,
    QpKind,
    QpTarget,
    RecvWrs,
    SendWrs, //
};
use rxo_transport::{
    psn::Psn,
    time::Instant,
    wire::Parsed,
    Access,
    AsyncEvent,
    Burst,
    Env,
    Idle,
    Mark,
    Mtu,
    PostError,
    Qp,
    QpAttr,
    QpState,
    QpType,
    Resource,
    SendSlot,
    Verdict,
    WcStatus, //
};
use softirq::{
    lock_both,
    new_bh_spinlock,
    BhSpinLock,
    DeadlineTimer,
    Gate,
    HasDeadline,
    OneCpu, //
};

use crate::{
    ah::Ends,
    cq::CompletionQueue,
    detail::QpView,
    history::{
        Event,
        History, //
    },
    hold::{
        Fate,
        Hold,
        HOLD_NS, //
    },
    host::{
        Host,
        Packet,
        Pending,
        Place, //
    },
    limits::{
        Permit,
        DEFAULT_PKEY,
        MAX_RD_ATOMIC, //
    },
    mr::Domain,
    near,
    port::Port,
    posting::{
        Posted,
        Posting,
        Sizes,
        Taking, //
    },
    provider::Rxo,
    rq::RecvQueue,
    sq::{
        vec_of,
        Places,
        SendQueue, //
    },
    srq::SharedQueue,
    stats::{
        Set,
        Stat, //
    },
    tx::{
        self,
        Cargo,
        Convoy,
        Ready,
        Rest,
        Wait, //
    },
    way::Way, //
};

/// Packets that one visit to a queue pair sends before it lets others have the CPU: what has
/// come in meanwhile, acknowledgements above all, is more urgent than to send more.
const BUDGET: u32 = 64;
/// A visit in softirq with more to do comes back after this many nanoseconds.
const YIELD_NS: u64 = 1_000;
/// So many packets are sent in next to no time.
const FEW: u32 = 4;
/// A packet that the network refused is offered again after this many nanoseconds,
const REFUSED_NS: u64 = 50_000;
/// and so often before it counts as lost.
const REFUSED_TRIES: u32 = 200;
/// Memory that is being paged in is looked for after this many nanoseconds,
const PAGES_NS: u64 = 20_000;
/// and each time after twice as many, up to this.
const PAGES_MAX_NS: u64 = 1_000_000;
/// Packets that can wait for memory: as many as a peer's window lets it send.
const WAITING: usize = 256;
/// How often a doorbell goes on with what is left to send before it leaves that to the timer.
const DOORBELL_VISITS: u32 = 16;
/// Work requests that a doorbell takes before it lets go of the lock for a moment.
const DOORBELL_WRS: u32 = 256;
/// How often a queue pair in error looks for receives that a process posted since: nothing tells.
const FLUSH_POLL_NS: u64 = 50_000_000;

/// What the lock protects.
pub(crate) struct Inner {
    pub(crate) qp: Qp<Host>,
    pub(crate) host: Host,
    /// The way to the connected peer, of RC and UC.
    pub(crate) way: Option<KBox<Way>>,
    path: Option<Path>,
    ip_id: u16,
    /// What could not be sent yet.
    unsent: Option<Unsent>,
    /// For payload on its way to a queue pair of this host, where it needs to be copied; empty
    /// until then.
    pub(crate) buffer: KVec<u8>,
    /// What came and could not be taken in yet.
    waiting: Waiting,
    /// The network refused a convoy: what follows goes one by one, until it takes something again.
    one_by_one: bool,
    /// It refused an ACK: the next one leaves, or waits, while the lock is held.
    acks_here: bool,
    /// The peer sent a request since the last visit ended.
    asked: bool,
}

/// The rest of a burst.
pub(crate) struct Unsent {
    pub(crate) burst: Burst,
    pub(crate) rest: Rest,
    /// How often it did not leave for that reason.
    tries: u32,
    /// When to try again, in nanoseconds of the clock of timers.
    again_at: u64,
}

impl Unsent {
    /// All of a burst, which was not tried yet.
    pub(crate) fn new(burst: Burst) -> Self {
        Self {
            burst,
            rest: Rest {
                at: 0,
                why: Wait::Network,
            },
            tries: 0,
            again_at: 0,
        }
    }

    /// Whether the network is not to be asked again yet, however often someone comes by: it counts
    /// how often it was.
    fn rests(&self) -> bool {
        self.rest.why == Wait::Network && softirq::now_ns() < self.again_at
    }
}

/// Packets of a buffer that were addressed to one queue pair and found intact, in their order.
pub(crate) trait Arrivals {
    /// The next ones, if they are the middle of one message. They stay.
    fn run(&mut self, buf: &mut RxBuf) -> Option<Run>;

    /// Takes those away.
    fn skip(&mut self, run: &Run);

    /// Takes the next one, and tells where in the buffer its payload begins.
    fn next(&mut self, buf: &mut RxBuf) -> Option<&(Parsed, usize)>;
}

/// Several packets of a buffer that are the middle of a message.
pub(crate) struct Run {
    /// As [`Qp::on_run`] wants it.
    pub(crate) parsed: Parsed,
    pub(crate) count: u32,
    pub(crate) payload: Place,
    /// Bytes of UDP payload of all.
    pub(crate) wire_len: usize,
}

/// One packet.
impl Arrivals for Option<&(Parsed, usize)> {
    fn run(&mut self, _buf: &mut RxBuf) -> Option<Run> {
        None
    }

    fn skip(&mut self, _run: &Run) {}

    fn next(&mut self, _buf: &mut RxBuf) -> Option<&(Parsed, usize)> {
        self.take()
    }
}

/// Packets that wait for the memory that the first of them needs, in order.
#[derive(Default)]
struct Waiting {
    packets: KVec<Waiter>,
    /// How often the first was tried again.
    tries: u32,
    /// When to try again.
    look_at: u64,
}

/// A packet that waits.
struct Waiter {
    parsed: Parsed,
    /// What it came in; gone once it was taken in.
    buf: Option<RxBuf>,
    /// Where its payload is.
    payload: Place,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
}

/// How long to wait for pages that were looked for so often.
fn pages_wait(tries: u32) -> u64 {
    PAGES_NS
        .saturating_mul(1 << tries.min(16))
        .min(PAGES_MAX_NS)
}

/// A queue pair.
#[pin_data]
pub(crate) struct QueuePair {
    pub(crate) number: u32,
    pub(crate) kind: QpKind,
    pub(crate) port: Arc<Port>,
    domain: Domain,
    cap: QpCap,
    signal_all: bool,
    user: bool,
    send_cq: Arc<CompletionQueue>,
    recv_cq: Arc<CompletionQueue>,
    srq: Option<Arc<SharedQueue>>,
    target: QpTarget,
    /// The number of the peer, if it seems to be on this host; else 0.
    near: Atomic<u32>,
    /// Work requests that its send queue has room for, once that is furnished.
    sq_slots: u32,
    furnished: Atomic<u32>,
    /// For a process's messages that wait for others.
    hold: Option<Hold>,
    /// For what a kernel consumer posts with interrupts disabled.
    posting: Option<Pin<KBox<Posting>>>,
    #[pin]
    gate: Gate,
    #[pin]
    timer: DeadlineTimer<QueuePair>,
    #[pin]
    inner: BhSpinLock<Inner>,
}

// With its reference count it takes one allocation of 2 KiB; the next size is twice that. Debugging
// makes locks larger.
const _: () = assert!(
    cfg!(CONFIG_DEBUG_SPINLOCK) || cfg!(CONFIG_LOCKDEP) || size_of::<QueuePair>() <= 2048 - 8
);

/// What a queue pair is made of.
pub(crate) struct Parts {
    pub(crate) number: u32,
    pub(crate) kind: QpKind,
    pub(crate) port: Arc<Port>,
    pub(crate) domain: Domain,
    pub(crate) cap: QpCap,
    pub(crate) signal_all: bool,
    pub(crate) user: bool,
    pub(crate) send_cq: Arc<CompletionQueue>,
    pub(crate) recv_cq: Arc<CompletionQueue>,
    pub(crate) srq: Option<Arc<SharedQueue>>,
    pub(crate) target: QpTarget,
    pub(crate) sq: SendQueue,
    pub(crate) sq_slots: u32,
    pub(crate) rq: RecvQueue,
}

/// The queue pair of a consumer, with the rings offered to a process.
pub(crate) struct QpHandle {
    pub(crate) qp: Arc<QueuePair>,
    pub(crate) _rings: [Option<MmapEntry>; 2],
    pub(crate) _permit: Permit,
}

/// Tells whether packets of this kind go where each work request says.
pub(crate) fn is_datagram(kind: QpKind) -> bool {
    matches!(kind, QpKind::Ud | QpKind::Gsi)
}

fn transport_type(kind: QpKind) -> QpType {
    match kind {
        QpKind::Rc => QpType::Rc,
        QpKind::Uc => QpType::Uc,
        QpKind::Ud => QpType::Ud,
        QpKind::Gsi => QpType::Gsi,
    }
}

/// The time after so many packets were sent, which the peer must not be charged for: a few take none.
fn later(before: Instant, packets: u32) -> Instant {
    if packets > FEW {
        now()
    } else {
        before
    }
}

pub(crate) fn now() -> Instant {
    Instant::from_nanos(softirq::now_ns())
}

impl QueuePair {
    /// Makes a queue pair in RESET.
    pub(crate) fn new(p: Parts) -> Result<Arc<Self>> {
        let holds = p.user && p.kind == QpKind::Rc && crate::module_parameters::hold.value() != 0;
        let ring = p.sq.ring().filter(|_| holds);
        let hold = ring.map(|ring| Hold::new(ring, p.signal_all));
        let posting = (!p.user)
            .then(|| {
                Posting::new(Sizes {
                    sends: p.sq_slots,
                    recvs: if p.srq.is_some() {
                        0
                    } else {
                        p.cap.max_recv_wr
                    },
                    send_sges: p.cap.max_send_sge as usize,
                    recv_sges: p.cap.max_recv_sge as usize,
                    domain: p.domain,
                    ty: transport_type(p.kind),
                })
            })
            .transpose()?;
        let qp = {
            let (ty, with_srq) = (transport_type(p.kind), p.srq.is_some());
            move || {
                let none = (KVVec::new(), KVVec::new());
                let mut qp = Qp::new(ty, p.number, none.0, none.1, p.signal_all, with_srq);
                qp.set_pkey(DEFAULT_PKEY);
                qp
            }
        };
        let host = {
            let (port, target) = (p.port.clone(), p.target.clone());
            let (send_cq, recv_cq) = (p.send_cq.clone(), p.recv_cq.clone());
            let recv_domain = p.srq.as_ref().map_or(p.domain, |s| s.domain);
            init!(Host {
                stats: port.stats.clone(),
                domain: p.domain,
                recv_domain,
                identity: port.new_domain().0,
                number: p.number,
                datagrams: is_datagram(p.kind),
                target,
                send_cq,
                recv_cq,
                sq: p.sq,
                rq: p.rq,
                packet: None,
                pending: Pending::default(),
                history: History::new(),
                port,
            })
        };
        // All of it is made in its place: it would take much of the stack.
        let this = Arc::pin_init(
            pin_init!(Self {
                number: p.number,
                kind: p.kind,
                port: p.port,
                domain: p.domain,
                cap: p.cap,
                signal_all: p.signal_all,
                user: p.user,
                send_cq: p.send_cq,
                recv_cq: p.recv_cq,
                srq: p.srq,
                target: p.target,
                near: Atomic::new(0),
                gate <- Gate::new(),
                timer <- DeadlineTimer::new(),
                inner <- new_bh_spinlock!(init!(Inner {
                    qp: qp(),
                    host <- host,
                    way: None,
                    path: None,
                    // CAST: any 16 bits.
                    ip_id: net::random_u32() as u16,
                    unsent: None,
                    buffer: KVec::new(),
                    waiting: Waiting::default(),
                    one_by_one: false,
                    acks_here: false,
                    asked: false,
                }), "QueuePair::inner"),
                sq_slots: p.sq_slots,
                furnished: Atomic::new(0),
                hold,
                posting,
            }),
            GFP_KERNEL,
        )?;
        if !this.user {
            // It may post where nothing can be allocated.
            Self::furnish(this.as_arc_borrow())?;
        }
        Ok(this)
    }

    /// Sees to it that there is memory for work requests. A queue pair that never sends has none.
    /// May sleep.
    fn furnish(this: ArcBorrow<'_, Self>) -> Result {
        if this.furnished.load(Relaxed) != 0 {
            return Ok(());
        }
        let sges = this.cap.max_send_sge as usize;
        let inline = this.cap.max_inline_data as usize;
        let mut places = Places::new(this.sq_slots, sges, inline)?;
        let mut slots = vec_of(this.sq_slots as usize, SendSlot::default)?;
        {
            let mut inner = this.inner.lock();
            inner.host.sq.furnish(&mut places);
            inner.qp.furnish_sends(&mut slots);
        }
        this.furnished.store(1, Relaxed);
        Ok(())
    }

    /// Visits the queue pair: see the module's documentation. Any context.
    ///
    /// `None` if the queue pair is being destroyed.
    fn visit<R>(this: ArcBorrow<'_, Self>, f: impl FnOnce(&mut Inner, Instant) -> R) -> Option<R> {
        Self::visit_once(this, f).map(|(ret, _)| ret)
    }

    /// As [`Self::visit`]; also tells whether there is more to send.
    fn visit_once<R>(
        this: ArcBorrow<'_, Self>,
        f: impl FnOnce(&mut Inner, Instant) -> R,
    ) -> Option<(R, bool)> {
        let _pass = this.gate.enter()?;
        let mut late = None;
        if let Some(peer) = this.near_peer() {
            let peer = peer.as_arc_borrow();
            // It may be on its way out.
            let pass = peer.gate.enter();
            let locked = pass
                .as_ref()
                .and_then(|_| lock_both(&this.inner, &peer.inner));
            if let Some(mut both) = locked {
                let (inner, other) = both.get();
                let now = now();
                this.take_held(inner, now);
                let ret = f(inner, now);
                // What `f` did may have connected or parted them.
                let linked = peer.user && near::are_linked(inner, other);
                let (again, others) = if linked {
                    // However often this one is visited, it doesn't wait any longer for that.
                    peer.take_held(other, now);
                    let again = Self::exchange(inner, other, now);
                    (again, peer.end_visit(peer, other, None))
                } else {
                    (this.transmit(inner, now, &mut late), Pending::default())
                };
                let pending = this.end_visit(this, inner, again);
                drop(both);
                Self::deliver(this, pending, late);
                Self::deliver(peer, others, None);
                return Some((ret, again.is_some()));
            }
        }
        let (ret, again, pending) = {
            let mut guard = this.inner.lock();
            let inner = &mut *guard;
            let now = now();
            this.take_held(inner, now);
            let ret = f(inner, now);
            let again = this.transmit(inner, now, &mut late);
            (ret, again, this.end_visit(this, inner, again))
        };
        Self::deliver(this, pending, late);
        Some((ret, again.is_some()))
    }

    /// Does what is left to do before the lock is released.
    fn end_visit(
        &self,
        this: ArcBorrow<'_, Self>,
        inner: &mut Inner,
        again: Option<u64>,
    ) -> Pending {
        if inner.host.pending.lost() > 0 {
            // The consumer lost a completion, so it can't make sense of those that follow.
            inner.fail(now());
            let lost = inner.host.pending.lost();
            inner.host.stats.add(Stat::CqOverflows, u64::from(lost));
        }
        self.arm(this, inner, again);
        if let Some(hold) = &self.hold {
            if core::mem::take(&mut inner.asked) {
                hold.ends();
            }
            // What came to wait since the visit began set the timer, perhaps before this visit did.
            if hold.is_waiting() {
                self.timer
                    .arm_at_latest(this, softirq::now_ns().saturating_add(HOLD_NS));
            }
        }
        if self.posting.as_ref().is_some_and(|p| p.is_waiting()) {
            self.timer.arm_at_latest(this, softirq::now_ns());
        }
        core::mem::take(&mut inner.host.pending)
    }

    /// Takes what a process posted and did not insist on, or what a kernel consumer posted where the
    /// lock was not to be had.
    #[inline(always)]
    fn take_held(&self, inner: &mut Inner, now: Instant) {
        if self.hold.as_ref().is_some_and(Hold::take) {
            // In a state that takes no sends they stay where they are, as nobody asks any more.
            let _ = self.take_posted(inner, now);
        }
        let posting = self.posting.as_ref();
        if let Some(posting) = posting.filter(|posting| posting.is_waiting()) {
            inner.take_in_posted(now, posting.take());
        }
    }

    /// Makes the calls to consumers and sends the ACK, after the lock has been released.
    fn deliver(this: ArcBorrow<'_, Self>, pending: Pending, ack: Option<Ready>) {
        pending.deliver(
            &this.send_cq,
            &this.recv_cq,
            this.srq.as_deref(),
            &this.target,
        );
        if ack.is_some_and(|ack| !ack.send(&this.port.stats)) {
            Self::visit(this, |inner, _| inner.ack_was_refused());
        }
    }

    /// The queue pair of this host that this one may be connected to.
    fn near_peer(&self) -> Option<Arc<Self>> {
        match self.near.load(Relaxed) {
            0 => None,
            // It has to say so too: nobody's lock is taken by who merely names him.
            number => self
                .port
                .ns
                .switch
                .get(number)
                .filter(|peer| peer.near.load(Relaxed) == self.number),
        }
    }

    /// The number of the peer of `inner`, if that is on this host and may be reached directly; 0 if
    /// not.
    ///
    /// A kernel consumer is not: told of a completion it may post at once, so that two of them
    /// could call each other without end.
    fn find_near(&self, inner: &Inner) -> u32 {
        let peer = inner.qp.dest_qpn();
        let direct = crate::module_parameters::loopback.value() != 0
            && self.user
            && peer != self.number
            && inner
                .way
                .as_ref()
                .is_some_and(|way| self.port.ns.switch.owns(way.ends.remote));
        if direct {
            peer
        } else {
            0
        }
    }

    /// Moves what two queue pairs that are connected to each other have for each other; tells when
    /// to come back for more.
    fn exchange(inner: &mut Inner, other: &mut Inner, now: Instant) -> Option<u64> {
        let mut now = now;
        let mut left = BUDGET;
        while left > 0 {
            // What this one sends is answered before it sends more.
            let answered = near::pass(other, inner, left, now);
            left = left.saturating_sub(answered);
            let sent = near::pass(inner, other, left, now);
            left = left.saturating_sub(sent);
            if answered == 0 && sent == 0 {
                return None;
            }
            now = later(now, answered.max(sent));
        }
        Some(softirq::now_ns().saturating_add(YIELD_NS))
    }

    /// Sends what the transport wants sent; tells when to come back for more. What is `late` leaves
    /// after the lock has been released.
    fn transmit(&self, inner: &mut Inner, now: Instant, late: &mut Option<Ready>) -> Option<u64> {
        if inner.unsent.is_none() && inner.qp.is_quiet() {
            return None;
        }
        if softirq::irqs_disabled() {
            // The network stack can't be entered: the timer's softirq can.
            return Some(softirq::now_ns());
        }
        if let Some(at) = inner.send_rest(self.number) {
            return Some(at);
        }
        let mut now = now;
        let mut left = BUDGET;
        let mut convoy = None;
        while left > 0 {
            // Responses come first, and what comes next must not overtake them.
            let small = inner.qp.has_small_answer();
            if convoy
                .as_ref()
                .is_some_and(|c: &Convoy| c.cargo.is_responses() && !small)
            {
                if let Some(at) = inner.see_off(convoy.take()) {
                    return Some(at);
                }
            }
            let mark = inner.qp.mark();
            let polled = inner.qp.poll_transmit(now, left, &mut inner.host);
            let Some(burst) = &polled else {
                return inner.see_off(convoy);
            };
            left = left.saturating_sub(burst.count);
            inner.send_ready(late.take());
            if burst.is_ack() && inner.qp.ack_may_be_late() {
                *late = inner.make_ready(burst);
                if late.is_some() {
                    inner.qp.sent(now, burst, Ok(()), &mut inner.host);
                    continue;
                }
            }
            if (small || burst.is_request()) && inner.board(&mut convoy, burst, mark, left > 0) {
                inner.qp.sent(now, burst, Ok(()), &mut inner.host);
                continue;
            }
            if let Some(at) = inner.see_off(convoy.take()) {
                if small {
                    inner.qp.retract_answers(burst.psn(), burst.psn());
                }
                // A request was taken back as well.
                if small || burst.is_request() {
                    return Some(at);
                }
            }
            match inner.send(burst, 0, self.number) {
                Ok(None) => {
                    inner.one_by_one = false;
                    inner.qp.sent(now, burst, Ok(()), &mut inner.host);
                }
                Ok(Some(rest)) => {
                    let unsent = Unsent::new(*burst);
                    if let Some(question) = inner.ask_before(&unsent, rest) {
                        // It is not worth another try.
                        let _ = inner.send(&question, 0, self.number);
                    }
                    return Some(inner.put_off(unsent, rest));
                }
                Err(status) => inner.qp.sent(now, burst, Err(status), &mut inner.host),
            }
            now = later(now, burst.count);
        }
        let yielded = softirq::now_ns().saturating_add(YIELD_NS);
        inner.see_off(convoy).or(Some(yielded))
    }

    /// Arms the timer for the next thing that time brings.
    fn arm(&self, this: ArcBorrow<'_, Self>, inner: &Inner, again: Option<u64>) {
        let mut at = inner
            .qp
            .deadline()
            .filter(|_| !inner.awaits_pages())
            .map(Instant::as_nanos);
        if self.user && inner.qp.state() == QpState::Err {
            at = earlier(at, Some(softirq::now_ns().saturating_add(FLUSH_POLL_NS)));
        }
        if let Some(unsent) = &inner.unsent {
            at = earlier(at, Some(unsent.again_at));
        }
        if inner.is_waiting() {
            at = earlier(at, Some(inner.waiting.look_at));
        }
        match earlier(at, again) {
            Some(at) => self.timer.arm(this, at),
            None => self.timer.disarm(),
        }
    }

    /// Takes packets that were addressed to this queue pair and found intact.
    ///
    /// Gives the buffer back, unless the queue pair is being destroyed.
    pub(crate) fn receive(
        this: ArcBorrow<'_, Self>,
        buf: RxBuf,
        arrivals: &mut impl Arrivals,
    ) -> Option<RxBuf> {
        Self::visit(this, |inner, now| {
            // A connection has one peer (9.6.1.2, C9-54).
            let foreign = inner
                .way
                .as_ref()
                .is_some_and(|way| buf.saddr() != way.ends.remote || buf.daddr() != way.ends.local);
            // What is for many is counted once, before it is given to each.
            let group = buf.daddr().is_multicast();
            let runs = !foreign && !group && !Host::traces_rx();
            let mut buf = buf;
            loop {
                if let Some(run) = runs.then(|| arrivals.run(&mut buf)).flatten() {
                    let Run { parsed, count, .. } = run;
                    let packet = Packet::Wire {
                        buf,
                        payload: run.payload,
                    };
                    let taken = inner.take_in_run(now, &parsed, count, packet);
                    buf = inner.host.packet.take()?.into_buf()?;
                    if taken {
                        inner.host.count_received(count, run.wire_len);
                        arrivals.skip(&run);
                        continue;
                    }
                }
                let Some((parsed, payload)) = arrivals.next(&mut buf) else {
                    return Some(buf);
                };
                if !group {
                    inner.host.count_received(1, parsed.wire_len());
                }
                if foreign {
                    inner.host.refuse(Stat::RxWrongAddress, parsed);
                    continue;
                }
                let payload = Place::one(*payload);
                let verdict = inner.take_in(now, parsed, Packet::Wire { buf, payload });
                buf = inner.host.packet.take()?.into_buf()?;
                if verdict == Verdict::Absent {
                    inner.wait(*parsed, buf.share(), payload);
                }
            }
        })
        .flatten()
    }

    /// A process has posted sends in its ring, or receives that are to be flushed.
    ///
    /// # Errors
    ///
    /// `EINVAL` in a state that takes no sends, `ENOMEM`.
    pub(crate) fn doorbell(this: ArcBorrow<'_, Self>) -> Result {
        if let Some(hold) = &this.hold {
            let now = softirq::now_ns();
            let fate = hold.rung(now, &this.send_cq);
            if fate == Fate::WaitsFirst {
                this.timer.arm_at_latest(this, now.saturating_add(HOLD_NS));
            }
            if let Some(other) = this.send_cq.left_behind.rung(this.number, fate) {
                Self::send_left_behind(&this.port, other);
            }
            if fate != Fate::Leaves {
                this.port.stats.count(Stat::TxHeld);
                return Ok(());
            }
        }
        let result = Self::send_posted(this);
        if let Some(hold) = &this.hold {
            hold.left();
        }
        result
    }

    /// Sends what waits in the ring of queue pair `number`, if that is still there.
    pub(crate) fn send_left_behind(port: &Port, number: u32) {
        let this = port.ns.switch.get(number);
        if let Some(this) = this.filter(|this| this.is_holding()) {
            // How that ends concerns its own completions.
            let _ = Self::send_posted(this.as_arc_borrow());
        }
    }

    /// Tells whether there is something in its ring that waits.
    fn is_holding(&self) -> bool {
        self.hold.as_ref().is_some_and(Hold::is_waiting)
    }

    /// Takes what a process posted in its ring, and sends as much of it as may be sent now.
    fn send_posted(this: ArcBorrow<'_, Self>) -> Result {
        Self::furnish(this)?;
        // From another CPU packets could overtake those that are sent from this one.
        let _one_cpu = OneCpu::stay();
        // No more than a ring holds, whatever the process does to its index meanwhile.
        let pieces = this.cap.max_send_wr / DOORBELL_WRS + 1;
        let (mut result, mut more) = (Ok(()), false);
        for _ in 0..pieces {
            let (taken, again) = Self::visit_once(this, |inner, now| this.take_posted(inner, now))
                .unwrap_or((Err(ENODEV), false));
            more = again;
            result = taken.map(|_| ());
            if taken != Ok(DOORBELL_WRS) {
                break;
            }
        }
        // Between visits the bottom halves run that bring acknowledgements.
        for _ in 1..DOORBELL_VISITS {
            if !more {
                break;
            }
            more = Self::visit_once(this, |_, _| ()).is_some_and(|((), more)| more);
        }
        result
    }

    /// Takes what a process posted in its ring, and tells how many that were: some at most.
    fn take_posted(&self, inner: &mut Inner, now: Instant) -> Result<u32> {
        let datagrams = is_datagram(self.kind);
        if datagrams {
            // The longest one follows the network device.
            inner.qp.set_port_mtu(self.port.mtu());
        }
        for taken in 0..DOORBELL_WRS {
            // Its own work requests are all the process can fill the queue with: it wrote an index
            // that isn't true. They wait for room.
            if inner.qp.may_post() == Err(PostError::Full) {
                return Ok(taken);
            }
            let Some(mut p) = inner.host.sq.pull(&self.port, self.domain, datagrams) else {
                return Ok(taken);
            };
            if inner.host.sq.is_spoiled() {
                inner.host.stats.count(Stat::WqeInvalid);
            }
            loop {
                match inner.qp.post_send(now, p.wqe, &mut inner.host) {
                    Ok(_) => break,
                    Err(PostError::State) => return Err(EINVAL),
                    Err(_) => {
                        if inner.host.sq.is_spoiled() {
                            return Err(EINVAL);
                        }
                        inner.host.stats.count(Stat::WqeInvalid);
                        inner.host.sq.spoil(&mut p.wqe, WcStatus::LocQpOpErr);
                    }
                }
            }
            inner.host.sq.accepted();
        }
        Ok(DOORBELL_WRS)
    }

    /// Lets a kernel consumer post with interrupts disabled; `f` does it.
    fn post_later(this: ArcBorrow<'_, Self>, f: impl FnOnce(&Posting) -> Result) -> Result {
        let _pass = this.gate.enter().ok_or(ENODEV)?;
        let posting = this.posting.as_ref().ok_or(EINVAL)?;
        let result = f(posting);
        if posting.is_waiting() {
            this.timer.arm_at_latest(this, softirq::now_ns());
        }
        result
    }

    /// Posts sends of a kernel consumer. Any context, hard interrupts included.
    pub(crate) fn post_send(this: ArcBorrow<'_, Self>, wrs: &mut SendWrs<'_, Rxo>) -> Result {
        if softirq::irqs_disabled() {
            return Self::post_later(this, |posting| wrs.try_for_each(|wr| posting.send(&wr)));
        }
        let datagrams = is_datagram(this.kind);
        Self::visit(this, |inner, now| {
            if datagrams {
                inner.qp.set_port_mtu(this.port.mtu());
            }
            for wr in wrs {
                inner.qp.may_post().map_err(post_errno)?;
                let p = inner.host.sq.prepare(&wr, this.domain, datagrams)?;
                inner
                    .qp
                    .post_send(now, p.wqe, &mut inner.host)
                    .map_err(post_errno)?;
                inner.host.sq.accepted();
            }
            Ok(())
        })
        .unwrap_or(Err(ENODEV))
    }

    /// Posts receives of a kernel consumer. Any context, hard interrupts included.
    pub(crate) fn post_recv(this: ArcBorrow<'_, Self>, wrs: &mut RecvWrs<'_>) -> Result {
        if softirq::irqs_disabled() {
            return Self::post_later(this, |posting| wrs.try_for_each(|wr| posting.recv(&wr)));
        }
        Self::visit(this, |inner, _| {
            if inner.qp.state() == QpState::Reset {
                return Err(EINVAL);
            }
            for wr in wrs {
                inner.host.rq.post(wr.wr_id(), wr.sges())?;
            }
            inner.qp.flush_recv(&mut inner.host);
            Ok(())
        })
        .unwrap_or(Err(ENODEV))
    }

    /// Modifies attributes and state.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a transition that isn't, a missing or superfluous attribute, or a value out
    /// of range; `EOPNOTSUPP` for new queue sizes. An alternate path is
    /// accepted, as the tables of the specification have it, and not used.
    pub(crate) fn modify(this: ArcBorrow<'_, Self>, a: &QpAttrs) -> Result {
        if a.cap {
            return Err(EOPNOTSUPP);
        }
        let path = match a.path {
            None => None,
            // A path without a local GID is none (GRH is mandatory, A17.4.5).
            Some(path) => Some(path.ok_or(EINVAL)?),
        };
        let ends = path.as_ref().map(Ends::of).transpose()?;
        let mtu = a
            .path_mtu
            .map(|m| Mtu::from_value(m).ok_or(EINVAL))
            .transpose()?;
        let in_range = a.port.is_none_or(|p| p == 1)
            && a.pkey_index.is_none_or(|i| i == 0)
            && a.max_rd_atomic.is_none_or(|n| n <= MAX_RD_ATOMIC)
            && a.max_dest_rd_atomic.is_none_or(|n| n <= MAX_RD_ATOMIC)
            && path.is_none_or(|p| p.port == 1 && !is_multicast(&p.dgid))
            && mtu.is_none_or(|m| m <= this.port.mtu());
        if !in_range {
            return Err(EINVAL);
        }
        let attr = QpAttr {
            state: a.state.map(state).transpose()?,
            cur_state: a.cur_state.map(state).transpose()?,
            en_sqd_async_notify: a.en_sqd_async_notify,
            access: a.access_flags.map(remote_access),
            pkey_index: a.pkey_index,
            // CAST: it is 1.
            port: a.port.map(|p| p as u8),
            qkey: a.qkey,
            path: path.is_some(),
            path_mtu: mtu,
            timeout: a.timeout,
            retry_cnt: a.retry_cnt,
            rnr_retry: a.rnr_retry,
            rq_psn: a.rq_psn.map(Psn::new),
            max_rd_atomic: a.max_rd_atomic,
            max_dest_rd_atomic: a.max_dest_rd_atomic,
            alt_path: a.alt_path,
            path_mig_state: false,
            min_rnr_timer: a.min_rnr_timer,
            sq_psn: a.sq_psn.map(Psn::new),
            dest_qpn: a.dest_qpn,
        };
        let port_mtu = this.port.mtu();
        // What serves READs and atomics of the peer: as many as it may have outstanding.
        let mut resources = a
            .max_dest_rd_atomic
            .map(|n| vec_of(n.into(), Resource::default))
            .transpose()?;
        let mut room = (path.is_some() && !is_datagram(this.kind))
            .then(|| KBox::new_uninit(GFP_KERNEL))
            .transpose()?;
        Self::visit(this, |inner, now| {
            // Whether posts are refused is to be told to who posts.
            inner.asked = true;
            if let Some(resources) = &mut resources {
                inner.qp.furnish_resources(resources);
            }
            inner
                .qp
                .modify(now, &attr, &mut inner.host)
                .map_err(|_| EINVAL)?;
            inner.qp.set_port_mtu(port_mtu);
            if inner.qp.state() == QpState::Reset {
                inner.host.sq.reset();
                inner.host.rq.reset();
                inner.way = None;
                inner.path = None;
                this.near.store(0, Relaxed);
                inner.waiting = Waiting::default();
            }
            if let Some(posting) = &this.posting {
                let none = inner.qp.state() == QpState::Reset;
                posting.now_takes(Taking {
                    sends: !none && inner.qp.may_post() != Err(PostError::State),
                    recvs: !none,
                });
                // What was posted to the state before goes with all else.
                let _posted = none.then(|| posting.take());
            }
            if let (Some(path), Some(ends)) = (path, ends) {
                if let Some(room) = room.take() {
                    let remote = inner.qp.dest_qpn();
                    let way = Way::new(&path, ends, this.number, remote);
                    inner.way = Some(room.write(way));
                    this.near.store(this.find_near(inner), Relaxed);
                }
                inner.path = Some(path);
            }
            Ok(())
        })
        .unwrap_or(Err(ENODEV))
    }

    /// Tells whether a process owns it, else the kernel.
    pub(crate) fn is_user(&self) -> bool {
        self.user
    }

    /// Returns attributes and sizes.
    pub(crate) fn query(&self) -> (QpAttrs, QpCap, bool) {
        let inner = self.inner.lock();
        let a = inner.qp.query();
        let attrs = QpAttrs {
            state: a.state.map(|s| s as u32),
            cur_state: a.state.map(|s| s as u32),
            en_sqd_async_notify: a.en_sqd_async_notify,
            sq_draining: inner.qp.status().sq_draining,
            access_flags: a.access.map(|a| a.bits()),
            pkey_index: a.pkey_index,
            port: a.port.map(u32::from),
            qkey: a.qkey,
            path: inner.path.map(Some),
            path_mtu: a.path_mtu.map(|m| m as u32),
            timeout: a.timeout,
            retry_cnt: a.retry_cnt,
            rnr_retry: a.rnr_retry,
            rq_psn: a.rq_psn.map(Psn::get),
            max_rd_atomic: a.max_rd_atomic,
            alt_path: false,
            min_rnr_timer: a.min_rnr_timer,
            sq_psn: a.sq_psn.map(Psn::get),
            max_dest_rd_atomic: a.max_dest_rd_atomic,
            cap: true,
            dest_qpn: a.dest_qpn,
            other: false,
        };
        (attrs, self.cap, self.signal_all)
    }

    /// Counts from now on in this set too, or in none besides the port's.
    pub(crate) fn bind_counters(&self, set: Option<Arc<Set>>) {
        // What it counted in is let go outside of the lock.
        let _old = {
            let mut inner = self.inner.lock();
            inner.host.stats.bind(set)
        };
    }

    /// Looks at everything at once.
    pub(crate) fn view(&self) -> QpView {
        let inner = self.inner.lock();
        let now = now();
        let status = inner.qp.status();
        QpView {
            kind: inner.qp.qp_type(),
            waits_for: match &inner.unsent {
                Some(unsent) if unsent.rest.why == Wait::Network => Idle::Network,
                Some(_) => Idle::Pages,
                None => inner.qp.waits_for(now),
            },
            timer_in: status
                .timer
                .map(|(at, _)| at.saturating_since(now).as_nanos()),
            status,
            attr: inner.qp.query(),
            peer: inner.way.as_ref().map(|way| way.ends.remote),
            sq_size: self.cap.max_send_wr,
            recvs: inner.host.rq.len().map(|n| (n, self.cap.max_recv_wr)),
        }
    }

    /// What happened to it.
    pub(crate) fn history(&self) -> History {
        self.inner.lock().host.history
    }

    /// Takes the queue pair out of service: nothing happens on it when this returns. May sleep.
    pub(crate) fn shut_down(&self) {
        self.gate.close();
        self.timer.shutdown();
        // What holds other objects goes now, whoever may still hold this one.
        let mut inner = self.inner.lock();
        inner.way = None;
        inner.waiting = Waiting::default();
        inner.host.sq.reset_slots();
        let _posted = self.posting.as_ref().map(|posting| posting.take());
        let (kind, history) = (inner.qp.qp_type(), inner.host.history);
        drop(inner);
        self.port.history.keep(self.number, kind, &history);
    }
}

impl Inner {
    /// Takes in a packet, which is in `host.packet` afterwards, unless others wait already or it has
    /// to.
    pub(crate) fn take_in(&mut self, now: Instant, parsed: &Parsed, packet: Packet) -> Verdict {
        self.host.packet = Some(packet);
        // CAST: A packet has less than 64 KiB.
        self.host
            .trace_rx(&parsed.headers, parsed.payload_len as u32);
        self.asked |= parsed.is_request();
        if !self.is_in_partition(parsed) {
            self.host.refuse(Stat::RxBadPkey, parsed);
            return Verdict::Done;
        }
        if self.is_waiting() {
            return Verdict::Absent;
        }
        self.qp.on_packet(now, parsed, &mut self.host)
    }

    /// Takes in the middle of a message as one, if it may: `count` packets with the payload of all.
    /// It is in `host.packet` afterwards. Tells whether that was done; if not, nothing was.
    pub(crate) fn take_in_run(
        &mut self,
        now: Instant,
        parsed: &Parsed,
        count: u32,
        packet: Packet,
    ) -> bool {
        self.host.packet = Some(packet);
        let taken = !self.is_waiting()
            && self.is_in_partition(parsed)
            && self.qp.on_run(now, parsed, count, &mut self.host);
        if taken {
            self.asked |= parsed.is_request();
            // CAST: It is of one buffer, or of a message, whose length has 32 bits.
            self.host
                .trace_rx(&parsed.headers, parsed.payload_len as u32);
        }
        taken
    }

    /// Takes what a kernel consumer posted before. It was told that all is well: the queue pair fails if
    /// that is more than there is room for.
    #[inline(never)]
    fn take_in_posted(&mut self, now: Instant, posted: Posted) {
        if self.post(now, posted).is_err() {
            self.host.stats.count(Stat::WqeInvalid);
            self.fail(now);
        }
    }

    /// Posts what a kernel consumer posted before.
    fn post(&mut self, now: Instant, posted: Posted) -> Result {
        let Posted { sends, recvs } = posted;
        for recv in recvs {
            self.host.rq.post(recv.wr_id, recv.list.iter().copied())?;
        }
        self.qp.flush_recv(&mut self.host);
        for send in sends {
            self.qp.may_post().map_err(post_errno)?;
            let list = send.list.iter().copied();
            let p = self.host.sq.place(send.post, list)?;
            let posted = self.qp.post_send(now, p.wqe, &mut self.host);
            posted.map_err(post_errno)?;
            self.host.sq.accepted();
        }
        Ok(())
    }

    /// Tells whether packets wait for memory.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Tells whether a packet is one of the partition.
    pub(crate) fn is_in_partition(&self, parsed: &Parsed) -> bool {
        parsed.headers.bth.pkey & 0x7fff == DEFAULT_PKEY & 0x7fff
    }

    /// Takes out what could not be sent yet, if it is still to be sent.
    pub(crate) fn take_unsent(&mut self) -> Option<Unsent> {
        // There is none most of the time, and to take nothing out would move all of it too.
        self.unsent.as_ref()?;
        let unsent = self.unsent.take()?;
        self.is_due(&unsent).then_some(unsent)
    }

    /// Puts off what is left of a burst; tells until when.
    pub(crate) fn put_off(&mut self, mut unsent: Unsent, rest: Rest) -> u64 {
        if unsent.tries > 0 && unsent.rest == rest {
            unsent.tries = unsent.tries.saturating_add(1);
        } else {
            unsent.tries = 1;
            if rest.why == Wait::Pages {
                self.host.stats.count(Stat::TxPageWaits);
            }
        }
        unsent.rest = rest;
        let wait = match rest.why {
            Wait::Network => REFUSED_NS,
            Wait::Pages => pages_wait(unsent.tries),
        };
        unsent.again_at = softirq::now_ns().saturating_add(wait);
        self.unsent.insert(unsent).again_at
    }

    /// What asks for an acknowledgement of all before a burst, which was to ask for it and is put off
    /// until there is memory, for the first time. How long that takes may be up to the process, and it
    /// may wait for a completion.
    pub(crate) fn ask_before(&mut self, unsent: &Unsent, rest: Rest) -> Option<Burst> {
        (unsent.tries == 0 && rest.why == Wait::Pages)
            .then(|| self.qp.ask_before(&unsent.burst, &mut self.host))
            .flatten()
    }

    /// Tells whether something waits for memory. For the transport, time stands still then: what it
    /// waits for may be just that.
    fn awaits_pages(&self) -> bool {
        let unsent = self.unsent.as_ref();
        self.is_waiting() || unsent.is_some_and(|u| u.rest.why == Wait::Pages)
    }

    /// Puts the queue pair into ERR, for a reason that is neither its peer's nor its consumer's.
    fn fail(&mut self, now: Instant) {
        if self.qp.state() == QpState::Err {
            return;
        }
        self.host.event(AsyncEvent::QpFatal);
        self.host.history.note(Event::CqOverrun, 0);
        let attr = QpAttr {
            state: Some(QpState::Err),
            ..QpAttr::default()
        };
        // ERR can be entered from each state but RESET, which has nothing to flush.
        let _ = self.qp.modify(now, &attr, &mut self.host);
    }

    /// Sends a burst on the way that it has to take.
    ///
    /// Returns what is left of it.
    fn send(&mut self, burst: &Burst, from: u32, number: u32) -> Result<Option<Rest>, WcStatus> {
        let Self {
            qp,
            host,
            way,
            ip_id,
            ..
        } = self;
        if let Some(way) = way {
            return tx::send_burst(qp, host, way, ip_id, burst, from);
        }
        let slot = burst.slot().ok_or(WcStatus::LocQpOpErr)?;
        let ah = host.sq.ah(slot).ok_or(WcStatus::LocQpOpErr)?;
        let to = qp.wqe(slot).and_then(|w| w.ud).map_or(0, |ud| ud.qpn);
        let mut way = Way::new(&ah.path, ah.ends, number, to).by(ah.route());
        let result = tx::send_burst(qp, host, &mut way, ip_id, burst, from);
        ah.remember(way.into_route());
        result
    }

    /// Makes an ACK that leaves when the lock has been released, if nothing else is to be sent before:
    /// it goes through all of the network stack, and whoever waited for the message it is for may
    /// want the lock by now. [`None`] if that can't be.
    fn make_ready(&mut self, burst: &Burst) -> Option<Ready> {
        if core::mem::take(&mut self.acks_here) {
            return None;
        }
        let way = self.way.as_mut()?;
        Ready::make(&self.host, way, &mut self.ip_id, burst)
    }

    /// Sends an ACK that was to leave later: what is sent next must not overtake it.
    fn send_ready(&mut self, ack: Option<Ready>) {
        if ack.is_some_and(|ack| !ack.send(&self.host.stats)) {
            self.ack_was_refused();
        }
    }

    /// The network has no room for an ACK that had been made: there is to be another, that waits here.
    fn ack_was_refused(&mut self) {
        self.acks_here = true;
        self.qp.ack_anyway();
    }

    /// Lets a burst of requests, or a small answer, travel with others that come after it or before
    /// it, if it may; `more` tells whether there may be some after it now. `mark` is from before it.
    fn board(
        &mut self,
        convoy: &mut Option<Convoy>,
        burst: &Burst,
        mark: Mark,
        more: bool,
    ) -> bool {
        if burst.count != 1 || self.one_by_one || self.qp.qp_type() != QpType::Rc {
            return false;
        }
        let cargo = Cargo::of(burst, mark);
        if let Some(convoy) = convoy {
            return convoy.cargo.is_responses() == cargo.is_responses()
                && convoy.add(&self.qp, &self.host, burst);
        }
        let follows = if cargo.is_responses() {
            self.qp.has_small_answer()
        } else {
            self.qp.has_more()
        };
        let Some(way) = self.way.as_mut().filter(|_| more && follows) else {
            return false;
        };
        *convoy = Convoy::begin(&self.qp, &self.host, way, self.ip_id, burst, cargo);
        convoy.is_some()
    }

    /// Sends a convoy, if there is one. If the network has no room for it, all that was polled since it
    /// began is taken back; tells when to try again.
    fn see_off(&mut self, convoy: Option<Convoy>) -> Option<u64> {
        let convoy = convoy?;
        let way = self.way.as_mut()?;
        match convoy.send(&self.host, way, &mut self.ip_id)? {
            Cargo::Requests(mark) => self.qp.retract(mark),
            Cargo::Responses { first, last } => self.qp.retract_answers(first, last),
        }
        self.one_by_one = true;
        Some(softirq::now_ns().saturating_add(REFUSED_NS))
    }

    /// Makes a packet wait for memory, behind those that wait already.
    fn wait(&mut self, parsed: Parsed, buf: Option<RxBuf>, payload: Place) {
        let waiting = &mut self.waiting;
        if waiting.is_empty() {
            waiting.tries = 0;
            waiting.look_at = softirq::now_ns().saturating_add(PAGES_NS);
            if parsed.is_request() {
                self.qp.ack_anyway();
            }
        }
        let room = waiting.packets.len() < WAITING && buf.is_some();
        let waiter = Waiter {
            parsed,
            buf,
            payload,
        };
        let waits = room && waiting.packets.push(waiter, GFP_ATOMIC).is_ok();
        self.host.stats.count(if waits {
            Stat::RxPageWaits
        } else {
            Stat::RxPageWaitDrops
        });
    }

    /// Takes in what waits for memory, as far as that is there now.
    fn take_in_waiting(&mut self, now: Instant) {
        let mut done = 0;
        while let Some(waiter) = self.waiting.packets.get_mut(done) {
            let (parsed, payload) = (waiter.parsed, waiter.payload);
            if let Some(buf) = waiter.buf.take() {
                self.host.packet = Some(Packet::Wire { buf, payload });
                let verdict = self.qp.on_packet(now, &parsed, &mut self.host);
                let packet = self.host.packet.take();
                if verdict == Verdict::Absent {
                    if let Some(waiter) = self.waiting.packets.get_mut(done) {
                        waiter.buf = packet.and_then(Packet::into_buf);
                    }
                    break;
                }
            }
            done += 1;
        }
        let waiting = &mut self.waiting;
        waiting.packets.retain(|waiter| waiter.buf.is_some());
        waiting.tries = if done == 0 {
            waiting.tries.saturating_add(1)
        } else {
            0
        };
        waiting.look_at = softirq::now_ns().saturating_add(pages_wait(waiting.tries));
    }

    /// Tries again to send what could not be sent before; tells when to try once more. Nothing
    /// else is sent meanwhile, so that the order is kept.
    fn send_rest(&mut self, number: u32) -> Option<u64> {
        let unsent = self.take_unsent()?;
        if unsent.rests() {
            return Some(self.unsent.insert(unsent).again_at);
        }
        let result = match self.send(&unsent.burst, unsent.rest.at, number) {
            Ok(Some(rest)) => {
                // Pages come, or it is known in the end that there are none.
                let forgo = rest == unsent.rest
                    && rest.why == Wait::Network
                    && unsent.tries >= REFUSED_TRIES;
                if !forgo {
                    return Some(self.put_off(unsent, rest));
                }
                Ok(())
            }
            Ok(None) => Ok(()),
            Err(status) => Err(status),
        };
        self.qp.sent(now(), &unsent.burst, result, &mut self.host);
        None
    }

    /// Tells whether the rest of a burst is still to be sent: its queue pair may have failed, or
    /// the peer have acknowledged it when it came before.
    fn is_due(&self, unsent: &Unsent) -> bool {
        let status = self.qp.status();
        let alive = match status.state {
            QpState::Reset | QpState::Init | QpState::Err => false,
            QpState::Sqe => !unsent.burst.is_request(),
            QpState::Rtr | QpState::Rts | QpState::Sqd => true,
        };
        let acknowledged = unsent.burst.is_request()
            && self.qp.qp_type() == QpType::Rc
            && unsent
                .burst
                .psn()
                .add(unsent.rest.at)
                .before(status.unacked_psn);
        alive && !acknowledged
    }
}

impl HasDeadline for QueuePair {
    fn expired(this: ArcBorrow<'_, Self>) {
        if let Some(hold) = &this.hold {
            hold.expired(softirq::now_ns());
        }
        Self::visit(this, |inner, now| {
            if inner.is_waiting() {
                inner.take_in_waiting(now);
            }
            if !inner.awaits_pages() && inner.qp.deadline().is_some_and(|d| d <= now) {
                inner.qp.on_deadline(now, &mut inner.host);
            }
            inner.qp.flush_recv(&mut inner.host);
        });
    }
}

fn earlier(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// What `ib_post_send` returns.
fn post_errno(e: PostError) -> Error {
    match e {
        PostError::Full => ENOMEM,
        _ => EINVAL,
    }
}

fn state(value: u32) -> Result<QpState> {
    QpState::from_value(value).ok_or(EINVAL)
}

/// The rights that peers are given; local ones mean nothing to a queue pair.
fn remote_access(flags: u32) -> Access {
    Access::from_bits(
        flags
            & (access::REMOTE_WRITE
                | access::REMOTE_READ
                | access::REMOTE_ATOMIC
                | access::FLUSH_GLOBAL
                // No region has this right: it is at the region that such a FLUSH fails.
                | access::FLUSH_PERSISTENT),
    )
}

fn is_multicast(gid: &[u8; 16]) -> bool {
    match crate::ah::address(gid) {
        IpAddr::V4([a, ..]) => a & 0xf0 == 0xe0,
        IpAddr::V6([a, ..]) => a == 0xff,
    }
}
