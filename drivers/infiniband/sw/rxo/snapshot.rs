// SPDX-License-Identifier: GPL-2.0

//! All that there is to know of a device, as JSON: `/sys/kernel/debug/rxo/DEVICE/snapshot`.
//!
//! The format is that of `uapi/snapshot.schema.json`. Each object is looked at once, under its
//! lock, and written after that; so the whole is not of one instant, but each object is.

use kernel::{
    fmt,
    prelude::*,
    str::{
        CStr,
        CString, //
    },
    sync::Arc, //
};
use rdma::{
    DebugDir,
    DebugFile,
    Device,
    Follower,
    PortState, //
};
use rxo_transport::QpType;

use crate::{
    detail::Listener,
    history::{
        Ended,
        History, //
    },
    port::{
        Port,
        Ports, //
    },
    provider::Rxo,
    qp::QueuePair,
    stats, //
};

/// The version of the format: another one if a reader of this one would go wrong.
const VERSION: u64 = 1;

/// An object under construction: `{` was written.
struct Json<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    first: bool,
    result: fmt::Result,
}

/// A list under construction: `[` was written.
struct List<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    first: bool,
    result: fmt::Result,
}

/// A text in quotes.
struct Quoted<'a>(&'a [u8]);

impl core::fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for b in self.0 {
            match b {
                b'"' | b'\\' => write!(f, "\\{}", char::from(*b))?,
                0x20..=0x7e => write!(f, "{}", char::from(*b))?,
                _ => write!(f, "\\u{b:04x}")?,
            }
        }
        f.write_str("\"")
    }
}

impl<'a, 'b> Json<'a, 'b> {
    /// Writes an object whose members `members` writes.
    fn write(
        f: &'a mut fmt::Formatter<'b>,
        members: impl FnOnce(&mut Json<'_, 'b>),
    ) -> fmt::Result {
        f.write_str("{")?;
        let mut this = Json {
            f: &mut *f,
            first: true,
            result: Ok(()),
        };
        members(&mut this);
        this.result?;
        f.write_str("}")
    }

    /// Writes a member whose value `value` writes.
    fn member(&mut self, name: &str, value: impl FnOnce(&mut fmt::Formatter<'b>) -> fmt::Result) {
        if self.result.is_err() {
            return;
        }
        let comma = if self.first { "" } else { "," };
        self.first = false;
        self.result = write!(self.f, "{comma}\"{name}\":").and_then(|()| value(self.f));
    }

    /// Writes a member that is an object.
    fn object(&mut self, name: &str, members: impl FnOnce(&mut Json<'_, 'b>)) {
        self.member(name, |f| Json::write(f, members));
    }

    /// Writes a member that is a list.
    fn list(&mut self, name: &str, entries: impl FnOnce(&mut List<'_, 'b>)) {
        self.member(name, |f| {
            f.write_str("[")?;
            let mut list = List {
                f: &mut *f,
                first: true,
                result: Ok(()),
            };
            entries(&mut list);
            list.result?;
            f.write_str("]")
        });
    }

    /// Writes a member that is anything that can be shown.
    fn shown(&mut self, name: &str, value: impl core::fmt::Display) {
        self.member(name, |f| write!(f, "{value}"));
    }

    /// Writes a history.
    fn history(&mut self, history: &History) {
        self.object("history", |to| {
            to.number("lost", u64::from(history.lost()));
            to.list("events", |list| {
                for record in history.records() {
                    list.entry(|to| record.tell(to));
                }
            });
        });
    }
}

impl<'b> List<'_, 'b> {
    /// Writes an entry that is an object, on a line of its own.
    fn entry(&mut self, members: impl FnOnce(&mut Json<'_, 'b>)) {
        if self.result.is_err() {
            return;
        }
        let comma = if self.first { "\n" } else { ",\n" };
        self.first = false;
        self.result = self
            .f
            .write_str(comma)
            .and_then(|()| Json::write(self.f, members));
    }
}

impl Listener for Json<'_, '_> {
    fn number(&mut self, name: &'static str, value: u64) {
        self.shown(name, value);
    }

    fn word(&mut self, name: &'static str, value: &'static str) {
        self.shown(name, Quoted(value.as_bytes()));
    }
}

fn type_name(kind: QpType) -> &'static str {
    match kind {
        QpType::Rc => "RC",
        QpType::Uc => "UC",
        QpType::Ud => "UD",
        QpType::Gsi => "GSI",
    }
}

/// Writes a queue pair.
fn queue_pair(to: &mut Json<'_, '_>, qp: &QueuePair) {
    let (view, history) = (qp.view(), qp.history());
    to.number("qpn", u64::from(qp.number));
    to.word("type", type_name(view.kind));
    to.word("state", view.status.state.name());
    to.word("owner", if qp.is_user() { "user" } else { "kernel" });
    if let Some(peer) = view.peer {
        to.member("peer", |f| f.write_fmt(fmt!("\"{peer}\"")));
        to.number("peer_qpn", u64::from(view.attr.dest_qpn.unwrap_or(0)));
    }
    view.tell(to);
    to.history(&history);
}

/// Writes a queue pair that is no more.
fn ended(to: &mut Json<'_, '_>, ended: &Ended) {
    to.number("qpn", u64::from(ended.number));
    to.word("type", type_name(ended.kind));
    to.number("at_ns", ended.at_ns);
    to.history(&ended.history);
}

/// A device as its file shows it.
pub(crate) struct Snapshot {
    name: CString,
    port: Arc<Port>,
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let port = &self.port;
        Json::write(f, |to| {
            to.number("version", VERSION);
            to.shown("device", Quoted(self.name.to_bytes()));
            to.number("netns", u64::from(port.netns));
            to.number("ifindex", u64::from(port.ifindex));
            to.number("now_ns", softirq::now_ns());
            to.word(
                "state",
                match port.state() {
                    PortState::Active => "active",
                    PortState::Polling => "no_carrier",
                    PortState::Disabled => "down",
                },
            );
            to.number("mtu", u64::from(port.mtu().bytes()));
            to.object("counters", |to| {
                for (i, name) in stats::NAMES.iter().enumerate() {
                    to.number(name, port.stats.read(i));
                }
            });
            to.history(&port.history.own());
            to.list("qps", |list| {
                if let Some(gsi) = port.gsi() {
                    list.entry(|to| queue_pair(to, &gsi));
                }
                port.ns.switch.for_each(|qp| {
                    if core::ptr::eq(&*qp.port, &**port) {
                        list.entry(|to| queue_pair(to, qp));
                    }
                });
            });
            to.list("ended", |list| {
                let mut i = 0;
                while let Some(qp) = port.history.ended(i) {
                    list.entry(|to| ended(to, &qp));
                    i += 1;
                }
            });
        })?;
        f.write_str("\n")
    }
}

/// Shows each device, under the name that it has.
pub(crate) struct Shower;

/// A device's folder and the file in it, which goes first.
pub(crate) struct Shown {
    _file: DebugFile<Snapshot>,
    _dir: DebugDir,
}

impl Shower {
    fn show(device: &Device<Rxo>, name: &CStr) -> Result<Shown> {
        let ports = Ports::get().ok_or(ENODEV)?;
        let top = ports.debug.as_ref().ok_or(ENODEV)?;
        let dir = DebugDir::new(name, Some(top))?;
        let snapshot = Snapshot {
            name: CString::try_from(name)?,
            port: device.data().clone(),
        };
        Ok(Shown {
            _file: DebugFile::new(c"snapshot", &dir, snapshot)?,
            _dir: dir,
        })
    }
}

impl Follower<Rxo> for Shower {
    const NAME: &'static CStr = c"rxo";

    type Data = Option<Shown>;

    fn added(device: &Device<Rxo>, name: &CStr) -> Self::Data {
        // A device works without it.
        Self::show(device, name).ok()
    }

    fn renamed(device: &Device<Rxo>, name: &CStr, shown: &mut Self::Data) {
        // The old one goes first: the name may only have changed in a way that makes no difference.
        *shown = None;
        *shown = Self::show(device, name).ok();
    }
}
