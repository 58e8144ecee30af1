// SPDX-License-Identifier: GPL-2.0

//! Attributes of QPs and address handles.

use core::marker::PhantomData;
use kernel::ffi::c_int;
use rdma_bindings as bindings;

use crate::{
    object::{
        Cq,
        Object,
        Srq, //
    },
    Provider, //
};

/// Access flags of memory regions and QPs (`enum ib_access_flags`).
pub mod access {
    use rdma_bindings as b;

    /// Local write.
    pub const LOCAL_WRITE: u32 = b::ib_access_flags_IB_ACCESS_LOCAL_WRITE;
    /// Remote write.
    pub const REMOTE_WRITE: u32 = b::ib_access_flags_IB_ACCESS_REMOTE_WRITE;
    /// Remote read.
    pub const REMOTE_READ: u32 = b::ib_access_flags_IB_ACCESS_REMOTE_READ;
    /// Remote atomics.
    pub const REMOTE_ATOMIC: u32 = b::ib_access_flags_IB_ACCESS_REMOTE_ATOMIC;
    /// Remote FLUSH to where all observers see the data.
    pub const FLUSH_GLOBAL: u32 = b::ib_access_flags_IB_ACCESS_FLUSH_GLOBAL;
    /// Remote FLUSH to where the data outlasts a loss of power.
    pub const FLUSH_PERSISTENT: u32 = b::ib_access_flags_IB_ACCESS_FLUSH_PERSISTENT;
    /// Windows may be bound to the region.
    pub const MW_BIND: u32 = b::ib_access_flags_IB_ACCESS_MW_BIND;
    /// Addresses count from the beginning of the memory.
    pub const ZERO_BASED: u32 = b::ib_access_flags_IB_ZERO_BASED;
    /// The memory is paged on demand.
    pub const ON_DEMAND: u32 = b::ib_access_flags_IB_ACCESS_ON_DEMAND;
    /// It is in huge pages.
    pub const HUGETLB: u32 = b::ib_access_flags_IB_ACCESS_HUGETLB;
    /// Flags that a provider may ignore.
    pub const OPTIONAL: u32 = b::ib_access_flags_IB_ACCESS_OPTIONAL;
}

/// Capabilities of a device that providers may claim (`enum ib_device_cap_flags`).
pub mod cap {
    use rdma_bindings as b;

    /// Bad P_Keys are counted.
    pub const BAD_PKEY_CNTR: u64 = b::ib_device_cap_flags_IB_DEVICE_BAD_PKEY_CNTR as u64;
    /// Bad Q_Keys are counted.
    pub const BAD_QKEY_CNTR: u64 = b::ib_device_cap_flags_IB_DEVICE_BAD_QKEY_CNTR as u64;
    /// A port that becomes active raises an event.
    pub const PORT_ACTIVE_EVENT: u64 = b::ib_device_cap_flags_IB_DEVICE_PORT_ACTIVE_EVENT as u64;
    /// The system image GUID is valid.
    pub const SYS_IMAGE_GUID: u64 = b::ib_device_cap_flags_IB_DEVICE_SYS_IMAGE_GUID as u64;
    /// Fast registration, local and remote invalidation.
    pub const MEM_MGT_EXTENSIONS: u64 = b::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64;
    /// Memory windows.
    pub const MEM_WINDOW: u64 = b::ib_device_cap_flags_IB_DEVICE_MEM_WINDOW as u64;
    /// Memory windows of type 2, for one QP and in one PD.
    pub const MEM_WINDOW_TYPE_2B: u64 = b::ib_device_cap_flags_IB_DEVICE_MEM_WINDOW_TYPE_2B as u64;
    /// SRQs can be resized.
    pub const SRQ_RESIZE: u64 = b::ib_device_cap_flags_IB_DEVICE_SRQ_RESIZE as u64;
    /// RC responders answer RNR NAK.
    pub const RC_RNR_NAK_GEN: u64 = b::ib_device_cap_flags_IB_DEVICE_RC_RNR_NAK_GEN as u64;
    /// FLUSH to global visibility.
    pub const FLUSH_GLOBAL: u64 = b::ib_device_cap_flags_IB_DEVICE_FLUSH_GLOBAL as u64;
    /// ATOMIC WRITE.
    pub const ATOMIC_WRITE: u64 = b::ib_device_cap_flags_IB_DEVICE_ATOMIC_WRITE as u64;
}

/// What a transport can do with memory that is paged on demand (`enum
/// ib_odp_transport_cap_bits`).
pub mod odp_cap {
    use rdma_bindings as b;

    /// It can be sent from.
    pub const SEND: u32 = b::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_SEND;
    /// It can be received into,
    pub const RECV: u32 = b::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_RECV;
    /// also from a shared receive queue.
    pub const SRQ_RECV: u32 = b::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_SRQ_RECV;
    /// A peer can write to it.
    pub const WRITE: u32 = b::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_WRITE;
    /// A peer can read it.
    pub const READ: u32 = b::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_READ;
    /// Atomics.
    pub const ATOMIC: u32 = b::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_ATOMIC;
    /// FLUSH.
    pub const FLUSH: u32 = b::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_FLUSH;
    /// ATOMIC WRITE.
    pub const ATOMIC_WRITE: u32 = b::ib_odp_transport_cap_bits_IB_ODP_SUPPORT_ATOMIC_WRITE;
}

/// The way to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path {
    /// The local GID.
    pub sgid: [u8; 16],
    /// Its index in the port's table.
    pub sgid_index: u8,
    /// The peer's GID.
    pub dgid: [u8; 16],
    /// IPv6 flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit or TTL.
    pub hop_limit: u8,
    /// Traffic class or type of service.
    pub traffic_class: u8,
    /// Service level.
    pub sl: u8,
    /// Static rate.
    pub static_rate: u8,
    /// Port, from 1.
    pub port: u8,
    /// The next hop's MAC, as the core resolved it.
    pub dmac: [u8; 6],
}

impl Path {
    /// Reads the core's struct; `None` if it names no local GID or is not of RoCE.
    ///
    /// # Safety
    ///
    /// `sgid_attr` of `raw` must be null or valid.
    unsafe fn from_raw(raw: &bindings::rdma_ah_attr) -> Option<Self> {
        if raw.type_ != bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE {
            return None;
        }
        // SAFETY: The caller promises a null or valid pointer.
        let sgid_attr = unsafe { raw.grh.sgid_attr.as_ref() }?;
        // SAFETY: A GID is 16 plain bytes in each variant of its union.
        let (sgid, dgid) = unsafe { (sgid_attr.gid.raw, raw.grh.dgid.raw) };
        // SAFETY: `type_` says that the variant of RoCE is the one in use.
        let dmac = unsafe { raw.__bindgen_anon_1.roce.dmac };
        Some(Self {
            sgid,
            sgid_index: raw.grh.sgid_index,
            dgid,
            flow_label: raw.grh.flow_label & 0xf_ffff,
            hop_limit: raw.grh.hop_limit,
            traffic_class: raw.grh.traffic_class,
            sl: raw.sl,
            static_rate: raw.static_rate,
            port: u8::try_from(raw.port_num).ok()?,
            dmac,
        })
    }

    pub(crate) fn write_to(&self, raw: &mut bindings::rdma_ah_attr) {
        raw.type_ = bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE;
        raw.ah_flags = bindings::ib_ah_flags_IB_AH_GRH as u8;
        raw.grh.dgid.raw = self.dgid;
        raw.grh.sgid_index = self.sgid_index;
        raw.grh.flow_label = self.flow_label;
        raw.grh.hop_limit = self.hop_limit;
        raw.grh.traffic_class = self.traffic_class;
        raw.sl = self.sl;
        raw.static_rate = self.static_rate;
        raw.port_num = u32::from(self.port);
        // SAFETY: Plain bytes; `type_` above names this variant.
        unsafe { (*raw.__bindgen_anon_1.roce).dmac = self.dmac };
    }
}

/// Attributes of an address handle.
#[derive(Clone, Copy, Debug)]
pub struct AhAttr {
    /// Where it leads.
    pub path: Path,
}

impl AhAttr {
    /// # Safety
    ///
    /// As [`Path::from_raw`].
    pub(crate) unsafe fn from_raw(raw: &bindings::rdma_ah_attr) -> Option<Self> {
        // SAFETY: The caller's promise.
        let path = unsafe { Path::from_raw(raw) }?;
        Some(Self { path })
    }
}

/// Types of QPs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpKind {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// The general services interface, QP 1.
    Gsi,
}

/// Sizes of a QP's queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QpCap {
    /// Work requests in the send queue.
    pub max_send_wr: u32,
    /// Work requests in the receive queue.
    pub max_recv_wr: u32,
    /// Scatter/gather entries of a send.
    pub max_send_sge: u32,
    /// Scatter/gather entries of a receive.
    pub max_recv_sge: u32,
    /// Bytes of inline data.
    pub max_inline_data: u32,
}

/// What a QP is created with. The provider writes the sizes back that it gave.
pub struct QpInit<'a, P> {
    raw: &'a mut bindings::ib_qp_init_attr,
    _p: PhantomData<fn() -> P>,
}

impl<'a, P: Provider> QpInit<'a, P> {
    /// # Safety
    ///
    /// The CQs and the SRQ that `raw` names must be null or valid objects of provider `P`.
    pub(crate) unsafe fn new(raw: &'a mut bindings::ib_qp_init_attr) -> Self {
        Self {
            raw,
            _p: PhantomData,
        }
    }

    /// The type, `None` if it is none that the abstraction knows.
    pub fn kind(&self) -> Option<QpKind> {
        match self.raw.qp_type {
            bindings::ib_qp_type_IB_QPT_RC => Some(QpKind::Rc),
            bindings::ib_qp_type_IB_QPT_UC => Some(QpKind::Uc),
            bindings::ib_qp_type_IB_QPT_UD => Some(QpKind::Ud),
            bindings::ib_qp_type_IB_QPT_GSI => Some(QpKind::Gsi),
            _ => None,
        }
    }

    /// Tells whether flags are set that ask for something special.
    pub fn has_create_flags(&self) -> bool {
        self.raw.create_flags != 0
    }

    /// The SRQ that receives come from, if one is to be used.
    pub fn srq(&self) -> Option<&Srq<P>> {
        // SAFETY: Not null, so valid, by the promise to `new`.
        (!self.raw.srq.is_null()).then(|| unsafe { Object::from_raw(self.raw.srq) })
    }

    /// Tells whether each send is to make a completion.
    pub fn signal_all(&self) -> bool {
        self.raw.sq_sig_type == bindings::ib_sig_type_IB_SIGNAL_ALL_WR
    }

    /// The CQ of sends.
    pub fn send_cq(&self) -> Option<&Cq<P>> {
        // SAFETY: Not null, so valid, by the promise to `new`.
        (!self.raw.send_cq.is_null()).then(|| unsafe { Object::from_raw(self.raw.send_cq) })
    }

    /// The CQ of receives.
    pub fn recv_cq(&self) -> Option<&Cq<P>> {
        // SAFETY: Not null, so valid, by the promise to `new`.
        (!self.raw.recv_cq.is_null()).then(|| unsafe { Object::from_raw(self.raw.recv_cq) })
    }

    /// The sizes asked for.
    pub fn cap(&self) -> QpCap {
        QpCap::from_raw(&self.raw.cap)
    }

    /// Tells the consumer the sizes given.
    pub fn set_cap(&mut self, cap: QpCap) {
        cap.write_to(&mut self.raw.cap);
    }
}

impl QpCap {
    fn from_raw(raw: &bindings::ib_qp_cap) -> Self {
        Self {
            max_send_wr: raw.max_send_wr,
            max_recv_wr: raw.max_recv_wr,
            max_send_sge: raw.max_send_sge,
            max_recv_sge: raw.max_recv_sge,
            max_inline_data: raw.max_inline_data,
        }
    }

    pub(crate) fn write_to(&self, raw: &mut bindings::ib_qp_cap) {
        raw.max_send_wr = self.max_send_wr;
        raw.max_recv_wr = self.max_recv_wr;
        raw.max_send_sge = self.max_send_sge;
        raw.max_recv_sge = self.max_recv_sge;
        raw.max_inline_data = self.max_inline_data;
    }
}

/// Attributes of an SRQ: what it is created with, what it has, or what a modification sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SrqAttr {
    /// Work requests.
    pub max_wr: u32,
    /// Scatter/gather entries of each.
    pub max_sge: u32,
    /// With fewer work requests than this an event is raised, once; 0 for none.
    pub limit: u32,
}

/// What a modification of an SRQ sets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SrqChange {
    /// The new number of work requests.
    pub max_wr: Option<u32>,
    /// The new limit.
    pub limit: Option<u32>,
}

impl SrqAttr {
    pub(crate) fn from_raw(raw: &bindings::ib_srq_attr) -> Self {
        Self {
            max_wr: raw.max_wr,
            max_sge: raw.max_sge,
            limit: raw.srq_limit,
        }
    }

    pub(crate) fn write_to(&self, raw: &mut bindings::ib_srq_attr) {
        raw.max_wr = self.max_wr;
        raw.max_sge = self.max_sge;
        raw.srq_limit = self.limit;
    }
}

impl SrqChange {
    /// Reads what `mask` names; `None` if it names anything else.
    pub(crate) fn from_raw(raw: &bindings::ib_srq_attr, mask: u32) -> Option<Self> {
        const MAX_WR: u32 = bindings::ib_srq_attr_mask_IB_SRQ_MAX_WR;
        const LIMIT: u32 = bindings::ib_srq_attr_mask_IB_SRQ_LIMIT;
        (mask & !(MAX_WR | LIMIT) == 0).then(|| Self {
            max_wr: (mask & MAX_WR != 0).then_some(raw.max_wr),
            limit: (mask & LIMIT != 0).then_some(raw.srq_limit),
        })
    }
}

/// Attributes of a QP: of a modification those that it sets, of a query all that apply.
///
/// Numbers are as in `struct ib_qp_attr`; states are `enum ib_qp_state`.
#[derive(Clone, Copy, Debug, Default)]
pub struct QpAttrs {
    /// State to go to.
    pub state: Option<u32>,
    /// State that the consumer takes the QP to be in.
    pub cur_state: Option<u32>,
    /// Whether to tell when the send queue is drained.
    pub en_sqd_async_notify: Option<bool>,
    /// Whether the send queue is draining; of queries.
    pub sq_draining: bool,
    /// Remote access allowed ([`access`]).
    pub access_flags: Option<u32>,
    /// Index of the P_Key.
    pub pkey_index: Option<u16>,
    /// Port.
    pub port: Option<u32>,
    /// Q_Key.
    pub qkey: Option<u32>,
    /// The way to the peer. `Some(None)`: given, but without a usable local GID.
    pub path: Option<Option<Path>>,
    /// `enum ib_mtu`.
    pub path_mtu: Option<u32>,
    /// Local ACK timeout, 5 bits.
    pub timeout: Option<u8>,
    /// Retries after a timeout or sequence error.
    pub retry_cnt: Option<u8>,
    /// Retries after RNR NAK, 7 for no end.
    pub rnr_retry: Option<u8>,
    /// First PSN expected.
    pub rq_psn: Option<u32>,
    /// READs and atomics outstanding as requester.
    pub max_rd_atomic: Option<u8>,
    /// An alternate path was given.
    pub alt_path: bool,
    /// RNR NAK timer code, 5 bits.
    pub min_rnr_timer: Option<u8>,
    /// First PSN sent.
    pub sq_psn: Option<u32>,
    /// READs and atomics outstanding as responder.
    pub max_dest_rd_atomic: Option<u8>,
    /// New queue sizes were given.
    pub cap: bool,
    /// The peer's QP number.
    pub dest_qpn: Option<u32>,
    /// Attributes outside the standard set were given.
    pub other: bool,
}

const fn bit(b: bindings::ib_qp_attr_mask) -> u32 {
    b
}

impl QpAttrs {
    /// Reads those that `mask` names.
    ///
    /// # Safety
    ///
    /// The GID attributes that `raw` names must be null or valid.
    pub(crate) unsafe fn from_raw(raw: &bindings::ib_qp_attr, mask: c_int) -> Self {
        use bindings as b;
        let mask = mask as u32;
        let has = |m: b::ib_qp_attr_mask| mask & bit(m) != 0;
        let standard = (bit(b::ib_qp_attr_mask_IB_QP_DEST_QPN) << 1) - 1;
        Self {
            state: has(b::ib_qp_attr_mask_IB_QP_STATE).then_some(raw.qp_state),
            cur_state: has(b::ib_qp_attr_mask_IB_QP_CUR_STATE).then_some(raw.cur_qp_state),
            en_sqd_async_notify: has(b::ib_qp_attr_mask_IB_QP_EN_SQD_ASYNC_NOTIFY)
                .then_some(raw.en_sqd_async_notify != 0),
            sq_draining: false,
            access_flags: has(b::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS)
                .then_some(raw.qp_access_flags as u32),
            pkey_index: has(b::ib_qp_attr_mask_IB_QP_PKEY_INDEX).then_some(raw.pkey_index),
            port: has(b::ib_qp_attr_mask_IB_QP_PORT).then_some(raw.port_num),
            qkey: has(b::ib_qp_attr_mask_IB_QP_QKEY).then_some(raw.qkey),
            // SAFETY: The caller's promise.
            path: has(b::ib_qp_attr_mask_IB_QP_AV).then(|| unsafe { Path::from_raw(&raw.ah_attr) }),
            path_mtu: has(b::ib_qp_attr_mask_IB_QP_PATH_MTU).then_some(raw.path_mtu),
            timeout: has(b::ib_qp_attr_mask_IB_QP_TIMEOUT).then_some(raw.timeout),
            retry_cnt: has(b::ib_qp_attr_mask_IB_QP_RETRY_CNT).then_some(raw.retry_cnt),
            rnr_retry: has(b::ib_qp_attr_mask_IB_QP_RNR_RETRY).then_some(raw.rnr_retry),
            rq_psn: has(b::ib_qp_attr_mask_IB_QP_RQ_PSN).then_some(raw.rq_psn),
            max_rd_atomic: has(b::ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC)
                .then_some(raw.max_rd_atomic),
            alt_path: has(b::ib_qp_attr_mask_IB_QP_ALT_PATH)
                || has(b::ib_qp_attr_mask_IB_QP_PATH_MIG_STATE),
            min_rnr_timer: has(b::ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER).then_some(raw.min_rnr_timer),
            sq_psn: has(b::ib_qp_attr_mask_IB_QP_SQ_PSN).then_some(raw.sq_psn),
            max_dest_rd_atomic: has(b::ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC)
                .then_some(raw.max_dest_rd_atomic),
            cap: has(b::ib_qp_attr_mask_IB_QP_CAP),
            dest_qpn: has(b::ib_qp_attr_mask_IB_QP_DEST_QPN).then_some(raw.dest_qp_num),
            other: mask & !standard != 0,
        }
    }

    /// Writes those that are set.
    pub(crate) fn write_to(&self, raw: &mut bindings::ib_qp_attr) {
        if let Some(v) = self.state {
            raw.qp_state = v;
            raw.cur_qp_state = v;
        }
        raw.sq_draining = u8::from(self.sq_draining);
        raw.en_sqd_async_notify = u8::from(self.en_sqd_async_notify.unwrap_or(false));
        raw.qp_access_flags = self.access_flags.unwrap_or(0) as c_int;
        raw.pkey_index = self.pkey_index.unwrap_or(0);
        raw.port_num = self.port.unwrap_or(0);
        raw.qkey = self.qkey.unwrap_or(0);
        if let Some(Some(path)) = &self.path {
            path.write_to(&mut raw.ah_attr);
        }
        raw.path_mtu = self.path_mtu.unwrap_or(0);
        raw.timeout = self.timeout.unwrap_or(0);
        raw.retry_cnt = self.retry_cnt.unwrap_or(0);
        raw.rnr_retry = self.rnr_retry.unwrap_or(0);
        raw.rq_psn = self.rq_psn.unwrap_or(0);
        raw.max_rd_atomic = self.max_rd_atomic.unwrap_or(0);
        raw.min_rnr_timer = self.min_rnr_timer.unwrap_or(0);
        raw.sq_psn = self.sq_psn.unwrap_or(0);
        raw.max_dest_rd_atomic = self.max_dest_rd_atomic.unwrap_or(0);
        raw.dest_qp_num = self.dest_qpn.unwrap_or(0);
        raw.path_mig_state = bindings::ib_mig_state_IB_MIG_MIGRATED;
    }
}
