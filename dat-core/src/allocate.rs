//! Memory for what a control call makes: without any, the call answers `DAT_INSUFFICIENT_RESOURCES`. The
//! standard library's boxes, reference counts and threads end the process where there is none, and many parts
//! of an object are made of these. So a call that makes something [finds room](find_room) before it begins.
//! What is larger, or grows with what the consumer asks for, is allocated so that it may fail, and must leave
//! that room.

use std::hint::black_box;

use crate::error::Result;
pub(crate) use crate::error::no_memory;

/// For the parts of any object of an adapter: more than they take, and less than what malloc asks the system
/// for each time.
pub(crate) const OBJECT: usize = 32 << 10;
/// For an adapter: with the buffers of its engine.
pub(crate) const ADAPTER: usize = 1 << 20;

/// Whether there is room for so many octets. Another thread may take the last of it a moment later.
pub(crate) fn find_room(octets: usize) -> Result<()> {
    let mut room: Vec<u8> = Vec::new();
    room.try_reserve_exact(octets).map_err(no_memory)?;
    // What nobody uses need not be allocated.
    black_box(room.as_mut_ptr());
    Ok(())
}

/// So many elements. They leave room for the rest of the object that they are a part of.
pub(crate) fn slice_of<E>(len: usize, element: impl FnMut() -> E) -> Result<Box<[E]>> {
    let mut elements = Vec::new();
    elements.try_reserve_exact(len).map_err(no_memory)?;
    elements.resize_with(len, element);
    find_room(OBJECT)?;
    Ok(elements.into_boxed_slice())
}
