// SPDX-License-Identifier: GPL-2.0

//! Work completions, as kernel and user consumers see them.

use kernel::ffi::c_int;
use rdma_bindings as bindings;

/// Opcodes of completions (`enum ib_wc_opcode`, the same for user consumers).
pub mod wc_opcode {
    use rdma_bindings as b;

    /// SEND.
    pub const SEND: u32 = b::ib_wc_opcode_IB_WC_SEND;
    /// RDMA WRITE.
    pub const RDMA_WRITE: u32 = b::ib_wc_opcode_IB_WC_RDMA_WRITE;
    /// RDMA READ.
    pub const RDMA_READ: u32 = b::ib_wc_opcode_IB_WC_RDMA_READ;
    /// Compare and swap.
    pub const COMP_SWAP: u32 = b::ib_wc_opcode_IB_WC_COMP_SWAP;
    /// Fetch and add.
    pub const FETCH_ADD: u32 = b::ib_wc_opcode_IB_WC_FETCH_ADD;
    /// FLUSH.
    pub const FLUSH: u32 = b::ib_wc_opcode_IB_WC_FLUSH;
    /// ATOMIC WRITE.
    pub const ATOMIC_WRITE: u32 = b::ib_wc_opcode_IB_WC_ATOMIC_WRITE;
    /// Local invalidate.
    pub const LOCAL_INV: u32 = b::ib_wc_opcode_IB_WC_LOCAL_INV;
    /// Fast registration.
    pub const REG_MR: u32 = b::ib_wc_opcode_IB_WC_REG_MR;
    /// Binding of a memory window.
    pub const BIND_MW: u32 = b::ib_wc_opcode_IB_WC_BIND_MW;
    /// A receive.
    pub const RECV: u32 = b::ib_wc_opcode_IB_WC_RECV;
    /// A receive consumed by a WRITE with immediate.
    pub const RECV_RDMA_WITH_IMM: u32 = b::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM;
}

/// Flags of completions (`enum ib_wc_flags`).
pub mod wc_flags {
    use rdma_bindings as b;

    /// A GRH precedes the data.
    pub const GRH: u32 = b::ib_wc_flags_IB_WC_GRH;
    /// Immediate data is valid.
    pub const WITH_IMM: u32 = b::ib_wc_flags_IB_WC_WITH_IMM;
    /// The invalidated rkey is valid.
    pub const WITH_INVALIDATE: u32 = b::ib_wc_flags_IB_WC_WITH_INVALIDATE;
    /// The source MAC is valid.
    pub const WITH_SMAC: u32 = b::ib_wc_flags_IB_WC_WITH_SMAC;
    /// The network header type is valid.
    pub const WITH_NETWORK_HDR_TYPE: u32 = b::ib_wc_flags_IB_WC_WITH_NETWORK_HDR_TYPE;
}

/// What kind of routing header a datagram came with (`enum rdma_network_type`).
pub mod wc_network {
    use rdma_bindings as b;

    /// RoCEv2 over IPv4.
    pub const IPV4: u8 = b::rdma_network_type_RDMA_NETWORK_IPV4 as u8;
    /// RoCEv2 over IPv6.
    pub const IPV6: u8 = b::rdma_network_type_RDMA_NETWORK_IPV6 as u8;
}

/// Names the QP of a completion to a kernel consumer. Only ever compared and handed back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpToken(usize);

impl QpToken {
    pub(crate) fn new(qp: *mut bindings::ib_qp) -> Self {
        Self(qp.expose_provenance())
    }
}

/// A work completion.
#[derive(Clone, Copy, Debug)]
pub struct Wc {
    /// The consumer's cookie.
    pub wr_id: u64,
    /// `enum ib_wc_status`.
    pub status: u32,
    /// One of [`wc_opcode`].
    pub opcode: u32,
    /// The provider's own detail of an error.
    pub vendor_err: u32,
    /// Bytes moved, for receives, READs and atomics.
    pub byte_len: u32,
    /// Immediate data as it was on the wire (big endian in memory), or the invalidated rkey.
    pub ex: u32,
    /// Number of the QP.
    pub qp_num: u32,
    /// The QP, for kernel consumers.
    pub qp: QpToken,
    /// Number of the sending QP, for UD.
    pub src_qp: u32,
    /// [`wc_flags`].
    pub flags: u32,
    /// Index of the packet's P_Key.
    pub pkey_index: u16,
    /// Service level.
    pub sl: u8,
    /// `enum rdma_network_type`, for kernel consumers.
    pub network_hdr_type: u8,
    /// The sender's MAC, for kernel consumers.
    pub smac: [u8; 6],
}

impl Wc {
    /// Bytes of a user completion.
    pub const USER_LEN: usize = size_of::<bindings::ib_uverbs_wc>();

    /// Lays it out for user space (`struct ib_uverbs_wc`).
    pub fn to_user(&self) -> [u8; Self::USER_LEN] {
        let mut out = [0; Self::USER_LEN];
        let mut put = |at: usize, bytes: &[u8]| {
            if let Some(to) = out.get_mut(at..).and_then(|o| o.get_mut(..bytes.len())) {
                to.copy_from_slice(bytes);
            }
        };
        use bindings::ib_uverbs_wc as U;
        use core::mem::offset_of;
        put(offset_of!(U, wr_id), &self.wr_id.to_ne_bytes());
        put(offset_of!(U, status), &self.status.to_ne_bytes());
        put(offset_of!(U, opcode), &self.opcode.to_ne_bytes());
        put(offset_of!(U, vendor_err), &self.vendor_err.to_ne_bytes());
        put(offset_of!(U, byte_len), &self.byte_len.to_ne_bytes());
        put(offset_of!(U, ex), &self.ex.to_ne_bytes());
        put(offset_of!(U, qp_num), &self.qp_num.to_ne_bytes());
        put(offset_of!(U, src_qp), &self.src_qp.to_ne_bytes());
        put(
            offset_of!(U, wc_flags),
            &user_flags(self.flags).to_ne_bytes(),
        );
        put(offset_of!(U, pkey_index), &self.pkey_index.to_ne_bytes());
        put(offset_of!(U, sl), &[self.sl]);
        put(offset_of!(U, port_num), &[1]);
        out
    }
}

/// Flags as `enum ibv_wc_flags` numbers them: other than the kernel does, and without those that only the kernel has.
const fn user_flags(flags: u32) -> u32 {
    const IBV_WC_WITH_INV: u32 = 1 << 3;

    let same = flags & (wc_flags::GRH | wc_flags::WITH_IMM);
    if flags & wc_flags::WITH_INVALIDATE != 0 {
        same | IBV_WC_WITH_INV
    } else {
        same
    }
}

/// The array that a kernel consumer's poll fills.
pub struct WcSlots<'a> {
    slots: &'a mut [core::mem::MaybeUninit<bindings::ib_wc>],
    used: usize,
}

impl<'a> WcSlots<'a> {
    pub(crate) fn new(slots: &'a mut [core::mem::MaybeUninit<bindings::ib_wc>]) -> Self {
        Self { slots, used: 0 }
    }

    /// Tells whether no slot is left.
    pub fn is_full(&self) -> bool {
        self.used >= self.slots.len()
    }

    /// Fills the next slot; nothing happens when there is none.
    pub fn push(&mut self, wc: &Wc) {
        let Some(slot) = self.slots.get_mut(self.used) else {
            return;
        };
        let mut out: bindings::ib_wc = pin_init::zeroed();
        out.__bindgen_anon_1.wr_id = wc.wr_id;
        out.status = wc.status;
        out.opcode = wc.opcode;
        out.vendor_err = wc.vendor_err;
        out.byte_len = wc.byte_len;
        out.qp = core::ptr::with_exposed_provenance_mut(wc.qp.0);
        out.ex.invalidate_rkey = wc.ex;
        out.src_qp = wc.src_qp;
        out.wc_flags = wc.flags as c_int;
        out.pkey_index = wc.pkey_index;
        out.sl = wc.sl;
        out.port_num = 1;
        out.smac = wc.smac;
        out.vlan_id = 0xffff;
        out.network_hdr_type = wc.network_hdr_type;
        slot.write(out);
        self.used += 1;
    }

    pub(crate) fn used(&self) -> usize {
        self.used
    }
}
