// SPDX-License-Identifier: GPL-2.0

//! Safe abstractions of the RDMA core, for providers (drivers of RDMA devices).
//!
//! A provider implements [`Provider`]: one associated type for each object of the
//! verbs (PD, CQ, QP, ...), one function for each operation. The core allocates the
//! objects; this crate puts the provider's data behind the core's own struct
//! ([`Object`]), checks what comes in and turns C lists and attributes into Rust values.
//!
//! C headers: `include/rdma/ib_verbs.h`, `include/rdma/ib_umem.h`,
//! `include/rdma/rdma_netlink.h`, `include/rdma/uverbs_ioctl.h`.

mod attr;
mod debug;
mod detail;
mod device;
mod dmabuf;
mod event;
mod follow;
mod link;
mod mad;
mod memory;
mod mmap;
mod object;
mod odp;
mod ops;
mod provider;
mod stats;
mod udata;
mod wc;
mod wr;

pub use attr::{
    access,
    cap,
    odp_cap,
    AhAttr,
    Path,
    QpAttrs,
    QpCap,
    QpInit,
    QpKind,
    SrqAttr,
    SrqChange, //
};
pub use debug::{
    DebugDir,
    DebugFile, //
};
pub use detail::Detail;
pub use device::{
    DeviceBuilder,
    DeviceHandle,
    PortEvent, //
};
pub use dmabuf::DmaBuf;
pub use event::{
    CqEvent,
    CqTarget,
    QpEvent,
    QpTarget,
    SrqEvent,
    SrqTarget, //
};
pub use follow::{
    Follower,
    FollowerRegistration, //
};
pub use link::{
    LinkOps,
    LinkRegistration, //
};
pub use mad::PortCounters;
pub use memory::{
    write_barrier,
    Bytes,
    DmaMemory,
    KernelPages,
    MemoryFault,
    SgMap,
    Umem,
    Word, //
};
pub use mmap::{
    MmapEntry,
    SharedBuffer, //
};
pub use object::{
    Ah,
    Context,
    Cq,
    Device,
    Mr,
    Mw,
    Object,
    Pd,
    Qp,
    Srq, //
};
pub use odp::{
    OdpFault,
    OdpSpace,
    OdpUmem,
    Paging,
    HAS_ODP, //
};
pub use provider::{
    CqNotify,
    DeviceAttr,
    MrChange,
    MwKind,
    OdpCaps,
    PortAttr,
    PortState,
    Provider, //
};
pub use stats::{
    StatDescs,
    StatNames,
    StatTable, //
};
pub use udata::Udata;
pub use wc::{
    wc_flags,
    wc_network,
    wc_opcode,
    QpToken,
    Wc,
    WcSlots, //
};
pub use wr::{
    send_flags,
    wr_opcode,
    RecvWr,
    RecvWrs,
    RegWr,
    SendWr,
    SendWrs,
    Sge, //
};
