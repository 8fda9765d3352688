//! An open adapter, and the limits of its protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use rnic::Keys;

use crate::engines::Engines;
use crate::progress::MakeProgress;

/// An open adapter: its engines, and the memory keys.
pub struct Adapter<E: MakeProgress> {
    pub(crate) limits: Limits,
    pub(crate) keys: Arc<Keys>,
    pub(crate) engines: Arc<Engines<E>>,
    pub(crate) unused: UnusedQps,
}

/// The limits of a wire protocol.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum number of RDMA reads in flight for each queue pair, in either direction.
    pub max_read_depth: u32,
    /// The maximum size of a message or RDMA operation, in octets.
    pub max_message: u32,
    /// The maximum size of a datagram, in octets. `None` if the protocol has no datagrams.
    pub max_datagram: Option<u32>,
    /// The maximum size of private data, in octets.
    pub max_private: usize,
    /// Whether immediate data and atomic operations can be used with peers that support them.
    pub extended: bool,
}

/// The number of an adapter's queue pairs for connections that have no connection and are in no
/// attempt to connect. All engines of the adapter share it.
#[derive(Clone, Default)]
pub struct UnusedQps(Arc<AtomicUsize>);

impl UnusedQps {
    /// The number of queue pairs at this moment.
    pub fn count(&self) -> usize {
        self.0.load(Relaxed)
    }

    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    pub(crate) fn remove(&self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl<E: MakeProgress> Drop for Adapter<E> {
    fn drop(&mut self) {
        self.engines.iter().for_each(|reactor| reactor.stop_progress_thread());
    }
}
