use std::ffi::c_void;

use super::*;

fn table() -> FunctionTable {
    FunctionTable(Box::leak(Box::new(DAT_PROVIDER::zeroed())))
}

fn object(table: FunctionTable) -> Box<[usize; 4]> {
    Box::new([table.0.addr(), 1, 2, 3])
}

fn handle<T>(object: &T) -> DAT_HANDLE {
    ptr::from_ref(object).cast_mut().cast()
}

/// Pages mapped for one test.
struct Pages(*mut c_void, usize);

impl Pages {
    fn new(protection: libc::c_int, length: usize) -> Pages {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the call maps new memory at an address that the kernel chooses.
        let address = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0) };
        assert_ne!(address, libc::MAP_FAILED);
        Pages(address, length)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `new` mapped these pages, and no other code unmaps them.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

#[test]
fn only_objects_of_registered_providers_are_valid() {
    let (ours, other) = (table(), table());
    assert!(add_table(ours));
    let good = object(ours);
    let foreign = object(other);
    // The first round makes a system call. The other rounds use the cache.
    for _ in 0..3 {
        assert_eq!(table_of(handle(&*good)), Some(ours.0));
        assert_eq!(table_of(handle(&*foreign)), None);
    }
    remove_table(ours);
    assert_eq!(table_of(handle(&*good)), None);
}

#[test]
fn bad_addresses_are_answered_not_followed() {
    let ours = table();
    assert!(add_table(ours));
    let good = object(ours);
    let unreadable = Pages::new(libc::PROT_NONE, PAGE_BYTES);
    let unmapped = {
        let gone = Pages::new(libc::PROT_READ, PAGE_BYTES);
        gone.0
    };
    let misaligned = handle(&*good).wrapping_byte_add(1);
    for bad in
        [0, 1, 2, 63, 4095, 8, 0xdead_beef, 0xffff_8000_0000_0000, usize::MAX - 7, usize::MAX]
    {
        assert_eq!(table_of(ptr::without_provenance_mut(bad)), None, "{bad:#x}");
    }
    for bad in [unreadable.0, unmapped, misaligned] {
        assert_eq!(table_of(bad), None);
    }
    remove_table(ours);
}

#[test]
fn the_end_of_a_mapping_is_not_crossed() {
    let ours = table();
    assert!(add_table(ours));
    let pages = Pages::new(libc::PROT_READ | libc::PROT_WRITE, 2 * PAGE_BYTES);
    let second = pages.0.wrapping_byte_add(PAGE_BYTES);
    // SAFETY: `second` is the second of the two pages that were just mapped.
    assert_eq!(unsafe { libc::mprotect(second, PAGE_BYTES, libc::PROT_NONE) }, 0);
    let last_word = second.wrapping_byte_sub(8);
    // SAFETY: the word is aligned and lies in the first page, which is writable.
    unsafe { last_word.cast::<usize>().write(ours.0.addr()) };
    assert_eq!(table_of(last_word), Some(ours.0));
    assert_eq!(table_of(second), None);
    remove_table(ours);
}
