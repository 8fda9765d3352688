//! A table that is read without a lock. Its index has 24 bits, like the numbers that devices give
//! to queue pairs and keys.

use std::sync::OnceLock;

/// Two levels of 4096 entries. A page is created when it is first needed, and is never freed.
pub(crate) struct PagedTable<T> {
    pages: Box<[OnceLock<Page<T>>]>,
}

type Page<T> = Box<[T]>;
const ENTRIES_PER_PAGE: usize = 1 << 12;

impl<T: Default> PagedTable<T> {
    pub(crate) fn new() -> Self {
        PagedTable { pages: (0..ENTRIES_PER_PAGE).map(|_| OnceLock::new()).collect() }
    }

    /// Returns the entry, or `None` if its page was never created.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        self.pages
            .get(index as usize / ENTRIES_PER_PAGE)?
            .get()?
            .get(index as usize % ENTRIES_PER_PAGE)
    }

    /// Returns the entry, and creates its page if necessary. Only the low 24 bits of `index` count.
    pub(crate) fn get_or_create(&self, index: u32) -> &T {
        let index = index as usize;
        let page = self.pages[index / ENTRIES_PER_PAGE % ENTRIES_PER_PAGE]
            .get_or_init(|| (0..ENTRIES_PER_PAGE).map(|_| T::default()).collect());
        &page[index % ENTRIES_PER_PAGE]
    }
}
