//! Memory for the objects that control calls create. Without memory a call fails with
//! `DAT_INSUFFICIENT_RESOURCES`.
//!
//! The standard library's boxes, reference counts and threads end the process if there is no
//! memory, and many parts of an object consist of these. So a call that creates an object first
//! [checks for room](check_room). Parts that are larger, or whose size depends on the consumer's
//! arguments, are allocated fallibly and must leave that room.

use std::hint::black_box;

use crate::error::Result;
pub(crate) use crate::error::no_memory;

/// The room for the parts of any object of an adapter, in bytes: more than they take, and less than
/// the unit in which malloc requests memory from the system.
pub(crate) const OBJECT_BYTES: usize = 32 << 10;
/// The room for an adapter with the buffers of its engine, in bytes.
pub(crate) const ADAPTER_BYTES: usize = 1 << 20;

/// Checks that `octets` bytes of memory can be allocated. Another thread may take the memory
/// directly afterwards.
pub(crate) fn check_room(octets: usize) -> Result<()> {
    let mut room: Vec<u8> = Vec::new();
    room.try_reserve_exact(octets).map_err(no_memory)?;
    // Without this use of the memory, the compiler could omit the allocation.
    black_box(room.as_mut_ptr());
    Ok(())
}

/// Allocates a slice that is part of an object. Fails unless there is room left for the rest of the
/// object.
pub(crate) fn slice_of<E>(len: usize, element: impl FnMut() -> E) -> Result<Box<[E]>> {
    let mut elements = Vec::new();
    elements.try_reserve_exact(len).map_err(no_memory)?;
    elements.resize_with(len, element);
    check_room(OBJECT_BYTES)?;
    Ok(elements.into_boxed_slice())
}
