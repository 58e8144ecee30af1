// SPDX-License-Identifier: GPL-2.0

//! Devices and their one port: on a network device, in its namespace.

use core::ops::{
    Deref,
    RangeInclusive, //
};
use kernel::{
    impl_has_work,
    new_work,
    prelude::*,
    str::{
        CStr,
        CString, //
    },
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Relaxed, //
        },
        global_lock,
        Arc, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};
use net::{
    DevKind,
    Namespace,
    Namespaces,
    NetDevice,
    NetEvent,
    NetEvents, //
};
use rdma::{
    DebugDir,
    DeviceBuilder,
    DeviceHandle,
    LinkOps,
    PortEvent,
    PortState, //
};
use rxo_transport::Mtu;
use softirq::{
    new_bh_spinlock,
    BhSpinLock,
    IdTable,
    OwnedQueue,
    QueueKind, //
};

use crate::{
    ah::AddressHandle,
    history::{
        DeviceHistory,
        Event, //
    },
    limits::Limits,
    mr::{
        Domain,
        Regions, //
    },
    provider::Rxo,
    qp::QueuePair,
    stats::{
        Stat,
        Stats, //
    },
    switch::{
        self,
        RxoNet, //
    },
};

/// Bytes that the core subtracts from a network device's MTU before it looks for the path MTU
/// (`iboe_get_mtu`): the longest headers of a packet.
const HEADERS: u32 = 96;
/// Numbers of address handles.
pub(crate) const AH_NUMBERS: RangeInclusive<u32> = 1..=0xff_ffff;

/// What there is of a device as long as anything refers to it.
#[pin_data]
pub(crate) struct Port {
    /// The number of its namespace, by which users know that.
    pub(crate) netns: u32,
    /// The index of its network device in there.
    pub(crate) ifindex: u32,
    pub(crate) guid: u64,
    pub(crate) ns: Arc<Namespace<RxoNet>>,
    pub(crate) stats: Stats,
    #[pin]
    pub(crate) history: DeviceHistory,
    pub(crate) limits: Arc<Limits>,
    #[pin]
    pub(crate) regions: Regions,
    #[pin]
    pub(crate) ahs: IdTable<AddressHandle>,
    domains: Atomic<u64>,
    /// Gone once the network device is being unregistered.
    #[pin]
    netdev: BhSpinLock<Option<ARef<NetDevice>>>,
    #[pin]
    gsi: BhSpinLock<Option<Arc<QueuePair>>>,
    /// The device, to ask the core for its GIDs.
    #[pin]
    device: BhSpinLock<Option<Arc<Registered>>>,
}

/// The device of a port, as the core has it.
#[pin_data]
pub(crate) struct Registered {
    handle: DeviceHandle<Rxo>,
    /// Unregisters it where there may be waited: the network device goes with RTNL held.
    #[pin]
    removal: Work<Registered>,
}

impl_has_work! {
    impl HasWork<Self> for Registered { self.removal }
}

impl WorkItem for Registered {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        this.unregister();
    }
}

impl Registered {
    fn new(handle: DeviceHandle<Rxo>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                handle,
                removal <- new_work!("Registered::removal"),
            }),
            GFP_KERNEL,
        )
    }
}

impl Deref for Registered {
    type Target = DeviceHandle<Rxo>;

    fn deref(&self) -> &DeviceHandle<Rxo> {
        &self.handle
    }
}

impl Port {
    fn new(netdev: &NetDevice, ns: Arc<Namespace<RxoNet>>) -> Result<Arc<Self>> {
        let limits = Arc::new(Limits::new(), GFP_KERNEL)?;
        let stats = Stats::new()?;
        let held = ARef::from(netdev);
        Arc::pin_init(
            try_pin_init!(Self {
                netns: netdev.with_net(|ns| ns.inum()),
                ifindex: netdev.ifindex(),
                guid: guid(netdev.addr().ok_or(EINVAL)?),
                ns,
                stats,
                history <- DeviceHistory::new(),
                limits,
                regions <- Regions::new(),
                ahs <- IdTable::new(c"rxo-ahs"),
                domains: Atomic::new(1),
                netdev <- new_bh_spinlock!(Some(held), "Port::netdev"),
                gsi <- new_bh_spinlock!(None, "Port::gsi"),
                device <- new_bh_spinlock!(None, "Port::device"),
            }),
            GFP_KERNEL,
        )
    }

    /// The network device, unless it is going away.
    pub(crate) fn netdev(&self) -> Option<ARef<NetDevice>> {
        self.netdev.lock().clone()
    }

    /// Tells whether the port is on this network device.
    fn is_on(&self, netdev: &NetDevice) -> bool {
        let held = self.netdev.lock();
        held.as_ref().is_some_and(|d| core::ptr::eq(&**d, netdev))
    }

    /// Lets go of the network device.
    fn detach(&self) {
        let netdev = self.netdev.lock().take();
        drop(netdev);
    }

    /// A number for a new protection domain.
    pub(crate) fn new_domain(&self) -> Domain {
        Domain(self.domains.fetch_add(1, Relaxed))
    }

    /// The path MTU that the network device carries.
    pub(crate) fn mtu(&self) -> Mtu {
        let payload = self.netdev().map_or(0, |d| d.mtu()).saturating_sub(HEADERS);
        Mtu::ALL
            .into_iter()
            .rev()
            .find(|m| m.bytes() <= payload)
            .unwrap_or(Mtu::Mtu256)
    }

    /// The port's state, which is that of the network device.
    pub(crate) fn state(&self) -> PortState {
        match self.netdev() {
            Some(d) if d.is_up() => PortState::Active,
            Some(d) if d.is_running() => PortState::Polling,
            _ => PortState::Disabled,
        }
    }

    /// Tells whether packets could leave and come in.
    pub(crate) fn is_up(&self) -> bool {
        self.netdev.lock().as_ref().is_some_and(|d| d.is_up())
    }

    /// Tells whether a GID is one of the port's.
    pub(crate) fn owns(&self, gid: &[u8; 16]) -> bool {
        let device = self.device.lock().clone();
        device.is_some_and(|d| d.with(|d| d.has_gid(gid)).unwrap_or(false))
    }

    /// Counts and notes a packet that no queue pair is concerned by. `number` is the queue pair
    /// that it is for, if that is known.
    pub(crate) fn refuse(&self, why: Stat, number: u32) {
        self.stats.count(why);
        self.history.note(Event::Refused(why), number);
        self.trace_refused(why, number);
    }

    /// QP 1, if it exists.
    pub(crate) fn gsi(&self) -> Option<Arc<QueuePair>> {
        self.gsi.lock().clone()
    }

    /// Makes a queue pair QP 1, or nothing.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is one already.
    pub(crate) fn set_gsi(&self, qp: Option<Arc<QueuePair>>) -> Result {
        let mut gsi = self.gsi.lock();
        if gsi.is_some() && qp.is_some() {
            return Err(EBUSY);
        }
        let old = core::mem::replace(&mut *gsi, qp);
        drop(gsi);
        drop(old);
        Ok(())
    }

    /// The core has unregistered the device.
    pub(crate) fn unregistered(&self) {
        switch::unplug(&self.ns, self);
        let device = self.device.lock().take();
        drop(device);
        self.detach();
        if let Some(ports) = Ports::get() {
            ports.forget(self);
        }
    }
}

/// The EUI-64 of a MAC (IBTA vol. 1, 4.1.1), big endian in memory.
fn guid(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_ne_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// A device of the module.
struct Entry {
    port: Arc<Port>,
    device: Arc<Registered>,
}

/// All devices of the module.
pub(crate) struct Ports {
    /// The folder that the devices' own are in.
    pub(crate) debug: Option<DebugDir>,
    namespaces: Pin<KBox<Namespaces<RxoNet>>>,
    /// Where devices are unregistered whose network device goes.
    removals: OwnedQueue,
}

struct Global {
    ports: Option<Arc<Ports>>,
    entries: KVec<Entry>,
}

global_lock! {
    // SAFETY: `Ports::publish`, which the module calls first of all, initialises it.
    unsafe(uninit) static GLOBAL: Mutex<Global> = Global { ports: None, entries: KVec::new() };
}

impl Ports {
    /// Makes the list known to the operations that come without a device.
    pub(crate) fn publish(namespaces: Pin<KBox<Namespaces<RxoNet>>>) -> Result<Published> {
        #[expect(
            unsafe_code,
            reason = "a global lock has no other way to be initialised"
        )]
        // SAFETY: Called once, when the module is loaded, before anything else uses the lock.
        unsafe {
            GLOBAL.init()
        };
        let this = Arc::new(
            Self {
                // Without debugfs there is nothing to see, and all else works.
                debug: DebugDir::new(c"rxo", None).ok(),
                namespaces,
                removals: OwnedQueue::new(c"rxo-removals", QueueKind::Patient)?,
            },
            GFP_KERNEL,
        )?;
        GLOBAL.lock().ports = Some(this.clone());
        Ok(Published(this))
    }

    /// The list, while the module is loaded.
    pub(crate) fn get() -> Option<Arc<Self>> {
        GLOBAL.lock().ports.clone()
    }

    /// Removes each device and waits for it.
    pub(crate) fn remove_all(&self) {
        loop {
            let device = GLOBAL.lock().entries.first().map(|e| e.device.clone());
            let Some(device) = device else {
                break;
            };
            device.unregister();
            // Whoever unregistered it took it off the list; if that was someone else, who may
            // not be done with the list yet, this does no harm.
            let mut global = GLOBAL.lock();
            global.entries.retain(|e| !Arc::ptr_eq(&e.device, &device));
        }
    }

    /// Takes a device off the list.
    fn forget(&self, port: &Port) {
        GLOBAL
            .lock()
            .entries
            .retain(|e| !core::ptr::eq(&*e.port, port));
    }

    /// The device on a network device. Its namespace may be on its way out and no longer known.
    fn find(netdev: &NetDevice) -> Option<(Arc<Port>, Arc<Registered>)> {
        GLOBAL
            .lock()
            .entries
            .iter()
            .find(|e| e.port.is_on(netdev))
            .map(|e| (e.port.clone(), e.device.clone()))
    }

    fn namespace(&self, netdev: &NetDevice) -> Option<Arc<Namespace<RxoNet>>> {
        netdev.with_net(|ns| self.namespaces.of(ns))
    }
}

/// The list as the module holds it; unknown again when dropped.
pub(crate) struct Published(Arc<Ports>);

impl Published {
    /// The list.
    pub(crate) fn ports(&self) -> &Arc<Ports> {
        &self.0
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        // Work that runs looks the list up: it must not become the last to hold it.
        self.0.removals.flush();
        let ports = GLOBAL.lock().ports.take();
        drop(ports);
    }
}

/// Follows what happens to network devices.
pub(crate) struct Watcher;

impl NetEvents for Watcher {
    fn event(&self, netdev: &NetDevice, event: NetEvent) {
        let Some((port, device)) = Ports::find(netdev) else {
            return;
        };
        match event {
            NetEvent::Unregister => {
                port.detach();
                if let Some(ports) = Ports::get() {
                    // An error: it is on its way already.
                    let _ = ports.removals.enqueue(device);
                }
            }
            NetEvent::Up | NetEvent::Down | NetEvent::Change => {
                let active = port.state() == PortState::Active;
                port.history.note(Event::Port(active), 0);
                device.port_event(if active {
                    PortEvent::Active
                } else {
                    PortEvent::Error
                });
            }
            _ => (),
        }
    }
}

/// `rdma link add NAME type rxo netdev DEV`.
pub(crate) struct Links;

impl LinkOps for Links {
    const TYPE: &'static CStr = c"rxo";

    /// # Errors
    ///
    /// `EINVAL` for a network device that is not Ethernet, or a VLAN; `EEXIST` if it has a device
    /// already; `EADDRINUSE` if another driver has the UDP port.
    fn new_link(name: &CStr, netdev: &NetDevice) -> Result {
        let ports = Ports::get().ok_or(ENODEV)?;
        if netdev.kind() != DevKind::Ether || netdev.is_loopback() || netdev.is_vlan() {
            return Err(EINVAL);
        }
        let ns = ports.namespace(netdev).ok_or(ENODEV)?;
        let name = CString::try_from(name)?;
        let port = Port::new(netdev, ns.clone())?;
        switch::plug(&ns, &port)?;
        let added = add(&name, netdev, &port);
        if added.is_err() {
            port.unregistered();
        }
        added
    }
}

/// Adds a device to the list and registers it.
fn add(name: &CStr, netdev: &NetDevice, port: &Arc<Port>) -> Result {
    let builder = DeviceBuilder::<Rxo>::new(netdev, port.guid, b"rxo", port.clone())?;
    let device = Registered::new(builder.handle())?;
    *port.device.lock() = Some(device.clone());
    {
        // On the list before it is registered: the network device may go at any time, and
        // somebody else may be adding a device to it.
        let mut global = GLOBAL.lock();
        if global.entries.iter().any(|e| e.port.is_on(netdev)) {
            return Err(EEXIST);
        }
        global.entries.push(
            Entry {
                port: port.clone(),
                device: device.clone(),
            },
            GFP_KERNEL,
        )?;
    }
    builder.register(name)?;
    if port.netdev().is_none() {
        device.unregister();
        return Err(ENODEV);
    }
    Ok(())
}
