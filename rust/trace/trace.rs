// SPDX-License-Identifier: GPL-2.0

//! The tracepoints of rxo: one safe function for each.
//!
//! While a tracepoint is off, its function is a branch that the kernel patches (where it has jump
//! labels; else the test of a word). The tracepoints themselves are defined in `trace_points.h`,
//! and what each is for is said in `Documentation/diagnosis.rst`.
//!
//! The macro of the kernel crate for this looks the tracepoint up in that crate's own bindings, so
//! a module needs one of its own.

/// The queue pair that an event is about.
#[derive(Clone, Copy, Debug)]
pub struct At {
    /// The number of the network namespace of its device.
    pub netns: u32,
    /// The index of the device's network device in there.
    pub ifindex: u32,
    /// The number of the queue pair.
    pub qpn: u32,
}

/// Defines functions that take a queue pair, numbers, and after a semicolon texts; and for each one
/// that tells whether it is on.
macro_rules! tracepoints {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($number:ident),*; $($text:ident),*);
    )*) => {
        kernel::macros::paste! {
            #[cfg(CONFIG_TRACEPOINTS)]
            #[allow(improper_ctypes, reason = "the key is only ever looked at by the kernel")]
            mod points {
                extern "C" {
                    $(
                        pub(super) static mut [<__tracepoint_rxo_ $name>]:
                            kernel::bindings::tracepoint;
                        pub(super) fn [<rust_do_trace_rxo_ $name>](
                            netns: u32, ifindex: u32, qpn: u32,
                            $($number: u32,)*
                            $($text: *const u8, [<$text _len>]: u32,)*
                        );
                    )*
                }
            }
            $(
                #[doc = concat!("Tells whether [`", stringify!($name), "`] does something.")]
                #[inline(always)]
                pub fn [<$name _is_on>]() -> bool {
                    #[cfg(CONFIG_TRACEPOINTS)]
                    // SAFETY: It is always fine to look at the key of a tracepoint.
                    return unsafe {
                        kernel::jump_label::static_branch_unlikely!(
                            points::[<__tracepoint_rxo_ $name>],
                            kernel::bindings::tracepoint,
                            key
                        )
                    };
                    #[cfg(not(CONFIG_TRACEPOINTS))]
                    false
                }

                $(#[$doc])*
                #[inline(always)]
                pub fn $name(at: At, $($number: u32,)* $($text: &str,)*) {
                    #[cfg(CONFIG_TRACEPOINTS)]
                    {
                        if [<$name _is_on>]() {
                            // CAST: Texts are short words.
                            //
                            // SAFETY: It takes numbers, and texts with their lengths, which it
                            // copies.
                            unsafe {
                                points::[<rust_do_trace_rxo_ $name>](
                                    at.netns, at.ifindex, at.qpn,
                                    $($number,)*
                                    $($text.as_ptr(), $text.len() as u32,)*
                                )
                            };
                        }
                    }
                    #[cfg(not(CONFIG_TRACEPOINTS))]
                    let _ = (at, $($number,)* $($text,)*);
                }
            )*
        }
    };
}

tracepoints! {
    /// A packet goes to the network.
    fn tx(dest_qpn, opcode, psn, len, syndrome, msn;);
    /// A packet came to a queue pair.
    fn rx(dest_qpn, opcode, psn, len, syndrome, msn;);
    /// A queue pair changed its state.
    fn qp_state(; from, to);
    /// A NAK is to be sent.
    fn nak_sent(psn; why);
    /// A NAK came.
    fn nak_received(psn; why);
    /// The requester goes back, with so many retries left.
    fn retransmit(psn, left; why);
    /// The requester begins to wait, with work at hand.
    fn stall(psn; why);
    /// That is over, after so many microseconds.
    fn stall_end(psn, us; why);
    /// A packet is dropped.
    fn drop(psn; why);
    /// A key that a peer named does not serve.
    fn key_fault(key; why);
    /// A key in a work request of the queue pair's own does not serve.
    fn local_key_fault(key; why);
    /// A work request ended in error, or an event was raised.
    fn error(; what, why);
}
