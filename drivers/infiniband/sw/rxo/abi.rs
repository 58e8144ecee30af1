// SPDX-License-Identifier: GPL-2.0

//! The ABI with the user space library: layouts come from the kernel's `rdma_user_rxe.h`.
//!
//! rxo reports the driver number and ABI version of rxe, so that the library for it, which each
//! distribution has, drives rxo. Everything read here was written by a process and is not to be
//! trusted; it was copied before.

use core::mem::{
    offset_of,
    size_of, //
};
use kernel::transmute::{
    AsBytes,
    FromBytes, //
};
use rdma_bindings as b;

/// The number that user space finds the library by.
pub(crate) const DRIVER_ID: u32 = b::rdma_driver_id_RDMA_DRIVER_RXE;
/// Version of the ABI: the one that came with numbers of address handles in work requests. The
/// header does not name it.
pub(crate) const ABI_VERSION: u32 = 2;

/// Places in the head of a ring (`struct rxe_queue_buf`).
pub(crate) mod head {
    use super::*;

    pub(crate) const LOG2_ELEM: usize = offset_of!(b::rxe_queue_buf, log2_elem_size);
    pub(crate) const MASK: usize = offset_of!(b::rxe_queue_buf, index_mask);
    pub(crate) const PRODUCER: usize = offset_of!(b::rxe_queue_buf, producer_index);
    pub(crate) const CONSUMER: usize = offset_of!(b::rxe_queue_buf, consumer_index);
    pub(crate) const DATA: usize = offset_of!(b::rxe_queue_buf, data);
}

/// Bytes of a scatter/gather entry.
pub(crate) const SGE_LEN: usize = size_of::<b::rxe_sge>();
/// Bytes of a send work request before its scatter/gather list or inline data.
pub(crate) const SEND_HEAD: usize = size_of::<b::rxe_send_wqe>();
/// Bytes of a receive work request before its scatter/gather list.
pub(crate) const RECV_HEAD: usize = size_of::<b::rxe_recv_wqe>();

/// Where a ring is to be mapped (`struct mminfo`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct MapInfo {
    pub(crate) offset: u64,
    pub(crate) size: u32,
    pub(crate) pad: u32,
}

/// Answer to the creation of a QP (`struct rxe_create_qp_resp`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct CreateQpReply {
    pub(crate) rq: MapInfo,
    pub(crate) sq: MapInfo,
}

/// Answer to the creation or resizing of a CQ (`struct rxe_create_cq_resp` and
/// `struct rxe_resize_cq_resp`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct CreateCqReply {
    pub(crate) mi: MapInfo,
}

/// Answer to the creation of an AH (`struct rxe_create_ah_resp`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct CreateAhReply {
    pub(crate) ah_num: u32,
    pub(crate) reserved: u32,
}

/// Answer to the creation of an SRQ (`struct rxe_create_srq_resp`).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct CreateSrqReply {
    pub(crate) mi: MapInfo,
    pub(crate) srq_num: u32,
    pub(crate) reserved: u32,
}

/// Input of the resizing of an SRQ (`struct rxe_modify_srq_cmd`): the process's address of a
/// [`MapInfo`] to fill.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ModifySrq {
    pub(crate) mmap_info_addr: u64,
}

// SAFETY: An integer.
#[allow(unsafe_code)]
unsafe impl FromBytes for ModifySrq {}

const _: () = {
    assert!(size_of::<CreateSrqReply>() == size_of::<b::rxe_create_srq_resp>());
    assert!(size_of::<ModifySrq>() == size_of::<b::rxe_modify_srq_cmd>());
    assert!(size_of::<MapInfo>() == size_of::<b::mminfo>());
    assert!(size_of::<CreateQpReply>() == size_of::<b::rxe_create_qp_resp>());
    assert!(size_of::<CreateCqReply>() == size_of::<b::rxe_create_cq_resp>());
    assert!(size_of::<CreateCqReply>() == size_of::<b::rxe_resize_cq_resp>());
    assert!(size_of::<CreateAhReply>() == size_of::<b::rxe_create_ah_resp>());
};

macro_rules! plain {
    ($($t:ty),*) => {
        $(
            // SAFETY: Integers without padding between or behind them, as the assertions on
            // their sizes show.
            #[allow(unsafe_code)]
            unsafe impl AsBytes for $t {}
        )*
    };
}
plain!(
    MapInfo,
    CreateQpReply,
    CreateCqReply,
    CreateSrqReply,
    CreateAhReply
);

/// A copied work request, read field by field.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0
            .get(at..)
            .and_then(|b| b.first_chunk())
            .copied()
            .unwrap_or([0; N])
    }

    pub(crate) fn u8(&self, at: usize) -> u8 {
        let [byte] = self.take(at);
        byte
    }

    pub(crate) fn u16(&self, at: usize) -> u16 {
        u16::from_ne_bytes(self.take(at))
    }

    pub(crate) fn u32(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.take(at))
    }

    pub(crate) fn u64(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.take(at))
    }

    /// A scatter/gather entry (`struct rxe_sge`).
    pub(crate) fn sge(&self, at: usize) -> rdma::Sge {
        rdma::Sge {
            addr: self.u64(at + offset_of!(b::rxe_sge, addr)),
            length: self.u32(at + offset_of!(b::rxe_sge, length)),
            lkey: self.u32(at + offset_of!(b::rxe_sge, lkey)),
        }
    }
}

/// Places in a send work request (`struct rxe_send_wqe`).
pub(crate) mod send {
    use super::*;

    const WR: usize = offset_of!(b::rxe_send_wqe, wr);
    const DMA: usize = offset_of!(b::rxe_send_wqe, dma);
    const OP: usize = WR + offset_of!(b::rxe_send_wr, wr);

    pub(crate) const WR_ID: usize = WR + offset_of!(b::rxe_send_wr, wr_id);
    pub(crate) const OPCODE: usize = WR + offset_of!(b::rxe_send_wr, opcode);
    pub(crate) const FLAGS: usize = WR + offset_of!(b::rxe_send_wr, send_flags);
    pub(crate) const EX: usize = WR + offset_of!(b::rxe_send_wr, ex);

    type Flush = b::rxe_send_wr__bindgen_ty_2__bindgen_ty_1;
    type Rdma = b::rxe_send_wr__bindgen_ty_2__bindgen_ty_2;
    type Atomic = b::rxe_send_wr__bindgen_ty_2__bindgen_ty_3;
    type Ud = b::rxe_send_wr__bindgen_ty_2__bindgen_ty_4;

    pub(crate) const FLUSH_ADDR: usize = OP + offset_of!(Flush, remote_addr);
    pub(crate) const FLUSH_RKEY: usize = OP + offset_of!(Flush, rkey);
    pub(crate) const FLUSH_TYPE: usize = OP + offset_of!(Flush, type_);
    pub(crate) const FLUSH_LEVEL: usize = OP + offset_of!(Flush, level);
    pub(crate) const RDMA_ADDR: usize = OP + offset_of!(Rdma, remote_addr);
    pub(crate) const RDMA_RKEY: usize = OP + offset_of!(Rdma, rkey);
    pub(crate) const ATOMIC_ADDR: usize = OP + offset_of!(Atomic, remote_addr);
    pub(crate) const ATOMIC_COMPARE_ADD: usize = OP + offset_of!(Atomic, compare_add);
    pub(crate) const ATOMIC_SWAP: usize = OP + offset_of!(Atomic, swap);
    pub(crate) const ATOMIC_RKEY: usize = OP + offset_of!(Atomic, rkey);
    pub(crate) const UD_QPN: usize = OP + offset_of!(Ud, remote_qpn);
    pub(crate) const UD_QKEY: usize = OP + offset_of!(Ud, remote_qkey);
    pub(crate) const UD_PKEY_INDEX: usize = OP + offset_of!(Ud, pkey_index);
    pub(crate) const UD_AH: usize = OP + offset_of!(Ud, ah_num);

    type Mw = b::rxe_send_wr__bindgen_ty_2__bindgen_ty_5;

    pub(crate) const MW_ADDR: usize = OP + offset_of!(Mw, addr);
    pub(crate) const MW_LENGTH: usize = OP + offset_of!(Mw, length);
    pub(crate) const MW_MR_LKEY: usize = OP + offset_of!(Mw, mr_lkey);
    pub(crate) const MW_MW_RKEY: usize = OP + offset_of!(Mw, mw_rkey);
    pub(crate) const MW_RKEY: usize = OP + offset_of!(Mw, rkey);
    pub(crate) const MW_ACCESS: usize = OP + offset_of!(Mw, access);

    pub(crate) const LENGTH: usize = DMA + offset_of!(b::rxe_dma_info, length);
    pub(crate) const NUM_SGE: usize = DMA + offset_of!(b::rxe_dma_info, num_sge);
    /// The scatter/gather list, the inline data, or the data of an ATOMIC WRITE.
    pub(crate) const LIST: usize = SEND_HEAD;
}

/// Places in a receive work request (`struct rxe_recv_wqe`).
pub(crate) mod recv {
    use super::*;

    const DMA: usize = offset_of!(b::rxe_recv_wqe, dma);

    pub(crate) const WR_ID: usize = offset_of!(b::rxe_recv_wqe, wr_id);
    pub(crate) const NUM_SGE: usize = DMA + offset_of!(b::rxe_dma_info, num_sge);
    /// The scatter/gather list.
    pub(crate) const LIST: usize = RECV_HEAD;
}
