// SPDX-License-Identifier: GPL-2.0

//! Send queues: work requests are copied once, checked, and kept until they complete.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    send_flags,
    wc_opcode,
    wr_opcode,
    SendWr,
    Sge, //
};
use rxo_transport::{
    verbs::MAX_MSG_LEN,
    FlushKind,
    SendFlags,
    SendOp,
    SendWqe,
    UdDest,
    WcStatus, //
};

use crate::{
    abi::{
        self,
        Fields, //
    },
    ah::AddressHandle,
    fast::Register,
    mr::Domain,
    mw::Bind,
    port::Port,
    provider::Rxo,
    ring::Ring, //
};

/// What is kept of a work request besides what the transport keeps.
#[derive(Default)]
struct Slot {
    num_sge: usize,
    inline_len: usize,
    /// Why it can't be carried out: it fails when its turn comes.
    fault: Option<WcStatus>,
    ah: Option<Arc<AddressHandle>>,
    /// What to do here, without the peer.
    local: Option<Local>,
}

/// A work request that is carried out without the peer.
pub(crate) enum Local {
    /// Fast registration.
    Register(Register),
    /// Invalidation of a key.
    Invalidate(u32),
    /// Binding of a window.
    Bind(Bind),
}

impl Local {
    /// The opcode of the completion.
    fn wc_opcode(&self) -> u32 {
        match self {
            Local::Register(_) => wc_opcode::REG_MR,
            Local::Invalidate(_) => wc_opcode::LOCAL_INV,
            Local::Bind(_) => wc_opcode::BIND_MW,
        }
    }
}

/// Where the data of a work request lies.
pub(crate) enum Data<'a> {
    /// In the memory of a list.
    List(&'a [Sge]),
    /// In the work request.
    Inline(&'a [u8]),
}

/// A ring that a process fills.
struct Posts {
    ring: Ring,
    /// The next work request to copy.
    next: u32,
    /// The oldest that has not completed.
    oldest: u32,
}

/// A vector of what can't be cloned. May sleep.
pub(crate) fn vec_of<T>(n: usize, mut f: impl FnMut() -> T) -> Result<KVVec<T>> {
    let mut v = KVVec::with_capacity(n, GFP_KERNEL)?;
    for _ in 0..n {
        v.push(f(), GFP_KERNEL)?;
    }
    Ok(v)
}

/// The memory for the work requests of a queue.
#[derive(Default)]
pub(crate) struct Places {
    /// The transport's slots are as many, and used in the same order.
    slots: KVVec<Slot>,
    sges: KVVec<Sge>,
    inline: KVVec<u8>,
    /// A work request of a process is copied here once.
    scratch: Option<KVVec<u8>>,
}

impl Places {
    /// Memory for `count` work requests. May sleep.
    pub(crate) fn new(count: u32, max_sge: usize, max_inline: usize) -> Result<Self> {
        let count = count as usize;
        let room = |each: usize| count.checked_mul(each).ok_or(EINVAL);
        let tail = (max_sge * abi::SGE_LEN).max(max_inline);
        Ok(Self {
            slots: vec_of(count, Slot::default)?,
            sges: KVVec::from_elem(Sge::default(), room(max_sge)?, GFP_KERNEL)?,
            inline: KVVec::from_elem(0, room(max_inline)?, GFP_KERNEL)?,
            scratch: Some(KVVec::from_elem(0, abi::SEND_HEAD + tail, GFP_KERNEL)?),
        })
    }
}

/// A send queue.
pub(crate) struct SendQueue {
    posts: Option<Posts>,
    places: Places,
    max_sge: usize,
    max_inline: usize,
    /// The slot that the next work request goes to.
    next_slot: u32,
}

/// A work request ready for the transport, its data already in the slot that it will get.
pub(crate) struct Prepared {
    pub(crate) wqe: SendWqe,
}

impl SendQueue {
    /// A queue on a process's ring or for a kernel consumer, without memory for work requests.
    pub(crate) fn new(ring: Option<Ring>, max_sge: usize, max_inline: usize) -> Self {
        Self {
            posts: ring.map(|ring| Posts {
                ring,
                next: 0,
                oldest: 0,
            }),
            places: Places::default(),
            max_sge,
            max_inline,
            next_slot: 0,
        }
    }

    /// The ring of a process, for someone who only looks.
    pub(crate) fn ring(&self) -> Option<Ring> {
        self.posts.as_ref().map(|posts| posts.ring.clone())
    }

    /// Gives the queue memory for work requests, if it has none.
    pub(crate) fn furnish(&mut self, places: &mut Places) {
        if self.places.slots.is_empty() {
            core::mem::swap(&mut self.places, places);
        }
    }

    /// Forgets everything posted; slots are used from the first on again.
    pub(crate) fn reset(&mut self) {
        if let Some(posts) = &mut self.posts {
            posts.next = posts.ring.producer();
            posts.oldest = posts.next;
            posts.ring.show_consumer(posts.oldest);
        }
        self.reset_slots();
        self.next_slot = 0;
    }

    /// The transport took the work request prepared last.
    pub(crate) fn accepted(&mut self) {
        self.next_slot = self.next_slot.wrapping_add(1) & self.slot_mask();
        if let Some(posts) = &mut self.posts {
            posts.next = posts.ring.next(posts.next);
        }
    }

    fn slot_mask(&self) -> u32 {
        // CAST: The number of slots is a power of two and came as 32 bits.
        (self.places.slots.len() as u32).wrapping_sub(1)
    }

    /// The oldest work request has completed.
    pub(crate) fn release(&mut self, slot: u32) {
        if let Some(slot) = self.places.slots.get_mut(slot as usize) {
            slot.ah = None;
            slot.local = None;
        }
        if let Some(posts) = &mut self.posts {
            posts.oldest = posts.ring.next(posts.oldest);
            posts.ring.show_consumer(posts.oldest);
        }
    }

    /// Where the data of a slot lies.
    pub(crate) fn data(&self, slot: u32) -> Option<Data<'_>> {
        let at = slot as usize;
        let s = self.places.slots.get(at)?;
        if s.inline_len > 0 {
            let from = at * self.max_inline;
            return Some(Data::Inline(
                self.places.inline.get(from..from + s.inline_len)?,
            ));
        }
        let from = at * self.max_sge;
        Some(Data::List(self.places.sges.get(from..from + s.num_sge)?))
    }

    /// The list of a slot, if its data lies in memory.
    pub(crate) fn list(&self, slot: u32) -> Option<&[Sge]> {
        match self.data(slot)? {
            Data::List(list) => Some(list),
            Data::Inline(_) => None,
        }
    }

    /// Why the work request of a slot can't be carried out.
    pub(crate) fn fault(&self, slot: u32) -> Option<WcStatus> {
        self.places.slots.get(slot as usize)?.fault
    }

    /// What the work request of a slot does without the peer.
    pub(crate) fn local(&self, slot: u32) -> Option<&Local> {
        self.places.slots.get(slot as usize)?.local.as_ref()
    }

    /// The opcode that the completion of a slot has, where the operation does not say it.
    pub(crate) fn local_opcode(&self, slot: u32) -> u32 {
        self.local(slot).map_or(wc_opcode::SEND, Local::wc_opcode)
    }

    /// The address handle of the work request of a slot.
    pub(crate) fn ah(&self, slot: u32) -> Option<&Arc<AddressHandle>> {
        self.places.slots.get(slot as usize)?.ah.as_ref()
    }

    /// Makes the work request prepared last one that fails with `status` in its turn.
    pub(crate) fn spoil(&mut self, wqe: &mut SendWqe, status: WcStatus) {
        wqe.op = SendOp::Local;
        wqe.ud = None;
        // Whatever it was to be, it is none now.
        wqe.length = 0;
        if let Some(slot) = self.places.slots.get_mut(self.next_slot as usize) {
            slot.fault = Some(status);
            slot.local = None;
            slot.num_sge = 0;
            slot.inline_len = 0;
        }
    }

    /// Tells whether the work request prepared last was made to fail.
    pub(crate) fn is_spoiled(&self) -> bool {
        self.fault(self.next_slot).is_some()
    }

    /// Forgets what the work requests hold of other objects.
    pub(crate) fn reset_slots(&mut self) {
        for slot in self.places.slots.iter_mut() {
            *slot = Slot::default();
        }
    }

    /// Copies the next work request from the process's ring, if there is one.
    pub(crate) fn pull(
        &mut self,
        port: &Port,
        domain: Domain,
        datagrams: bool,
    ) -> Option<Prepared> {
        let posts = self.posts.as_mut()?;
        if posts.next == posts.ring.producer() {
            return None;
        }
        // Taken out for the time that the fields are read, so that the slot can be written.
        let mut scratch = self.places.scratch.take()?;
        let copied = posts.ring.read(posts.next, &mut scratch);
        let mut wqe = SendWqe::default();
        let result = match copied {
            Ok(()) => self.parse(&Fields(&scratch), port, domain, datagrams, &mut wqe),
            Err(_) => Err(WcStatus::LocQpOpErr),
        };
        self.places.scratch = Some(scratch);
        if let Err(status) = result {
            self.spoil(&mut wqe, status);
        }
        Some(Prepared { wqe })
    }

    /// Reads a copied work request of a process into the next slot.
    fn parse(
        &mut self,
        from: &Fields<'_>,
        port: &Port,
        domain: Domain,
        datagrams: bool,
        wqe: &mut SendWqe,
    ) -> Result<(), WcStatus> {
        use abi::send as at;
        let flags = from.u32(at::FLAGS);
        let opcode = from.u32(at::OPCODE);
        wqe.wr_id = from.u64(at::WR_ID);
        wqe.flags = send_flags_of(flags);
        let at_slot = self.next_slot as usize;
        let slot = self
            .places
            .slots
            .get_mut(at_slot)
            .ok_or(WcStatus::LocQpOpErr)?;
        *slot = Slot::default();
        slot.local = match opcode {
            wr_opcode::LOCAL_INV => Some(Local::Invalidate(from.u32(at::EX))),
            wr_opcode::BIND_MW => Some(Local::Bind(Bind {
                window_key: from.u32(at::MW_MW_RKEY),
                new_key: from.u32(at::MW_RKEY),
                mr_key: from.u32(at::MW_MR_LKEY),
                addr: from.u64(at::MW_ADDR),
                length: from.u64(at::MW_LENGTH),
                access: from.u32(at::MW_ACCESS),
            })),
            _ => None,
        };
        if slot.local.is_some() {
            // Not for datagrams (`ibv_post_send(3)`); the transport takes it, to fail.
            wqe.op = SendOp::Local;
            return (!datagrams).then_some(()).ok_or(WcStatus::LocQpOpErr);
        }
        wqe.op = match opcode {
            wr_opcode::ATOMIC_WRITE => Some(SendOp::AtomicWrite),
            wr_opcode::FLUSH => {
                flush_of(from.u8(at::FLUSH_TYPE), from.u8(at::FLUSH_LEVEL)).map(SendOp::Flush)
            }
            _ => op_of(opcode, from.u32(at::EX), || {
                (from.u64(at::ATOMIC_COMPARE_ADD), from.u64(at::ATOMIC_SWAP))
            }),
        }
        .ok_or(WcStatus::LocQpOpErr)?;
        if let SendOp::Flush(_) = wqe.op {
            // It names memory of the peer, none here.
            wqe.length = from.u32(at::LENGTH);
        } else if wqe.flags.inline || wqe.op == SendOp::AtomicWrite {
            let len = from.u32(at::LENGTH) as usize;
            let data = from
                .0
                .get(at::LIST..)
                .and_then(|d| d.get(..len))
                .ok_or(WcStatus::LocLenErr)?;
            if len > self.max_inline || wqe.op.is_read_or_atomic() {
                return Err(WcStatus::LocQpOpErr);
            }
            if let Some(to) = self
                .places
                .inline
                .get_mut(at_slot * self.max_inline..)
                .and_then(|b| b.get_mut(..len))
            {
                to.copy_from_slice(data);
            }
            slot.inline_len = len;
            wqe.length = len as u32;
        } else {
            let count = from.u32(at::NUM_SGE) as usize;
            if count > self.max_sge {
                return Err(WcStatus::LocQpOpErr);
            }
            let list = (0..count).map(|i| from.sge(at::LIST + i * abi::SGE_LEN));
            let places = self.places.sges.iter_mut().skip(at_slot * self.max_sge);
            for (to, from) in places.zip(list.clone()) {
                *to = from;
            }
            slot.num_sge = count;
            wqe.length = length_of(list)?;
        }
        if wqe.op.is_atomic() {
            wqe.remote_addr = from.u64(at::ATOMIC_ADDR);
            wqe.rkey = from.u32(at::ATOMIC_RKEY);
        } else if datagrams {
            let number = from.u32(at::UD_AH);
            let ah = port.ahs.get(number).ok_or(WcStatus::LocQpOpErr)?;
            if ah.domain != domain {
                return Err(WcStatus::LocQpOpErr);
            }
            let to = UdDest {
                qpn: from.u32(at::UD_QPN),
                qkey: from.u32(at::UD_QKEY),
                pkey_index: from.u16(at::UD_PKEY_INDEX),
                ah: number,
            };
            set_datagram(wqe, slot, ah, to)?;
        } else if let SendOp::Flush(_) = wqe.op {
            wqe.remote_addr = from.u64(at::FLUSH_ADDR);
            wqe.rkey = from.u32(at::FLUSH_RKEY);
        } else {
            wqe.remote_addr = from.u64(at::RDMA_ADDR);
            wqe.rkey = from.u32(at::RDMA_RKEY);
        }
        check_atomic(wqe)
    }

    /// Copies a work request of a kernel consumer into the next slot.
    ///
    /// # Errors
    ///
    /// As for [`Post::of`].
    pub(crate) fn prepare(
        &mut self,
        wr: &SendWr<'_, Rxo>,
        domain: Domain,
        datagrams: bool,
    ) -> Result<Prepared> {
        let post = Post::of(wr, self.max_sge, domain, datagrams)?;
        self.place(post, wr.sges())
    }

    /// Puts a work request of a kernel consumer, and its list, into the next slot.
    pub(crate) fn place(
        &mut self,
        post: Post,
        list: impl Iterator<Item = Sge>,
    ) -> Result<Prepared> {
        let at_slot = self.next_slot as usize;
        *self.places.slots.get_mut(at_slot).ok_or(EINVAL)? = post.slot;
        let places = self.places.sges.iter_mut().skip(at_slot * self.max_sge);
        for (to, from) in places.zip(list) {
            *to = from;
        }
        Ok(Prepared { wqe: post.wqe })
    }
}

/// A work request of a kernel consumer, checked, without its list.
pub(crate) struct Post {
    pub(crate) wqe: SendWqe,
    slot: Slot,
}

impl Post {
    /// Copies a work request.
    ///
    /// # Errors
    ///
    /// `EINVAL` for what `ib_post_send` must not be given: an unknown opcode, too long a list or
    /// message, a missing or foreign address handle.
    pub(crate) fn of(
        wr: &SendWr<'_, Rxo>,
        max_sge: usize,
        domain: Domain,
        datagrams: bool,
    ) -> Result<Self> {
        let mut wqe = SendWqe {
            wr_id: wr.wr_id(),
            flags: send_flags_of(wr.flags()),
            op: SendOp::Local,
            ..SendWqe::default()
        };
        if let Some(local) = local_of(wr)? {
            if datagrams {
                return Err(EINVAL);
            }
            let slot = Slot {
                local: Some(local),
                ..Slot::default()
            };
            return Ok(Self { wqe, slot });
        }
        wqe.op = op_of(wr.opcode(), wr.ex(), || {
            wr.atomic().map_or((0, 0), |(_, _, c, s)| (c, s))
        })
        .ok_or(EINVAL)?;
        if wr.num_sge() > max_sge || wqe.flags.inline {
            return Err(EINVAL);
        }
        let mut slot = Slot {
            num_sge: wr.num_sge(),
            ..Slot::default()
        };
        wqe.length = length_of(wr.sges()).map_err(|_| EINVAL)?;
        if let Some((addr, rkey)) = wr.rdma() {
            (wqe.remote_addr, wqe.rkey) = (addr, rkey);
        }
        if let Some((addr, rkey, ..)) = wr.atomic() {
            (wqe.remote_addr, wqe.rkey) = (addr, rkey);
        }
        if datagrams {
            let (ah, qpn, qkey, pkey_index) = wr.ud().ok_or(EINVAL)?;
            let ah = ah.data().handle.clone();
            if ah.domain != domain {
                return Err(EINVAL);
            }
            let to = UdDest {
                qpn,
                qkey,
                pkey_index,
                ah: 0,
            };
            set_datagram(&mut wqe, &mut slot, ah, to).map_err(|_| EINVAL)?;
        }
        check_atomic(&wqe).map_err(|_| EINVAL)?;
        Ok(Self { wqe, slot })
    }
}

fn set_datagram(
    wqe: &mut SendWqe,
    slot: &mut Slot,
    ah: Arc<AddressHandle>,
    to: UdDest,
) -> Result<(), WcStatus> {
    if !matches!(wqe.op, SendOp::Send | SendOp::SendImm(_)) {
        return Err(WcStatus::LocQpOpErr);
    }
    slot.ah = Some(ah);
    wqe.ud = Some(to);
    Ok(())
}

/// Bytes that a list names.
fn length_of(list: impl Iterator<Item = Sge>) -> Result<u32, WcStatus> {
    let bytes: u64 = list.map(|s| u64::from(s.length)).sum();
    match u32::try_from(bytes) {
        Ok(n) if n <= MAX_MSG_LEN => Ok(n),
        _ => Err(WcStatus::LocLenErr),
    }
}

/// What a work request of a kernel consumer does without the peer, if it is one of those.
fn local_of(wr: &SendWr<'_, Rxo>) -> Result<Option<Local>> {
    if wr.opcode() == wr_opcode::LOCAL_INV {
        return Ok(Some(Local::Invalidate(wr.ex())));
    }
    let Some(reg) = wr.reg() else {
        return Ok(None);
    };
    Ok(Some(Local::Register(Register {
        mr: reg.mr.data().fast().ok_or(EINVAL)?.clone(),
        key: reg.key,
        access: reg.access,
        iova: reg.iova,
        length: reg.length,
    })))
}

/// An atomic returns eight bytes, which must have a place.
fn check_atomic(wqe: &SendWqe) -> Result<(), WcStatus> {
    if wqe.op.is_atomic() && wqe.length < 8 {
        return Err(WcStatus::LocLenErr);
    }
    Ok(())
}

fn send_flags_of(flags: u32) -> SendFlags {
    SendFlags {
        signaled: flags & send_flags::SIGNALED != 0,
        solicited: flags & send_flags::SOLICITED != 0,
        fence: flags & send_flags::FENCE != 0,
        inline: flags & send_flags::INLINE != 0,
    }
}

/// What a FLUSH asks for: `enum ib_placement_type` and `enum ib_selectivity_level`.
fn flush_of(placement: u8, selectivity: u8) -> Option<FlushKind> {
    const GLOBAL: u8 = 1;
    const PERSISTENT: u8 = 2;
    if placement == 0 || placement & !(GLOBAL | PERSISTENT) != 0 || selectivity > 1 {
        return None;
    }
    Some(FlushKind {
        global: placement & GLOBAL != 0,
        persistent: placement & PERSISTENT != 0,
        whole: selectivity == 1,
    })
}

/// The operation of an opcode. `ex` is immediate data or the rkey to invalidate; `operands` gives
/// compare-or-add and swap.
fn op_of(opcode: u32, ex: u32, operands: impl FnOnce() -> (u64, u64)) -> Option<SendOp> {
    Some(match opcode {
        wr_opcode::SEND => SendOp::Send,
        wr_opcode::SEND_WITH_IMM => SendOp::SendImm(ex),
        wr_opcode::SEND_WITH_INV => SendOp::SendInv(ex),
        wr_opcode::RDMA_WRITE => SendOp::Write,
        wr_opcode::RDMA_WRITE_WITH_IMM => SendOp::WriteImm(ex),
        wr_opcode::RDMA_READ => SendOp::Read,
        wr_opcode::ATOMIC_CMP_AND_SWP => {
            let (compare, swap) = operands();
            SendOp::CmpSwap { compare, swap }
        }
        wr_opcode::ATOMIC_FETCH_AND_ADD => SendOp::FetchAdd { add: operands().0 },
        _ => return None,
    })
}
