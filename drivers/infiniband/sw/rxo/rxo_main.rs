// SPDX-License-Identifier: GPL-2.0

//! rxo: RDMA over Converged Ethernet version 2 in software.
//!
//! The provider: verbs objects, rings, memory keys, ports. What the packets mean is decided by
//! the `rxo_transport` crate; what touches the kernel is behind the `rdma`, `net` and `softirq`
//! crates.
//!
//! Lock order: a queue pair, then a shared receive queue or a completion queue. None is held
//! while a consumer is told of completions or events, which may post again at once.

#![deny(unsafe_code)]

use kernel::prelude::*;

mod abi;
mod ah;
mod cq;
mod crc;
mod detail;
mod fast;
mod history;
mod hold;
mod host;
mod limits;
mod mcast;
mod mr;
mod mw;
mod near;
mod port;
mod posting;
mod provider;
mod qp;
mod ring;
mod rq;
mod snapshot;
mod sq;
mod srq;
mod stats;
mod switch;
mod trace;
mod tx;
mod way;

use crate::{
    port::{
        Links,
        Ports,
        Published,
        Watcher, //
    },
    provider::Rxo,
    snapshot::Shower,
    switch::RxoNet, //
};

module! {
    type: RxoModule,
    name: "rxo",
    authors: ["The rxo developers"],
    description: "RDMA over Ethernet (RoCEv2) in software",
    license: "GPL",
    alias: ["rdma-link-rxo"],
    imports_ns: ["DMA_BUF"],
    params: {
        loopback: u8 {
            default: 1,
            description: "Whether data between queue pairs of one host goes directly (1) or as packets (0)",
        },
        hold: u8 {
            default: 1,
            description: "Whether messages of a stream that nobody waits for wait for others (1) or not (0)",
        },
        check_local: u8 {
            default: 0,
            description: "Whether the invariant CRC of long packets that never left this machine is checked (1) or not (0)",
        },
    },
}

net::impl_per_net!(RxoNet);

/// What is registered with the kernel while the module is loaded.
///
/// Dropped from the top: first no device can be added, then the devices go, and only then the
/// namespaces that they live in.
struct RxoModule {
    links: Option<Pin<KBox<rdma::LinkRegistration<Links>>>>,
    notifier: Option<Pin<KBox<net::NotifierRegistration<Watcher>>>>,
    published: Published,
    shower: Option<Pin<KBox<rdma::FollowerRegistration<Rxo, Shower>>>>,
    /// Waits, as it goes last, for what the tables have let go.
    _reclaimer: softirq::Reclaimer,
}

impl kernel::Module for RxoModule {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        crc::choose();
        let reclaimer = softirq::Reclaimer::new(c"rxo")?;
        let namespaces = KBox::pin_init(net::Namespaces::<RxoNet>::new(), GFP_KERNEL)?;
        let published = Ports::publish(namespaces)?;
        let shower = KBox::pin_init(rdma::FollowerRegistration::new(), GFP_KERNEL)?;
        let notifier = KBox::pin_init(net::NotifierRegistration::new(Watcher), GFP_KERNEL)?;
        let links = KBox::pin_init(rdma::LinkRegistration::new(), GFP_KERNEL)?;
        Ok(Self {
            links: Some(links),
            notifier: Some(notifier),
            published,
            shower: Some(shower),
            _reclaimer: reclaimer,
        })
    }
}

impl Drop for RxoModule {
    fn drop(&mut self) {
        drop(self.links.take());
        self.published.ports().remove_all();
        drop(self.notifier.take());
        drop(self.shower.take());
    }
}
