//! dat-core's transport trait for a device.

use std::borrow::Cow;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use adapter::abort_on_panic;
use dat_core::provider::*;
use dat_core::{Error, OpenError, Result};
use dat_sys::{DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY};
use telemetry::threads;
use waiting::{Wake, WakeReason};

use crate::Verbs;
use crate::address::Address;
use crate::cm::{Channel, ConnectionRequest, Listener};
use crate::cq::Cq;
use crate::descriptor::EventFd;
use crate::device::Device;
use crate::mr::{Mr, Pd};
use crate::mw::Mw;
use crate::params::Params;
use crate::progress::ProgressContext;
use crate::qp::Qp;
use crate::srq::Srq;

/// An open adapter.
pub struct Adapter {
    attrs: Attrs,
    spin: Duration,
    progress: Arc<ProgressContext>,
    thread: Option<JoinHandle<()>>,
}

impl Adapter {
    pub(crate) fn open(ia: &str, params: &Params) -> std::result::Result<Adapter, OpenError> {
        let device = Device::open(params.bind)?;
        let attrs = device.attrs(ia, params.strict, params.stats);
        let failed = |e: std::io::Error| {
            let code = Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
            OpenError::new(code, format!("opening {}: {e}", device.name))
        };
        let channel = Channel::open(device.core).map_err(failed)?;
        let wakeup = EventFd::new().map_err(failed)?;
        let removal_watch = channel.bind_to_device(device.address).map_err(failed)?;
        let progress =
            Arc::new(ProgressContext::new(Arc::new(device), channel, removal_watch, wakeup));
        let for_thread = Arc::clone(&progress);
        let body = move || abort_on_panic(Verbs::NAME, || for_thread.run());
        let thread = threads::spawn("dat-verbs", body);
        let thread = thread.map_err(|e| {
            let code = Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
            OpenError::new(code, format!("starting a thread: {e}"))
        })?;
        Ok(Adapter { attrs, spin: params.spin, progress, thread: Some(thread) })
    }
}

impl Adapter {
    /// Adds a named attribute that `dat_ia_query` returns.
    #[must_use]
    pub fn with_attribute(mut self, name: &str, value: &str) -> Self {
        self.attrs.named.push((name.to_owned(), value.to_owned()));
        self
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        self.progress.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            debug_assert!(ended.is_ok(), "a panic ends the process");
            self.progress.drop_ending();
        }
    }
}

// SAFETY: the promises of `Transport`, by their numbers:
// 1. Queues, queue pairs and the adapter keep their sink under a lock, call it under this lock, and
//    remove it before they are dropped. The sink of a listener is called while an event of its
//    identifier is not acknowledged, and the destruction of the identifier waits for the
//    acknowledgement.
// 2. The device checks keys and bounds. Nothing here reads or writes the consumer's memory, except
//    that the library copies inline data when they are posted.
unsafe impl Transport for Adapter {
    type Pd = Pd;
    type Mr = Mr;
    type Mw = Mw;
    type Cq = Cq;
    type Srq = Srq;
    type Qp = Qp;
    type Address = Address;
    type Listener = Listener;
    type ConnectionRequest = ConnectionRequest;

    fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    fn counters(&self) -> Vec<(Cow<'static, str>, u64)> {
        self.progress.device.counters()
    }

    fn pd(&self) -> Result<Pd> {
        Pd::new(&self.progress.device)
    }

    unsafe fn mr(&self, pd: &Pd, mem: Mem, access: Access) -> Result<Mr> {
        // SAFETY: the caller keeps the memory mapped until the region is dropped, as this function
        // requires.
        unsafe { Mr::new(pd, mem, access) }
    }

    fn mw(&self, pd: &Pd, scoped: bool) -> Result<Mw> {
        Mw::new(&self.progress.windows, pd, scoped)
    }

    fn cq(&self, depth: usize, sink: Sink<Self>) -> Result<Cq> {
        Cq::new(&self.progress, depth, Some(sink))
    }

    fn srq(&self, pd: &Pd, depth: usize, max_segments: usize, sink: Sink<Self>) -> Result<Srq> {
        Srq::new(&self.progress, pd, depth, max_segments, sink)
    }

    fn qp(&self, cfg: QpCfg<'_, Self>, sink: Sink<Self>) -> Result<Qp> {
        Qp::new(&self.progress, cfg, sink)
    }

    fn listen(&self, port: Option<u16>, backlog: usize, sink: Sink<Self>) -> Result<Listener> {
        let ProgressContext { channel, device, .. } = &*self.progress;
        channel.listen(device.address, port, backlog, device.has_datagrams(), sink)
    }

    fn port(&self, listener: &Listener) -> u16 {
        listener.port
    }

    fn reject(&self, request: ConnectionRequest, private: &[u8]) -> Result<()> {
        request.refuse(private)
    }

    fn watch(&self, sink: Option<Sink<Self>>) {
        self.progress.set_sink(sink);
    }

    fn progress(&self) {
        self.progress.make_progress();
    }

    fn spin(&self) -> Duration {
        self.spin
    }

    fn sleep_on(&self, cq: &Cq, wake: &Wake, deadline: Option<Instant>) -> WakeReason {
        cq.0.sleep(wake, deadline)
    }

    fn interrupt(&self) {
        self.progress.interrupt();
    }
}
