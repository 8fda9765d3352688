//! Memory for the objects that control calls create. A call that finds too little memory fails with
//! `DAT_INSUFFICIENT_RESOURCES`.
//!
//! Many parts of an object are boxes, reference counts and threads of the standard library, which
//! end the process if there is no memory. So a call that creates an object first [checks for
//! room](check_room). Parts that are larger, or whose size depends on the consumer's arguments, are
//! allocated fallibly. The allocation of these parts also fails if it would leave too little room
//! for the other parts.

use std::hint::black_box;

use crate::error::Result;
pub(crate) use crate::error::no_memory;

/// The room for the parts of any object of an adapter, in bytes. The parts need less memory than
/// this. The room is also smaller than the unit in which malloc requests memory from the system.
pub(crate) const OBJECT_BYTES: usize = 32 << 10;
/// The room for an adapter with the buffers of its engine, in bytes.
pub(crate) const ADAPTER_BYTES: usize = 1 << 20;

/// Checks that `octets` bytes of memory can be allocated at this moment. Another thread may take
/// the memory immediately afterwards.
pub(crate) fn check_room(octets: usize) -> Result<()> {
    let mut room: Vec<u8> = Vec::new();
    room.try_reserve_exact(octets).map_err(no_memory)?;
    // Use the memory. Otherwise the compiler could omit the allocation.
    black_box(room.as_mut_ptr());
    Ok(())
}

/// Allocates a slice that is part of an object. Fails if too little memory would be left for the
/// other parts of the object.
pub(crate) fn slice_of<E>(len: usize, element: impl FnMut() -> E) -> Result<Box<[E]>> {
    let mut elements = Vec::new();
    elements.try_reserve_exact(len).map_err(no_memory)?;
    elements.resize_with(len, element);
    check_room(OBJECT_BYTES)?;
    Ok(elements.into_boxed_slice())
}
