// SPDX-License-Identifier: GPL-2.0

//! Every entry point of the transport over surroundings that the compiler knows nothing of. See `check`.

#![no_std]

use core::hint::black_box;

use rxo_transport::time::Instant;
use rxo_transport::wire::{
    icrc,
    Headers,
    Malformed,
    Parsed, //
};
use rxo_transport::*;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

/// Surroundings that answer anything.
struct Anything;

type Queue = Qp<Anything>;

impl Env for Anything {
    type Region = u64;
    type SendSlots = &'static mut [SendSlot];
    type Resources = &'static mut [Resource<u64>];

    fn take_recv(&mut self) -> Option<Result<RecvInfo, WcStatus>> {
        black_box(None)
    }

    fn posted_recvs(&self) -> Option<u32> {
        black_box(None)
    }

    fn place_recv(&mut self, offset: u32, len: u32) -> Result<(), PlaceFault> {
        black_box((offset, len, Ok(()))).2
    }

    fn complete_recv(&mut self, c: RecvCompletion) {
        black_box(c);
    }

    fn open_remote(
        &mut self,
        rkey: u32,
        va: u64,
        len: u32,
        access: RemoteAccess,
    ) -> Result<u64, KeyFault> {
        black_box((rkey, va, len, access, Ok(va))).4
    }

    fn place_remote(&mut self, region: &u64, offset: u32, len: u32) -> Result<(), KeyFault> {
        black_box((region, offset, len, Ok(()))).3
    }

    fn atomic(&mut self, region: &u64, op: AtomicOp) -> Result<u64, KeyFault> {
        black_box((region, op, Ok(0))).2
    }

    fn atomic_write(&mut self, region: &u64) -> Result<(), KeyFault> {
        black_box((region, Ok(()))).1
    }

    fn flush(
        &mut self,
        rkey: u32,
        range: Option<(u64, u32)>,
        kind: FlushKind,
    ) -> Result<(), KeyFault> {
        black_box((rkey, range, kind, Ok(()))).3
    }

    fn invalidate(&mut self, rkey: u32) -> Result<(), KeyFault> {
        black_box((rkey, Ok(()))).1
    }

    fn place_send(&mut self, slot: u32, offset: u32, len: u32) -> Result<(), PlaceFault> {
        black_box((slot, offset, len, Ok(()))).3
    }

    fn place_atomic_result(&mut self, slot: u32, original: u64) -> Result<(), PlaceFault> {
        black_box((slot, original, Ok(()))).2
    }

    fn local_op(&mut self, slot: u32) -> Result<(), WcStatus> {
        black_box((slot, Ok(()))).1
    }

    fn complete_send(
        &mut self,
        slot: u32,
        wqe: &SendWqe,
        status: WcStatus,
        byte_len: u32,
        signal: bool,
    ) {
        black_box((slot, wqe, status, byte_len, signal));
    }

    fn event(&mut self, e: AsyncEvent) {
        black_box(e);
    }

    fn count_n(&mut self, c: Counter, n: u32) {
        black_box((c, n));
    }

    fn trace(&mut self, t: Trace) {
        black_box(t);
    }
}

macro_rules! entries {
    ($($name:ident($($arg:ident: $ty:ty),*) $(-> $ret:ty)? $body:block)*) => {
        $(
            #[no_mangle]
            #[allow(improper_ctypes_definitions)]
            extern "C" fn $name($($arg: $ty),*) $(-> $ret)? $body
        )*
    };
}

type Send = (Instant, SendWqe);
type Sent = (Instant, Burst, Result<(), WcStatus>);
type Slots = &'static mut [SendSlot];
type Answers = &'static mut [Resource<u64>];

entries! {
    entry_new(ty: QpType, slots: Slots, answers: Answers, sig: bool, srq: bool) -> Queue {
        Qp::new(ty, 1, slots, answers, sig, srq)
    }
    entry_modify(q: &mut Queue, now: Instant, a: &QpAttr) -> Result<(), ModifyError> {
        q.modify(now, a, &mut Anything)
    }
    entry_query(q: &Queue) -> QpAttr { q.query() }
    entry_status(q: &Queue) -> Status { q.status() }
    entry_waits_for(q: &Queue, now: Instant) -> Idle { q.waits_for(now) }
    entry_window(q: &mut Queue, n: u32) { q.set_window(n) }
    entry_region(q: &Queue, n: u32) -> Option<&u64> { q.region(n) }
    entry_wqe(q: &Queue, n: u32) -> Option<&SendWqe> { q.wqe(n) }
    entry_post(q: &mut Queue, s: &Send) -> Result<u32, PostError> {
        q.post_send(s.0, s.1, &mut Anything)
    }
    entry_poll(q: &mut Queue, now: Instant, budget: u32) -> Option<Burst> {
        q.poll_transmit(now, budget, &mut Anything)
    }
    entry_sent(q: &mut Queue, s: &Sent) { q.sent(s.0, &s.1, s.2, &mut Anything) }
    entry_packet(q: &mut Queue, now: Instant, p: &Parsed) { let _ = q.on_packet(now, p, &mut Anything); }
    entry_due(q: &Queue) -> bool { q.answers_due() }
    entry_deadline(q: &mut Queue, now: Instant) -> Option<Instant> {
        q.on_deadline(now, &mut Anything);
        q.deadline()
    }
    entry_flush(q: &mut Queue) { q.flush_recv(&mut Anything) }
    entry_burst(b: &Burst, i: u32) -> PacketOut { b.packet(i) }
    entry_parse(b: &'static [u8], len: usize) -> Result<Parsed, Malformed> { Headers::parse(b, len) }
    entry_emit(h: &Headers, b: &'static mut [u8]) -> usize { h.emit(b) }
    entry_below(ip: &'static [u8], udp: &'static [u8], index: usize) -> Option<u32> {
        icrc::Below::new(ip, udp).map(|below| below.of_segment(index))
    }
    entry_add(below: u32, packet: &'static [u8]) -> Option<u32> { icrc::add(below, packet) }
    entry_begin(below: u32, packet: &'static [u8]) -> Option<u32> {
        icrc::begin(below, packet).map(|(crc, rest)| crc32::update(crc, rest))
    }
}
