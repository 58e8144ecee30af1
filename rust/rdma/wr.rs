// SPDX-License-Identifier: GPL-2.0

//! Work requests of kernel consumers.

use core::marker::PhantomData;
use rdma_bindings as bindings;

use crate::{
    object::{
        Ah,
        Mr,
        Object, //
    },
    Provider, //
};

/// Opcodes of send work requests (`enum ib_wr_opcode`).
pub mod wr_opcode {
    use rdma_bindings as b;

    /// RDMA WRITE.
    pub const RDMA_WRITE: u32 = b::ib_wr_opcode_IB_WR_RDMA_WRITE;
    /// RDMA WRITE with immediate.
    pub const RDMA_WRITE_WITH_IMM: u32 = b::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM;
    /// SEND.
    pub const SEND: u32 = b::ib_wr_opcode_IB_WR_SEND;
    /// SEND with immediate.
    pub const SEND_WITH_IMM: u32 = b::ib_wr_opcode_IB_WR_SEND_WITH_IMM;
    /// RDMA READ.
    pub const RDMA_READ: u32 = b::ib_wr_opcode_IB_WR_RDMA_READ;
    /// Compare and swap.
    pub const ATOMIC_CMP_AND_SWP: u32 = b::ib_wr_opcode_IB_WR_ATOMIC_CMP_AND_SWP;
    /// Fetch and add.
    pub const ATOMIC_FETCH_AND_ADD: u32 = b::ib_wr_opcode_IB_WR_ATOMIC_FETCH_AND_ADD;
    /// SEND with invalidate.
    pub const SEND_WITH_INV: u32 = b::ib_wr_opcode_IB_WR_SEND_WITH_INV;
    /// FLUSH.
    pub const FLUSH: u32 = b::ib_wr_opcode_IB_WR_FLUSH;
    /// ATOMIC WRITE.
    pub const ATOMIC_WRITE: u32 = b::ib_wr_opcode_IB_WR_ATOMIC_WRITE;
    /// Local invalidate.
    pub const LOCAL_INV: u32 = b::ib_wr_opcode_IB_WR_LOCAL_INV;
    /// Fast registration, of kernel consumers.
    pub const REG_MR: u32 = b::ib_wr_opcode_IB_WR_REG_MR;
    /// Binding of a memory window, of processes.
    pub const BIND_MW: u32 = b::ib_wr_opcode_IB_WR_BIND_MW;
}

/// Flags of send work requests (`enum ib_send_flags`).
pub mod send_flags {
    use rdma_bindings as b;

    /// Wait for earlier READs and atomics.
    pub const FENCE: u32 = b::ib_send_flags_IB_SEND_FENCE as u32;
    /// Make a completion.
    pub const SIGNALED: u32 = b::ib_send_flags_IB_SEND_SIGNALED as u32;
    /// Ask for a solicited event at the receiver.
    pub const SOLICITED: u32 = b::ib_send_flags_IB_SEND_SOLICITED as u32;
    /// The data is in the work request.
    pub const INLINE: u32 = b::ib_send_flags_IB_SEND_INLINE as u32;
}

/// A scatter/gather entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    /// Address: of the process or, for kernel consumers, of the kernel.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// Key of the region that the address lies in.
    pub lkey: u32,
}

/// Iterates over the entries of a C array.
///
/// # Safety
///
/// `list` must be valid for reads of `n` entries during `'a`.
pub(crate) unsafe fn sges<'a>(
    list: *const bindings::ib_sge,
    n: i32,
) -> impl ExactSizeIterator<Item = Sge> + Clone + 'a {
    let n = usize::try_from(n).unwrap_or(0);
    let list = if list.is_null() || n == 0 {
        &[]
    } else {
        // SAFETY: Not null; the caller promises the rest.
        unsafe { core::slice::from_raw_parts(list, n) }
    };
    list.iter().map(|s| Sge {
        addr: s.addr,
        length: s.length,
        lkey: s.lkey,
    })
}

/// A list of send work requests; remembers which one it gave out last.
pub struct SendWrs<'a, P> {
    next: *const bindings::ib_send_wr,
    current: *const bindings::ib_send_wr,
    datagrams: bool,
    _p: PhantomData<&'a P>,
}

impl<'a, P: Provider> SendWrs<'a, P> {
    /// # Safety
    ///
    /// `head` must be null or the head of a list that is valid and unchanged during `'a`,
    /// each entry embedded in the struct that its opcode and the QP's type ask for, which is
    /// a datagram type if `datagrams` is true.
    pub(crate) unsafe fn new(head: *const bindings::ib_send_wr, datagrams: bool) -> Self {
        Self {
            next: head,
            current: head,
            datagrams,
            _p: PhantomData,
        }
    }

    /// The entry given out last: the one at fault when the caller gives up.
    pub(crate) fn current(&self) -> *const bindings::ib_send_wr {
        self.current
    }
}

impl<'a, P: Provider> Iterator for SendWrs<'a, P> {
    type Item = SendWr<'a, P>;

    fn next(&mut self) -> Option<SendWr<'a, P>> {
        if self.next.is_null() {
            return None;
        }
        self.current = self.next;
        // SAFETY: Not null, and valid by the promise to `new`.
        self.next = unsafe { (*self.current).next };
        Some(SendWr {
            raw: self.current,
            datagram: self.datagrams,
            _p: PhantomData,
        })
    }
}

/// A send work request.
///
/// # Invariants
///
/// `raw` is valid during `'a` and embedded in the struct of its opcode; if `datagram`, in
/// that of datagrams.
pub struct SendWr<'a, P> {
    raw: *const bindings::ib_send_wr,
    datagram: bool,
    _p: PhantomData<&'a P>,
}

impl<'a, P: Provider> SendWr<'a, P> {
    fn raw(&self) -> &'a bindings::ib_send_wr {
        // SAFETY: By the type invariant.
        unsafe { &*self.raw }
    }

    /// The consumer's cookie.
    pub fn wr_id(&self) -> u64 {
        // SAFETY: Both variants of the union are 64 bits on 64-bit machines; the consumer set one.
        unsafe { self.raw().__bindgen_anon_1.wr_id }
    }

    /// One of [`wr_opcode`], or another number.
    pub fn opcode(&self) -> u32 {
        self.raw().opcode
    }

    /// [`send_flags`].
    pub fn flags(&self) -> u32 {
        self.raw().send_flags as u32
    }

    /// Immediate data (big endian in memory) or the rkey to invalidate.
    pub fn ex(&self) -> u32 {
        // SAFETY: Both variants of the union are plain 32 bits.
        unsafe { self.raw().ex.invalidate_rkey }
    }

    /// The scatter/gather list.
    pub fn sges(&self) -> impl ExactSizeIterator<Item = Sge> + 'a {
        // SAFETY: Part of a valid work request.
        unsafe { sges(self.raw().sg_list, self.raw().num_sge) }
    }

    /// Length of the scatter/gather list.
    pub fn num_sge(&self) -> usize {
        usize::try_from(self.raw().num_sge).unwrap_or(0)
    }

    /// Remote address and rkey of WRITE and READ; `None` for other opcodes.
    pub fn rdma(&self) -> Option<(u64, u32)> {
        match self.opcode() {
            wr_opcode::RDMA_WRITE | wr_opcode::RDMA_WRITE_WITH_IMM | wr_opcode::RDMA_READ => {
                let wr = self.raw.cast::<bindings::ib_rdma_wr>();
                // SAFETY: By the type invariant it is embedded, as first field, in this struct.
                unsafe { Some(((*wr).remote_addr, (*wr).rkey)) }
            }
            _ => None,
        }
    }

    /// Remote address, rkey, compare-or-add and swap operands of atomics.
    pub fn atomic(&self) -> Option<(u64, u32, u64, u64)> {
        match self.opcode() {
            wr_opcode::ATOMIC_CMP_AND_SWP | wr_opcode::ATOMIC_FETCH_AND_ADD => {
                let wr = self.raw.cast::<bindings::ib_atomic_wr>();
                // SAFETY: By the type invariant it is embedded, as first field, in this struct.
                unsafe { Some(((*wr).remote_addr, (*wr).rkey, (*wr).compare_add, (*wr).swap)) }
            }
            _ => None,
        }
    }

    /// What a fast registration registers, and how; `None` for other opcodes.
    pub fn reg(&self) -> Option<RegWr<'a, P>> {
        if self.opcode() != wr_opcode::REG_MR {
            return None;
        }
        let wr = self.raw.cast::<bindings::ib_reg_wr>();
        // SAFETY: By the type invariant it is embedded, as first field, in this struct; the
        // region is one of the same device, so of the same provider, and is kept by the consumer
        // while the request is posted.
        unsafe {
            let mr = (*wr).mr;
            if mr.is_null() {
                return None;
            }
            Some(RegWr {
                mr: Object::from_raw(mr),
                key: (*wr).key,
                access: (*wr).access as u32,
                iova: (*mr).iova,
                length: (*mr).length,
            })
        }
    }

    /// Address handle, remote QP, Q_Key and P_Key index of a datagram.
    ///
    /// `None` for QPs that don't send datagrams, and for opcodes that datagrams do not have.
    pub fn ud(&self) -> Option<(&'a Ah<P>, u32, u32, u16)> {
        match self.opcode() {
            wr_opcode::SEND | wr_opcode::SEND_WITH_IMM if self.datagram => {
                let wr = self.raw.cast::<bindings::ib_ud_wr>();
                // SAFETY: By the type invariant it is embedded, as first field, in this struct;
                // the AH is one of the same device, so of
                // the same provider, and is kept by the consumer while the request is posted.
                unsafe {
                    if (*wr).ah.is_null() {
                        return None;
                    }
                    Some((
                        Object::from_raw((*wr).ah),
                        (*wr).remote_qpn,
                        (*wr).remote_qkey,
                        (*wr).pkey_index,
                    ))
                }
            }
            _ => None,
        }
    }
}

/// A fast registration.
pub struct RegWr<'a, P: Provider> {
    /// The region.
    pub mr: &'a Mr<P>,
    /// The key that it is to have.
    pub key: u32,
    /// What is permitted.
    pub access: u32,
    /// The address that it is to be known by.
    pub iova: u64,
    /// Bytes.
    pub length: u64,
}

/// A list of receive work requests.
pub struct RecvWrs<'a> {
    next: *const bindings::ib_recv_wr,
    current: *const bindings::ib_recv_wr,
    _p: PhantomData<&'a ()>,
}

impl<'a> RecvWrs<'a> {
    /// # Safety
    ///
    /// `head` must be null or the head of a list that is valid and unchanged during `'a`.
    pub(crate) unsafe fn new(head: *const bindings::ib_recv_wr) -> Self {
        Self {
            next: head,
            current: head,
            _p: PhantomData,
        }
    }

    /// The entry given out last: the one at fault when the caller gives up.
    pub(crate) fn current(&self) -> *const bindings::ib_recv_wr {
        self.current
    }
}

impl<'a> Iterator for RecvWrs<'a> {
    type Item = RecvWr<'a>;

    fn next(&mut self) -> Option<RecvWr<'a>> {
        if self.next.is_null() {
            return None;
        }
        self.current = self.next;
        // SAFETY: Not null, and valid by the promise to `new`.
        let raw = unsafe { &*self.current };
        self.next = raw.next;
        Some(RecvWr { raw })
    }
}

/// A receive work request.
pub struct RecvWr<'a> {
    raw: &'a bindings::ib_recv_wr,
}

impl<'a> RecvWr<'a> {
    /// The consumer's cookie.
    pub fn wr_id(&self) -> u64 {
        // SAFETY: Both variants of the union are 64 bits on 64-bit machines; the consumer set one.
        unsafe { self.raw.__bindgen_anon_1.wr_id }
    }

    /// The scatter/gather list.
    pub fn sges(&self) -> impl ExactSizeIterator<Item = Sge> + 'a {
        // SAFETY: Part of a valid work request.
        unsafe { sges(self.raw.sg_list, self.raw.num_sge) }
    }

    /// Length of the scatter/gather list.
    pub fn num_sge(&self) -> usize {
        usize::try_from(self.raw.num_sge).unwrap_or(0)
    }
}
