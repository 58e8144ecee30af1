// SPDX-License-Identifier: GPL-2.0

//! The verbs: each operation of the core, as rxo does it.

use kernel::{
    ffi::c_int,
    new_mutex,
    prelude::*,
    str::CStr,
    sync::{
        aref::ARef,
        Arc,
        Mutex, //
    }, //
};
use net::NetDevice;
use rdma::{
    access,
    cap,
    odp_cap,
    AhAttr,
    Context,
    Cq,
    CqNotify,
    CqTarget,
    Detail,
    Device,
    DeviceAttr,
    DmaBuf,
    DmaMemory,
    MrChange,
    Mw,
    MwKind,
    OdpCaps,
    OdpSpace,
    OdpUmem,
    Paging,
    Pd,
    PortAttr,
    PortCounters,
    Provider,
    Qp,
    QpAttrs,
    QpCap,
    QpInit,
    QpKind,
    QpTarget,
    RecvWrs,
    SendWrs,
    SgMap,
    Sge,
    Srq,
    SrqAttr,
    SrqChange,
    SrqTarget,
    StatDescs,
    Udata,
    Umem,
    WcSlots, //
};
use rxo_transport::{
    verbs::MAX_MSG_LEN,
    Counter,
    Mtu, //
};

use crate::{
    abi::{
        self,
        CreateAhReply,
        CreateCqReply,
        CreateQpReply,
        CreateSrqReply,
        MapInfo, //
    },
    ah::{
        AddressHandle,
        Ah, //
    },
    cq::CompletionQueue,
    fast::FastMr,
    limits::{
        self,
        Permit, //
    },
    mr::Domain,
    mw::Window,
    port::{
        Port,
        AH_NUMBERS, //
    },
    qp::{
        Parts,
        QpHandle,
        QueuePair, //
    },
    ring::Ring,
    rq::{
        Posts,
        RecvQueue, //
    },
    sq::SendQueue,
    srq::{
        SharedQueue,
        SrqHandle, //
    },
    stats::{
        self,
        Set,
        Stat, //
    },
};

/// The provider.
pub(crate) struct Rxo;

/// A consumer's protection domain.
pub(crate) struct ProtectionDomain {
    domain: Domain,
    _permit: Permit,
}

/// A consumer's completion queue, with the ring offered to a process.
pub(crate) struct CqHandle {
    cq: Arc<CompletionQueue>,
    ring: Pin<KBox<Mutex<Option<rdma::MmapEntry>>>>,
    _permit: Permit,
}

impl CqHandle {
    fn new(
        cq: Arc<CompletionQueue>,
        ring: Option<rdma::MmapEntry>,
        permit: Permit,
    ) -> Result<Self> {
        Ok(Self {
            cq,
            ring: KBox::pin_init(new_mutex!(ring, "CqHandle::ring"), GFP_KERNEL)?,
            _permit: permit,
        })
    }
}

/// A consumer's memory region, and the device that it belongs to.
pub(crate) struct MrHandle {
    region: Region,
    port: Arc<Port>,
    _permit: Permit,
}

/// What a memory region is.
enum Region {
    /// Memory that is registered as long as the region is there, by its key.
    Plain(u32),
    /// Pages that work requests register and invalidate.
    Fast(Arc<FastMr>),
}

impl MrHandle {
    /// The region, if it is one for fast registration.
    pub(crate) fn fast(&self) -> Option<&Arc<FastMr>> {
        match &self.region {
            Region::Fast(mr) => Some(mr),
            Region::Plain(_) => None,
        }
    }
}

/// A consumer's memory window, and the device that it belongs to.
pub(crate) struct MwHandle {
    window: Arc<Window>,
    port: Arc<Port>,
    _permit: Permit,
}

/// Access flags that let memory be written.
const WRITES: u32 = access::LOCAL_WRITE | access::REMOTE_WRITE | access::REMOTE_ATOMIC;

/// Access flags that regions may have.
const MR_ACCESS: u32 = access::LOCAL_WRITE
    | access::REMOTE_WRITE
    | access::REMOTE_READ
    | access::REMOTE_ATOMIC
    | access::FLUSH_GLOBAL
    | access::MW_BIND
    | access::ZERO_BASED
    | access::OPTIONAL
    | if rdma::HAS_ODP {
        access::ON_DEMAND | access::HUGETLB
    } else {
        0
    };

/// Start and length that name all memory of a process (`ibv_reg_mr(3)`).
const EVERYTHING: (u64, u64) = (0, u64::MAX);

/// What all transports can do with memory that is paged on demand,
const ODP_ALL: u32 = odp_cap::SEND | odp_cap::RECV | odp_cap::SRQ_RECV;
/// and some.
const ODP: OdpCaps = OdpCaps {
    rc: ODP_ALL
        | odp_cap::WRITE
        | odp_cap::READ
        | odp_cap::ATOMIC
        | odp_cap::FLUSH
        | odp_cap::ATOMIC_WRITE,
    uc: ODP_ALL | odp_cap::WRITE,
    ud: ODP_ALL,
};

impl Provider for Rxo {
    const DRIVER_ID: u32 = abi::DRIVER_ID;
    const ABI_VERSION: u32 = abi::ABI_VERSION;
    const STATS: StatDescs = stats::DESCS;

    fn module() -> &'static ThisModule {
        kernel::module::this_module::<crate::RxoModule>()
    }

    type Device = Arc<Port>;
    type Context = Arc<Port>;
    type Pd = ProtectionDomain;
    type Ah = Ah;
    type Cq = CqHandle;
    type Qp = QpHandle;
    type Srq = SrqHandle;
    type Mw = MwHandle;
    type Mr = MrHandle;
    type Counter = Arc<Set>;

    fn query_device(device: &Device<Self>) -> DeviceAttr {
        DeviceAttr {
            fw_ver: 1 << 32,
            sys_image_guid: device.data().guid,
            max_mr_size: u64::MAX,
            page_size_cap: 0xffff_f000,
            vendor_id: 0xff_ffff,
            device_cap_flags: cap::BAD_PKEY_CNTR
                | cap::BAD_QKEY_CNTR
                | cap::PORT_ACTIVE_EVENT
                | cap::SYS_IMAGE_GUID
                | cap::RC_RNR_NAK_GEN
                | cap::FLUSH_GLOBAL
                | cap::ATOMIC_WRITE
                | cap::SRQ_RESIZE
                | cap::MEM_MGT_EXTENSIONS
                | cap::MEM_WINDOW
                | cap::MEM_WINDOW_TYPE_2B,
            max_qp: limits::MAX_QP,
            max_qp_wr: limits::MAX_QP_WR,
            max_send_sge: limits::MAX_SGE,
            max_recv_sge: limits::MAX_SGE,
            max_sge_rd: limits::MAX_SGE,
            max_cq: limits::MAX_CQ,
            max_cqe: limits::MAX_CQE,
            max_srq: limits::MAX_SRQ,
            max_srq_wr: limits::MAX_SRQ_WR,
            max_srq_sge: limits::MAX_SGE,
            max_mr: limits::MAX_MR,
            max_mw: limits::MAX_MW,
            max_fast_reg_page_list_len: limits::MAX_FAST_REG_PAGES,
            max_pd: limits::MAX_PD,
            max_qp_rd_atom: u32::from(limits::MAX_RD_ATOMIC),
            max_res_rd_atom: u32::from(limits::MAX_RD_ATOMIC).saturating_mul(limits::MAX_QP),
            max_qp_init_rd_atom: u32::from(limits::MAX_RD_ATOMIC),
            atomic: true,
            max_mcast_grp: limits::MAX_MCAST_GRP,
            max_mcast_qp_attach: limits::MAX_MCAST_QP_ATTACH,
            max_total_mcast_qp_attach: limits::MAX_MCAST_ATTACH,
            max_ah: limits::MAX_AH,
            max_pkeys: 1,
            local_ca_ack_delay: 15,
            odp: rdma::HAS_ODP.then_some(ODP),
        }
    }

    fn query_port(device: &Device<Self>) -> Result<PortAttr> {
        let port = device.data();
        let counter = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        Ok(PortAttr {
            state: port.state(),
            max_mtu: Mtu::Mtu4096 as u32,
            active_mtu: port.mtu() as u32,
            gid_tbl_len: limits::GID_TABLE_LEN,
            pkey_tbl_len: 1,
            max_msg_sz: MAX_MSG_LEN,
            bad_pkey_cntr: counter(port.stats.get(Stat::RxBadPkey)),
            qkey_viol_cntr: counter(port.stats.get_transport(Counter::DropQkey)),
        })
    }

    fn netdev(device: &Device<Self>) -> Option<ARef<NetDevice>> {
        device.data().netdev()
    }

    fn query_pkey(_device: &Device<Self>, index: u16) -> Result<u16> {
        match index {
            0 => Ok(limits::DEFAULT_PKEY),
            _ => Err(EINVAL),
        }
    }

    fn read_counter(device: &Device<Self>, index: usize) -> u64 {
        device.data().stats.unbound(index)
    }

    fn new_counter(_device: &Device<Self>) -> Result<Arc<Set>> {
        Ok(Arc::new(Set::new()?, GFP_KERNEL)?)
    }

    fn bind_counter(qp: &Qp<Self>, counter: Option<&Arc<Set>>) {
        qp.data().qp.bind_counters(counter.cloned());
    }

    fn read_bound(counter: &Arc<Set>, index: usize) -> u64 {
        counter.read(index)
    }

    fn port_counters(device: &Device<Self>) -> PortCounters {
        let stats = &device.data().stats;
        PortCounters {
            sent_bytes: stats.get(Stat::TxBytes),
            received_bytes: stats.get(Stat::RxBytes),
            sent: stats.get(Stat::TxPackets),
            received: stats.get(Stat::RxPackets),
            received_multicast: stats.get(Stat::RxMulticast),
            receive_errors: stats
                .get(Stat::RxIcrcErrors)
                .saturating_add(stats.get(Stat::RxMalformed)),
            send_discards: stats.get(Stat::TxDropped),
        }
    }

    fn firmware(_device: &Device<Self>) -> &'static CStr {
        c"1.0.0"
    }

    fn alloc_context(device: &Device<Self>) -> Result<Arc<Port>> {
        Ok(device.data().clone())
    }

    fn disassociate(_context: &Context<Self>) {
        // The core destroys all of the process's objects after this; nothing that a process has
        // mapped is memory of a device.
    }

    fn alloc_pd(device: &Device<Self>) -> Result<ProtectionDomain> {
        let port = device.data();
        Ok(ProtectionDomain {
            _permit: Permit::take(&port.limits, |l| &l.pds)?,
            domain: port.new_domain(),
        })
    }

    /// # Errors
    ///
    /// `EINVAL` for a path without a local GID or between address families, `EINVAL` for room
    /// for the answer that lacks the handle's number.
    fn create_ah(pd: &Pd<Self>, attr: AhAttr, atomic: bool, udata: &Udata<'_>) -> Result<Ah> {
        let port = pd.device().data();
        let flags = if atomic { GFP_ATOMIC } else { GFP_KERNEL };
        let permit = Permit::take(&port.limits, |l| &l.ahs)?;
        let handle = AddressHandle::new(attr.path, pd.data().domain, flags)?;
        if !udata.is_user() {
            return Ok(Ah {
                handle,
                port: port.clone(),
                number: None,
                _permit: permit,
            });
        }
        udata.expect_no_input()?;
        if udata.reply_room() < size_of::<CreateAhReply>() {
            return Err(EINVAL);
        }
        let slot = port.ahs.reserve_cyclic(AH_NUMBERS)?;
        let ah_num = slot.id();
        udata.reply(&CreateAhReply {
            ah_num,
            reserved: 0,
        })?;
        slot.fill(handle.clone())?;
        Ok(Ah {
            handle,
            port: port.clone(),
            number: Some(ah_num),
            _permit: permit,
        })
    }

    fn query_ah(ah: &rdma::Ah<Self>) -> AhAttr {
        AhAttr {
            path: ah.data().handle.path,
        }
    }

    fn destroy_ah(ah: &rdma::Ah<Self>) {
        let ah = ah.data();
        // A namespace waits for its devices, but not for what goes a grace period later.
        ah.handle.remember(None);
        if let Some(number) = ah.number {
            ah.port.ahs.remove(number);
        }
    }

    /// # Errors
    ///
    /// `EINVAL` for more entries than `max_cqe` or none.
    fn create_cq(
        device: &Device<Self>,
        context: Option<&Context<Self>>,
        target: CqTarget,
        cqe: u32,
        udata: &Udata<'_>,
    ) -> Result<(CqHandle, u32)> {
        if cqe == 0 || cqe > limits::MAX_CQE {
            return Err(EINVAL);
        }
        let permit = Permit::take(&device.data().limits, |l| &l.cqs)?;
        let Some(context) = context else {
            let cq = CompletionQueue::kernel(target, cqe)?;
            return Ok((CqHandle::new(cq, None, permit)?, cqe));
        };
        if udata.reply_room() < size_of::<CreateCqReply>() {
            return Err(EINVAL);
        }
        let ring = Ring::new(cqe, rdma::Wc::USER_LEN)?;
        let capacity = ring.capacity();
        let (entry, mi) = ring.map(context)?;
        let cq = CompletionQueue::user(target, ring)?;
        udata.reply(&CreateCqReply { mi })?;
        Ok((CqHandle::new(cq, Some(entry), permit)?, capacity))
    }

    /// # Errors
    ///
    /// `EINVAL` for more entries than `max_cqe`, for none, and for fewer than completions wait.
    fn resize_cq(
        cq: &Cq<Self>,
        context: &Context<Self>,
        cqe: u32,
        udata: &Udata<'_>,
    ) -> Result<u32> {
        udata.expect_no_input()?;
        if cqe == 0 || cqe > limits::MAX_CQE || udata.reply_room() < size_of::<CreateCqReply>() {
            return Err(EINVAL);
        }
        let CqHandle { cq, ring: old, .. } = cq.data();
        // One resize at a time.
        let mut old = old.lock();
        let ring = Ring::new(cqe, rdma::Wc::USER_LEN)?;
        let capacity = ring.capacity();
        let (entry, mi) = ring.map(context)?;
        udata.reply(&CreateCqReply { mi })?;
        cq.resize(ring, cqe)?;
        *old = Some(entry);
        Ok(capacity)
    }

    fn destroy_cq(_cq: &Cq<Self>) {
        // Its queue pairs are gone, and the last of their completions with them.
    }

    fn poll_cq(cq: &Cq<Self>, slots: &mut WcSlots<'_>) {
        cq.data().cq.poll(slots);
    }

    fn req_notify_cq(cq: &Cq<Self>, what: CqNotify) -> Result<bool> {
        let (queue, port) = (&cq.data().cq, cq.device().data());
        let missed = queue.arm(what);
        // Whoever goes to sleep until there is one waits for what was left in the ring, too.
        if !what.solicited_only {
            if let Some(number) = queue.left_behind.awaited() {
                QueuePair::send_left_behind(port, number);
            }
        }
        Ok(missed)
    }

    /// # Errors
    ///
    /// `EOPNOTSUPP` for a type or flag that isn't supported; `EINVAL` for sizes above the device's limits; `EBUSY` for a second QP 1.
    fn create_qp(
        pd: &Pd<Self>,
        context: Option<&Context<Self>>,
        target: QpTarget,
        init: &mut QpInit<'_, Self>,
        udata: &Udata<'_>,
    ) -> Result<(QpHandle, u32)> {
        let port = pd.device().data();
        let kind = init.kind().ok_or(EOPNOTSUPP)?;
        if init.has_create_flags() {
            return Err(EOPNOTSUPP);
        }
        let srq = init.srq().map(|s| s.data().queue.clone());
        let send_cq = init.send_cq().ok_or(EINVAL)?.data().cq.clone();
        let recv_cq = init.recv_cq().ok_or(EINVAL)?.data().cq.clone();
        let mut asked = init.cap();
        if srq.is_some() {
            (asked.max_recv_wr, asked.max_recv_sge) = (0, 0);
        }
        check_cap(&asked)?;
        let permit = Permit::take(&port.limits, |l| &l.qps)?;

        // What a slot has room for may be used either way.
        let list = (asked.max_send_sge as usize).max(1) * abi::SGE_LEN;
        let tail = list.max(asked.max_inline_data as usize);
        let send_sge = (asked.max_send_sge as usize).max(1);
        let recv_sge = (asked.max_recv_sge as usize).max(1);
        let inline = if context.is_some() { tail } else { 0 };
        let mut given = QpCap {
            max_send_sge: send_sge as u32,
            max_recv_sge: if srq.is_some() { 0 } else { recv_sge as u32 },
            max_inline_data: inline as u32,
            ..asked
        };

        let shared = srq.clone().map(RecvQueue::shared).transpose()?;
        let (sq, sq_slots, rq, rings, reply) = match context {
            None => {
                let slots = asked
                    .max_send_wr
                    .max(1)
                    .checked_next_power_of_two()
                    .ok_or(EINVAL)?;
                (
                    SendQueue::new(None, send_sge, 0),
                    slots,
                    match shared {
                        Some(rq) => rq,
                        None => {
                            RecvQueue::own(Posts::kernel(asked.max_recv_wr as usize, recv_sge)?)?
                        }
                    },
                    [None, None],
                    None,
                )
            }
            Some(context) => {
                if udata.reply_room() < size_of::<CreateQpReply>() {
                    return Err(EINVAL);
                }
                let send_ring = Ring::new(asked.max_send_wr, abi::SEND_HEAD + tail)?;
                given.max_send_wr = send_ring.capacity();
                let slots = send_ring.slots();
                let (sq_entry, sq) = send_ring.map(context)?;
                let (queue, rq_entry, rq) = match shared {
                    Some(queue) => (queue, None, MapInfo::default()),
                    None => {
                        let ring = Ring::new(asked.max_recv_wr, Posts::elem(recv_sge))?;
                        given.max_recv_wr = ring.capacity();
                        let (entry, rq) = ring.map(context)?;
                        let queue = RecvQueue::own(Posts::user(ring, recv_sge)?)?;
                        (queue, Some(entry), rq)
                    }
                };
                (
                    SendQueue::new(Some(send_ring), send_sge, inline),
                    slots,
                    queue,
                    [Some(sq_entry), rq_entry],
                    Some(CreateQpReply { rq, sq }),
                )
            }
        };
        let slot = match kind {
            QpKind::Gsi => None,
            _ => Some(port.ns.switch.reserve()?),
        };
        let number = slot.as_ref().map_or(1, |s| s.id());
        let qp = QueuePair::new(Parts {
            number,
            kind,
            port: port.clone(),
            domain: pd.data().domain,
            cap: given,
            signal_all: init.signal_all(),
            user: context.is_some(),
            send_cq,
            recv_cq,
            srq,
            target,
            sq,
            sq_slots,
            rq,
        })?;
        if let Some(reply) = &reply {
            udata.reply(reply)?;
        }
        match slot {
            Some(slot) => {
                slot.fill(qp.clone())?;
            }
            None => port.set_gsi(Some(qp.clone()))?,
        }
        init.set_cap(given);
        let handle = QpHandle {
            qp,
            _rings: rings,
            _permit: permit,
        };
        Ok((handle, number))
    }

    fn modify_qp(qp: &Qp<Self>, attrs: &QpAttrs) -> Result {
        QueuePair::modify(qp.data().qp.as_arc_borrow(), attrs)
    }

    fn query_qp(qp: &Qp<Self>) -> (QpAttrs, QpCap, bool) {
        qp.data().qp.query()
    }

    fn destroy_qp(qp: &Qp<Self>) {
        let qp = &qp.data().qp;
        match qp.kind {
            QpKind::Gsi => {
                // Clearing does not fail.
                let _ = qp.port.set_gsi(None);
            }
            _ => qp.port.ns.switch.remove(qp.number),
        }
        qp.shut_down();
    }

    fn attach_mcast(qp: &Qp<Self>, gid: &[u8; 16]) -> Result {
        let qp = &qp.data().qp;
        qp.port.ns.attach(qp, gid)
    }

    fn detach_mcast(qp: &Qp<Self>, gid: &[u8; 16]) -> Result {
        let qp = &qp.data().qp;
        qp.port.ns.detach(qp, gid)
    }

    fn post_send(qp: &Qp<Self>, wrs: &mut SendWrs<'_, Self>) -> Result {
        let qp = qp.data().qp.as_arc_borrow();
        if qp.is_user() {
            QueuePair::doorbell(qp)
        } else {
            QueuePair::post_send(qp, wrs)
        }
    }

    fn post_recv(qp: &Qp<Self>, wrs: &mut RecvWrs<'_>) -> Result {
        QueuePair::post_recv(qp.data().qp.as_arc_borrow(), wrs)
    }

    /// # Errors
    ///
    /// `EINVAL` for sizes above the device's limits or without any work request.
    fn create_srq(
        pd: &Pd<Self>,
        context: Option<&Context<Self>>,
        target: SrqTarget,
        attr: SrqAttr,
        udata: &Udata<'_>,
    ) -> Result<(SrqHandle, SrqAttr)> {
        let fits =
            (1..=limits::MAX_SRQ_WR).contains(&attr.max_wr) && attr.max_sge <= limits::MAX_SGE;
        if !fits {
            return Err(EINVAL);
        }
        let permit = Permit::take(&pd.device().data().limits, |l| &l.srqs)?;
        let max_sge = (attr.max_sge as usize).max(1);
        let (posts, entry) = match context {
            None => (Posts::kernel(attr.max_wr as usize, max_sge)?, None),
            Some(context) => {
                if udata.reply_room() < size_of::<CreateSrqReply>() {
                    return Err(EINVAL);
                }
                let ring = Ring::new(attr.max_wr, Posts::elem(max_sge))?;
                let (entry, mi) = ring.map(context)?;
                udata.reply(&CreateSrqReply {
                    mi,
                    ..CreateSrqReply::default()
                })?;
                (Posts::user(ring, max_sge)?, Some(entry))
            }
        };
        let queue = SharedQueue::new(target, pd.data().domain, posts, max_sge)?;
        let given = queue.query();
        Ok((SrqHandle::new(queue, entry, permit)?, given))
    }

    fn modify_srq(
        srq: &Srq<Self>,
        context: Option<&Context<Self>>,
        change: SrqChange,
        udata: &Udata<'_>,
    ) -> Result {
        srq.data().modify(context, change, || {
            Ok(udata.input::<abi::ModifySrq>()?.mmap_info_addr)
        })
    }

    fn query_srq(srq: &Srq<Self>) -> SrqAttr {
        srq.data().queue.query()
    }

    fn destroy_srq(_srq: &Srq<Self>) {
        // Its queue pairs are gone, and what is posted goes with it.
    }

    fn post_srq_recv(srq: &Srq<Self>, wrs: &mut RecvWrs<'_>) -> Result {
        srq.data().queue.post(wrs)
    }

    fn get_dma_mr(pd: &Pd<Self>, access: u32, memory: DmaMemory) -> Result<MrHandle> {
        let port = pd.device().data();
        let permit = Permit::take(&port.limits, |l| &l.mrs)?;
        let mr = port.regions.add_kernel(pd.data().domain, access, memory)?;
        Ok(MrHandle {
            region: Region::Plain(mr.key()),
            port: port.clone(),
            _permit: permit,
        })
    }

    /// # Errors
    ///
    /// `EOPNOTSUPP` for access flags that aren't supported; else as [`Umem::pin`] has it, or
    /// [`OdpUmem::new`].
    fn reg_user_mr(
        pd: &Pd<Self>,
        start: u64,
        length: u64,
        iova: u64,
        access: u32,
        udata: &Udata<'_>,
    ) -> Result<MrHandle> {
        udata.expect_no_input()?;
        if access & !MR_ACCESS != 0 {
            return Err(EOPNOTSUPP);
        }
        let device = pd.device();
        let port = device.data();
        let permit = Permit::take(&port.limits, |l| &l.mrs)?;
        let (domain, iova) = (pd.data().domain, base(iova, access));
        let mr = if access & access::ON_DEMAND != 0 && (start, length) == EVERYTHING {
            let space = OdpSpace::new::<Self>(device, access)?;
            port.regions.add_everything(domain, access, space)?
        } else if access & access::ON_DEMAND != 0 {
            let umem = OdpUmem::new::<Self>(device, start, length, access)?;
            port.regions.add_on_demand(domain, access, iova, umem)?
        } else {
            let umem = Umem::pin::<Self>(device, start, length, access)?;
            port.regions.add_user(domain, access, iova, umem)?
        };
        Ok(MrHandle {
            region: Region::Plain(mr.key()),
            port: port.clone(),
            _permit: permit,
        })
    }

    /// # Errors
    ///
    /// `EOPNOTSUPP` for access flags that aren't supported, `EINVAL` for a range that wraps around.
    fn reg_dmabuf_mr(pd: &Pd<Self>, memory: DmaBuf, iova: u64, access: u32) -> Result<MrHandle> {
        if access & (!MR_ACCESS | access::ON_DEMAND) != 0 {
            return Err(EOPNOTSUPP);
        }
        let port = pd.device().data();
        let permit = Permit::take(&port.limits, |l| &l.mrs)?;
        let mr = port
            .regions
            .add_dmabuf(pd.data().domain, access, base(iova, access), memory)?;
        Ok(MrHandle {
            region: Region::Plain(mr.key()),
            port: port.clone(),
            _permit: permit,
        })
    }

    /// # Errors
    ///
    /// `EOPNOTSUPP` for access flags that aren't supported and for memory that is or is to be paged
    /// on demand, `EBUSY` while windows are bound,
    /// `EPERM` if memory of another process had to be pinned anew, `EINVAL` for a region of the
    /// kernel; else as [`Umem::pin`] has it.
    fn rereg_user_mr(mr: &rdma::Mr<Self>, pd: &Pd<Self>, change: MrChange<'_, Self>) -> Result {
        let MrHandle {
            region: Region::Plain(key),
            port,
            ..
        } = mr.data()
        else {
            return Err(EINVAL);
        };
        let fixed = !MR_ACCESS | access::ON_DEMAND;
        if change.access.is_some_and(|a| a & fixed != 0) {
            return Err(EOPNOTSUPP);
        }
        let device = pd.device();
        let iova = change.memory.map(|(_, _, iova)| iova);
        port.regions.change(
            *key,
            change.pd.map(|pd| pd.data().domain),
            change.access,
            iova,
            |old, access| match change.memory {
                Some((start, length, _)) => {
                    Umem::pin::<Self>(device, start, length, access).map(Some)
                }
                // What was pinned for reading can't be written, whatever the flags say.
                None if access & WRITES != 0 && !old.is_writable() => {
                    if !old.is_current() {
                        return Err(EPERM);
                    }
                    Umem::pin::<Self>(device, old.start(), old.len() as u64, access).map(Some)
                }
                None => Ok(None),
            },
        )
    }

    /// # Errors
    ///
    /// `EINVAL` for more pages than `max_fast_reg_page_list_len`, or none.
    fn alloc_mr(pd: &Pd<Self>, max_pages: u32) -> Result<MrHandle> {
        if max_pages == 0 || max_pages > limits::MAX_FAST_REG_PAGES {
            return Err(EINVAL);
        }
        let port = pd.device().data();
        let permit = Permit::take(&port.limits, |l| &l.mrs)?;
        let mr = port
            .regions
            .add_fast(pd.data().domain, max_pages as usize)?;
        Ok(MrHandle {
            region: Region::Fast(mr),
            port: port.clone(),
            _permit: permit,
        })
    }

    fn map_mr_sg(mr: &rdma::Mr<Self>, list: SgMap<'_>) -> Result<c_int> {
        mr.data().fast().ok_or(EINVAL)?.map(list)
    }

    fn mr_keys(mr: &MrHandle) -> (u32, u32) {
        let key = match &mr.region {
            Region::Plain(key) => *key,
            Region::Fast(mr) => mr.first_key(),
        };
        (key, key)
    }

    /// # Errors
    ///
    /// For a range that makes no sense those of `ibv_advise_mr(3)`; then, if it must be so, as
    /// [`OdpUmem::prefetch`] has it.
    fn advise_mr(
        pd: &Pd<Self>,
        how: Paging,
        must: bool,
        ranges: impl Iterator<Item = Sge> + Clone,
    ) -> Result {
        let (regions, domain) = (&pd.device().data().regions, pd.data().domain);
        for range in ranges.clone() {
            regions.paged(domain, &range, how)?;
        }
        for range in ranges {
            let (mr, at) = regions.paged(domain, &range, how)?;
            let done = mr.prefetch(at, range.length as usize, how);
            if must {
                done?;
            }
        }
        Ok(())
    }

    /// # Errors
    ///
    /// `EBUSY` while windows are bound (`ibv_dereg_mr(3)`).
    fn dereg_mr(mr: &rdma::Mr<Self>) -> Result {
        let MrHandle { region, port, .. } = mr.data();
        match region {
            Region::Plain(key) => port.regions.remove(*key)?,
            Region::Fast(mr) => port.regions.remove_fast(mr),
        }
        Ok(())
    }

    fn alloc_mw(pd: &Pd<Self>, kind: MwKind, _udata: &Udata<'_>) -> Result<(MwHandle, u32)> {
        let port = pd.device().data();
        let permit = Permit::take(&port.limits, |l| &l.mws)?;
        let window = port.regions.add_window(pd.data().domain, kind)?;
        let key = window.first_key();
        let handle = MwHandle {
            window,
            port: port.clone(),
            _permit: permit,
        };
        Ok((handle, key))
    }

    fn dealloc_mw(mw: &Mw<Self>) {
        let MwHandle { window, port, .. } = mw.data();
        port.regions.remove_window(window);
    }

    fn qp_detail(qp: &Qp<Self>, out: &mut Detail<'_>) {
        qp.data().qp.view().tell(out);
    }

    fn cq_detail(cq: &Cq<Self>, out: &mut Detail<'_>) {
        cq.data().cq.tell(out);
    }

    fn srq_detail(srq: &Srq<Self>, out: &mut Detail<'_>) {
        srq.data().queue.tell(out);
    }

    fn mr_detail(mr: &rdma::Mr<Self>, out: &mut Detail<'_>) {
        let MrHandle { region, port, .. } = mr.data();
        match region {
            Region::Plain(key) => port.regions.tell(*key, out),
            Region::Fast(mr) => mr.tell(out),
        }
    }

    fn unregistered(device: &Device<Self>) {
        device.data().unregistered();
    }
}

/// The address that a region's beginning is known by.
fn base(iova: u64, access: u32) -> u64 {
    if access & access::ZERO_BASED != 0 {
        0
    } else {
        iova
    }
}

/// Checks the sizes asked for against the device's limits.
fn check_cap(cap: &QpCap) -> Result {
    let fits = cap.max_send_wr <= limits::MAX_QP_WR
        && cap.max_recv_wr <= limits::MAX_QP_WR
        && cap.max_send_sge <= limits::MAX_SGE
        && cap.max_recv_sge <= limits::MAX_SGE
        && cap.max_inline_data <= limits::MAX_INLINE;
    fits.then_some(()).ok_or(EINVAL)
}
