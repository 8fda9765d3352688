//! A table by the 24 bits that devices count queue pairs and keys with, looked up without a lock.

use std::sync::OnceLock;

/// Two levels of 4096; pages are made when first needed and kept.
pub(crate) struct Pages<T> {
    pages: Box<[OnceLock<Page<T>>]>,
}

type Page<T> = Box<[T]>;
const PAGE: usize = 1 << 12;

impl<T: Default> Pages<T> {
    pub(crate) fn new() -> Self {
        Pages { pages: (0..PAGE).map(|_| OnceLock::new()).collect() }
    }

    /// What is there, unless nothing of its page ever was.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.pages.get(index as usize / PAGE)?.get()?.get(index as usize % PAGE)
    }

    /// What is there, with the page made. Of more than 24 bits the low ones count.
    pub(crate) fn make(&self, index: u32) -> &T {
        let index = index as usize;
        let page = self.pages[index / PAGE % PAGE]
            .get_or_init(|| (0..PAGE).map(|_| T::default()).collect());
        &page[index % PAGE]
    }
}
