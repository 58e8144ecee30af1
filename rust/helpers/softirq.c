// SPDX-License-Identifier: GPL-2.0
/* What the softirq crate needs of static inlines and macros. */

#include <linux/bottom_half.h>
#include <linux/hrtimer.h>
#include <linux/irqflags.h>
#include <linux/jiffies.h>
#include <linux/percpu.h>
#include <linux/preempt.h>
#include <linux/spinlock.h>
#include <linux/timer.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include <asm/local64.h>

bool rust_helper_irqs_disabled(void)
{
	return irqs_disabled();
}

bool rust_helper_in_process_context(void)
{
	return in_task() && !in_softirq() && !irqs_disabled();
}

void rust_helper_task_stay(void)
{
	migrate_disable();
}

void rust_helper_task_go(void)
{
	migrate_enable();
}

/*
 * Bottom halves can't run on this CPU where one runs already, or they are
 * disabled, and neither while its interrupts are off; they must not be enabled
 * then.
 */
static bool bh_is_away(void)
{
	return softirq_count() || unlikely(irqs_disabled());
}

/* Returns whether bottom halves were disabled. */
bool rust_helper_bh_spin_lock(spinlock_t *lock)
{
	if (bh_is_away()) {
		spin_lock(lock);
		return false;
	}
	spin_lock_bh(lock);
	return true;
}

/* With another lock of the same class held, and bottom halves or interrupts disabled. */
void rust_helper_spin_lock_second(spinlock_t *lock)
{
	spin_lock_nested(lock, SINGLE_DEPTH_NESTING);
}

/* 0: not acquired, 1: acquired, 2: acquired and bottom halves disabled. */
int rust_helper_bh_spin_trylock(spinlock_t *lock)
{
	if (bh_is_away())
		return spin_trylock(lock) ? 1 : 0;
	return spin_trylock_bh(lock) ? 2 : 0;
}

void rust_helper_bh_spin_unlock(spinlock_t *lock, bool bh)
{
	if (!bh) {
		spin_unlock(lock);
		return;
	}
	if (likely(!irqs_disabled())) {
		spin_unlock_bh(lock);
		return;
	}
	spin_unlock(lock);
	/*
	 * Interrupts were disabled since: pending softirqs have to wait until
	 * an interrupt ends.
	 */
#ifdef CONFIG_PREEMPT_RT
	local_bh_enable();
#else
	_local_bh_enable();
#endif
}

bool rust_helper_hrtimer_is_queued(struct hrtimer *timer)
{
	return hrtimer_is_queued(timer);
}

void rust_helper_wheel_timer_setup(struct timer_list *timer,
				   void (*function)(struct timer_list *))
{
	timer_setup(timer, function, 0);
}

/* Fires in about @ns nanoseconds, in place of when it was to fire before. */
void rust_helper_wheel_timer_start(struct timer_list *timer, u64 ns)
{
	mod_timer(timer, jiffies + nsecs_to_jiffies(ns));
}

bool rust_helper_wheel_timer_is_queued(struct timer_list *timer)
{
	return timer_pending(timer);
}

struct workqueue_struct *
rust_helper_alloc_queue(const char *name, unsigned int flags)
{
	return alloc_workqueue("%s", flags, 0, name);
}

void rust_helper_init_rcu_work(struct rcu_work *rwork, work_func_t func)
{
	INIT_RCU_WORK(rwork, func);
}

void rust_helper_id_table_init(struct xarray *xa)
{
	xa_init_flags(xa, XA_FLAGS_ALLOC | XA_FLAGS_LOCK_IRQ);
}

/* Reserves an unused index; @next is protected by the lock of the array. */
int rust_helper_id_table_reserve_cyclic(struct xarray *xa, u32 *id, u32 min,
					u32 max, u32 *next, gfp_t gfp)
{
	return xa_alloc_cyclic_irq(xa, id, NULL, XA_LIMIT(min, max), next, gfp);
}

int rust_helper_id_table_reserve_at(struct xarray *xa, u32 id, gfp_t gfp)
{
	return xa_insert_irq(xa, id, NULL, gfp);
}

/*
 * Stores at a reserved index, which needs no memory. What is stored is put at
 * @front as well, see below.
 */
int rust_helper_id_table_fill(struct xarray *xa, void **front, u32 id,
			      void *entry)
{
	unsigned long flags;
	int err;

	xa_lock_irqsave(xa, flags);
	err = xa_err(__xa_store(xa, id, entry, 0));
	if (!err)
		smp_store_release(front, entry);
	xa_unlock_irqrestore(xa, flags);
	return err;
}

void rust_helper_id_table_release(struct xarray *xa, u32 id)
{
	unsigned long flags;

	xa_lock_irqsave(xa, flags);
	__xa_erase(xa, id);
	xa_unlock_irqrestore(xa, flags);
}

/*
 * Removes what is stored, but leaves a reservation alone.
 *
 * What is at @front is in the array: it is only changed along with the array,
 * under its lock.
 */
void *rust_helper_id_table_remove(struct xarray *xa, void **front, u32 id)
{
	unsigned long flags;
	void *entry;

	xa_lock_irqsave(xa, flags);
	entry = xa_load(xa, id);
	if (entry) {
		if (READ_ONCE(*front) == entry)
			WRITE_ONCE(*front, NULL);
		__xa_erase(xa, id);
	}
	xa_unlock_irqrestore(xa, flags);
	return entry;
}

/* Puts another in the place of what is stored; does nothing if nothing is. */
void *rust_helper_id_table_replace(struct xarray *xa, void **front, u32 id,
				   void *entry)
{
	unsigned long flags;
	void *old;

	xa_lock_irqsave(xa, flags);
	old = xa_load(xa, id);
	if (old) {
		if (READ_ONCE(*front) == old)
			smp_store_release(front, entry);
		__xa_store(xa, id, entry, 0);
	}
	xa_unlock_irqrestore(xa, flags);
	return old;
}

local64_t __percpu *rust_helper_counters_alloc(size_t n)
{
	return __alloc_percpu(array_size(n, sizeof(local64_t)),
			      __alignof__(local64_t));
}

void rust_helper_counters_free(local64_t __percpu *counters)
{
	free_percpu(counters);
}

void rust_helper_counters_add(local64_t __percpu *counters, size_t i, u64 n)
{
	preempt_disable_notrace();
	local64_add(n, this_cpu_ptr(&counters[i]));
	preempt_enable_notrace();
}

u64 rust_helper_counters_sum(local64_t __percpu *counters, size_t i)
{
	u64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += local64_read(per_cpu_ptr(&counters[i], cpu));
	return sum;
}
