// SPDX-License-Identifier: GPL-2.0

//! UDP ports of a driver.

use core::ptr::NonNull;

use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        new_mutex,
        rcu,
        Arc,
        Mutex, //
    }, //
};

use crate::{
    bindings,
    Family,
    IpAddr,
    NetDevice,
    NetNs,
    RxSkb, //
};

/// Someone who gets the packets to a UDP port.
pub trait Receiver: Send + Sync + 'static {
    /// A packet has come.
    ///
    /// Its UDP checksum, if it has one, may not have been checked. It may be a train of packets,
    /// see [`RxBuf::segments`](crate::RxBuf::segments).
    ///
    /// It is called in softirq context, on many CPUs at once, under the RCU read lock. It must not
    /// sleep.
    fn receive(&self, packet: RxSkb<'_>);
}

/// What the user data of a socket point to.
///
/// The low bits of that pointer are used otherwise by the kernel.
#[repr(align(8))]
struct Hook<R: Receiver> {
    receiver: Arc<R>,
}

/// A [`Hook`] of some type.
trait AnyHook: Send + Sync {}

impl<R: Receiver> AnyHook for Hook<R> {}

/// What there is of a socket.
///
/// # Invariants
///
/// If there is `sk`, it is a UDP socket of the kernel, set up with [`receive_callback`] and a
/// pointer to `hook`; so is `tap`, with [`tap_callback`]. After they were closed, `hook` and `tap`
/// stay for a grace period.
#[derive(Default)]
struct State {
    sk: Option<NonNull<bindings::sock>>,
    /// What takes packets before the socket gets them.
    tap: Option<NonNull<c_void>>,
    hook: Option<KBox<dyn AnyHook>>,
}

// SAFETY: Sockets belong to no thread.
unsafe impl Send for State {}

/// A socket that may be open.
#[pin_data]
struct Socket {
    #[pin]
    state: Mutex<State>,
}

impl Socket {
    /// Begins to close the socket. The receiver may still be called for a grace period.
    ///
    /// Returns whether [`Socket::settle`] has not been called yet.
    fn shut(&self) -> bool {
        let mut state = self.state.lock();

        if let Some(sk) = state.sk.take() {
            if let Some(tap) = state.tap {
                // SAFETY: By the type invariants it is one of a namespace that has not been taken
                // apart, and it is closed once, as `sk` is taken.
                unsafe { bindings::udp_tap_close(tap.as_ptr()) };
            }
            // SAFETY: By the type invariants it is such a socket, which is not used again. The
            // namespace has not been taken apart: it closes its sockets before, see `Sockets`.
            unsafe { bindings::udp_tunnel_sock_release(sk.as_ptr()) };
        }
        state.hook.is_some()
    }

    /// Drops what the receiver needs, a grace period after [`Socket::shut`].
    fn settle(&self) {
        let (hook, tap) = {
            let mut state = self.state.lock();

            (state.hook.take(), state.tap.take())
        };

        if let Some(tap) = tap {
            // SAFETY: It was closed a grace period ago, and is not used again.
            unsafe { bindings::udp_tap_free(tap.as_ptr()) };
        }
        drop(hook);
    }

    /// Closes the socket. When this returns the receiver is not called any more, whoever closed
    /// it.
    fn close(&self) {
        if self.shut() {
            rcu::synchronize_rcu();
            self.settle();
        }
    }
}

/// The sockets that are open in a namespace, and whether more can be opened.
///
/// Whoever opens one holds off the end of the namespace until it has been added here, and the end
/// calls [`Sockets::close_all`]. So a socket that is open is one of a namespace that has not been
/// taken apart.
#[pin_data]
pub(crate) struct Sockets {
    #[pin]
    open: Mutex<KVec<Arc<Socket>>>,
}

impl Sockets {
    pub(crate) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                open <- new_mutex!(KVec::new(), "Sockets::open"),
            }),
            GFP_KERNEL,
        )
    }

    fn add(&self, socket: Arc<Socket>) -> Result {
        Ok(self.open.lock().push(socket, GFP_KERNEL)?)
    }

    fn remove(&self, socket: &Arc<Socket>) {
        self.open.lock().retain(|other| !Arc::ptr_eq(other, socket));
    }

    /// Closes all sockets.
    ///
    /// When this returns their receivers are not called any more.
    pub(crate) fn close_all(&self) {
        let sockets = core::mem::take(&mut *self.open.lock());
        let mut wait = false;

        for socket in &sockets {
            wait |= socket.shut();
        }
        if wait {
            rcu::synchronize_rcu();
        }
        for socket in &sockets {
            socket.settle();
        }
    }
}

/// An open UDP port; dropping it closes the port.
///
/// When it has been dropped the receiver is not called any more. The port is closed before that if
/// the namespace goes.
///
/// It must be dropped in process context, without the RTNL lock, and not by the receiver.
pub struct UdpSocket {
    socket: Arc<Socket>,
    sockets: Arc<Sockets>,
    family: Family,
    port: u16,
}

impl UdpSocket {
    /// Opens a port, see [`Namespace::open_udp`](crate::Namespace::open_udp).
    ///
    /// `sockets` must be those of the namespace.
    pub(crate) fn open<R: Receiver>(
        net: &NetNs,
        sockets: &Arc<Sockets>,
        family: Family,
        port: u16,
        receiver: Arc<R>,
    ) -> Result<Option<Self>> {
        let socket = Arc::pin_init(
            pin_init!(Socket {
                state <- new_mutex!(State::default(), "Socket::state"),
            }),
            GFP_KERNEL,
        )?;
        let hook = KBox::new(Hook { receiver }, GFP_KERNEL)?;
        let user_data = core::ptr::from_ref(&*hook).cast_mut().cast::<c_void>();

        // Before it is opened, so that nothing can fail once it is open.
        sockets.add(socket.clone())?;

        let this = Self {
            socket,
            sockets: sockets.clone(),
            family,
            port,
        };
        let mut sk = core::ptr::null_mut();

        // SAFETY: By the type invariants it is a namespace with its protocols up. The user data are
        // a pointer to what the callback expects, which stays there until the callback doesn't run
        // any more: see `Socket::close`.
        let opened = to_result(unsafe {
            bindings::udp_encap_open(
                net.as_raw(),
                family == Family::V6,
                port,
                user_data,
                Some(receive_callback::<R>),
                &mut sk,
            )
        });

        match opened {
            Ok(()) => {
                let sk = NonNull::new(sk).ok_or(EINVAL)?;

                // INVARIANT: It was set up so. If there is no tap, dropping `this` closes it.
                *this.socket.state.lock() = State {
                    sk: Some(sk),
                    tap: None,
                    hook: Some(hook),
                };

                let mut tap = core::ptr::null_mut();
                // SAFETY: It is an open UDP socket of a namespace with its protocols up. The user
                // data are a pointer to what the callback expects, as above.
                to_result(unsafe {
                    bindings::udp_tap_open(
                        sk.as_ptr(),
                        user_data,
                        Some(tap_callback::<R>),
                        &mut tap,
                    )
                })?;
                // INVARIANT: It was set up so.
                this.socket.state.lock().tap = NonNull::new(tap);
                Ok(Some(this))
            }
            Err(e) if e == EAFNOSUPPORT => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Returns the version of the protocol.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    fn member(&self, join: bool, ifindex: u32, group: &IpAddr) -> Result {
        if group.family() != self.family {
            return Err(EINVAL);
        }

        let state = self.socket.state.lock();
        let sk = state.sk.ok_or(ENODEV)?;

        // CAST: An index that comes from C as a number that is not negative.
        //
        // SAFETY: By the type invariants it is a UDP socket, which is not closed while the lock is
        // held. Its family is that of the address, which is as long as the function expects.
        to_result(unsafe {
            bindings::udp_mc_member(sk.as_ptr(), join, ifindex as c_int, group.octets().as_ptr())
        })
    }

    /// Joins a group on a device of the namespace, so that packets to the group come in.
    ///
    /// Packets come without regard to who has joined: a receiver gets all packets to its port that
    /// the host has a member for.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: it is not an address of a group, or of another family.
    /// - `EADDRINUSE`: it has been joined.
    /// - `ENODEV`: the port is closed, or the device not in the namespace.
    /// - `ENOBUFS`: too many groups, or no memory.
    ///
    /// Context: process, without the RTNL lock.
    pub fn join(&self, dev: &NetDevice, group: &IpAddr) -> Result {
        self.member(true, dev.ifindex(), group)
    }

    /// Leaves a group on the device of an index, also if there is no such device any more: the socket
    /// remembers what it joined, and may join so much at a time.
    ///
    /// # Errors
    ///
    /// - `EINVAL`, `ENODEV`: as for [`UdpSocket::join`].
    /// - `EADDRNOTAVAIL`: it has not been joined.
    ///
    /// Context: process, without the RTNL lock.
    pub fn leave(&self, ifindex: u32, group: &IpAddr) -> Result {
        self.member(false, ifindex, group)
    }

    /// Returns whether the port is still open.
    ///
    /// Context: process.
    pub fn is_open(&self) -> bool {
        self.socket.state.lock().sk.is_some()
    }
}

impl Drop for UdpSocket {
    fn drop(&mut self) {
        // First, so that the end of the namespace waits for it.
        self.socket.close();
        self.sockets.remove(&self.socket);
    }
}

/// The callback for a packet that is taken before UDP gets it.
///
/// # Safety
///
/// It must be called with user data that point to a `Hook<R>`, under the RCU read lock, with a
/// packet that the callee takes over, and which is as UDP would hand it to a socket, or a train of
/// such.
unsafe extern "C" fn tap_callback<R: Receiver>(
    user_data: *mut c_void,
    skb: *mut bindings::sk_buff,
) -> c_int {
    // SAFETY: By the safety requirements.
    let packet = unsafe { RxSkb::from_udp(skb) };

    // SAFETY: By the safety requirements. A hook is freed a grace period after the tap was closed.
    unsafe { &*user_data.cast::<Hook<R>>() }
        .receiver
        .receive(packet);
    0
}

/// The callback of UDP for a packet.
///
/// # Safety
///
/// It must be called by UDP for a socket whose user data are null or point to a `Hook<R>`, under
/// the RCU read lock, with a packet that the callee takes over.
unsafe extern "C" fn receive_callback<R: Receiver>(
    sk: *mut bindings::sock,
    skb: *mut bindings::sk_buff,
) -> c_int {
    // SAFETY: By the safety requirements, and UDP has checked that there is a UDP header.
    let packet = unsafe { RxSkb::from_udp(skb) };
    // SAFETY: By the safety requirements it is a socket, and the RCU read lock is held.
    let hook = unsafe { bindings::sk_user_data(sk) }.cast::<Hook<R>>();

    // SAFETY: By the safety requirements. A hook is freed a grace period after the pointer to it
    // was reset.
    match unsafe { hook.as_ref() } {
        Some(hook) => hook.receiver.receive(packet),
        None => packet.into_buf().discard(),
    }
    0
}
