//! Handles: what a consumer holds, and every cast from it.
//!
//! A handle is the address of a [`Slot`]: its first word is the provider table, because consumers call through it
//! (uDAPL, DAT_HANDLE). All slots lie in one reserved region that is never unmapped, so that any word a consumer passes
//! can be judged by arithmetic and one load, without touching memory that might not be there: a NULL, garbage, foreign
//! or stale handle is an error, not a crash. Slots are reused oldest first, to keep stale handles stale for long.
//! In a child of fork(2) all handles of the parent are stale.
//!
//! An object lives in a [`Node`] behind its slot. Other objects that depend on it hold a counted [`Ref`]. On
//! a thread-safe adapter each call keeps the objects that it uses there while it runs (`gate`).

mod gate;
mod pool;

use std::any::TypeId;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use dat_sys::*;

use self::gate::Gate;
use self::pool::pool;
pub use self::pool::slot;
use crate::allocate::no_memory;
use crate::error::{Error, Result};

/// Handles that exist at one time in a process.
pub const MAX_HANDLES: usize = 1 << 20;

/// What a handle points to.
#[repr(C, align(64))]
pub struct Slot {
    /// First: consumers read it.
    table: AtomicPtr<DAT_PROVIDER>,
    /// Whether an object lives here, of which type ([`tag`]), and who uses it.
    gate: Gate,
    /// The `Node<O>`.
    node: AtomicPtr<()>,
    /// Consumer context, all 64 bits.
    context: AtomicU64,
    /// `DAT_HANDLE_TYPE`.
    kind: AtomicU32,
    /// While it is free: the slot that was given back after it.
    next: AtomicU32,
}

/// An object with its handle and the count of those who depend on it. In a cell as a whole, because what
/// frees an object has been given a reference to it: such a one promises nothing about memory that is all in
/// a cell.
pub struct Node<O: Object> {
    cell: UnsafeCell<Inner<O>>,
}

struct Inner<O> {
    slot: &'static Slot,
    users: AtomicU32,
    body: O,
}

/// What a handle can stand for.
pub trait Object: Send + Sync + 'static {
    /// `DAT_HANDLE_TYPE_…`.
    const KIND: DAT_HANDLE_TYPE;
    /// Subtype of `DAT_INVALID_HANDLE` when a handle is not one of these.
    const INVALID: DAT_RETURN;
}

/// A counted dependency: while it exists, [`Node::in_use`] is true. Made and dropped under the IA's control lock.
pub struct Ref<O: Object>(NonNull<Node<O>>);

/// An object that a call uses: who frees it waits until this is dropped.
pub struct Pin<O: Object> {
    slot: &'static Slot,
    node: NonNull<Node<O>>,
}

/// An object whose handle is stale: whoever has this is to free it.
pub struct Retired<O: Object>(NonNull<Node<O>>);

/// Puts an object behind a new handle. The node lives until [`remove`]. `thread_safe`: its adapter is; then
/// the node is pinned, since another thread may have guessed the handle, until [`made`] has taken the pin
/// over. `make` builds it and knows the handle it will have.
pub fn insert<O: Object>(
    table: *const DAT_PROVIDER,
    thread_safe: bool,
    make: impl FnOnce(*mut c_void) -> Result<O>,
) -> Result<&'static Node<O>> {
    let slot = pool().take().ok_or_else(|| no_memory(()))?;
    // Before the object is made, so that nothing has to be undone where there is no memory.
    let Some(place) = Place::<Node<O>>::new() else {
        pool().give(slot);
        return Err(no_memory(()));
    };
    let body =
        make(std::ptr::from_ref(slot).cast_mut().cast()).inspect_err(|_| pool().give(slot))?;
    let node =
        place.fill(Node { cell: UnsafeCell::new(Inner { slot, users: AtomicU32::new(0), body }) });
    slot.table.store(table.cast_mut(), Ordering::Relaxed);
    slot.context.store(0, Ordering::Relaxed);
    slot.kind.store(O::KIND, Ordering::Relaxed);
    slot.node.store(node.cast(), Ordering::Relaxed);
    if thread_safe {
        slot.gate.pin();
    }
    slot.gate.open(tag::<O>(), thread_safe);
    // SAFETY: alive until `remove`.
    Ok(unsafe { &*node })
}

/// Memory for a box, before there is anything to put into it. The standard library's boxes end the process
/// where there is no memory.
struct Place<T>(*mut T);

impl<T> Place<T> {
    fn new() -> Option<Self> {
        const { assert!(size_of::<T>() > 0) };
        // SAFETY: the size is not zero.
        let place = unsafe { std::alloc::alloc(std::alloc::Layout::new::<T>()) };
        (!place.is_null()).then_some(Place(place.cast()))
    }

    /// What [`Box::from_raw`] takes.
    fn fill(self, value: T) -> *mut T {
        let place = std::mem::ManuallyDrop::new(self).0;
        // SAFETY: allocated in `new`, and nobody else has it.
        unsafe { place.write(value) };
        place
    }
}

impl<T> Drop for Place<T> {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and not filled.
        unsafe { std::alloc::dealloc(self.0.cast(), std::alloc::Layout::new::<T>()) };
    }
}

/// The object behind a handle.
///
/// # Safety
/// No other thread removes the object while the reference is used. On a thread-safe adapter the lock of the
/// handle, a [`Pin`], or the adapter's control lock sees to it; elsewhere the consumer does, as the standard
/// demands.
#[inline]
pub unsafe fn get<'a, O: Object>(handle: *mut c_void) -> Result<&'a Node<O>> {
    match slot(handle) {
        Some(slot) if slot.gate.is_open_for(tag::<O>()) => {
            // SAFETY: a live slot with the tag of `O` points to a `Node<O>`, which `Retired::reclaim` alone frees.
            Ok(unsafe { &*slot.node.load(Ordering::Relaxed).cast::<Node<O>>() })
        }
        _ => Err(Error::handle(O::INVALID)),
    }
}

/// The pin of an object that was just made, which is taken over once.
pub fn made<O: Object>(node: &Node<O>) -> Pin<O> {
    let slot = node.slot();
    if !slot.gate.is_shared() {
        slot.gate.pin();
    }
    Pin { slot, node: NonNull::from(node) }
}

/// Whether the handle stands for an object of this type now.
pub fn check<O: Object>(handle: *mut c_void) -> Result<()> {
    let is_one = slot(handle).is_some_and(|slot| slot.gate.is_open_for(tag::<O>()));
    if is_one { Ok(()) } else { Err(Error::handle(O::INVALID)) }
}

/// Runs `f` while no other thread is in a call on this handle, if its adapter is thread-safe. `DAT_ABORT`:
/// this thread is, below a signal handler.
pub fn alone<V>(handle: *mut c_void, f: impl FnOnce() -> Result<V>) -> Result<V> {
    match slot(handle) {
        Some(slot) if slot.gate.is_shared() => slot.gate.locked(f),
        _ => f(),
    }
}

/// Runs `f` on the object behind a handle. If the adapter is thread-safe, the object stays meanwhile.
///
/// # Safety
/// If the adapter is not thread-safe: as [`get`].
pub unsafe fn on<'a, O: Object, V>(
    handle: *mut c_void,
    f: impl FnOnce(&'a Node<O>) -> Result<V>,
) -> Result<V> {
    // A lock of another kind would be taken out of order.
    check::<O>(handle)?;
    // SAFETY: whoever removes the object has the lock of its handle, or no call is under way.
    alone(handle, || f(unsafe { get::<O>(handle) }?))
}

/// Runs `f`, which may free the object, when no other call uses it, if the adapter is thread-safe.
///
/// # Safety
/// If the adapter is not thread-safe: nobody uses a reference to the object any more, if `f` frees it.
pub unsafe fn free<'a, O: Object, V>(
    handle: *mut c_void,
    f: impl FnOnce(&'a Node<O>) -> Result<V>,
) -> Result<V> {
    // SAFETY: as the caller promised.
    unsafe {
        on::<O, V>(handle, |node| {
            node.slot().gate.await_unpinned();
            f(node)
        })
    }
}

/// The object behind a handle that a call names beside the one it is on. If the adapter is thread-safe, it
/// stays until the pin is dropped. A call pins in the order that `gate` gives, before it takes the lock of
/// the handle that it is on.
///
/// # Safety
/// If the adapter is not thread-safe: as [`get`].
pub unsafe fn pin<O: Object>(handle: *mut c_void) -> Result<Pin<O>> {
    // SAFETY: as the caller promised.
    unsafe { on::<O, _>(handle, |node| Ok(Pin::new(node))) }
}

/// As [`pin`], of a handle that may be NULL.
///
/// # Safety
/// As [`pin`].
pub unsafe fn pin_or_null<O: Object>(handle: *mut c_void) -> Result<Option<Pin<O>>> {
    match handle.is_null() {
        true => Ok(None),
        // SAFETY: as the caller promised.
        false => unsafe { pin(handle) }.map(Some),
    }
}

/// As [`pin_or_null`], of several handles of a kind; some may be the same.
///
/// # Safety
/// As [`pin`].
pub unsafe fn pin_all<O: Object, const N: usize>(
    handles: [*mut c_void; N],
) -> [Result<Option<Pin<O>>>; N] {
    let mut pins = handles.map(|_| Ok(None::<Pin<O>>));
    let mut order: [usize; N] = std::array::from_fn(|index| index);
    order.sort_unstable_by_key(|&index| handles[index].addr());
    for at in 0..N {
        pins[order[at]] = match at.checked_sub(1) {
            Some(last) if handles[order[last]] == handles[order[at]] => pins[order[last]].clone(),
            // SAFETY: as the caller promised.
            _ => unsafe { pin_or_null(handles[order[at]]) },
        };
    }
    pins
}

/// Makes the handle stale. The object stays until it is reclaimed. `None`: the handle is stale already.
///
/// # Safety
/// Nobody uses a reference from [`get`] any more, nor will, when the object is reclaimed.
pub unsafe fn retire<O: Object>(node: &Node<O>) -> Option<Retired<O>> {
    node.slot().gate.close(tag::<O>()).then(|| Retired(NonNull::from(node)))
}

/// Makes the handle stale and gives the object back. `None`: it is stale already.
///
/// # Safety
/// Nobody uses a reference from [`get`] any more, nor will.
pub unsafe fn remove<O: Object>(node: &Node<O>) -> Option<Box<Node<O>>> {
    // SAFETY: as the caller promised.
    unsafe { retire(node).map(|retired| retired.reclaim()) }
}

/// As [`retire`], of an object that the consumer has not been told of, by whoever has made it, in an upcall,
/// where no lock of a handle may be waited for. `None`: another thread has guessed the handle, and is in a
/// call on the object or has made another one depend on it. Then the object stays.
///
/// # Safety
/// If the adapter is not thread-safe: as [`retire`].
pub unsafe fn retire_untold<O: Object>(made: Pin<O>) -> Option<Retired<O>> {
    let gate = &made.slot.gate;
    let is_used = || gate.pins() > 1 || made.in_use();
    // SAFETY: as the caller promised; or nobody else has the lock or a pin, nor will.
    gate.try_locked(|| if is_used() { None } else { unsafe { retire(&made) } }).flatten()
}

/// The slot of any live handle, whatever its type.
#[inline]
pub fn live(handle: *mut c_void) -> Result<&'static Slot> {
    slot(handle).filter(|slot| slot.gate.is_open()).ok_or(Error::handle(DAT_INVALID_HANDLE1))
}

/// Live handles in this process.
pub fn count() -> usize {
    pool().live.load(Ordering::Relaxed)
}

impl Slot {
    /// `DAT_HANDLE_TYPE` of the object.
    pub fn kind(&self) -> DAT_HANDLE_TYPE {
        self.kind.load(Ordering::Relaxed)
    }

    /// The consumer's context, as 64 bits.
    pub fn context(&self) -> u64 {
        self.context.load(Ordering::Relaxed)
    }

    /// Sets the consumer's context.
    pub fn set_context(&self, context: u64) {
        self.context.store(context, Ordering::Relaxed);
    }

    /// Runs `f` while no other thread is in a `locked` call on this handle. `DAT_ABORT`: this one is, below a
    /// signal handler.
    #[inline]
    pub fn locked<V>(&self, f: impl FnOnce() -> Result<V>) -> Result<V> {
        self.gate.locked(f)
    }

    /// As [`Slot::locked`], unless another call has the lock: then `f` does not run.
    pub(crate) fn try_locked<V>(&self, f: impl FnOnce() -> V) -> Option<V> {
        self.gate.try_locked(f)
    }
}

impl<O: Object> Node<O> {
    #[inline]
    fn inner(&self) -> &Inner<O> {
        // SAFETY: nobody writes to the cell.
        unsafe { &*self.cell.get() }
    }

    /// The handle.
    pub fn handle(&self) -> *mut c_void {
        std::ptr::from_ref(self.inner().slot).cast_mut().cast()
    }

    /// The slot behind the handle.
    pub fn slot(&self) -> &'static Slot {
        self.inner().slot
    }

    /// The object alone, its handle being stale already.
    pub fn into_body(self) -> O {
        self.cell.into_inner().body
    }

    /// Whether others depend on the object.
    pub fn in_use(&self) -> bool {
        self.users() != 0
    }

    /// How many objects do.
    pub(crate) fn users(&self) -> u32 {
        self.inner().users.load(Ordering::Acquire)
    }
}

// SAFETY: the cell is only read, and what is in it is Sync.
unsafe impl<O: Object> Sync for Node<O> {}

impl<O: Object> Deref for Node<O> {
    type Target = O;
    #[inline]
    fn deref(&self) -> &O {
        &self.inner().body
    }
}

impl<O: Object> Pin<O> {
    fn new(node: &Node<O>) -> Self {
        node.slot().gate.pin();
        Pin { slot: node.slot(), node: NonNull::from(node) }
    }
}

impl<O: Object> Clone for Pin<O> {
    fn clone(&self) -> Self {
        Pin::new(self)
    }
}

impl<O: Object> Deref for Pin<O> {
    type Target = Node<O>;
    fn deref(&self) -> &Node<O> {
        // SAFETY: a pinned node is not removed.
        unsafe { self.node.as_ref() }
    }
}

impl<O: Object> Drop for Pin<O> {
    fn drop(&mut self) {
        self.slot.gate.unpin();
    }
}

impl<O: Object> Retired<O> {
    /// Gives the object back, and its place to others.
    ///
    /// # Safety
    /// Nobody uses a reference to it any more, nor will.
    pub unsafe fn reclaim(self) -> Box<Node<O>> {
        let slot = self.slot();
        let raw = slot.node.swap(std::ptr::null_mut(), Ordering::AcqRel);
        pool().give(slot);
        // SAFETY: `insert` leaked this box; whoever has closed the gate is the only one to take it back.
        unsafe { Box::from_raw(raw.cast::<Node<O>>()) }
    }

    /// The handle stands for the object again.
    pub fn restore(self) {
        let slot = self.slot();
        slot.gate.open(tag::<O>(), slot.gate.is_shared());
    }
}

impl<O: Object> Deref for Retired<O> {
    type Target = Node<O>;
    fn deref(&self) -> &Node<O> {
        // SAFETY: it is alive until it is reclaimed.
        unsafe { self.0.as_ref() }
    }
}

// SAFETY: the only one to free a Sync object.
unsafe impl<O: Object> Send for Retired<O> {}

impl<O: Object> Ref<O> {
    /// Depends on `node`.
    pub fn new(node: &Node<O>) -> Self {
        node.inner().users.fetch_add(1, Ordering::AcqRel);
        Ref(NonNull::from(node))
    }

    /// The node.
    #[inline]
    pub fn node(&self) -> &Node<O> {
        // SAFETY: a node is not removed while its count of users is above 0.
        unsafe { self.0.as_ref() }
    }
}

impl<O: Object> Deref for Ref<O> {
    type Target = Node<O>;
    #[inline]
    fn deref(&self) -> &Node<O> {
        self.node()
    }
}

impl<O: Object> Clone for Ref<O> {
    fn clone(&self) -> Self {
        Ref::new(self.node())
    }
}

impl<O: Object> Drop for Ref<O> {
    fn drop(&mut self) {
        self.node().inner().users.fetch_sub(1, Ordering::AcqRel);
    }
}

// SAFETY: a shared, counted pointer to a Sync object.
unsafe impl<O: Object> Send for Ref<O> {}
// SAFETY: as above.
unsafe impl<O: Object> Sync for Ref<O> {}

/// Distinguishes types of objects, generic ones of different transports included. Folds to a constant.
#[inline]
fn tag<O: Object>() -> u64 {
    struct Take(u64);
    impl Hasher for Take {
        fn write(&mut self, bytes: &[u8]) {
            for b in bytes {
                self.0 = self.0.rotate_left(8) ^ u64::from(*b);
            }
        }
        fn write_u64(&mut self, word: u64) {
            self.0 ^= word;
        }
        fn finish(&self) -> u64 {
            self.0 | 1
        }
    }
    let mut hasher = Take(0);
    TypeId::of::<O>().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::pool::COOLING;
    use super::*;

    struct Apple(u8);
    struct Pear;
    impl Object for Apple {
        const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_PZ;
        const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_PZ;
    }
    impl Object for Pear {
        const KIND: DAT_HANDLE_TYPE = DAT_HANDLE_TYPE_EP;
        const INVALID: DAT_RETURN = DAT_INVALID_HANDLE_EP;
    }

    #[test]
    fn bad_handles_are_errors() {
        let apple = insert(std::ptr::null(), false, |_| Ok(Apple(7))).unwrap();
        let handle = apple.handle();
        // SAFETY: single thread.
        unsafe {
            assert_eq!(get::<Apple>(handle).unwrap().0, 7);
            assert_eq!(get::<Pear>(handle).err(), Some(Error::handle(DAT_INVALID_HANDLE_EP)));
            for garbage in [
                0usize,
                1,
                8,
                64,
                0xdead_beef,
                usize::MAX,
                handle as usize + 8,
                handle as usize ^ (1 << 40),
            ] {
                assert!(get::<Apple>(garbage as *mut c_void).is_err(), "{garbage:#x}");
            }
            assert!(remove(apple).is_some());
            assert_eq!(get::<Apple>(handle).err(), Some(Error::handle(DAT_INVALID_HANDLE_PZ)));
            assert!(live(handle).is_err());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "not a test: its volume takes Miri hours and shows it nothing new")]
    fn a_freed_slot_is_not_reused_soon() {
        let first = insert(std::ptr::null(), false, |_| Ok(Pear)).unwrap();
        let stale = first.handle();
        // SAFETY: single owner.
        unsafe {
            remove(first);
            // Other tests of this process free a few, too.
            for _ in 0..COOLING - 4096 {
                let node = insert(std::ptr::null(), false, |_| Ok(Pear)).unwrap();
                assert_ne!(node.handle(), stale);
                remove(node);
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "not a test: Miri has no fork")]
    fn a_child_has_no_handles_of_its_parent() {
        let apple = insert(std::ptr::null(), false, |_| Ok(Apple(7))).unwrap();
        let stale: Vec<_> =
            (0..100).map(|_| insert(std::ptr::null(), false, |_| Ok(Pear)).unwrap()).collect();
        // SAFETY: single owner.
        stale.into_iter().for_each(|pear| drop(unsafe { remove(pear) }));
        // SAFETY: the child looks at handles, and ends without running anything else.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the one thread of this process.
            let of_parent =
                unsafe { get::<Apple>(apple.handle()) }.is_ok() || live(apple.handle()).is_ok();
            // SAFETY: as above.
            let own = insert(std::ptr::null(), false, |_| Ok(Apple(8))).is_ok_and(|own| unsafe {
                let fresh = own.handle() != apple.handle();
                let of_own = get::<Apple>(own.handle()).is_ok_and(|own| own.0 == 8);
                remove(own).is_some() && fresh && of_own
            });
            // SAFETY: ends this process.
            unsafe { libc::_exit(i32::from(of_parent || !own)) };
        }
        let mut status = -1;
        // SAFETY: the child just made.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the child has seen something else");
        // SAFETY: single owner.
        unsafe {
            assert_eq!(get::<Apple>(apple.handle()).unwrap().0, 7);
            remove(apple);
        }
    }

    #[test]
    fn dependants_are_counted() {
        let apple = insert(std::ptr::null(), false, |_| Ok(Apple(1))).unwrap();
        let user = Ref::new(apple);
        assert!(apple.in_use());
        drop(user.clone());
        assert!(apple.in_use());
        drop(user);
        assert!(!apple.in_use());
        // SAFETY: single owner.
        unsafe { remove(apple) };
    }
}
