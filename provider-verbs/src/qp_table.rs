//! Queue pairs by number, for threads that poll.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::paged_table::PagedTable;

pub(crate) struct QpTable<T> {
    /// A pointer for each number. It is null if no queue pair has the number.
    slots: PagedTable<AtomicPtr<T>>,
}

impl<T> QpTable<T> {
    pub(crate) fn new() -> Self {
        QpTable { slots: PagedTable::new() }
    }

    /// Returns the queue pair with this number.
    ///
    /// # Safety
    /// The value that was inserted for the number stays alive until [`QpTable::remove`], and the
    /// result is not used after that.
    #[inline]
    pub(crate) unsafe fn get(&self, number: u32) -> Option<&T> {
        let value = self.slots.get(number)?.load(Ordering::Acquire);
        // SAFETY: the caller guarantees that the value is alive.
        unsafe { value.as_ref() }
    }

    pub(crate) fn insert(&self, number: u32, value: *const T) {
        self.slots.get_or_create(number).store(value.cast_mut(), Ordering::Release);
    }

    pub(crate) fn remove(&self, number: u32) {
        self.insert(number, ptr::null());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inserted_value_is_found_until_it_is_removed() {
        let (table, [a, b]) = (QpTable::new(), [1, 2]);
        table.insert(0x11, &a);
        table.insert(0xff_ffff, &b);
        // SAFETY: both values outlive the table.
        let get = |n| unsafe { table.get(n) }.copied();
        assert_eq!(
            [get(0x11), get(0xff_ffff), get(0x12), get(0x1011)],
            [Some(1), Some(2), None, None]
        );
        assert_eq!(get(u32::MAX), None, "a number of more than 24 bits must not be found");
        table.remove(0x11);
        assert_eq!(get(0x11), None);
    }
}
