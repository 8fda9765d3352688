//! The clocks by which the lines of several processes are merged.

/// What the system's clocks show at one moment, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clocks {
    /// The time since the host has started. It is the same in all processes of a host.
    pub(crate) monotonic_ns: u64,
    /// The time since 1970.
    pub(crate) realtime_ns: u64,
}

impl Clocks {
    pub(crate) fn read() -> Clocks {
        Clocks {
            monotonic_ns: nanoseconds(libc::CLOCK_MONOTONIC),
            realtime_ns: nanoseconds(libc::CLOCK_REALTIME),
        }
    }

    /// The time since the clocks were read, in seconds, by the same clock.
    pub(crate) fn elapsed_seconds(self) -> f64 {
        let now = nanoseconds(libc::CLOCK_MONOTONIC);
        now.saturating_sub(self.monotonic_ns) as f64 / 1e9
    }
}

/// Reads a clock by a system call. The functions of the C library and of rustix read the vDSO,
/// which valgrind does not always follow. Miri knows only the function.
fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the calls write only to `now`.
    unsafe {
        match cfg!(miri) {
            true => libc::clock_gettime(clock, &raw mut now).into(),
            false => libc::syscall(libc::SYS_clock_gettime, clock, &raw mut now),
        }
    };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
