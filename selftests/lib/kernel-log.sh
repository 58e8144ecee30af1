# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What a test kernel's log must not say; to be sourced by whoever looks at one:
# tap.sh after each case, scripts/log-scan at the log of a guest as a whole.

BAD_LOG='WARNING:|BUG:|Oops|KASAN|UBSAN|lockdep|possible circular|possible recursive|inconsistent lock'
BAD_LOG+='|suspicious RCU|hung task|blocked for more than|soft lockup|workqueue lockup'
BAD_LOG+='|rcu.*stall|refcount_t|[Kk]ernel panic|[Uu]nable to handle|invalid opcode|general protection'
BAD_LOG+='|panicked|[Ll]eaked|suspected memory leak|unreferenced object|Call Trace'
BAD_LOG+='|unregister_netdevice: waiting|scheduling while atomic|sleeping function|still held'
BAD_LOG+='|list_(add|del) corruption|double free|use-after-free'
# What a healthy boot says.
GOOD_LOG='lockdep: MAX_|Lock dependency validator|lockdep_|KernelAddressSanitizer initialized'
GOOD_LOG+='|kasan: |RCU lockdep checking is enabled'

# Leaves out of a log what is no complaint: memory that was short tells so with a
# trace. Nor is it the module's that UML's KASAN takes a module's memory for what
# was there before, a module that has gone.
without_known()
{
	awk '/vmalloc error: size|page allocation failure/ { known = 1 }
		/KASAN: global-out-of-bounds in simplify_symbols/ { known = 1; next }
		known && /Call Trace/ { known = 0; next } { print }'
}

# Prints the lines of a log that are bad; fails if there are none.
bad_lines() { without_known | grep -E "$BAD_LOG" | grep -vE "$GOOD_LOG"; }
