/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The tracepoints of rxo. Documentation/diagnosis.rst says what each is for.
 *
 * Texts come as pointer and length: they are Rust's, and not terminated. Reasons
 * are texts, the same ones as in counters and histories, so that no table of
 * numbers has to be kept in step.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM rxo

#if !defined(_RXO_TRACE_POINTS_H) || defined(TRACE_HEADER_MULTI_READ)
#define _RXO_TRACE_POINTS_H

#include <linux/tracepoint.h>

/* The queue pair that an event is about: its device's netns and ifindex. */
#define RXO_AT_PROTO u32 netns, u32 ifindex, u32 qpn
#define RXO_AT_ARGS netns, ifindex, qpn
#define RXO_AT_FIELDS \
	__field(u32, netns) __field(u32, ifindex) __field(u32, qpn)
#define RXO_AT_ASSIGN \
	do { \
		__entry->netns = netns; \
		__entry->ifindex = ifindex; \
		__entry->qpn = qpn; \
	} while (0)
#define RXO_AT_FMT "netns=%u ifindex=%u qpn=%u "
#define RXO_AT_VALUES __entry->netns, __entry->ifindex, __entry->qpn

/* A packet: its base header, and that of responses (0xff: none). */
DECLARE_EVENT_CLASS(rxo_packet,
	TP_PROTO(RXO_AT_PROTO, u32 dest_qpn, u32 opcode, u32 psn,
		 u32 len, u32 syndrome, u32 msn),
	TP_ARGS(RXO_AT_ARGS, dest_qpn, opcode, psn, len, syndrome, msn),
	TP_STRUCT__entry(
		RXO_AT_FIELDS
		__field(u32, dest_qpn)
		__field(u32, psn)
		__field(u32, len)
		__field(u32, msn)
		__field(u8, opcode)
		__field(u8, syndrome)
	),
	TP_fast_assign(
		RXO_AT_ASSIGN;
		__entry->dest_qpn = dest_qpn;
		__entry->psn = psn;
		__entry->len = len;
		__entry->msn = msn;
		__entry->opcode = opcode;
		__entry->syndrome = syndrome;
	),
	TP_printk(RXO_AT_FMT "dest_qpn=%u opcode=0x%02x psn=%u len=%u syndrome=0x%02x msn=%u",
		  RXO_AT_VALUES, __entry->dest_qpn,
		  __entry->opcode, __entry->psn, __entry->len,
		  __entry->syndrome, __entry->msn)
);

DEFINE_EVENT(rxo_packet, rxo_tx,
	TP_PROTO(RXO_AT_PROTO, u32 dest_qpn, u32 opcode, u32 psn,
		 u32 len, u32 syndrome, u32 msn),
	TP_ARGS(RXO_AT_ARGS, dest_qpn, opcode, psn, len, syndrome, msn)
);

DEFINE_EVENT(rxo_packet, rxo_rx,
	TP_PROTO(RXO_AT_PROTO, u32 dest_qpn, u32 opcode, u32 psn,
		 u32 len, u32 syndrome, u32 msn),
	TP_ARGS(RXO_AT_ARGS, dest_qpn, opcode, psn, len, syndrome, msn)
);

TRACE_EVENT(rxo_qp_state,
	TP_PROTO(RXO_AT_PROTO, const char *from, u32 from_len,
		 const char *to, u32 to_len),
	TP_ARGS(RXO_AT_ARGS, from, from_len, to, to_len),
	TP_STRUCT__entry(
		RXO_AT_FIELDS
		__string_len(from, from, from_len)
		__string_len(to, to, to_len)
	),
	TP_fast_assign(
		RXO_AT_ASSIGN;
		__assign_str(from);
		__assign_str(to);
	),
	TP_printk(RXO_AT_FMT "from=%s to=%s", RXO_AT_VALUES, __get_str(from), __get_str(to))
);

/* Something at a PSN, and why. */
DECLARE_EVENT_CLASS(rxo_at_psn,
	TP_PROTO(RXO_AT_PROTO, u32 psn, const char *why, u32 why_len),
	TP_ARGS(RXO_AT_ARGS, psn, why, why_len),
	TP_STRUCT__entry(
		RXO_AT_FIELDS
		__field(u32, psn)
		__string_len(why, why, why_len)
	),
	TP_fast_assign(
		RXO_AT_ASSIGN;
		__entry->psn = psn;
		__assign_str(why);
	),
	TP_printk(RXO_AT_FMT "psn=%u why=%s", RXO_AT_VALUES, __entry->psn, __get_str(why))
);

#define RXO_AT_PSN(name) \
DEFINE_EVENT(rxo_at_psn, name, \
	TP_PROTO(RXO_AT_PROTO, u32 psn, const char *why, u32 why_len), \
	TP_ARGS(RXO_AT_ARGS, psn, why, why_len))

RXO_AT_PSN(rxo_nak_sent);
RXO_AT_PSN(rxo_nak_received);
RXO_AT_PSN(rxo_stall);
RXO_AT_PSN(rxo_drop);

/* Something at a PSN, why, and one more number, by its name. */
#define RXO_AT_PSN_WITH(name, number) \
TRACE_EVENT(name, \
	TP_PROTO(RXO_AT_PROTO, u32 psn, u32 number, const char *why, u32 why_len), \
	TP_ARGS(RXO_AT_ARGS, psn, number, why, why_len), \
	TP_STRUCT__entry( \
		RXO_AT_FIELDS \
		__field(u32, psn) \
		__field(u32, number) \
		__string_len(why, why, why_len) \
	), \
	TP_fast_assign( \
		RXO_AT_ASSIGN; \
		__entry->psn = psn; \
		__entry->number = number; \
		__assign_str(why); \
	), \
	TP_printk(RXO_AT_FMT "psn=%u why=%s " #number "=%u", RXO_AT_VALUES, \
		  __entry->psn, __get_str(why), __entry->number) \
)

RXO_AT_PSN_WITH(rxo_retransmit, left);
RXO_AT_PSN_WITH(rxo_stall_end, us);

/* A key that does not serve. */
DECLARE_EVENT_CLASS(rxo_key,
	TP_PROTO(RXO_AT_PROTO, u32 key, const char *why, u32 why_len),
	TP_ARGS(RXO_AT_ARGS, key, why, why_len),
	TP_STRUCT__entry(
		RXO_AT_FIELDS
		__field(u32, key)
		__string_len(why, why, why_len)
	),
	TP_fast_assign(
		RXO_AT_ASSIGN;
		__entry->key = key;
		__assign_str(why);
	),
	TP_printk(RXO_AT_FMT "key=0x%08x why=%s", RXO_AT_VALUES, __entry->key, __get_str(why))
);

#define RXO_KEY(name) \
DEFINE_EVENT(rxo_key, name, \
	TP_PROTO(RXO_AT_PROTO, u32 key, const char *why, u32 why_len), \
	TP_ARGS(RXO_AT_ARGS, key, why, why_len))

/* Named by a peer, and by a work request of the queue pair's own. */
RXO_KEY(rxo_key_fault);
RXO_KEY(rxo_local_key_fault);

/* The end of a work request in error, or an event of the queue pair. */
TRACE_EVENT(rxo_error,
	TP_PROTO(RXO_AT_PROTO, const char *what, u32 what_len,
		 const char *why, u32 why_len),
	TP_ARGS(RXO_AT_ARGS, what, what_len, why, why_len),
	TP_STRUCT__entry(
		RXO_AT_FIELDS
		__string_len(what, what, what_len)
		__string_len(why, why, why_len)
	),
	TP_fast_assign(
		RXO_AT_ASSIGN;
		__assign_str(what);
		__assign_str(why);
	),
	TP_printk(RXO_AT_FMT "what=%s why=%s", RXO_AT_VALUES, __get_str(what), __get_str(why))
);

#endif

/* This part must be outside of the protection against reading it twice. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace_points
#include <trace/define_trace.h>
