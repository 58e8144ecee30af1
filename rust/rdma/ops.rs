// SPDX-License-Identifier: GPL-2.0

//! The operations table: C functions that check, convert and call the provider.
//!
//! Locking and lifetime are the core's: it calls no operation on an object after the one that
//! destroys it, nor before the creating one has returned, and holds what the object was
//! created from (PD, CQs, device) as long as the object.

#![expect(
    clippy::missing_safety_doc,
    reason = "each is called as the core calls the operation of its name"
)]

use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem::MaybeUninit,
    slice, //
};
use kernel::{
    error::from_result,
    ffi::{
        c_char,
        c_int,
        c_uint, //
    },
    prelude::*,
    str::CStr,
    sync::aref::ARef, //
};
use rdma_bindings as bindings;

use crate::{
    attr::{
        AhAttr,
        QpAttrs,
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
    mad,
    memory::{
        DmaMemory,
        SgMap, //
    },
    mmap,
    object::{
        Ah,
        BoundCounter,
        Context,
        Cq,
        Device,
        Mr,
        Mw,
        Object,
        Pd,
        Qp,
        Srq, //
    },
    odp::Paging,
    provider::{
        CqNotify,
        MrChange,
        MwKind,
        PortState,
        Provider, //
    },
    udata::Udata,
    wc::WcSlots,
    wr::{
        sges,
        RecvWrs,
        SendWrs, //
    },
};

/// Targets of the events of CQs and QPs are closed before the provider's data is dropped, so
/// they are kept beside it.
pub(crate) struct Ops<P>(PhantomData<fn() -> P>);

/// A table of operations.
pub(crate) struct Table(bindings::ib_device_ops);

// SAFETY: Plain function pointers and constants; `owner` is a static module.
unsafe impl Sync for Table {}

impl Table {
    pub(crate) fn as_raw(&self) -> *const bindings::ib_device_ops {
        &raw const self.0
    }
}

/// Calls `f` and turns its result into 0 or a negative errno.
fn status(f: impl FnOnce() -> Result) -> c_int {
    from_result(|| f().map(|()| 0))
}

/// Turns a result into a pointer or an error pointer.
fn pointer<T>(result: Result<*mut T>) -> *mut T {
    match result {
        Ok(p) => p,
        Err(e) => e.to_ptr(),
    }
}

impl<P: Provider> Ops<P> {
    /// The table. Copied by the core.
    pub(crate) fn table() -> Table {
        const {
            assert!(align_of::<P::Cq>() <= align_of::<CqTarget>());
            assert!(align_of::<P::Qp>() <= align_of::<QpTarget>());
            assert!(align_of::<P::Srq>() <= align_of::<SrqTarget>());
        }
        let mut ops: bindings::ib_device_ops = pin_init::zeroed();
        ops.owner = P::module().as_ptr().cast();
        ops.driver_id = P::DRIVER_ID;
        ops.uverbs_abi_ver = P::ABI_VERSION;

        ops.query_device = Some(Self::query_device);
        ops.query_port = Some(Self::query_port);
        ops.get_port_immutable = Some(Self::get_port_immutable);
        ops.get_link_layer = Some(Self::get_link_layer);
        ops.get_netdev = Some(Self::get_netdev);
        ops.query_pkey = Some(Self::query_pkey);
        ops.get_dev_fw_str = Some(Self::get_dev_fw_str);
        ops.alloc_hw_port_stats = Some(Self::alloc_hw_port_stats);
        ops.get_hw_stats = Some(Self::get_hw_stats);
        ops.process_mad = Some(Self::process_mad);
        ops.dealloc_driver = Some(Self::dealloc_driver);

        ops.alloc_ucontext = Some(Self::alloc_ucontext);
        ops.dealloc_ucontext = Some(Self::dealloc_ucontext);
        ops.disassociate_ucontext = Some(Self::disassociate_ucontext);
        ops.mmap = Some(Self::mmap);
        ops.mmap_free = Some(Self::mmap_free);

        ops.alloc_pd = Some(Self::alloc_pd);
        ops.dealloc_pd = Some(Self::dealloc_pd);
        ops.create_ah = Some(Self::create_ah);
        ops.create_user_ah = Some(Self::create_ah);
        ops.query_ah = Some(Self::query_ah);
        ops.destroy_ah = Some(Self::destroy_ah);

        ops.create_cq = Some(Self::create_cq);
        ops.resize_user_cq = Some(Self::resize_user_cq);
        ops.destroy_cq = Some(Self::destroy_cq);
        ops.poll_cq = Some(Self::poll_cq);
        ops.req_notify_cq = Some(Self::req_notify_cq);

        ops.create_qp = Some(Self::create_qp);
        ops.modify_qp = Some(Self::modify_qp);
        ops.query_qp = Some(Self::query_qp);
        ops.destroy_qp = Some(Self::destroy_qp);
        ops.attach_mcast = Some(Self::attach_mcast);
        ops.detach_mcast = Some(Self::detach_mcast);
        ops.post_send = Some(Self::post_send);
        ops.post_recv = Some(Self::post_recv);

        ops.create_srq = Some(Self::create_srq);
        ops.modify_srq = Some(Self::modify_srq);
        ops.query_srq = Some(Self::query_srq);
        ops.destroy_srq = Some(Self::destroy_srq);
        ops.post_srq_recv = Some(Self::post_srq_recv);

        ops.get_dma_mr = Some(Self::get_dma_mr);
        ops.reg_user_mr = Some(Self::reg_user_mr);
        ops.reg_user_mr_dmabuf = Some(Self::reg_user_mr_dmabuf);
        ops.rereg_user_mr = Some(Self::rereg_user_mr);
        ops.alloc_mr = Some(Self::alloc_mr);
        ops.map_mr_sg = Some(Self::map_mr_sg);
        ops.advise_mr = Some(Self::advise_mr);
        ops.dereg_mr = Some(Self::dereg_mr);

        ops.alloc_mw = Some(Self::alloc_mw);
        ops.dealloc_mw = Some(Self::dealloc_mw);

        ops.counter_init = Some(Self::counter_init);
        ops.counter_alloc_stats = Some(Self::counter_alloc_stats);
        ops.counter_bind_qp = Some(Self::counter_bind_qp);
        ops.counter_unbind_qp = Some(Self::counter_unbind_qp);
        ops.counter_update_stats = Some(Self::counter_update_stats);
        ops.counter_dealloc = Some(Self::counter_dealloc);
        ops.size_rdma_counter = BoundCounter::<P>::SIZE;

        ops.fill_res_qp_entry = Some(Self::fill_res_qp_entry);
        ops.fill_res_cq_entry = Some(Self::fill_res_cq_entry);
        ops.fill_res_srq_entry = Some(Self::fill_res_srq_entry);
        ops.fill_res_mr_entry = Some(Self::fill_res_mr_entry);

        ops.size_ib_ucontext = Context::<P>::SIZE;
        ops.size_ib_pd = Pd::<P>::SIZE;
        ops.size_ib_ah = Ah::<P>::SIZE;
        ops.size_ib_cq = CqWithTarget::<P>::SIZE;
        ops.size_ib_qp = QpWithTarget::<P>::SIZE;
        ops.size_ib_mw = Mw::<P>::SIZE;
        ops.size_ib_srq = SrqWithTarget::<P>::SIZE;
        Table(ops)
    }

    // ---- device ----------------------------------------------------------------------------

    unsafe extern "C" fn query_device(
        device: *mut bindings::ib_device,
        out: *mut bindings::ib_device_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        status(|| {
            // SAFETY: The core passes a valid device and null or valid udata.
            let (device, udata) = unsafe { (Device::<P>::from_raw(device), Udata::new(udata)) };
            udata.expect_no_input()?;
            udata.reply(&[0u8; 0])?;
            let a = P::query_device(device);
            // SAFETY: The core passes a zeroed struct to fill.
            let out = unsafe { &mut *out };
            out.fw_ver = a.fw_ver;
            out.sys_image_guid = a.sys_image_guid;
            out.max_mr_size = a.max_mr_size;
            out.page_size_cap = a.page_size_cap;
            out.vendor_id = a.vendor_id;
            out.device_cap_flags = a.device_cap_flags;
            out.kernel_cap_flags = u64::from(bindings::ib_kernel_cap_flags_IBK_ALLOW_USER_UNREG);
            out.max_qp = a.max_qp;
            out.max_qp_wr = a.max_qp_wr;
            out.max_send_sge = a.max_send_sge;
            out.max_recv_sge = a.max_recv_sge;
            out.max_sge_rd = a.max_sge_rd;
            out.max_cq = a.max_cq;
            out.max_cqe = a.max_cqe;
            out.max_srq = a.max_srq;
            out.max_srq_wr = a.max_srq_wr;
            out.max_srq_sge = a.max_srq_sge;
            out.max_mr = a.max_mr;
            out.max_mw = a.max_mw;
            out.max_fast_reg_page_list_len = a.max_fast_reg_page_list_len;
            out.max_pd = a.max_pd;
            out.max_qp_rd_atom = a.max_qp_rd_atom;
            out.max_res_rd_atom = a.max_res_rd_atom;
            out.max_qp_init_rd_atom = a.max_qp_init_rd_atom;
            out.atomic_cap = if a.atomic {
                bindings::ib_atomic_cap_IB_ATOMIC_HCA
            } else {
                bindings::ib_atomic_cap_IB_ATOMIC_NONE
            };
            out.max_mcast_grp = a.max_mcast_grp;
            out.max_mcast_qp_attach = a.max_mcast_qp_attach;
            out.max_total_mcast_qp_attach = a.max_total_mcast_qp_attach;
            out.max_ah = a.max_ah;
            out.max_pkeys = a.max_pkeys;
            out.local_ca_ack_delay = a.local_ca_ack_delay;
            if let Some(odp) = a.odp {
                out.kernel_cap_flags |=
                    u64::from(bindings::ib_kernel_cap_flags_IBK_ON_DEMAND_PAGING);
                out.odp_caps.general_caps = u64::from(
                    bindings::ib_odp_general_cap_bits_IB_ODP_SUPPORT
                        | bindings::ib_odp_general_cap_bits_IB_ODP_SUPPORT_IMPLICIT,
                );
                let caps = &mut out.odp_caps.per_transport_caps;
                caps.rc_odp_caps = odp.rc;
                caps.uc_odp_caps = odp.uc;
                caps.ud_odp_caps = odp.ud;
            }
            Ok(())
        })
    }

    unsafe extern "C" fn query_port(
        device: *mut bindings::ib_device,
        port: u32,
        out: *mut bindings::ib_port_attr,
    ) -> c_int {
        status(|| {
            if port != 1 {
                return Err(EINVAL);
            }
            let raw = device;
            // SAFETY: The core passes a valid device.
            let device = unsafe { Device::<P>::from_raw(device) };
            let a = P::query_port(device)?;
            // SAFETY: The core passes a zeroed struct to fill.
            let out = unsafe { &mut *out };
            let (state, phys) = match a.state {
                PortState::Active => (
                    bindings::ib_port_state_IB_PORT_ACTIVE,
                    bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_LINK_UP,
                ),
                PortState::Polling => (
                    bindings::ib_port_state_IB_PORT_DOWN,
                    bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_POLLING,
                ),
                PortState::Disabled => (
                    bindings::ib_port_state_IB_PORT_DOWN,
                    bindings::ib_port_phys_state_IB_PORT_PHYS_STATE_DISABLED,
                ),
            };
            out.state = state;
            out.phys_state = phys as u8;
            out.max_mtu = a.max_mtu;
            out.active_mtu = a.active_mtu;
            out.gid_tbl_len = a.gid_tbl_len;
            out.pkey_tbl_len = a.pkey_tbl_len;
            out.max_msg_sz = a.max_msg_sz;
            out.port_cap_flags = bindings::ib_port_capability_mask_bits_IB_PORT_CM_SUP;
            out.max_vl_num = 1;
            out.bad_pkey_cntr = a.bad_pkey_cntr;
            out.qkey_viol_cntr = a.qkey_viol_cntr;
            let (mut speed, mut width) = (0, 0);
            // SAFETY: The device is valid; the function takes RTNL itself.
            if unsafe { bindings::ib_get_eth_speed(raw, port, &raw mut speed, &raw mut width) } == 0
            {
                out.active_speed = speed;
                out.active_width = width;
            }
            Ok(())
        })
    }

    unsafe extern "C" fn get_port_immutable(
        device: *mut bindings::ib_device,
        port: u32,
        out: *mut bindings::ib_port_immutable,
    ) -> c_int {
        status(|| {
            if port != 1 {
                return Err(EINVAL);
            }
            // SAFETY: The core passes a valid device.
            let a = P::query_port(unsafe { Device::<P>::from_raw(device) })?;
            // SAFETY: The core passes a struct to fill.
            let out = unsafe { &mut *out };
            out.core_cap_flags = bindings::PORT_CAP_ROCE_V2;
            out.pkey_tbl_len = i32::from(a.pkey_tbl_len);
            out.gid_tbl_len = a.gid_tbl_len;
            out.max_mad_size = bindings::MAD_SIZE;
            Ok(())
        })
    }

    unsafe extern "C" fn get_link_layer(
        _device: *mut bindings::ib_device,
        _port: u32,
    ) -> bindings::rdma_link_layer {
        bindings::rdma_link_layer_IB_LINK_LAYER_ETHERNET
    }

    unsafe extern "C" fn get_netdev(
        device: *mut bindings::ib_device,
        port: u32,
    ) -> *mut kernel::bindings::net_device {
        if port != 1 {
            return core::ptr::null_mut();
        }
        // SAFETY: The core passes a valid device.
        match P::netdev(unsafe { Device::<P>::from_raw(device) }) {
            // The reference goes to the core.
            Some(netdev) => ARef::into_raw(netdev).as_ptr().cast(),
            None => core::ptr::null_mut(),
        }
    }

    unsafe extern "C" fn query_pkey(
        device: *mut bindings::ib_device,
        port: u32,
        index: u16,
        out: *mut u16,
    ) -> c_int {
        status(|| {
            if port != 1 {
                return Err(EINVAL);
            }
            // SAFETY: The core passes a valid device and a place to write to.
            unsafe { *out = P::query_pkey(Device::<P>::from_raw(device), index)? };
            Ok(())
        })
    }

    unsafe extern "C" fn get_dev_fw_str(device: *mut bindings::ib_device, out: *mut c_char) {
        // SAFETY: The core passes a valid device.
        let version: &CStr = P::firmware(unsafe { Device::<P>::from_raw(device) });
        let bytes = version.to_bytes();
        let n = bytes
            .len()
            .min(bindings::IB_FW_VERSION_NAME_MAX as usize - 1);
        // SAFETY: The core passes room for `IB_FW_VERSION_NAME_MAX` bytes.
        unsafe {
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), n);
            *out.add(n) = 0;
        }
    }

    unsafe extern "C" fn alloc_hw_port_stats(
        _device: *mut bindings::ib_device,
        _port: u32,
    ) -> *mut bindings::rdma_hw_stats {
        let descs = P::STATS.as_slice();
        // SAFETY: The descriptions are static. No life span: each query reads afresh.
        unsafe { bindings::rdma_alloc_hw_stats_struct(descs.as_ptr(), descs.len() as c_int, 0) }
    }

    unsafe extern "C" fn get_hw_stats(
        device: *mut bindings::ib_device,
        stats: *mut bindings::rdma_hw_stats,
        port: u32,
        _index: c_int,
    ) -> c_int {
        if port != 1 || stats.is_null() {
            return EINVAL.to_errno();
        }
        // SAFETY: The core passes a valid device; `stats` was made by `alloc_hw_port_stats`, and
        // the core holds its lock.
        unsafe {
            let device = Device::<P>::from_raw(device);
            Self::fill_stats(stats, |i| P::read_counter(device, i))
        }
    }

    /// Fills in all counters and returns how many there are.
    ///
    /// # Safety
    ///
    /// `stats` must have been made for the counters of `P`, and be accessed by nobody else.
    unsafe fn fill_stats(
        stats: *mut bindings::rdma_hw_stats,
        read: impl Fn(usize) -> u64,
    ) -> c_int {
        let n = P::STATS.as_slice().len();
        // SAFETY: By the safety requirements there are `n` values behind it.
        let values = unsafe { slice::from_raw_parts_mut((*stats).value.as_mut_ptr(), n) };
        for (i, v) in values.iter_mut().enumerate() {
            *v = read(i);
        }
        n as c_int
    }

    /// What is not answered here goes to whoever registered for it.
    unsafe extern "C" fn process_mad(
        device: *mut bindings::ib_device,
        _flags: c_int,
        port: u32,
        _wc: *const bindings::ib_wc,
        _grh: *const bindings::ib_grh,
        asked: *const bindings::ib_mad,
        out: *mut bindings::ib_mad,
        _out_len: *mut usize,
        _out_pkey_index: *mut u16,
    ) -> c_int {
        let passed_on = bindings::ib_mad_result_IB_MAD_RESULT_SUCCESS;
        // SAFETY: The core passes a valid device, and a datagram of `MAD_SIZE` bytes, as the port
        // has no longer ones.
        let (device, asked) = unsafe {
            (
                Device::<P>::from_raw(device),
                &*asked.cast::<[u8; mad::MAD]>(),
            )
        };
        // CAST: There is port 1 only.
        let answer = mad::answer(asked, port as u8, || P::port_counters(device));
        let Some(answer) = answer else {
            return passed_on as c_int;
        };
        // SAFETY: There is room for a datagram.
        unsafe { out.cast::<[u8; mad::MAD]>().write(answer) };
        (passed_on | bindings::ib_mad_result_IB_MAD_RESULT_REPLY) as c_int
    }

    // ---- counters of queue pairs -------------------------------------------------------------
    //
    // The core calls `counter_init` and `counter_alloc_stats` on a new counter, then
    // `counter_bind_qp` for the first queue pair. If that fails it frees the counter without a
    // word, so what has to be freed is made there, as the last thing that can fail.

    unsafe extern "C" fn counter_init(counter: *mut bindings::rdma_counter) {
        // SAFETY: Zeroed memory of the size asked for that nobody else knows yet.
        unsafe { BoundCounter::<P>::init(counter, UnsafeCell::new(None)) };
    }

    unsafe extern "C" fn counter_alloc_stats(
        _counter: *mut bindings::rdma_counter,
    ) -> *mut bindings::rdma_hw_stats {
        let descs = P::STATS.as_slice();
        // SAFETY: As in `alloc_hw_port_stats`.
        unsafe { bindings::rdma_alloc_hw_stats_struct(descs.as_ptr(), descs.len() as c_int, 0) }
    }

    unsafe extern "C" fn counter_bind_qp(
        counter: *mut bindings::rdma_counter,
        qp: *mut bindings::ib_qp,
        _port: u32,
    ) -> c_int {
        status(|| {
            // SAFETY: The core passes a counter after `counter_init`, a QP of ours that is bound to
            // none, and holds the counter's lock, under which alone the set is accessed until
            // `counter_dealloc`.
            unsafe {
                let set = &mut *BoundCounter::<P>::from_raw(counter).data().get();
                let set = match set {
                    Some(set) => set,
                    None => set.insert(P::new_counter(Device::<P>::from_raw((*qp).device))?),
                };
                P::bind_counter(Qp::<P>::from_raw(qp), Some(set));
                (*qp).counter = counter;
            }
            Ok(())
        })
    }

    unsafe extern "C" fn counter_unbind_qp(qp: *mut bindings::ib_qp, _port: u32) -> c_int {
        // SAFETY: The core passes a QP of ours that is bound, and holds its counter's lock.
        unsafe {
            P::bind_counter(Qp::<P>::from_raw(qp), None);
            (*qp).counter = core::ptr::null_mut();
        }
        0
    }

    unsafe extern "C" fn counter_update_stats(counter: *mut bindings::rdma_counter) -> c_int {
        // SAFETY: As in `counter_bind_qp`; the values were made by `counter_alloc_stats` and are
        // under the same lock.
        unsafe {
            let set = &*BoundCounter::<P>::from_raw(counter).data().get();
            Self::fill_stats((*counter).stats, |i| {
                set.as_ref().map_or(0, |set| P::read_bound(set, i))
            });
        }
        0
    }

    unsafe extern "C" fn counter_dealloc(counter: *mut bindings::rdma_counter) -> c_int {
        // SAFETY: The last operation on the counter.
        unsafe { BoundCounter::<P>::destroy(counter) };
        0
    }

    unsafe extern "C" fn dealloc_driver(device: *mut bindings::ib_device) {
        // SAFETY: The core calls this once, last of all, with nothing else on the device.
        unsafe {
            P::unregistered(Device::<P>::from_raw(device));
            Device::<P>::destroy(device);
        }
    }

    // ---- user contexts -----------------------------------------------------------------------

    unsafe extern "C" fn alloc_ucontext(
        context: *mut bindings::ib_ucontext,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        status(|| {
            // SAFETY: The core set the device of the new context; udata is valid.
            let (device, udata) =
                unsafe { (Device::<P>::from_raw((*context).device), Udata::new(udata)) };
            udata.expect_no_input()?;
            let data = P::alloc_context(device)?;
            udata.reply(&[0u8; 0])?;
            // SAFETY: A new object of the size asked for.
            unsafe { Context::<P>::init(context, data) };
            Ok(())
        })
    }

    unsafe extern "C" fn dealloc_ucontext(context: *mut bindings::ib_ucontext) {
        // SAFETY: The last operation on the context.
        unsafe { Context::<P>::destroy(context) };
    }

    unsafe extern "C" fn disassociate_ucontext(context: *mut bindings::ib_ucontext) {
        // SAFETY: The core passes a valid context.
        P::disassociate(unsafe { Context::<P>::from_raw(context) });
    }

    unsafe extern "C" fn mmap(
        context: *mut bindings::ib_ucontext,
        vma: *mut kernel::bindings::vm_area_struct,
    ) -> c_int {
        // SAFETY: Called by the core for a context of ours; all entries are `MmapEntry`s.
        status(|| unsafe { mmap::map(context, vma) })
    }

    unsafe extern "C" fn mmap_free(entry: *mut bindings::rdma_user_mmap_entry) {
        // SAFETY: All entries are `MmapEntry`s; the core gives up the last reference.
        unsafe { mmap::free(entry) };
    }

    // ---- protection domains, address handles -------------------------------------------------

    unsafe extern "C" fn alloc_pd(
        pd: *mut bindings::ib_pd,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        status(|| {
            // SAFETY: The core set the device of the new PD; udata is null or valid.
            let (device, udata) =
                unsafe { (Device::<P>::from_raw((*pd).device), Udata::new(udata)) };
            udata.expect_no_input()?;
            let data = P::alloc_pd(device)?;
            udata.reply(&[0u8; 0])?;
            // SAFETY: A new object of the size asked for.
            unsafe { Pd::<P>::init(pd, data) };
            Ok(())
        })
    }

    unsafe extern "C" fn dealloc_pd(
        pd: *mut bindings::ib_pd,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: The last operation on the PD.
        unsafe { Pd::<P>::destroy(pd) };
        0
    }

    unsafe extern "C" fn create_ah(
        ah: *mut bindings::ib_ah,
        init: *mut bindings::rdma_ah_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        status(|| {
            // SAFETY: The core set the PD of the new AH, passes attributes whose local GID it
            // holds, and null or valid udata.
            let (pd, attr, flags, udata) = unsafe {
                (
                    Pd::<P>::from_raw((*ah).pd),
                    AhAttr::from_raw(&*(*init).ah_attr),
                    (*init).flags,
                    Udata::new(udata),
                )
            };
            let sleepable = flags & bindings::rdma_create_ah_flags_RDMA_CREATE_AH_SLEEPABLE != 0;
            let data = P::create_ah(pd, attr.ok_or(EINVAL)?, !sleepable, &udata)?;
            // SAFETY: A new object of the size asked for.
            unsafe { Ah::<P>::init(ah, data) };
            Ok(())
        })
    }

    unsafe extern "C" fn query_ah(
        ah: *mut bindings::ib_ah,
        out: *mut bindings::rdma_ah_attr,
    ) -> c_int {
        // SAFETY: The core passes a valid AH and a struct to fill.
        unsafe { P::query_ah(Ah::<P>::from_raw(ah)).path.write_to(&mut *out) };
        0
    }

    unsafe extern "C" fn destroy_ah(ah: *mut bindings::ib_ah, _flags: u32) -> c_int {
        // SAFETY: The last operation on the AH.
        unsafe {
            P::destroy_ah(Ah::<P>::from_raw(ah));
            Ah::<P>::destroy(ah);
        }
        0
    }

    // ---- completion queues -------------------------------------------------------------------

    unsafe extern "C" fn create_cq(
        cq: *mut bindings::ib_cq,
        attr: *const bindings::ib_cq_init_attr,
        attrs: *mut bindings::uverbs_attr_bundle,
    ) -> c_int {
        status(|| {
            // SAFETY: The core set the device of the new CQ and passes valid attributes; the
            // bundle is null for kernel consumers.
            let (device, attr, udata) = unsafe {
                (
                    Device::<P>::from_raw((*cq).device),
                    &*attr,
                    bindings::uverbs_driver_udata(attrs),
                )
            };
            // SAFETY: Null or valid.
            let (context, udata) = unsafe { (context::<P>(udata), Udata::new(udata)) };
            udata.expect_no_input()?;
            if attr.flags != 0 {
                return Err(EOPNOTSUPP);
            }
            // SAFETY: The core keeps the CQ until `destroy_cq`, which closes the target.
            let target = unsafe { CqTarget::new(cq) }?;
            let (data, cqe) = P::create_cq(device, context, target.clone(), attr.cqe, &udata)?;
            // SAFETY: A new object of the size asked for.
            unsafe {
                (*cq).cqe = cqe as c_int;
                CqWithTarget::<P>::init(cq, WithTarget { data, target });
            }
            Ok(())
        })
    }

    unsafe extern "C" fn resize_user_cq(
        cq: *mut bindings::ib_cq,
        cqe: c_uint,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        status(|| {
            let raw = cq;
            // SAFETY: The core passes a valid CQ and the udata of a command of its process.
            let (cq, context, udata) = unsafe {
                (
                    Cq::<P>::from_raw(cq),
                    context::<P>(udata),
                    Udata::new(udata),
                )
            };
            let cqe = P::resize_cq(cq, context.ok_or(EINVAL)?, cqe, &udata)?;
            // SAFETY: The CQ is valid. Others may read or write the field at the same time: each
            // of them with a single access, to find some size that the CQ had.
            unsafe {
                (&raw mut (*raw).cqe)
                    .cast::<c_int>()
                    .write_volatile(cqe as c_int);
            }
            Ok(())
        })
    }

    unsafe extern "C" fn destroy_cq(
        cq: *mut bindings::ib_cq,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: The last operation on the CQ; nothing calls its handlers after `close`.
        unsafe {
            P::destroy_cq(Cq::<P>::from_raw(cq));
            CqWithTarget::<P>::from_raw(cq).data().target.close();
            CqWithTarget::<P>::destroy(cq);
        }
        0
    }

    unsafe extern "C" fn poll_cq(
        cq: *mut bindings::ib_cq,
        n: c_int,
        wc: *mut bindings::ib_wc,
    ) -> c_int {
        let n = usize::try_from(n).unwrap_or(0);
        if n == 0 || wc.is_null() {
            return 0;
        }
        // SAFETY: The consumer passes room for `n` completions.
        let slots = unsafe { slice::from_raw_parts_mut(wc.cast::<MaybeUninit<_>>(), n) };
        let mut slots = WcSlots::new(slots);
        // SAFETY: The core passes a valid CQ.
        P::poll_cq(unsafe { Cq::<P>::from_raw(cq) }, &mut slots);
        slots.used() as c_int
    }

    unsafe extern "C" fn req_notify_cq(
        cq: *mut bindings::ib_cq,
        flags: bindings::ib_cq_notify_flags,
    ) -> c_int {
        let what = CqNotify {
            solicited_only: flags & bindings::ib_cq_notify_flags_IB_CQ_SOLICITED_MASK
                == bindings::ib_cq_notify_flags_IB_CQ_SOLICITED,
            report_missed: flags & bindings::ib_cq_notify_flags_IB_CQ_REPORT_MISSED_EVENTS != 0,
        };
        // SAFETY: The core passes a valid CQ.
        match P::req_notify_cq(unsafe { Cq::<P>::from_raw(cq) }, what) {
            Ok(missed) => c_int::from(missed && what.report_missed),
            Err(e) => e.to_errno(),
        }
    }

    // ---- queue pairs -------------------------------------------------------------------------

    unsafe extern "C" fn create_qp(
        qp: *mut bindings::ib_qp,
        init: *mut bindings::ib_qp_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        status(|| {
            // SAFETY: The core set the PD of the new QP and passes attributes with CQs and SRQ of
            // the same device; udata is null or valid.
            let (pd, context, udata, mut init) = unsafe {
                (
                    Pd::<P>::from_raw((*qp).pd),
                    context::<P>(udata),
                    Udata::new(udata),
                    QpInit::<P>::new(&mut *init),
                )
            };
            udata.expect_no_input()?;
            // SAFETY: The core keeps the QP until `destroy_qp`, which closes the target.
            let target = unsafe { QpTarget::new(qp) }?;
            let (data, number) = P::create_qp(pd, context, target.clone(), &mut init, &udata)?;
            // SAFETY: A new object of the size asked for.
            unsafe {
                (*qp).qp_num = number;
                QpWithTarget::<P>::init(qp, WithTarget { data, target });
            }
            Ok(())
        })
    }

    unsafe extern "C" fn modify_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        mask: c_int,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        status(|| {
            // SAFETY: The core passes a valid QP, attributes whose local GIDs it holds, and null
            // or valid udata.
            let (qp, attrs, udata) = unsafe {
                (
                    Qp::<P>::from_raw(qp),
                    QpAttrs::from_raw(&*attr, mask),
                    Udata::new(udata),
                )
            };
            udata.expect_no_input()?;
            if attrs.other {
                return Err(EOPNOTSUPP);
            }
            P::modify_qp(qp, &attrs)?;
            udata.reply(&[0u8; 0])
        })
    }

    unsafe extern "C" fn query_qp(
        qp: *mut bindings::ib_qp,
        attr: *mut bindings::ib_qp_attr,
        _mask: c_int,
        init: *mut bindings::ib_qp_init_attr,
    ) -> c_int {
        // SAFETY: The core passes a valid QP and two structs to fill.
        let (raw, attr, init) = unsafe { (&*qp, &mut *attr, &mut *init) };
        // SAFETY: As above.
        let (attrs, cap, signal_all) = P::query_qp(unsafe { Qp::<P>::from_raw(qp) });
        attrs.write_to(attr);
        cap.write_to(&mut attr.cap);
        cap.write_to(&mut init.cap);
        init.event_handler = raw.event_handler;
        init.qp_context = raw.qp_context;
        init.send_cq = raw.send_cq;
        init.recv_cq = raw.recv_cq;
        init.srq = raw.srq;
        init.qp_type = raw.qp_type;
        init.sq_sig_type = if signal_all {
            bindings::ib_sig_type_IB_SIGNAL_ALL_WR
        } else {
            bindings::ib_sig_type_IB_SIGNAL_REQ_WR
        };
        0
    }

    unsafe extern "C" fn destroy_qp(
        qp: *mut bindings::ib_qp,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: The last operation on the QP; nothing calls its handler after `close`.
        unsafe {
            P::destroy_qp(Qp::<P>::from_raw(qp));
            QpWithTarget::<P>::from_raw(qp).data().target.close();
            QpWithTarget::<P>::destroy(qp);
        }
        0
    }

    unsafe extern "C" fn attach_mcast(
        qp: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        _lid: u16,
    ) -> c_int {
        // SAFETY: The core passes a valid QP and a GID, which is 16 plain bytes in each variant.
        let (qp, gid) = unsafe { (Qp::<P>::from_raw(qp), (*gid).raw) };
        status(|| P::attach_mcast(qp, &gid))
    }

    unsafe extern "C" fn detach_mcast(
        qp: *mut bindings::ib_qp,
        gid: *mut bindings::ib_gid,
        _lid: u16,
    ) -> c_int {
        // SAFETY: As in `attach_mcast`.
        let (qp, gid) = unsafe { (Qp::<P>::from_raw(qp), (*gid).raw) };
        status(|| P::detach_mcast(qp, &gid))
    }

    unsafe extern "C" fn post_send(
        qp: *mut bindings::ib_qp,
        wrs: *const bindings::ib_send_wr,
        bad: *mut *const bindings::ib_send_wr,
    ) -> c_int {
        // SAFETY: The core passes a valid QP and the consumer a valid list, whose entries are of
        // the struct that opcode and QP type ask for.
        let (qp, mut wrs) = unsafe {
            let datagrams = matches!(
                (*qp).qp_type,
                bindings::ib_qp_type_IB_QPT_UD | bindings::ib_qp_type_IB_QPT_GSI
            );
            (Qp::<P>::from_raw(qp), SendWrs::<P>::new(wrs, datagrams))
        };
        match P::post_send(qp, &mut wrs) {
            Ok(()) => 0,
            Err(e) => {
                if !bad.is_null() {
                    // SAFETY: Not null, so a place to write to.
                    unsafe { *bad = wrs.current() };
                }
                e.to_errno()
            }
        }
    }

    unsafe extern "C" fn post_recv(
        qp: *mut bindings::ib_qp,
        wrs: *const bindings::ib_recv_wr,
        bad: *mut *const bindings::ib_recv_wr,
    ) -> c_int {
        // SAFETY: The core passes a valid QP and the consumer a valid list.
        let (qp, mut wrs) = unsafe { (Qp::<P>::from_raw(qp), RecvWrs::new(wrs)) };
        match P::post_recv(qp, &mut wrs) {
            Ok(()) => 0,
            Err(e) => {
                if !bad.is_null() {
                    // SAFETY: Not null, so a place to write to.
                    unsafe { *bad = wrs.current() };
                }
                e.to_errno()
            }
        }
    }

    // ---- shared receive queues ---------------------------------------------------------------

    unsafe extern "C" fn create_srq(
        srq: *mut bindings::ib_srq,
        init: *mut bindings::ib_srq_init_attr,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        status(|| {
            // SAFETY: The core set the PD of the new SRQ and passes valid attributes; udata is
            // null or valid.
            let (pd, context, udata, init) = unsafe {
                (
                    Pd::<P>::from_raw((*srq).pd),
                    context::<P>(udata),
                    Udata::new(udata),
                    &mut *init,
                )
            };
            udata.expect_no_input()?;
            if init.srq_type != bindings::ib_srq_type_IB_SRQT_BASIC {
                return Err(EOPNOTSUPP);
            }
            let asked = SrqAttr::from_raw(&init.attr);
            // SAFETY: The core keeps the SRQ until `destroy_srq`, which closes the target.
            let target = unsafe { SrqTarget::new(srq) }?;
            let (data, given) = P::create_srq(pd, context, target.clone(), asked, &udata)?;
            given.write_to(&mut init.attr);
            // SAFETY: A new object of the size asked for.
            unsafe { SrqWithTarget::<P>::init(srq, WithTarget { data, target }) };
            Ok(())
        })
    }

    unsafe extern "C" fn modify_srq(
        srq: *mut bindings::ib_srq,
        attr: *mut bindings::ib_srq_attr,
        mask: bindings::ib_srq_attr_mask,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        status(|| {
            // SAFETY: The core passes a valid SRQ and attributes, and null or valid udata.
            let (srq, change, context, udata) = unsafe {
                (
                    Srq::<P>::from_raw(srq),
                    SrqChange::from_raw(&*attr, mask),
                    context::<P>(udata),
                    Udata::new(udata),
                )
            };
            P::modify_srq(srq, context, change.ok_or(EINVAL)?, &udata)
        })
    }

    unsafe extern "C" fn query_srq(
        srq: *mut bindings::ib_srq,
        attr: *mut bindings::ib_srq_attr,
    ) -> c_int {
        // SAFETY: The core passes a valid SRQ and a struct to fill.
        unsafe { P::query_srq(Srq::<P>::from_raw(srq)).write_to(&mut *attr) };
        0
    }

    unsafe extern "C" fn destroy_srq(
        srq: *mut bindings::ib_srq,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        // SAFETY: The last operation on the SRQ; nothing calls its handler after `close`.
        unsafe {
            P::destroy_srq(Srq::<P>::from_raw(srq));
            SrqWithTarget::<P>::from_raw(srq).data().target.close();
            SrqWithTarget::<P>::destroy(srq);
        }
        0
    }

    unsafe extern "C" fn post_srq_recv(
        srq: *mut bindings::ib_srq,
        wrs: *const bindings::ib_recv_wr,
        bad: *mut *const bindings::ib_recv_wr,
    ) -> c_int {
        // SAFETY: The core passes a valid SRQ and the consumer a valid list.
        let (srq, mut wrs) = unsafe { (Srq::<P>::from_raw(srq), RecvWrs::new(wrs)) };
        match P::post_srq_recv(srq, &mut wrs) {
            Ok(()) => 0,
            Err(e) => {
                if !bad.is_null() {
                    // SAFETY: Not null, so a place to write to.
                    unsafe { *bad = wrs.current() };
                }
                e.to_errno()
            }
        }
    }

    // ---- memory regions ----------------------------------------------------------------------

    /// Makes a region, with the provider's data behind the core's struct.
    ///
    /// The memory is allocated first, so that nothing can fail once the provider has made a
    /// region: it is there, and has keys, until `dereg_mr`.
    fn new_mr(make: impl FnOnce() -> Result<P::Mr>) -> Result<*mut bindings::ib_mr> {
        let memory = KBox::<MaybeUninit<Mr<P>>>::zeroed(GFP_KERNEL)?;
        let data = make()?;
        let (lkey, rkey) = P::mr_keys(&data);
        let mr = KBox::into_raw(memory).cast::<bindings::ib_mr>();
        // SAFETY: Zeroed memory of the right size that nobody else knows yet.
        unsafe {
            Mr::<P>::init(mr, data);
            (*mr).lkey = lkey;
            (*mr).rkey = rkey;
        }
        Ok(mr)
    }

    unsafe extern "C" fn get_dma_mr(
        pd: *mut bindings::ib_pd,
        access: c_int,
    ) -> *mut bindings::ib_mr {
        // SAFETY: The core passes a valid PD.
        let pd = unsafe { Pd::<P>::from_raw(pd) };
        pointer(Self::new_mr(|| {
            P::get_dma_mr(pd, access as u32, DmaMemory(()))
        }))
    }

    unsafe extern "C" fn reg_user_mr(
        pd: *mut bindings::ib_pd,
        start: u64,
        length: u64,
        iova: u64,
        access: c_int,
        dmah: *mut bindings::ib_dmah,
        udata: *mut bindings::ib_udata,
    ) -> *mut bindings::ib_mr {
        // SAFETY: The core passes a valid PD and udata.
        let (pd, udata) = unsafe { (Pd::<P>::from_raw(pd), Udata::new(udata)) };
        if !dmah.is_null() {
            return EOPNOTSUPP.to_ptr();
        }
        pointer(Self::new_mr(|| {
            P::reg_user_mr(pd, start, length, iova, access as u32, &udata)
        }))
    }

    unsafe extern "C" fn reg_user_mr_dmabuf(
        pd: *mut bindings::ib_pd,
        offset: u64,
        length: u64,
        iova: u64,
        fd: c_int,
        access: c_int,
        dmah: *mut bindings::ib_dmah,
        _attrs: *mut bindings::uverbs_attr_bundle,
    ) -> *mut bindings::ib_mr {
        if !dmah.is_null() {
            return EOPNOTSUPP.to_ptr();
        }
        // SAFETY: The core passes a valid PD.
        let pd = unsafe { Pd::<P>::from_raw(pd) };
        pointer(Self::new_mr(|| {
            let memory = DmaBuf::map(fd, offset, length)?;
            P::reg_dmabuf_mr(pd, memory, iova, access as u32)
        }))
    }

    unsafe extern "C" fn dereg_mr(
        mr: *mut bindings::ib_mr,
        _udata: *mut bindings::ib_udata,
    ) -> c_int {
        status(|| {
            // SAFETY: Unless it fails the last operation on the region, whose memory came from
            // `new_mr`; the core does not touch it after success.
            unsafe {
                P::dereg_mr(Mr::<P>::from_raw(mr))?;
                Mr::<P>::destroy(mr);
                drop(KBox::from_raw(mr.cast::<MaybeUninit<Mr<P>>>()));
            }
            Ok(())
        })
    }

    unsafe extern "C" fn rereg_user_mr(
        mr: *mut bindings::ib_mr,
        flags: c_int,
        start: u64,
        length: u64,
        iova: u64,
        access: c_int,
        pd: *mut bindings::ib_pd,
        udata: *mut bindings::ib_udata,
    ) -> *mut bindings::ib_mr {
        let flags = flags as u32;
        // SAFETY: The core passes valid objects, `pd` being the one to have, and udata.
        let (mr, pd, udata) = unsafe {
            (
                Mr::<P>::from_raw(mr),
                Pd::<P>::from_raw(pd),
                Udata::new(udata),
            )
        };
        let change = MrChange {
            memory: (flags & bindings::ib_mr_rereg_flags_IB_MR_REREG_TRANS != 0)
                .then_some((start, length, iova)),
            pd: (flags & bindings::ib_mr_rereg_flags_IB_MR_REREG_PD != 0).then_some(pd),
            access: (flags & bindings::ib_mr_rereg_flags_IB_MR_REREG_ACCESS != 0)
                .then_some(access as u32),
        };
        let result = udata
            .expect_no_input()
            .and_then(|()| P::rereg_user_mr(mr, pd, change));
        // Null: it is still the same region.
        pointer(result.map(|()| core::ptr::null_mut()))
    }

    unsafe extern "C" fn alloc_mr(
        pd: *mut bindings::ib_pd,
        kind: bindings::ib_mr_type,
        max_pages: u32,
    ) -> *mut bindings::ib_mr {
        if kind != bindings::ib_mr_type_IB_MR_TYPE_MEM_REG {
            return EOPNOTSUPP.to_ptr();
        }
        // SAFETY: The core passes a valid PD.
        let pd = unsafe { Pd::<P>::from_raw(pd) };
        pointer(Self::new_mr(|| P::alloc_mr(pd, max_pages)))
    }

    unsafe extern "C" fn map_mr_sg(
        mr: *mut bindings::ib_mr,
        list: *mut kernel::bindings::scatterlist,
        len: c_int,
        offset: *mut c_uint,
    ) -> c_int {
        // SAFETY: The core passes a valid region of ours and what its consumer mapped for the
        // device, which was registered without a DMA device: so addresses are the kernel's.
        let (mr, list) = unsafe { (Mr::<P>::from_raw(mr), SgMap::new(mr, list, len, offset)) };
        match P::map_mr_sg(mr, list) {
            Ok(covered) => covered,
            Err(e) => e.to_errno(),
        }
    }

    unsafe extern "C" fn advise_mr(
        pd: *mut bindings::ib_pd,
        advice: bindings::ib_uverbs_advise_mr_advice,
        flags: u32,
        list: *mut bindings::ib_sge,
        len: u32,
        _attrs: *mut bindings::uverbs_attr_bundle,
    ) -> c_int {
        use bindings::{
            ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH as READ,
            ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT as PRESENT,
            ib_uverbs_advise_mr_advice_IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE as WRITE,
            ib_uverbs_advise_mr_flag_IB_UVERBS_ADVISE_MR_FLAG_FLUSH as FLUSH, //
        };
        status(|| {
            let how = match advice {
                READ => Paging::Read,
                WRITE => Paging::Write,
                PRESENT => Paging::Present,
                _ => return Err(EOPNOTSUPP),
            };
            let len = i32::try_from(len).map_err(|_| EINVAL)?;
            // SAFETY: The core passes a valid PD and `len` ranges, all of them during the call.
            let (pd, ranges) = unsafe { (Pd::<P>::from_raw(pd), sges(list, len)) };
            P::advise_mr(pd, how, flags & FLUSH != 0, ranges)
        })
    }

    // ---- memory windows ----------------------------------------------------------------------

    unsafe extern "C" fn alloc_mw(
        mw: *mut bindings::ib_mw,
        udata: *mut bindings::ib_udata,
    ) -> c_int {
        status(|| {
            // SAFETY: The core set PD and type of the new window; udata is null or valid.
            let (pd, kind, udata) =
                unsafe { (Pd::<P>::from_raw((*mw).pd), (*mw).type_, Udata::new(udata)) };
            udata.expect_no_input()?;
            let kind = match kind {
                bindings::ib_mw_type_IB_MW_TYPE_1 => MwKind::One,
                bindings::ib_mw_type_IB_MW_TYPE_2 => MwKind::Two,
                _ => return Err(EINVAL),
            };
            let (data, rkey) = P::alloc_mw(pd, kind, &udata)?;
            // SAFETY: A new object of the size asked for.
            unsafe {
                (*mw).rkey = rkey;
                Mw::<P>::init(mw, data);
            }
            Ok(())
        })
    }

    unsafe extern "C" fn dealloc_mw(mw: *mut bindings::ib_mw) -> c_int {
        // SAFETY: The last operation on the window.
        unsafe {
            P::dealloc_mw(Mw::<P>::from_raw(mw));
            Mw::<P>::destroy(mw);
        }
        0
    }

    // ---- resource tracking -------------------------------------------------------------------
    //
    // The core holds the object meanwhile: what destroys it waits first (`rdma_restrack_del`,
    // `rdma_restrack_prepare_del`).

    unsafe extern "C" fn fill_res_qp_entry(
        msg: *mut kernel::bindings::sk_buff,
        qp: *mut bindings::ib_qp,
    ) -> c_int {
        // SAFETY: The core passes a message and a QP that it holds.
        unsafe { Detail::fill(msg, |out| P::qp_detail(Qp::<P>::from_raw(qp), out)) }
    }

    unsafe extern "C" fn fill_res_cq_entry(
        msg: *mut kernel::bindings::sk_buff,
        cq: *mut bindings::ib_cq,
    ) -> c_int {
        // SAFETY: The core passes a message and a CQ that it holds.
        unsafe { Detail::fill(msg, |out| P::cq_detail(Cq::<P>::from_raw(cq), out)) }
    }

    unsafe extern "C" fn fill_res_srq_entry(
        msg: *mut kernel::bindings::sk_buff,
        srq: *mut bindings::ib_srq,
    ) -> c_int {
        // SAFETY: The core passes a message and an SRQ that it holds.
        unsafe { Detail::fill(msg, |out| P::srq_detail(Srq::<P>::from_raw(srq), out)) }
    }

    unsafe extern "C" fn fill_res_mr_entry(
        msg: *mut kernel::bindings::sk_buff,
        mr: *mut bindings::ib_mr,
    ) -> c_int {
        // SAFETY: The core passes a message and a region that it holds.
        unsafe { Detail::fill(msg, |out| P::mr_detail(Mr::<P>::from_raw(mr), out)) }
    }
}

/// The context of the process behind a command.
///
/// # Safety
///
/// `udata` must be null or valid, of a command on a device of provider `P`.
unsafe fn context<'a, P: Provider>(udata: *mut bindings::ib_udata) -> Option<&'a Context<P>> {
    // SAFETY: Null or valid; the helper asks.
    let context = unsafe { bindings::rdma_udata_context(udata) };
    // SAFETY: Not null: the context of an open device of `P`, kept while the command runs.
    (!context.is_null()).then(|| unsafe { Context::<P>::from_raw(context) })
}

/// The provider's data and the target that is closed before it is dropped.
///
/// The data comes first and nothing is aligned more strictly than a pointer (which
/// [`Ops::table`] makes sure of), so it lies where it would lie alone.
#[repr(C)]
struct WithTarget<D, T> {
    data: D,
    target: T,
}

/// A CQ as allocated. The provider's data comes first, so that it is also a [`Cq`].
type CqWithTarget<P> = Object<bindings::ib_cq, P, WithTarget<<P as Provider>::Cq, CqTarget>>;
/// An SRQ as allocated. The provider's data comes first, so that it is also a [`Srq`].
type SrqWithTarget<P> = Object<bindings::ib_srq, P, WithTarget<<P as Provider>::Srq, SrqTarget>>;
/// A QP as allocated. The provider's data comes first, so that it is also a [`Qp`].
type QpWithTarget<P> = Object<bindings::ib_qp, P, WithTarget<<P as Provider>::Qp, QpTarget>>;
