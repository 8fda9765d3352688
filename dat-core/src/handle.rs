//! Handles of objects. This module contains every cast from a handle to its object.
//!
//! A handle is the address of a [`HandleSlot`]. Its first word is the provider table, because
//! consumers call through it (uDAPL, DAT_HANDLE). All slots lie in one reserved region that is
//! never unmapped. So the library can check any word with arithmetic and one load, without access
//! to memory that may not exist. A word that is not a live handle, such as NULL or a stale handle,
//! causes an error and not a crash.
//!
//! Slots are reused oldest first, so that stale handles are recognized as long as possible. In a
//! child of fork(2) all handles of the parent are stale.
//!
//! Each slot points to a [`Node`], which contains the object. Another object that depends on this
//! object holds a counted [`Ref`]. On a thread-safe adapter each call keeps the objects that it
//! uses alive while it runs (module `lock`).

mod lock;
mod pool;

use std::any::TypeId;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use dat_sys::*;

use self::lock::HandleLock;
use self::pool::pool;
pub use self::pool::slot;
use crate::allocate::no_memory;
use crate::error::{Error, Result};

/// The number of handles that can exist in a process at one time.
pub const MAX_HANDLES: usize = 1 << 20;

/// The memory that a handle points to.
#[repr(C, align(64))]
pub struct HandleSlot {
    /// The function table. This must be the first field, because consumers read it.
    table: AtomicPtr<DAT_PROVIDER>,
    /// The lock of the handle. It also records whether the handle is live, the type of its object
    /// ([`tag`]), and how many calls use the object.
    lock: HandleLock,
    /// A pointer to the `Node<O>` of the object.
    node: AtomicPtr<()>,
    /// The 64-bit context that the consumer attaches to the handle.
    context: AtomicU64,
    /// The `DAT_HANDLE_TYPE` of the object.
    kind: AtomicU32,
    /// The index of the slot that was released after this slot. Valid only while this slot is free.
    next: AtomicU32,
}

/// An object with its handle and the number of its dependents.
///
/// The whole content is in an `UnsafeCell`, because the functions that free an object get a
/// reference to it as an argument. Only memory in a cell may be freed while such a reference
/// exists.
pub struct Node<O: Object> {
    cell: UnsafeCell<Inner<O>>,
}

struct Inner<O> {
    slot: &'static HandleSlot,
    users: AtomicU32,
    body: O,
}

/// An object that a handle can refer to.
pub trait Object: Send + Sync + 'static {
    /// The `DAT_HANDLE_TYPE_…` of these objects.
    const KIND: DAT_HANDLE_TYPE;
    /// The subtype of `DAT_INVALID_HANDLE` for a handle that does not refer to an object of this
    /// type.
    const INVALID: DAT_RETURN;
}

/// A counted reference to an object on which another object depends. While it exists,
/// [`Node::in_use`] is true. References are created and dropped under the IA's control lock.
pub struct Ref<O: Object>(NonNull<Node<O>>);

/// Keeps an object alive while a call uses it. Another thread that frees the object waits until all
/// its pins are dropped.
pub struct Pin<O: Object> {
    slot: &'static HandleSlot,
    node: NonNull<Node<O>>,
}

/// An object whose handle is stale. The owner of this value must free the object.
pub struct Retired<O: Object>(NonNull<Node<O>>);

/// Puts an object behind a new handle. The node of the object exists until [`remove`].
///
/// `make` builds the object and gets its future handle. `thread_safe` says whether the adapter is
/// thread-safe. If it is, the node is created with one pin, because another thread may guess the
/// handle. [`pin_created`] takes over that pin.
pub fn insert<O: Object>(
    table: *const DAT_PROVIDER,
    thread_safe: bool,
    make: impl FnOnce(*mut c_void) -> Result<O>,
) -> Result<&'static Node<O>> {
    let slot = pool().allocate().ok_or_else(|| no_memory(()))?;
    // Allocate the memory before the object is made. If there is no memory, nothing must then be
    // undone.
    let Some(memory) = BoxMemory::<Node<O>>::new() else {
        pool().release(slot);
        return Err(no_memory(()));
    };
    let body =
        make(std::ptr::from_ref(slot).cast_mut().cast()).inspect_err(|_| pool().release(slot))?;
    let node =
        memory.fill(Node { cell: UnsafeCell::new(Inner { slot, users: AtomicU32::new(0), body }) });
    slot.table.store(table.cast_mut(), Ordering::Relaxed);
    slot.context.store(0, Ordering::Relaxed);
    slot.kind.store(O::KIND, Ordering::Relaxed);
    slot.node.store(node.cast(), Ordering::Relaxed);
    if thread_safe {
        slot.lock.pin();
    }
    slot.lock.make_live(tag::<O>(), thread_safe);
    // SAFETY: the node is alive until `remove`.
    Ok(unsafe { &*node })
}

/// Memory for a box that has no value yet. If there is no memory, the allocation fails. The
/// standard library's boxes would end the process instead.
struct BoxMemory<T>(*mut T);

impl<T> BoxMemory<T> {
    fn new() -> Option<Self> {
        const { assert!(size_of::<T>() > 0) };
        // SAFETY: the size is not zero.
        let memory = unsafe { std::alloc::alloc(std::alloc::Layout::new::<T>()) };
        (!memory.is_null()).then_some(BoxMemory(memory.cast()))
    }

    /// Writes the value to the memory. The caller passes the result to [`Box::from_raw`].
    fn fill(self, value: T) -> *mut T {
        let memory = std::mem::ManuallyDrop::new(self).0;
        // SAFETY: the memory was allocated in `new`, and nobody else has it.
        unsafe { memory.write(value) };
        memory
    }
}

impl<T> Drop for BoxMemory<T> {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated in `new` with this layout and holds no value.
        unsafe { std::alloc::dealloc(self.0.cast(), std::alloc::Layout::new::<T>()) };
    }
}

/// Returns the object behind a handle.
///
/// # Safety
/// No other thread removes the object while the reference is in use. On a thread-safe adapter the
/// lock of the handle, a [`Pin`] or the adapter's control lock ensures that. On other adapters the
/// consumer ensures it, as the standard requires.
#[inline]
pub unsafe fn get<'a, O: Object>(handle: *mut c_void) -> Result<&'a Node<O>> {
    let slot = slot(handle).ok_or(Error::handle(O::INVALID))?;
    // SAFETY: the caller fulfils the contract of this function.
    unsafe { slot.object() }
}

/// Returns the pin of an object that was just created. Call this at most once for each object.
pub fn pin_created<O: Object>(node: &Node<O>) -> Pin<O> {
    let slot = node.slot();
    if !slot.lock.is_thread_safe() {
        slot.lock.pin();
    }
    Pin { slot, node: NonNull::from(node) }
}

/// Checks that the handle refers to an object of this type now.
pub fn check<O: Object>(handle: *mut c_void) -> Result<()> {
    let is_one = is_live::<O>(handle);
    if is_one { Ok(()) } else { Err(Error::handle(O::INVALID)) }
}

/// Runs `f` under the lock of the handle, if its adapter is thread-safe. No other thread is then in
/// a call on the handle. If this thread itself is in a call on the handle, which a signal handler
/// has interrupted, the error is `DAT_ABORT`.
pub fn with_lock<V>(handle: *mut c_void, f: impl FnOnce() -> Result<V>) -> Result<V> {
    match slot(handle) {
        Some(slot) if slot.lock.is_thread_safe() => slot.lock.locked(f),
        _ => f(),
    }
}

/// Runs `f` on the object behind a handle. If the adapter is thread-safe, the object stays alive
/// until `f` returns.
///
/// # Safety
/// If the adapter is not thread-safe, the requirements of [`get`] apply.
pub unsafe fn with_object<'a, O: Object, V>(
    handle: *mut c_void,
    f: impl FnOnce(&'a Node<O>) -> Result<V>,
) -> Result<V> {
    // Check the type first, because locking an object of another type would violate the lock order.
    check::<O>(handle)?;
    // SAFETY: a thread that removes the object holds the lock of its handle, or no call is in
    // progress.
    with_lock(handle, || f(unsafe { get::<O>(handle) }?))
}

/// Runs `f`, which may free the object. If the adapter is thread-safe, no other call uses the
/// object while `f` runs.
///
/// # Safety
/// If the adapter is not thread-safe and `f` frees the object, nobody uses a reference to the
/// object any more.
pub unsafe fn with_exclusive<'a, O: Object, V>(
    handle: *mut c_void,
    f: impl FnOnce(&'a Node<O>) -> Result<V>,
) -> Result<V> {
    // SAFETY: the handle is locked. If the adapter is not thread-safe, the caller guarantees that
    // nobody uses a reference to the object.
    unsafe {
        with_object::<O, V>(handle, |node| {
            node.slot().lock.await_unpinned();
            f(node)
        })
    }
}

/// Pins an object that a call names in addition to the object that the call is made on. If the
/// adapter is thread-safe, the object stays alive until the pin is dropped. A call pins in the
/// order that module `lock` gives, before it locks the handle that it is made on.
///
/// # Safety
/// If the adapter is not thread-safe, the requirements of [`get`] apply.
pub unsafe fn pin<O: Object>(handle: *mut c_void) -> Result<Pin<O>> {
    // SAFETY: the caller guarantees that nobody frees the object during this call, unless the
    // adapter is thread-safe.
    unsafe { with_object::<O, _>(handle, |node| Ok(Pin::new(node))) }
}

/// Pins an object as [`pin`] does, but accepts a NULL handle.
///
/// # Safety
/// The requirements of [`pin`] apply.
pub unsafe fn pin_or_null<O: Object>(handle: *mut c_void) -> Result<Option<Pin<O>>> {
    match handle.is_null() {
        true => Ok(None),
        // SAFETY: the caller guarantees that nobody frees the object during this call, unless the
        // adapter is thread-safe.
        false => unsafe { pin(handle) }.map(Some),
    }
}

/// Pins several objects of one type as [`pin_or_null`] pins one. Some of the handles may be equal.
///
/// # Safety
/// The requirements of [`pin`] apply.
pub unsafe fn pin_all<O: Object, const N: usize>(
    handles: [*mut c_void; N],
) -> [Result<Option<Pin<O>>>; N] {
    let mut pins = handles.map(|_| Ok(None::<Pin<O>>));
    let mut order: [usize; N] = std::array::from_fn(|index| index);
    order.sort_unstable_by_key(|&index| handles[index].addr());
    for at in 0..N {
        pins[order[at]] = match at.checked_sub(1) {
            Some(last) if handles[order[last]] == handles[order[at]] => pins[order[last]].clone(),
            // SAFETY: the caller guarantees that nobody frees the objects during this call, unless
            // the adapter is thread-safe.
            _ => unsafe { pin_or_null(handles[order[at]]) },
        };
    }
    pins
}

/// Makes the handle of an object stale. The object exists until [`Retired::reclaim`]. Returns
/// `None` if the handle is already stale.
///
/// # Safety
/// When the object is reclaimed, nobody uses a reference from [`get`] any more.
pub unsafe fn retire<O: Object>(node: &Node<O>) -> Option<Retired<O>> {
    node.slot().lock.make_stale(tag::<O>()).then(|| Retired(NonNull::from(node)))
}

/// Makes the handle of an object stale and returns the object. Returns `None` if the handle is
/// already stale.
///
/// # Safety
/// Nobody uses a reference from [`get`] any more.
pub unsafe fn remove<O: Object>(node: &Node<O>) -> Option<Box<Node<O>>> {
    // SAFETY: the caller guarantees that nobody uses a reference to the object any more.
    unsafe { retire(node).map(|retired| retired.reclaim()) }
}

/// Retires an object as [`retire`] does. The object was created in an upcall and was not reported
/// to the consumer. Unlike other functions, this function does not wait for the lock of the handle,
/// because no thread may wait for that lock in an upcall.
///
/// Returns `None` if another thread has guessed the handle, and is in a call on the object or has
/// made another object depend on it. In that case the object stays.
///
/// # Safety
/// If the adapter is not thread-safe, the requirements of [`retire`] apply.
pub unsafe fn retire_unreported<O: Object>(created: Pin<O>) -> Option<Retired<O>> {
    let lock = &created.slot.lock;
    let is_used = || lock.pins() > 1 || created.in_use();
    // SAFETY: on a thread-safe adapter nobody else has the lock or a pin, and nobody can get one.
    // On other adapters the caller guarantees that nobody uses a reference to the object.
    lock.try_locked(|| if is_used() { None } else { unsafe { retire(&created) } }).flatten()
}

/// Whether a handle refers to an object of this type.
pub(crate) fn is_live<O: Object>(handle: *mut c_void) -> bool {
    slot(handle).is_some_and(|slot| slot.lock.is_live_as(tag::<O>()))
}

/// Returns the slot of a live handle, whatever the type of its object is.
#[inline]
pub fn live_slot(handle: *mut c_void) -> Result<&'static HandleSlot> {
    slot(handle).filter(|slot| slot.lock.is_live()).ok_or(Error::handle(DAT_INVALID_HANDLE1))
}

/// The number of live handles in this process.
pub fn live_count() -> usize {
    pool().live.load(Ordering::Relaxed)
}

impl HandleSlot {
    /// Returns the object behind the handle.
    ///
    /// # Safety
    /// The requirements of [`get`] apply.
    #[inline]
    pub unsafe fn object<'a, O: Object>(&self) -> Result<&'a Node<O>> {
        if !self.lock.is_live_as(tag::<O>()) {
            return Err(Error::handle(O::INVALID));
        }
        // SAFETY: a live slot with the tag of `O` points to a `Node<O>`, which only
        // `Retired::reclaim` frees.
        Ok(unsafe { &*self.node.load(Ordering::Relaxed).cast::<Node<O>>() })
    }

    /// The `DAT_HANDLE_TYPE` of the object.
    pub fn kind(&self) -> DAT_HANDLE_TYPE {
        self.kind.load(Ordering::Relaxed)
    }

    /// The 64-bit context that the consumer has attached to the handle.
    pub fn context(&self) -> u64 {
        self.context.load(Ordering::Relaxed)
    }

    /// Sets the consumer's context.
    pub fn set_context(&self, context: u64) {
        self.context.store(context, Ordering::Relaxed);
    }

    /// Runs `f` while no other thread is in a `locked` call on this handle. If this thread itself
    /// is in a `locked` call on this handle, which a signal handler has interrupted, the error is
    /// `DAT_ABORT`.
    #[inline]
    pub fn locked<V>(&self, f: impl FnOnce() -> Result<V>) -> Result<V> {
        self.lock.locked(f)
    }

    /// Runs `f` as [`HandleSlot::locked`] does. If another call has the lock, returns `None`
    /// without running `f`.
    pub(crate) fn try_locked<V>(&self, f: impl FnOnce() -> V) -> Option<V> {
        self.lock.try_locked(f)
    }
}

impl<O: Object> Node<O> {
    #[inline]
    fn inner(&self) -> &Inner<O> {
        // SAFETY: nobody writes to the cell.
        unsafe { &*self.cell.get() }
    }

    /// The handle of the object.
    pub fn handle(&self) -> *mut c_void {
        std::ptr::from_ref(self.inner().slot).cast_mut().cast()
    }

    /// The slot behind the handle of the object.
    pub fn slot(&self) -> &'static HandleSlot {
        self.inner().slot
    }

    /// Returns the object without its node. The object's handle is already stale.
    pub fn into_body(self) -> O {
        self.cell.into_inner().body
    }

    /// Whether other objects depend on this object.
    pub fn in_use(&self) -> bool {
        self.users() != 0
    }

    /// The number of objects that depend on this object.
    pub(crate) fn users(&self) -> u32 {
        self.inner().users.load(Ordering::Acquire)
    }
}

// SAFETY: the content of the cell is only read and is `Sync`.
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
        node.slot().lock.pin();
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
        self.slot.lock.unpin();
    }
}

impl<O: Object> Retired<O> {
    /// Returns the object and releases its slot.
    ///
    /// # Safety
    /// Nobody uses a reference to the object any more.
    pub unsafe fn reclaim(self) -> Box<Node<O>> {
        let slot = self.slot();
        let raw = slot.node.swap(std::ptr::null_mut(), Ordering::AcqRel);
        pool().release(slot);
        // SAFETY: `insert` leaked this box, and only the thread that has made the handle stale
        // takes it back.
        unsafe { Box::from_raw(raw.cast::<Node<O>>()) }
    }

    /// Makes the handle refer to the object again.
    pub fn restore(self) {
        let slot = self.slot();
        slot.lock.make_live(tag::<O>(), slot.lock.is_thread_safe());
    }
}

impl<O: Object> Deref for Retired<O> {
    type Target = Node<O>;
    fn deref(&self) -> &Node<O> {
        // SAFETY: the object is alive until `reclaim` takes it.
        unsafe { self.0.as_ref() }
    }
}

// SAFETY: this is the only value that frees the object, which is `Sync`.
unsafe impl<O: Object> Send for Retired<O> {}

impl<O: Object> Ref<O> {
    /// Creates a dependency on `node`.
    pub fn new(node: &Node<O>) -> Self {
        node.inner().users.fetch_add(1, Ordering::AcqRel);
        Ref(NonNull::from(node))
    }

    /// The node of the object to which this reference refers.
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

// SAFETY: this is a shared, counted pointer to a `Sync` object.
unsafe impl<O: Object> Send for Ref<O> {}
// SAFETY: this is a shared, counted pointer to a `Sync` object.
unsafe impl<O: Object> Sync for Ref<O> {}

/// Returns a number that identifies a type of objects. Generic types have a different number for
/// each transport. The compiler reduces the call to a constant.
#[inline]
fn tag<O: Object>() -> u64 {
    struct IdHasher(u64);
    impl Hasher for IdHasher {
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
    let mut hasher = IdHasher(0);
    TypeId::of::<O>().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::pool::MIN_FREE_SLOTS;
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
        // SAFETY: this test has one thread.
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
            assert!(live_slot(handle).is_err());
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "not a test: so many calls take Miri hours and show nothing new")]
    fn a_freed_slot_is_not_reused_soon() {
        let first = insert(std::ptr::null(), false, |_| Ok(Pear)).unwrap();
        let stale = first.handle();
        // SAFETY: only this test has the object.
        unsafe {
            remove(first);
            // Other tests of this process free slots at the same time, so leave a margin.
            for _ in 0..MIN_FREE_SLOTS - 4096 {
                let node = insert(std::ptr::null(), false, |_| Ok(Pear)).unwrap();
                assert_ne!(node.handle(), stale);
                remove(node);
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "not a test: Miri has no fork")]
    fn handles_of_the_parent_are_stale_in_a_child() {
        let apple = insert(std::ptr::null(), false, |_| Ok(Apple(7))).unwrap();
        let stale: Vec<_> =
            (0..100).map(|_| insert(std::ptr::null(), false, |_| Ok(Pear)).unwrap()).collect();
        // SAFETY: only this test has the objects.
        stale.into_iter().for_each(|pear| drop(unsafe { remove(pear) }));
        // SAFETY: the child only checks handles and then ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the child has only this thread.
            let of_parent = unsafe { get::<Apple>(apple.handle()) }.is_ok()
                || live_slot(apple.handle()).is_ok();
            // SAFETY: the child has only this thread.
            let own = insert(std::ptr::null(), false, |_| Ok(Apple(8))).is_ok_and(|own| unsafe {
                let fresh = own.handle() != apple.handle();
                let of_own = get::<Apple>(own.handle()).is_ok_and(|own| own.0 == 8);
                remove(own).is_some() && fresh && of_own
            });
            // SAFETY: _exit ends the process.
            unsafe { libc::_exit(i32::from(of_parent || !own)) };
        }
        let mut status = -1;
        // SAFETY: `child` was just forked.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0, "the parent's handle must be stale and the child's own handle live");
        // SAFETY: only this test has the object.
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
        // SAFETY: only this test has the object.
        unsafe { remove(apple) };
    }
}
