//! Queue pairs by their numbers, for whoever polls: 24 bits, looked up without a lock.

use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Two levels of 4096; pages are made when first needed and kept.
pub(crate) struct Numbers<T> {
    pages: Box<[AtomicPtr<Page<T>>]>,
}

type Page<T> = [AtomicPtr<T>; PAGE];
const PAGE: usize = 1 << 12;

impl<T> Numbers<T> {
    pub(crate) fn new() -> Self {
        Numbers { pages: (0..PAGE).map(|_| AtomicPtr::default()).collect() }
    }

    /// # Safety
    /// Who has the number stays alive until [`Numbers::remove`], and nobody uses the answer after that.
    #[inline]
    pub(crate) unsafe fn get(&self, number: u32) -> Option<&T> {
        let page = self.pages.get(number as usize / PAGE)?.load(Ordering::Acquire);
        // SAFETY: pages are kept; the rest as the caller promised.
        unsafe { page.as_ref()?[number as usize % PAGE].load(Ordering::Acquire).as_ref() }
    }

    /// One thread at a time.
    pub(crate) fn insert(&self, number: u32, who: *const T) {
        let page = &self.pages[number as usize / PAGE % PAGE];
        if page.load(Ordering::Acquire).is_null() {
            let made: Box<Page<T>> = Box::new(std::array::from_fn(|_| AtomicPtr::default()));
            page.store(Box::into_raw(made), Ordering::Release);
        }
        // SAFETY: made above or before, and kept.
        let page = unsafe { &*page.load(Ordering::Acquire) };
        page[number as usize % PAGE].store(who.cast_mut(), Ordering::Release);
    }

    /// As `insert`.
    pub(crate) fn remove(&self, number: u32) {
        self.insert(number, ptr::null());
    }
}

impl<T> Drop for Numbers<T> {
    fn drop(&mut self) {
        for page in &mut self.pages {
            let page = *page.get_mut();
            if !page.is_null() {
                // SAFETY: made by `insert`, and nobody else has it any more.
                drop(unsafe { Box::from_raw(page) });
            }
        }
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
        assert_eq!([get(0x11), get(0xff_ffff), get(0x12), get(0x1011)], [Some(1), Some(2), None, None]);
        assert_eq!(get(u32::MAX), None, "no device has such numbers");
        numbers.remove(0x11);
        assert_eq!(get(0x11), None);
    }
}
