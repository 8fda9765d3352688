//! The destination of the lines of the log, and the destination of messages.

use std::ffi::CString;
use std::io::{self, Write};

use tracing_subscriber::fmt::MakeWriter;

use crate::threads::Uncancellable;

/// Where lines go. If both fields are false, lines go to standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) stdout: bool,
    pub(crate) syslog: bool,
}

impl Destination {
    /// The destination that OFED's bits in DAT_DBG_DEST and DAPL_DBG_DEST select.
    pub(crate) fn of_bits(bits: u32) -> Self {
        Destination { stdout: bits & 1 != 0, syslog: bits & 2 != 0 }
    }

    /// Writes a line and its line end in one call, so that lines of several threads do not mix.
    pub(crate) fn write_line(self, line: &[u8]) -> io::Result<()> {
        let _uncancellable = Uncancellable::new();
        if self.syslog {
            let text = CString::new(line.trim_ascii_end()).map_err(io::Error::other)?;
            // SAFETY: both strings are NUL-terminated, and the format contains one string argument.
            unsafe { libc::syslog(libc::LOG_USER | libc::LOG_INFO, c"%s".as_ptr(), text.as_ptr()) };
        }
        match self {
            Destination { stdout: true, .. } => io::stdout().write_all(line),
            Destination { syslog: true, .. } => Ok(()),
            _ => io::stderr().write_all(line),
        }
    }
}

impl<'a> MakeWriter<'a> for Destination {
    type Writer = Destination;

    fn make_writer(&'a self) -> Destination {
        *self
    }
}

/// The subscriber writes one line with each call.
impl Write for Destination {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.write_line(line).map(|()| line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
