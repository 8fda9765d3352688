//! The resources that this process uses.

/// The numbers of open descriptors and of threads.
#[derive(Debug, PartialEq)]
pub(crate) struct Footprint {
    pub(crate) fds: usize,
    pub(crate) threads: usize,
}

fn count(dir: &str) -> usize {
    std::fs::read_dir(dir).expect("procfs").count()
}

pub(crate) fn footprint() -> Footprint {
    Footprint { fds: count("/proc/self/fd"), threads: count("/proc/self/task") }
}

/// The number of octets that malloc has handed out, in all its arenas.
pub(crate) fn bytes_in_use() -> usize {
    // SAFETY: the function takes no arguments.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}
