// SPDX-License-Identifier: GPL-2.0

//! Asynchronous events and completion notifications towards the consumer.
//!
//! A provider's own objects often live longer than the core's (a packet may still be on
//! its way through when the QP is destroyed). So they don't hold the core's object but a
//! target, which is closed before the object goes: events for a closed target are dropped.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma_bindings as bindings;
use softirq::Gate;

/// What happened to a QP (IBTA vol. 1, 11.6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpEvent {
    /// The QP failed.
    Fatal,
    /// The responder got a request that is not allowed.
    RequestError,
    /// The responder got a request with wrong access.
    AccessError,
    /// The first packet arrived at a QP in RTR.
    CommEstablished,
    /// The send queue is drained.
    SqDrained,
    /// The QP went to ERR and takes no further entry of its SRQ.
    LastWqeReached,
}

impl QpEvent {
    const fn raw(self) -> bindings::ib_event_type {
        match self {
            QpEvent::Fatal => bindings::ib_event_type_IB_EVENT_QP_FATAL,
            QpEvent::RequestError => bindings::ib_event_type_IB_EVENT_QP_REQ_ERR,
            QpEvent::AccessError => bindings::ib_event_type_IB_EVENT_QP_ACCESS_ERR,
            QpEvent::CommEstablished => bindings::ib_event_type_IB_EVENT_COMM_EST,
            QpEvent::SqDrained => bindings::ib_event_type_IB_EVENT_SQ_DRAINED,
            QpEvent::LastWqeReached => bindings::ib_event_type_IB_EVENT_QP_LAST_WQE_REACHED,
        }
    }
}

/// What happened to a CQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CqEvent {
    /// A completion found no room.
    Error,
}

/// What happened to an SRQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SrqEvent {
    /// The SRQ can't be used any more.
    Error,
    /// It has fewer work requests than the limit.
    LimitReached,
}

/// A core object that events go to, and the gate that tells whether it is still there.
///
/// # Invariants
///
/// `raw` is valid as long as `gate` lets anyone pass.
#[pin_data]
struct Target<C> {
    raw: *mut C,
    #[pin]
    gate: Gate,
}

// SAFETY: The pointer is used only inside the gate, for callbacks that the core lets
// providers make from any context.
unsafe impl<C> Send for Target<C> {}
// SAFETY: As above.
unsafe impl<C> Sync for Target<C> {}

impl<C> Target<C> {
    fn new(raw: *mut C) -> Result<Arc<Self>> {
        // INVARIANT: `raw` is the object being created; the destroying operation closes the
        // gate before it returns.
        Arc::pin_init(
            pin_init!(Self {
                raw,
                gate <- Gate::new(),
            }),
            GFP_KERNEL,
        )
    }
}

/// Where the events of a QP go.
#[derive(Clone)]
pub struct QpTarget(Arc<Target<bindings::ib_qp>>);

impl QpTarget {
    /// # Safety
    ///
    /// `qp` must stay valid until [`QpTarget::close`] has been called.
    pub(crate) unsafe fn new(qp: *mut bindings::ib_qp) -> Result<Self> {
        Ok(Self(Target::new(qp)?))
    }

    /// Tells the QP's owner of an event. Any context, no lock of the consumer may be held.
    pub fn event(&self, event: QpEvent) {
        let Some(_pass) = self.0.gate.enter() else {
            return;
        };
        let qp = self.0.raw;
        // SAFETY: Inside the gate the QP is valid; handler and context were set before the
        // target was made and do not change. The core's handlers may run in any context.
        unsafe {
            if let Some(handler) = (*qp).event_handler {
                let mut ev: bindings::ib_event = pin_init::zeroed();
                ev.device = (*qp).device;
                ev.element.qp = qp;
                ev.event = event.raw();
                handler(&raw mut ev, (*qp).qp_context);
            }
        }
    }

    /// Returns what a completion names its QP by, for kernel consumers.
    pub fn token(&self) -> crate::QpToken {
        crate::QpToken::new(self.0.raw)
    }

    /// Lets no event through any more and waits for those on their way. May sleep.
    pub(crate) fn close(&self) {
        self.0.gate.close();
    }
}

/// Where the notifications and events of a CQ go.
#[derive(Clone)]
pub struct CqTarget(Arc<Target<bindings::ib_cq>>);

impl CqTarget {
    /// # Safety
    ///
    /// `cq` must stay valid until [`CqTarget::close`] has been called.
    pub(crate) unsafe fn new(cq: *mut bindings::ib_cq) -> Result<Self> {
        Ok(Self(Target::new(cq)?))
    }

    /// Calls the completion handler. Any context.
    ///
    /// The handler may ask for the next notification at once, so the provider must not hold
    /// the lock that its `req_notify_cq` takes.
    pub fn notify(&self) {
        let Some(_pass) = self.0.gate.enter() else {
            return;
        };
        let cq = self.0.raw;
        // SAFETY: Inside the gate the CQ is valid; its handler was set before the target was
        // made and does not change.
        unsafe {
            if let Some(handler) = (*cq).comp_handler {
                handler(cq, (*cq).cq_context);
            }
        }
    }

    /// Tells the CQ's owner of an event. Any context.
    pub fn event(&self, event: CqEvent) {
        let Some(_pass) = self.0.gate.enter() else {
            return;
        };
        let cq = self.0.raw;
        // SAFETY: As in `notify`.
        unsafe {
            if let Some(handler) = (*cq).event_handler {
                let mut ev: bindings::ib_event = pin_init::zeroed();
                ev.device = (*cq).device;
                ev.element.cq = cq;
                ev.event = match event {
                    CqEvent::Error => bindings::ib_event_type_IB_EVENT_CQ_ERR,
                };
                handler(&raw mut ev, (*cq).cq_context);
            }
        }
    }

    /// Lets nothing through any more and waits for what is on its way. May sleep.
    pub(crate) fn close(&self) {
        self.0.gate.close();
    }
}

/// Where the events of an SRQ go.
#[derive(Clone)]
pub struct SrqTarget(Arc<Target<bindings::ib_srq>>);

impl SrqTarget {
    /// # Safety
    ///
    /// `srq` must stay valid until [`SrqTarget::close`] has been called.
    pub(crate) unsafe fn new(srq: *mut bindings::ib_srq) -> Result<Self> {
        Ok(Self(Target::new(srq)?))
    }

    /// Tells the SRQ's owner of an event. Any context, no lock of the consumer may be held.
    pub fn event(&self, event: SrqEvent) {
        let Some(_pass) = self.0.gate.enter() else {
            return;
        };
        let srq = self.0.raw;
        // SAFETY: Inside the gate the SRQ is valid; its handler was set before the target was
        // made and does not change.
        unsafe {
            if let Some(handler) = (*srq).event_handler {
                let mut ev: bindings::ib_event = pin_init::zeroed();
                ev.device = (*srq).device;
                ev.element.srq = srq;
                ev.event = match event {
                    SrqEvent::Error => bindings::ib_event_type_IB_EVENT_SRQ_ERR,
                    SrqEvent::LimitReached => bindings::ib_event_type_IB_EVENT_SRQ_LIMIT_REACHED,
                };
                handler(&raw mut ev, (*srq).srq_context);
            }
        }
    }

    /// Lets nothing through any more and waits for what is on its way. May sleep.
    pub(crate) fn close(&self) {
        self.0.gate.close();
    }
}
