//! What one system call moves: buffers of an engine, shared by all its streams, which keep nothing in them between calls.

use libc::iovec;

/// The frames of one gather write.
pub struct TxVec {
    pub(crate) iov: Vec<iovec>,
    pub(crate) bytes: usize,
}

impl TxVec {
    /// Empty, with its memory.
    pub fn new() -> Self {
        todo!()
    }
    /// What to send, in order. Valid until the next call of the stream that filled it, under the same hold of the engine
    /// lock. One element: `send` will do.
    pub fn iov(&self) -> &[iovec] {
        &self.iov
    }
    /// Bytes in all.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Default for TxVec {
    fn default() -> Self {
        Self::new()
    }
}

/// Where the bytes of one scatter read go.
pub struct RxVec {
    pub(crate) iov: Vec<iovec>,
    pub(crate) bytes: usize,
}

impl RxVec {
    /// Empty, with a staging buffer of 64 KiB.
    pub fn new() -> Self {
        todo!()
    }
    /// Where to read to, in order. Valid as [`TxVec::iov`] is. One element: `recv` will do.
    pub fn iov(&self) -> &[iovec] {
        &self.iov
    }
    /// Bytes in all: a read that gives fewer has emptied the socket.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Default for RxVec {
    fn default() -> Self {
        Self::new()
    }
}
