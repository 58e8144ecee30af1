// SPDX-License-Identifier: GPL-2.0

//! Numbers to counted objects.

use core::{
    array,
    marker::PhantomData,
    mem::MaybeUninit,
    ops::RangeInclusive,
    ptr::{
        self,
        NonNull, //
    }, //
};

use kernel::{
    error::to_result,
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic, //
        },
        rcu,
        Arc,
        ArcBorrow, //
    },
    types::Opaque, //
};

use crate::{
    bindings,
    reclaim, //
};

/// What the array points to.
///
/// # Invariants
///
/// Until a grace period after the node has left the array, it is only accessed through shared
/// references, apart from `release`, which is then the C side's.
#[repr(C)]
struct Node<T> {
    /// First, so that a pointer to it is one to the node.
    release: Opaque<bindings::rcu_work>,
    id: u32,
    object: Arc<T>,
}

impl<T> Node<T> {
    /// Makes a node in memory that was allocated for it, for an array to point to.
    fn leak(memory: KBox<MaybeUninit<Self>>, id: u32, object: Arc<T>) -> *mut Self {
        let node = KBox::into_raw(memory.write(Self {
            release: Opaque::uninit(),
            id,
            object,
        }));

        // SAFETY: `release` is first in the node. Once queued, `release_node` is called when the
        // node is not accessed any more, see `IdTable::remove`.
        unsafe {
            bindings::init_rcu_work(node.cast::<bindings::rcu_work>(), Some(release_node::<T>))
        };
        node
    }
}

/// Frees a node.
///
/// # Safety
///
/// `work` must be that of a `Node<T>` that was leaked from a [`KBox`] and that nothing else
/// accesses any more.
unsafe extern "C" fn release_node<T>(work: *mut bindings::work_struct) {
    let rcu_work = kernel::container_of!(work, bindings::rcu_work, work);
    let node = rcu_work.cast::<Node<T>>();

    // SAFETY: By the safety requirements it came from a `KBox` and is ours alone.
    drop(unsafe { KBox::from_raw(node) });
}

/// A table of objects that are found by number.
///
/// The table has one reference to each of its objects. Lookups are lock-free and may race with
/// everything else: a lookup that runs while an object is removed may or may not find it, and
/// whoever found it keeps it alive. What destroys an object while others may still hold it should
/// first remove it and then close its [`Gate`](crate::Gate).
///
/// The reference of the table itself is given up a while after the removal, in process context: no
/// sooner than all lookups that may have seen it are over. That is the work of the
/// [`Reclaimer`](crate::Reclaimer), of which each module with tables should have one.
///
/// When the table is dropped, its references are dropped at once.
///
/// The objects that came last are found at once; others take a walk of some levels.
///
/// # Invariants
///
/// - `array` is an initialised array whose entries are reserved, or point to a `Node<T>` that was
///   leaked from a [`KBox`], with `release` initialised for `release_node` and the entry's number.
/// - Each of `front` is null or points to a node that is in the array, and is only changed under the
///   lock of the array.
/// - `next` is only accessed under the lock of the array.
#[pin_data(PinnedDrop)]
pub struct IdTable<T: Send + Sync + 'static> {
    #[pin]
    array: Opaque<bindings::xarray>,
    front: [Atomic<*mut Node<T>>; FRONT],
    next: Opaque<u32>,
    name: &'static CStr,
    _objects: PhantomData<Arc<T>>,
}

/// So many objects at most are found without a walk, by the low bits of their numbers.
const FRONT: usize = 64;

// SAFETY: It owns `Arc<T>`, which is `Send`, and no part of it belongs to a thread.
unsafe impl<T: Send + Sync + 'static> Send for IdTable<T> {}

// SAFETY: The array can be used by many threads at once, and so can `T`.
unsafe impl<T: Send + Sync + 'static> Sync for IdTable<T> {}

impl<T: Send + Sync + 'static> IdTable<T> {
    /// Creates an empty table; `name` is for messages.
    pub fn new(name: &'static CStr) -> impl PinInit<Self> {
        pin_init!(Self {
            // SAFETY: `slot` is valid for writes. INVARIANT: The array becomes an empty one.
            array <- Opaque::ffi_init(|slot| unsafe { bindings::id_table_init(slot) }),
            front: array::from_fn(|_| Atomic::new(ptr::null_mut())),
            next: Opaque::new(0),
            name,
            _objects: PhantomData,
        })
    }

    fn new_node() -> Result<KBox<MaybeUninit<Node<T>>>> {
        Ok(KBox::<Node<T>>::new_uninit(GFP_KERNEL)?)
    }

    /// Reserves the next unused number of a range, starting over at its end.
    ///
    /// # Errors
    ///
    /// - `EBUSY`: all numbers of the range are in use.
    /// - `ENOMEM`.
    ///
    /// Context: process.
    pub fn reserve_cyclic(&self, range: RangeInclusive<u32>) -> Result<Reservation<'_, T>> {
        let node = Self::new_node()?;
        let (min, max) = range.into_inner();
        let mut id = 0;

        // SAFETY: By the type invariants it is an array; `next` is used under its lock.
        to_result(unsafe {
            bindings::id_table_reserve_cyclic(
                self.array.get(),
                &mut id,
                min,
                max,
                self.next.get(),
                bindings::GFP_KERNEL,
            )
        })?;
        // INVARIANT: It was just reserved, for nobody else.
        Ok(Reservation {
            table: self,
            id,
            node: Some(node),
        })
    }

    /// Reserves a number.
    ///
    /// # Errors
    ///
    /// - `EBUSY`: it is in use.
    /// - `ENOMEM`.
    ///
    /// Context: process.
    pub fn reserve_at(&self, id: u32) -> Result<Reservation<'_, T>> {
        let node = Self::new_node()?;

        // SAFETY: By the type invariants it is an array.
        to_result(unsafe {
            bindings::id_table_reserve_at(self.array.get(), id, bindings::GFP_KERNEL)
        })?;
        // INVARIANT: It was just reserved, for nobody else.
        Ok(Reservation {
            table: self,
            id,
            node: Some(node),
        })
    }

    /// Inserts an object at the next unused number of a range and returns the number.
    ///
    /// Errors and context are those of [`IdTable::reserve_cyclic`].
    pub fn insert_cyclic(&self, range: RangeInclusive<u32>, object: Arc<T>) -> Result<u32> {
        self.reserve_cyclic(range)?.fill(object)
    }

    /// Inserts an object at a number.
    ///
    /// Errors and context are those of [`IdTable::reserve_at`].
    pub fn insert_at(&self, id: u32, object: Arc<T>) -> Result {
        self.reserve_at(id)?.fill(object)?;
        Ok(())
    }

    /// Where the node of a number is, if it is one of those in front.
    #[inline]
    fn front(&self, id: u32) -> &Atomic<*mut Node<T>> {
        // CAST: Its low bits.
        &self.front[id as usize % FRONT]
    }

    /// The same for the C side.
    fn front_ptr(&self, id: u32) -> *mut *mut c_void {
        self.front(id).as_ptr().cast()
    }

    #[inline]
    fn lookup<'a>(&'a self, id: u32, _rcu: &'a rcu::Guard) -> Option<ArcBorrow<'a, T>> {
        let front = NonNull::new(self.front(id).load(Acquire));
        // SAFETY: By the type invariants it points to a node, which is in the array or has left it
        // after the RCU read lock was taken. So it won't be freed before that is released.
        let front = front.map(|node| unsafe { node.as_ref() });

        if let Some(node) = front.filter(|node| node.id == id) {
            return Some(node.object.as_arc_borrow());
        }
        // CAST: An index is at least 32 bits wide.
        //
        // SAFETY: By the type invariants it is an array.
        let node = unsafe { bindings::xa_load(self.array.get(), id as usize) };
        let node = NonNull::new(node.cast::<Node<T>>())?;

        // SAFETY: As above.
        Some(unsafe { node.as_ref() }.object.as_arc_borrow())
    }

    /// Returns the object at a number.
    ///
    /// Context: any.
    pub fn get(&self, id: u32) -> Option<Arc<T>> {
        self.with(id, |object| object.into())
    }

    /// Calls a function with the object at a number.
    ///
    /// No reference is taken, so this is the cheaper way if the object isn't kept. The function is
    /// called under the RCU read lock and must not sleep.
    ///
    /// Context: any.
    #[inline]
    pub fn with<R>(&self, id: u32, f: impl FnOnce(ArcBorrow<'_, T>) -> R) -> Option<R> {
        let rcu = rcu::read_lock();

        self.lookup(id, &rcu).map(f)
    }

    /// Puts an object in the place of the one at a number, which it returns. Lookups find one or
    /// the other.
    ///
    /// # Errors
    ///
    /// - `ENOENT`: there is none.
    /// - `ENOMEM`.
    ///
    /// Context: process.
    pub fn replace(&self, id: u32, object: Arc<T>) -> Result<Arc<T>> {
        let node = Node::leak(Self::new_node()?, id, object);

        // INVARIANT: If it is stored, the entry points to a node that was leaked from a `KBox` and
        // initialised, and so does the front if it pointed to the one before.
        //
        // SAFETY: By the type invariants it is an array with its front. Replacing what is there
        // takes no memory, so it does not fail.
        let old = unsafe {
            bindings::id_table_replace(
                self.array.get(),
                self.front_ptr(id),
                id,
                node.cast::<c_void>(),
            )
        };
        let Some(old) = NonNull::new(old.cast::<Node<T>>()) else {
            // SAFETY: It was not stored, so it is still this function's alone.
            drop(unsafe { KBox::from_raw(node) });
            return Err(ENOENT);
        };
        // SAFETY: By the type invariants it points to a node, which won't be freed before it is
        // queued below.
        let object = unsafe { old.as_ref() }.object.clone();

        self.release(old);
        Ok(object)
    }

    /// Removes and returns the object at a number. The number can then be used again.
    ///
    /// Reserved numbers stay reserved.
    ///
    /// Context: any.
    pub fn remove(&self, id: u32) -> Option<Arc<T>> {
        // INVARIANT: Who is removed is not in front any more.
        //
        // SAFETY: By the type invariants it is an array with its front.
        let node = unsafe { bindings::id_table_remove(self.array.get(), self.front_ptr(id), id) };
        let node = NonNull::new(node.cast::<Node<T>>())?;
        // SAFETY: By the type invariants it points to a node, which won't be freed before it is
        // queued below.
        let object = unsafe { node.as_ref() }.object.clone();

        self.release(node);
        Some(object)
    }

    /// Frees a node that has left the array, just now and for this caller only.
    fn release(&self, node: NonNull<Node<T>>) {
        // SAFETY: `release` is first in the node, was initialised, and is not in use. When it runs
        // after a grace period, no lookup can see the node any more, and it frees the node.
        if unsafe { reclaim::after_grace_period(node.as_ptr().cast::<bindings::rcu_work>()) } {
            return;
        }
        if reclaim::try_synchronize() {
            // SAFETY: It came from a `KBox`, and after a grace period no lookup can see it.
            drop(unsafe { KBox::from_raw(node.as_ptr()) });
        } else {
            pr_warn!(
                "{}: removed without a reclaimer, and can't wait: leaked\n",
                self.name
            );
        }
    }

    /// Returns the object at the lowest number that is not below `id`, and that number.
    fn next(&self, id: u32) -> Option<(u32, Arc<T>)> {
        let _rcu = rcu::read_lock();
        // CAST: An index is at least 32 bits wide.
        let mut index = id as usize;
        // SAFETY: By the type invariants it is an array.
        let node = unsafe {
            bindings::xa_find(
                self.array.get(),
                &mut index,
                u32::MAX as usize,
                bindings::XA_PRESENT,
            )
        };
        let node = NonNull::new(node.cast::<Node<T>>())?;

        // SAFETY: As in `lookup`.
        let object = unsafe { node.as_ref() }.object.clone();

        // CAST: It was found at an index of at most `u32::MAX`.
        Some((index as u32, object))
    }

    /// Calls a function with each number in use and its object, in ascending order.
    ///
    /// The table may change meanwhile, also by the function. What is neither inserted nor removed
    /// during the call is visited once.
    ///
    /// Context: any, if the objects may be dropped there. The function may sleep if the caller
    /// may.
    pub fn for_each(&self, mut f: impl FnMut(u32, ArcBorrow<'_, T>)) {
        let mut from = Some(0);

        while let Some((id, object)) = from.and_then(|id| self.next(id)) {
            f(id, object.as_arc_borrow());
            from = id.checked_add(1);
        }
    }

    /// Returns whether the table has no objects. Reserved numbers don't count.
    ///
    /// Context: any.
    pub fn is_empty(&self) -> bool {
        let mut index = 0;

        // SAFETY: By the type invariants it is an array.
        unsafe {
            bindings::xa_find(
                self.array.get(),
                &mut index,
                u32::MAX as usize,
                bindings::XA_PRESENT,
            )
        }
        .is_null()
    }
}

#[pinned_drop]
impl<T: Send + Sync + 'static> PinnedDrop for IdTable<T> {
    fn drop(self: Pin<&mut Self>) {
        let mut index = 0;

        loop {
            // SAFETY: By the type invariants it is an array.
            let node = unsafe {
                bindings::xa_find(
                    self.array.get(),
                    &mut index,
                    u32::MAX as usize,
                    bindings::XA_PRESENT,
                )
            };

            if node.is_null() {
                break;
            }
            // CAST: It was found at an index of at most `u32::MAX`.
            let id = index as u32;

            // SAFETY: By the type invariants it is an array with its front.
            unsafe { bindings::id_table_remove(self.array.get(), self.front_ptr(id), id) };
            // SAFETY: By the type invariants it is a node that came from a `KBox`. It has left the
            // array, and no lookup can be under way, since all of them borrow the table.
            drop(unsafe { KBox::from_raw(node.cast::<Node<T>>()) });
        }
        // SAFETY: By the type invariants it is an array, and it is not used again.
        unsafe { bindings::xa_destroy(self.array.get()) };
    }
}

/// A number of an [`IdTable`] that is set aside for an object that is yet to come.
///
/// Lookups don't find anything there. Dropping it gives the number back.
///
/// # Invariants
///
/// `node` is [`Some`] if and only if the entry of the array at `id` is reserved for this.
#[must_use = "the number is given back when the reservation is dropped"]
pub struct Reservation<'a, T: Send + Sync + 'static> {
    table: &'a IdTable<T>,
    id: u32,
    node: Option<KBox<MaybeUninit<Node<T>>>>,
}

impl<T: Send + Sync + 'static> Reservation<'_, T> {
    /// Returns the number.
    #[inline]
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Inserts the object at the number and returns the number.
    ///
    /// # Errors
    ///
    /// None is expected: all memory was allocated when the number was reserved.
    ///
    /// Context: any.
    pub fn fill(mut self, object: Arc<T>) -> Result<u32> {
        let node = self.node.take().ok_or(EINVAL)?;
        let node = Node::leak(node, self.id, object);

        // INVARIANT: The entry points to a node that was leaked from a `KBox` and initialised, and
        // so does the front.
        //
        // SAFETY: By the type invariants of the table it is an array with its front, and by those
        // of the reservation the entry there is nobody else's.
        let stored = to_result(unsafe {
            bindings::id_table_fill(
                self.table.array.get(),
                self.table.front_ptr(self.id),
                self.id,
                node.cast::<c_void>(),
            )
        });

        if let Err(e) = stored {
            // SAFETY: It was not stored, so it is still this function's alone.
            let node = unsafe { KBox::from_raw(node) };

            // INVARIANT: The entry is still reserved.
            self.node = Some(KBox::drop_contents(node));
            return Err(e);
        }
        Ok(self.id)
    }
}

impl<T: Send + Sync + 'static> Drop for Reservation<'_, T> {
    fn drop(&mut self) {
        if self.node.is_some() {
            // SAFETY: By the type invariants of the table it is an array, and by those of the
            // reservation the entry there is reserved for this.
            unsafe { bindings::id_table_release(self.table.array.get(), self.id) }
        }
    }
}
