// SPDX-License-Identifier: GPL-2.0

//! The attributes in force.

use crate::psn::Psn;
use crate::state::QpAttr;
use crate::verbs::{
    Access,
    Mtu, //
};

/// The attributes in force.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) sqd_notify: bool,
    pub(crate) access: Access,
    pub(crate) pkey_index: u16,
    pub(crate) pkey: u16,
    pub(crate) port: u8,
    pub(crate) qkey: u32,
    pub(crate) mtu: Mtu,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) rq_psn: Psn,
    pub(crate) sq_psn: Psn,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) dest_qpn: u32,
}

impl Settings {
    pub(super) const fn new() -> Self {
        Self {
            sqd_notify: false,
            access: Access::NONE,
            pkey_index: 0,
            pkey: 0xffff,
            port: 1,
            qkey: 0,
            mtu: Mtu::Mtu4096,
            timeout: 0,
            retry_cnt: 0,
            rnr_retry: 0,
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            min_rnr_timer: 0,
            dest_qpn: 0,
        }
    }

    /// Takes over what `a` gives.
    pub(super) fn apply(&mut self, a: &QpAttr) {
        fn set<T: Copy>(to: &mut T, from: Option<T>) {
            if let Some(v) = from {
                *to = v;
            }
        }
        set(&mut self.sqd_notify, a.en_sqd_async_notify);
        set(&mut self.access, a.access);
        set(&mut self.pkey_index, a.pkey_index);
        set(&mut self.port, a.port);
        set(&mut self.qkey, a.qkey);
        set(&mut self.mtu, a.path_mtu);
        set(&mut self.timeout, a.timeout);
        set(&mut self.retry_cnt, a.retry_cnt);
        set(&mut self.rnr_retry, a.rnr_retry);
        set(&mut self.rq_psn, a.rq_psn);
        set(&mut self.sq_psn, a.sq_psn);
        set(&mut self.max_rd_atomic, a.max_rd_atomic);
        set(&mut self.max_dest_rd_atomic, a.max_dest_rd_atomic);
        set(&mut self.min_rnr_timer, a.min_rnr_timer);
        set(&mut self.dest_qpn, a.dest_qpn);
    }
}
