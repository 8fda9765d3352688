//! Queue pairs by their numbers, for whoever polls.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::pages::Pages;

pub(crate) struct Numbers<T> {
    /// Null: nobody has the number.
    slots: Pages<AtomicPtr<T>>,
}

impl<T> Numbers<T> {
    pub(crate) fn new() -> Self {
        Numbers { slots: Pages::new() }
    }

    /// # Safety
    /// Who has the number stays alive until [`Numbers::remove`], and nobody uses the answer after that.
    #[inline]
    pub(crate) unsafe fn get(&self, number: u32) -> Option<&T> {
        let who = self.slots.get(number)?.load(Ordering::Acquire);
        // SAFETY: as the caller promised.
        unsafe { who.as_ref() }
    }

    pub(crate) fn insert(&self, number: u32, who: *const T) {
        self.slots.make(number).store(who.cast_mut(), Ordering::Release);
    }

    pub(crate) fn remove(&self, number: u32) {
        self.insert(number, ptr::null());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_inserted_is_found_until_it_is_removed() {
        let (numbers, [a, b]) = (Numbers::new(), [1, 2]);
        numbers.insert(0x11, &a);
        numbers.insert(0xff_ffff, &b);
        // SAFETY: both outlive the table.
        let get = |n| unsafe { numbers.get(n) }.copied();
        assert_eq!(
            [get(0x11), get(0xff_ffff), get(0x12), get(0x1011)],
            [Some(1), Some(2), None, None]
        );
        assert_eq!(get(u32::MAX), None, "no device has such numbers");
        numbers.remove(0x11);
        assert_eq!(get(0x11), None);
    }
}
