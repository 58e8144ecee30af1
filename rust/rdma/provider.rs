// SPDX-License-Identifier: GPL-2.0

//! What a provider implements.

use kernel::{
    ffi::c_int,
    prelude::*,
    str::CStr,
    sync::aref::ARef, //
};

use crate::{
    attr::{
        AhAttr,
        QpAttrs,
        QpCap,
        QpInit,
        SrqAttr,
        SrqChange, //
    },
    detail::Detail,
    dmabuf::DmaBuf,
    event::{
        CqTarget,
        QpTarget,
        SrqTarget, //
    },
    mad::PortCounters,
    memory::{
        DmaMemory,
        SgMap, //
    },
    object::{
        Ah,
        Context,
        Cq,
        Device,
        Mr,
        Mw,
        Pd,
        Qp,
        Srq, //
    },
    odp::Paging,
    stats::StatDescs,
    udata::Udata,
    wc::WcSlots,
    wr::{
        RecvWrs,
        SendWrs,
        Sge, //
    },
};

/// Limits and abilities of a device (`struct ib_device_attr`).
#[derive(Clone, Copy, Debug, Default)]
pub struct DeviceAttr {
    /// Firmware version, three 16-bit parts from bit 32 down.
    pub fw_ver: u64,
    /// GUID of the system, big endian in memory.
    pub sys_image_guid: u64,
    /// Bytes of the largest memory region.
    pub max_mr_size: u64,
    /// Page sizes, a bit each.
    pub page_size_cap: u64,
    /// Vendor.
    pub vendor_id: u32,
    /// [`crate::cap`].
    pub device_cap_flags: u64,
    /// Queue pairs.
    pub max_qp: u32,
    /// Work requests a queue.
    pub max_qp_wr: u32,
    /// Scatter/gather entries a send.
    pub max_send_sge: u32,
    /// Scatter/gather entries a receive.
    pub max_recv_sge: u32,
    /// Scatter/gather entries a READ.
    pub max_sge_rd: u32,
    /// Completion queues.
    pub max_cq: u32,
    /// Entries a completion queue.
    pub max_cqe: u32,
    /// Shared receive queues.
    pub max_srq: u32,
    /// Work requests a shared receive queue.
    pub max_srq_wr: u32,
    /// Scatter/gather entries of a work request of a shared receive queue.
    pub max_srq_sge: u32,
    /// Memory regions.
    pub max_mr: u32,
    /// Memory windows.
    pub max_mw: u32,
    /// Pages of a fast registration.
    pub max_fast_reg_page_list_len: u32,
    /// Protection domains.
    pub max_pd: u32,
    /// READs and atomics a QP as responder.
    pub max_qp_rd_atom: u32,
    /// READs and atomics a device as responder.
    pub max_res_rd_atom: u32,
    /// READs and atomics a QP as requester.
    pub max_qp_init_rd_atom: u32,
    /// Whether atomics are atomic with regard to other QPs of the device.
    pub atomic: bool,
    /// Multicast groups.
    pub max_mcast_grp: u32,
    /// QPs attached to a multicast group.
    pub max_mcast_qp_attach: u32,
    /// QPs attached to all multicast groups.
    pub max_total_mcast_qp_attach: u32,
    /// Address handles.
    pub max_ah: u32,
    /// P_Keys.
    pub max_pkeys: u16,
    /// The time a peer should allow for an answer, 4.096 us times 2 to this power.
    pub local_ca_ack_delay: u8,
    /// Paging on demand, if there is any.
    pub odp: Option<OdpCaps>,
}

/// What can be done with memory that is paged on demand, all memory of a process included, by
/// transport: [`crate::odp_cap`].
#[derive(Clone, Copy, Debug)]
pub struct OdpCaps {
    /// Reliable connections.
    pub rc: u32,
    /// Unreliable connections.
    pub uc: u32,
    /// Datagrams.
    pub ud: u32,
}

/// Logical and physical state of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// Up, link up.
    Active,
    /// Up, no link.
    Polling,
    /// Down.
    Disabled,
}

/// Attributes of a port.
#[derive(Clone, Copy, Debug)]
pub struct PortAttr {
    /// State.
    pub state: PortState,
    /// Largest path MTU, `enum ib_mtu`.
    pub max_mtu: u32,
    /// Path MTU that the link carries now, `enum ib_mtu`.
    pub active_mtu: u32,
    /// Entries of the GID table.
    pub gid_tbl_len: i32,
    /// Entries of the P_Key table.
    pub pkey_tbl_len: u16,
    /// Bytes of the largest message.
    pub max_msg_sz: u32,
    /// Packets with a bad P_Key.
    pub bad_pkey_cntr: u32,
    /// Packets with a bad Q_Key.
    pub qkey_viol_cntr: u32,
}

/// What a consumer wants to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CqNotify {
    /// Only completions that are solicited or in error.
    pub solicited_only: bool,
    /// Whether the consumer wants to know that completions are there already.
    pub report_missed: bool,
}

/// Types of memory windows (IBTA vol. 1, 10.6.7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MwKind {
    /// Bound by a verb, for all QPs of a PD.
    One,
    /// Bound by a work request, for one QP.
    Two,
}

/// What the re-registration of a memory region changes.
pub struct MrChange<'a, P: Provider> {
    /// New memory: address in the process, length, address that it is to be known by.
    pub memory: Option<(u64, u64, u64)>,
    /// A new protection domain.
    pub pd: Option<&'a Pd<P>>,
    /// New access flags.
    pub access: Option<u32>,
}

/// A provider: the driver of devices of one kind, with one port each.
///
/// Operations run in process context and may sleep unless said otherwise. Destroying
/// operations run with nothing else on the object; its data is dropped after them.
pub trait Provider: Sized + Send + Sync + 'static {
    /// Number by which user space finds the library for the device.
    const DRIVER_ID: u32;
    /// Version of the ABI between the two.
    const ABI_VERSION: u32;
    /// Names of the port's counters.
    const STATS: StatDescs;

    /// The module that the operations are part of.
    fn module() -> &'static ThisModule;

    /// Data of a device.
    type Device: Send + Sync;
    /// Data of a user context.
    type Context: Send + Sync;
    /// Data of a protection domain.
    type Pd: Send + Sync;
    /// Data of an address handle.
    type Ah: Send + Sync;
    /// Data of a completion queue.
    type Cq: Send + Sync;
    /// Data of a queue pair.
    type Qp: Send + Sync;
    /// Data of a shared receive queue.
    type Srq: Send + Sync;
    /// Data of a memory window.
    type Mw: Send + Sync;
    /// Data of a memory region.
    type Mr: Send + Sync;
    /// A set of counters that queue pairs are bound to.
    type Counter: Send + Sync;

    /// Returns the device's limits.
    fn query_device(device: &Device<Self>) -> DeviceAttr;
    /// Returns the port's attributes.
    fn query_port(device: &Device<Self>) -> Result<PortAttr>;
    /// Returns the network device under the port, `None` once it is going away.
    fn netdev(device: &Device<Self>) -> Option<ARef<net::NetDevice>>;
    /// Returns an entry of the P_Key table.
    fn query_pkey(device: &Device<Self>, index: u16) -> Result<u16>;
    /// Reads a port counter, by its place in [`Provider::STATS`]: what was counted for queue pairs
    /// while they were bound to other sets is left out, as the core adds that.
    fn read_counter(device: &Device<Self>, index: usize) -> u64;

    /// Makes a set of counters, all zero.
    fn new_counter(device: &Device<Self>) -> Result<Self::Counter>;
    /// Binds a queue pair to a set, or to none: what is counted for it is counted there from now
    /// on.
    fn bind_counter(qp: &Qp<Self>, counter: Option<&Self::Counter>);
    /// Reads a counter of a set, by its place in [`Provider::STATS`].
    fn read_bound(counter: &Self::Counter, index: usize) -> u64;

    /// Opens the device for a process.
    fn alloc_context(device: &Device<Self>) -> Result<Self::Context>;
    /// The device goes while the process still has it open: fail what it has.
    fn disassociate(context: &Context<Self>);

    /// Allocates a protection domain.
    fn alloc_pd(device: &Device<Self>) -> Result<Self::Pd>;

    /// Creates an address handle. Does not sleep if `atomic`.
    fn create_ah(pd: &Pd<Self>, attr: AhAttr, atomic: bool, udata: &Udata<'_>) -> Result<Self::Ah>;
    /// Returns the attributes that an address handle has.
    fn query_ah(ah: &Ah<Self>) -> AhAttr;
    /// Destroys an address handle. Does not sleep.
    fn destroy_ah(ah: &Ah<Self>);

    /// Creates a completion queue of at least `cqe` entries; returns how many it has.
    fn create_cq(
        device: &Device<Self>,
        context: Option<&Context<Self>>,
        target: CqTarget,
        cqe: u32,
        udata: &Udata<'_>,
    ) -> Result<(Self::Cq, u32)>;
    /// Gives the completion queue of a process at least `cqe` entries, keeping what was not
    /// polled; returns how many it has.
    fn resize_cq(
        cq: &Cq<Self>,
        context: &Context<Self>,
        cqe: u32,
        udata: &Udata<'_>,
    ) -> Result<u32>;
    /// Destroys a completion queue.
    fn destroy_cq(cq: &Cq<Self>);
    /// Takes completions; for kernel consumers. Any context.
    fn poll_cq(cq: &Cq<Self>, slots: &mut WcSlots<'_>);
    /// Asks for a notification; returns whether completions are there already. Any context.
    fn req_notify_cq(cq: &Cq<Self>, what: CqNotify) -> Result<bool>;

    /// Creates a queue pair; returns its number.
    fn create_qp(
        pd: &Pd<Self>,
        context: Option<&Context<Self>>,
        target: QpTarget,
        init: &mut QpInit<'_, Self>,
        udata: &Udata<'_>,
    ) -> Result<(Self::Qp, u32)>;
    /// Modifies a queue pair.
    fn modify_qp(qp: &Qp<Self>, attrs: &QpAttrs) -> Result;
    /// Returns a queue pair's attributes, sizes and whether each send makes a completion.
    fn query_qp(qp: &Qp<Self>) -> (QpAttrs, QpCap, bool);
    /// Destroys a queue pair.
    fn destroy_qp(qp: &Qp<Self>);
    /// Attaches a UD queue pair to a multicast group; once is enough.
    fn attach_mcast(qp: &Qp<Self>, gid: &[u8; 16]) -> Result;
    /// Detaches it.
    fn detach_mcast(qp: &Qp<Self>, gid: &[u8; 16]) -> Result;
    /// Posts sends; an empty list is a process's doorbell. Any context.
    fn post_send(qp: &Qp<Self>, wrs: &mut SendWrs<'_, Self>) -> Result;
    /// Posts receives. Any context.
    fn post_recv(qp: &Qp<Self>, wrs: &mut RecvWrs<'_>) -> Result;

    /// Creates a shared receive queue; returns what it has, at least what `attr` asks for.
    fn create_srq(
        pd: &Pd<Self>,
        context: Option<&Context<Self>>,
        target: SrqTarget,
        attr: SrqAttr,
        udata: &Udata<'_>,
    ) -> Result<(Self::Srq, SrqAttr)>;
    /// Resizes a shared receive queue, sets its limit.
    fn modify_srq(
        srq: &Srq<Self>,
        context: Option<&Context<Self>>,
        change: SrqChange,
        udata: &Udata<'_>,
    ) -> Result;
    /// Returns the attributes of a shared receive queue; the limit is 0 if it is not armed.
    fn query_srq(srq: &Srq<Self>) -> SrqAttr;
    /// Destroys a shared receive queue.
    fn destroy_srq(srq: &Srq<Self>);
    /// Posts receives; for kernel consumers. Any context.
    fn post_srq_recv(srq: &Srq<Self>, wrs: &mut RecvWrs<'_>) -> Result;

    /// Makes the region that kernel consumers name kernel addresses with.
    fn get_dma_mr(pd: &Pd<Self>, access: u32, memory: DmaMemory) -> Result<Self::Mr>;
    /// Registers `length` bytes of the process from `start`, to be known as `iova` onwards.
    fn reg_user_mr(
        pd: &Pd<Self>,
        start: u64,
        length: u64,
        iova: u64,
        access: u32,
        udata: &Udata<'_>,
    ) -> Result<Self::Mr>;
    /// Registers memory of another driver, to be known as `iova` onwards.
    fn reg_dmabuf_mr(pd: &Pd<Self>, memory: DmaBuf, iova: u64, access: u32) -> Result<Self::Mr>;
    /// Changes a region of a process, which keeps its keys. After an error it is as before.
    fn rereg_user_mr(mr: &Mr<Self>, pd: &Pd<Self>, change: MrChange<'_, Self>) -> Result;
    /// Makes a region for fast registration of at most `max_pages` pages.
    fn alloc_mr(pd: &Pd<Self>, max_pages: u32) -> Result<Self::Mr>;
    /// Takes the pages that the next fast registration registers; returns how many entries of
    /// the list they cover. Any context.
    fn map_mr_sg(mr: &Mr<Self>, list: SgMap<'_>) -> Result<c_int>;
    /// Returns lkey and rkey of a region.
    fn mr_keys(mr: &Self::Mr) -> (u32, u32);
    /// Gets ranges of regions of a process in, ahead of their use. Unless that must be so it may
    /// remain undone. May sleep.
    fn advise_mr(
        pd: &Pd<Self>,
        how: Paging,
        must: bool,
        ranges: impl Iterator<Item = Sge> + Clone,
    ) -> Result;
    /// Deregisters a region: nothing accesses its memory when this returns. After an error it is
    /// still there.
    fn dereg_mr(mr: &Mr<Self>) -> Result;

    /// Allocates a memory window; returns its key.
    fn alloc_mw(pd: &Pd<Self>, kind: MwKind, udata: &Udata<'_>) -> Result<(Self::Mw, u32)>;
    /// Gives a memory window up: nothing is accessed through it when this returns.
    fn dealloc_mw(mw: &Mw<Self>);

    /// Adds what the provider knows of a queue pair to its entry in `rdma resource show -dd`. These
    /// entries are there for everybody to read: no keys, no addresses.
    fn qp_detail(qp: &Qp<Self>, out: &mut Detail<'_>);
    /// The same for a completion queue.
    fn cq_detail(cq: &Cq<Self>, out: &mut Detail<'_>);
    /// The same for a shared receive queue.
    fn srq_detail(srq: &Srq<Self>, out: &mut Detail<'_>);
    /// The same for a memory region.
    fn mr_detail(mr: &Mr<Self>, out: &mut Detail<'_>);

    /// The device has been unregistered; its data is dropped next.
    fn unregistered(device: &Device<Self>);

    /// Counts, for performance management.
    fn port_counters(device: &Device<Self>) -> PortCounters;

    /// Version of the "firmware".
    fn firmware(device: &Device<Self>) -> &'static CStr;
}
