// SPDX-License-Identifier: GPL-2.0

//! Address handles: the way to a peer, for datagrams.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use net::{
    IpAddr,
    Route, //
};
use softirq::{
    new_bh_spinlock,
    BhSpinLock, //
};

use crate::{
    limits::Permit,
    mr::Domain,
    port::Port, //
};

/// Addresses of both ends of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) local: IpAddr,
    pub(crate) remote: IpAddr,
}

impl Ends {
    /// Reads them off the GIDs: a GID of RoCEv2 is an IPv6 address, or an IPv4 address mapped.
    ///
    /// # Errors
    ///
    /// `EINVAL` if one is of IPv4 and the other of IPv6.
    pub(crate) fn of(path: &rdma::Path) -> Result<Self> {
        let ends = Self {
            local: address(&path.sgid),
            remote: address(&path.dgid),
        };
        if ends.local.is_v4() != ends.remote.is_v4() {
            return Err(EINVAL);
        }
        Ok(ends)
    }
}

/// The address that a GID stands for.
pub(crate) fn address(gid: &[u8; 16]) -> IpAddr {
    const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    match gid {
        [head @ .., a, b, c, d] if *head == MAPPED => IpAddr::V4([*a, *b, *c, *d]),
        _ => IpAddr::V6(*gid),
    }
}

/// The GID that stands for an address.
pub(crate) fn gid(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4([a, b, c, d]) => [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, a, b, c, d],
        IpAddr::V6(v6) => v6,
    }
}

/// What an address handle holds. Work requests under way keep it.
#[pin_data]
pub(crate) struct AddressHandle {
    pub(crate) path: rdma::Path,
    pub(crate) ends: Ends,
    pub(crate) domain: Domain,
    /// The way that the last datagram took. Its lock is taken with that of a queue pair held.
    #[pin]
    route: BhSpinLock<Option<Route>>,
}

impl AddressHandle {
    /// Checks the path and makes a handle. Does not sleep if `flags` say so.
    pub(crate) fn new(
        path: rdma::Path,
        domain: Domain,
        flags: kernel::alloc::Flags,
    ) -> Result<Arc<Self>> {
        let ends = Ends::of(&path)?;
        Arc::pin_init(
            pin_init!(Self {
                path,
                ends,
                domain,
                route <- new_bh_spinlock!(None, "AddressHandle::route"),
            }),
            flags,
        )
    }

    /// The way that the last datagram took.
    pub(crate) fn route(&self) -> Option<Route> {
        self.route.lock().clone()
    }

    /// Keeps the way for the next datagram.
    pub(crate) fn remember(&self, route: Option<Route>) {
        let old = core::mem::replace(&mut *self.route.lock(), route);
        drop(old);
    }
}

/// The address handle of a consumer.
pub(crate) struct Ah {
    pub(crate) handle: Arc<AddressHandle>,
    pub(crate) port: Arc<Port>,
    /// The number that a process names it by.
    pub(crate) number: Option<u32>,
    pub(crate) _permit: Permit,
}
