// SPDX-License-Identifier: GPL-2.0

//! Multicast groups: which queue pairs of which port get what is sent to a group.
//!
//! The GID of a group is an IP group address. The host is a member of the IP group, on the
//! network device of the port, as long as a queue pair is attached, so that switches and routers
//! on the way learn of it by IGMP or MLD.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};
use net::{
    IpAddr,
    UdpSocket, //
};
use softirq::{
    new_bh_spinlock,
    BhSpinLock, //
};

use crate::{
    ah::address,
    limits::{
        MAX_MCAST_ATTACH,
        MAX_MCAST_GRP,
        MAX_MCAST_QP_ATTACH, //
    },
    port::Port,
    qp::QueuePair, //
};

/// A queue pair that is attached to a group.
pub(crate) struct Member {
    pub(crate) qp: Arc<QueuePair>,
    /// How often it was attached. To the core these are several attachments if their LIDs differ,
    /// which mean nothing on Ethernet, and each is detached.
    ///
    /// To detach it must not fail: where there is no memory for a list without it, it is left in
    /// the old one, with none.
    times: Atomic<u32>,
}

impl Member {
    /// Tells whether it is still attached.
    pub(crate) fn is_attached(&self) -> bool {
        self.times.load(Relaxed) != 0
    }

    fn is(&self, qp: &Arc<QueuePair>) -> bool {
        self.is_attached() && Arc::ptr_eq(&self.qp, qp)
    }
}

/// The queue pairs of a group. Never changed: replaced, so that a packet goes to those that were
/// attached when it came.
type Members = Arc<KVec<Arc<Member>>>;

/// A list of those that are still attached, with room for `more`.
fn attached(members: &[Arc<Member>], more: usize) -> Result<KVec<Arc<Member>>> {
    let mut list = KVec::with_capacity(members.len() + more, GFP_KERNEL)?;
    for m in members.iter().filter(|m| m.is_attached()) {
        list.push(m.clone(), GFP_KERNEL)?;
    }
    Ok(list)
}

/// A group of a port.
struct Group {
    ifindex: u32,
    address: IpAddr,
    members: Members,
}

/// The groups of a network namespace.
#[pin_data]
pub(crate) struct Groups {
    /// Held while a queue pair is attached or detached, which may sleep.
    #[pin]
    change: Mutex<()>,
    #[pin]
    list: BhSpinLock<KVec<Group>>,
}

impl Groups {
    /// No groups.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            change <- new_mutex!((), "Groups::change"),
            list <- new_bh_spinlock!(KVec::new(), "Groups::list"),
        })
    }

    /// Returns who is attached to a group.
    pub(crate) fn members(&self, ifindex: u32, address: IpAddr) -> Option<Members> {
        self.list
            .lock()
            .iter()
            .find(|g| g.ifindex == ifindex && g.address == address)
            .map(|g| g.members.clone())
    }

    /// Attaches a queue pair. It gets each datagram once, however often it is attached, until it was
    /// detached as often.
    ///
    /// # Errors
    ///
    /// `ENOMEM` when a limit is reached, be it that of the host for IP groups
    /// (`net.ipv4.igmp_max_memberships`).
    pub(crate) fn attach(&self, qp: &Arc<QueuePair>, gid: &[u8; 16], socket: &UdpSocket) -> Result {
        let port = &qp.port;
        let (ifindex, address) = (port.ifindex, address(gid));
        let _change = self.change.lock();
        let old = self.members(ifindex, address);
        let mut members = attached(old.as_ref().map_or(&[], |m| m.as_slice()), 1)?;
        if let Some(member) = members.iter().find(|m| m.is(qp)) {
            // Nobody else changes it meanwhile.
            let times = member.times.load(Relaxed).checked_add(1).ok_or(ENOMEM)?;
            member.times.store(times, Relaxed);
            return Ok(());
        }
        let (groups, attachments) = self.sizes(port);
        let full = members.len() >= MAX_MCAST_QP_ATTACH as usize
            || attachments >= MAX_MCAST_ATTACH as usize
            || (old.is_none() && groups >= MAX_MCAST_GRP as usize);
        if full {
            return Err(ENOMEM);
        }
        let member = Member {
            qp: qp.clone(),
            times: Atomic::new(1),
        };
        members.push(Arc::new(member, GFP_KERNEL)?, GFP_KERNEL)?;
        let members = Arc::new(members, GFP_KERNEL)?;
        if old.is_some() {
            let _old = self.replace(ifindex, address, Some(members));
            return Ok(());
        }
        // Nobody else changes the list meanwhile, so there is room when it is needed.
        let len = self.list.lock().len();
        let mut list = KVec::with_capacity(len + 1, GFP_KERNEL)?;
        let netdev = port.netdev().ok_or(ENODEV)?;
        match socket.join(&netdev, &address) {
            Err(e) if e == ENOBUFS => return Err(ENOMEM),
            joined => joined?,
        }
        {
            let mut current = self.list.lock();
            for g in current.drain_all() {
                let _ = list.push_within_capacity(g);
            }
            let _ = list.push_within_capacity(Group {
                ifindex,
                address,
                members,
            });
            core::mem::swap(&mut *current, &mut list);
        }
        Ok(())
    }

    /// Detaches a queue pair, once.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is not attached.
    pub(crate) fn detach(
        &self,
        qp: &Arc<QueuePair>,
        gid: &[u8; 16],
        socket: Option<&UdpSocket>,
    ) -> Result {
        let (ifindex, address) = (qp.port.ifindex, address(gid));
        let _change = self.change.lock();
        let old = self.members(ifindex, address).ok_or(EINVAL)?;
        let member = old.iter().find(|m| m.is(qp)).ok_or(EINVAL)?;
        let times = member.times.load(Relaxed).saturating_sub(1);
        member.times.store(times, Relaxed);
        if times > 0 {
            return Ok(());
        }
        if old.iter().any(|m| m.is_attached()) {
            let rest = attached(&old, 0).and_then(|m| Ok(Arc::new(m, GFP_KERNEL)?));
            if let Ok(members) = rest {
                let _old = self.replace(ifindex, address, Some(members));
            }
            return Ok(());
        }
        let _old = self.replace(ifindex, address, None);
        if let Some(socket) = socket {
            // It fails only if the namespace is going, and all its sockets with it.
            let _ = socket.leave(ifindex, &address);
        }
        Ok(())
    }

    /// Replaces the members of a group, or removes it; what was there is for the caller to drop.
    fn replace(&self, ifindex: u32, address: IpAddr, with: Option<Members>) -> Option<Members> {
        let mut list = self.list.lock();
        let at = list
            .iter()
            .position(|g| g.ifindex == ifindex && g.address == address)?;
        match with {
            Some(members) => list
                .get_mut(at)
                .map(|g| core::mem::replace(&mut g.members, members)),
            None => list.remove(at).ok().map(|g| g.members),
        }
    }

    /// Groups of a port, and queue pairs attached to them.
    fn sizes(&self, port: &Port) -> (usize, usize) {
        let list = self.list.lock();
        let of_port = list.iter().filter(|g| g.ifindex == port.ifindex);
        of_port.fold((0, 0), |(n, sum), g| (n + 1, sum + g.members.len()))
    }
}
