//! dat-core's contract, over a device and its station.

use std::borrow::Cow;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use adapter::abort_on_panic;
use dat_core::provider::*;
use dat_core::threads;
use dat_core::wake::{Wake, WakeReason};
use dat_core::{Error, OpenError, Result};
use dat_sys::{DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY};

use crate::Verbs;
use crate::cm::{Channel, Listener, Request};
use crate::cq::Cq;
use crate::descriptor::Bell;
use crate::device::Device;
use crate::mr::{Mr, Pd};
use crate::mw::Mw;
use crate::params::Params;
use crate::qp::Qp;
use crate::srq::Srq;
use crate::station::Station;

/// An open adapter.
pub struct Adapter {
    attrs: Attrs,
    spin: Duration,
    station: Arc<Station>,
    thread: Option<JoinHandle<()>>,
}

impl Adapter {
    pub(crate) fn open(ia: &str, params: &Params) -> std::result::Result<Adapter, OpenError> {
        let device = Device::open(params.bind)?;
        let attrs = device.attrs(ia, params.strict);
        let failed = |e: std::io::Error| {
            let code = Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
            OpenError::new(code, format!("opening {}: {e}", device.name))
        };
        let channel = Channel::open(device.core).map_err(failed)?;
        let bell = Bell::new().map_err(failed)?;
        let witness = channel.witness(device.address).map_err(failed)?;
        let station = Arc::new(Station::new(Arc::new(device), channel, witness, bell));
        let for_thread = Arc::clone(&station);
        let body = move || abort_on_panic(Verbs::NAME, || for_thread.run());
        let thread = threads::spawn("dat-verbs", body);
        let thread = thread.map_err(|e| {
            let code = Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY);
            OpenError::new(code, format!("starting a thread: {e}"))
        })?;
        Ok(Adapter { attrs, spin: params.spin, station, thread: Some(thread) })
    }
}

impl Adapter {
    /// The same with one more named attribute of its transport, for who asks with `dat_ia_query`.
    #[must_use]
    pub fn with_attribute(mut self, name: &str, value: &str) -> Self {
        self.attrs.named.push((name.to_owned(), value.to_owned()));
        self
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        self.station.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            debug_assert!(ended.is_ok(), "a panic ends the process");
            self.station.clear();
        }
    }
}

// SAFETY: by the number of the promise:
// 1. Queues, queue pairs and the adapter keep their sink under a lock, under which it is called, and take it
//    away before they go. A service point's is called while an event of its identifier is not acknowledged,
//    and who destroys that waits for this.
// 2. The device checks keys and bounds; here nothing reads or writes the consumer's memory, but for small
//    requests that the library copies when they are posted.
unsafe impl Transport for Adapter {
    type Pd = Pd;
    type Mr = Mr;
    type Mw = Mw;
    type Cq = Cq;
    type Srq = Srq;
    type Qp = Qp;
    type Listener = Listener;
    type Request = Request;

    fn attrs(&self) -> &Attrs {
        &self.attrs
    }

    fn counters(&self) -> Vec<(Cow<'static, str>, u64)> {
        self.station.device.counters()
    }

    fn pd(&self) -> Result<Pd> {
        Pd::new(&self.station.device)
    }

    unsafe fn mr(&self, pd: &Pd, mem: Mem, access: Access) -> Result<Mr> {
        // SAFETY: the caller's promise.
        unsafe { Mr::new(pd, mem, access) }
    }

    fn mw(&self, pd: &Pd, scoped: bool) -> Result<Mw> {
        Mw::new(&self.station.panes, pd, scoped)
    }

    fn cq(&self, depth: usize, sink: Sink<Self>) -> Result<Cq> {
        Cq::new(&self.station, depth, Some(sink))
    }

    fn srq(&self, pd: &Pd, depth: usize, max_segments: usize, sink: Sink<Self>) -> Result<Srq> {
        Srq::new(&self.station, pd, depth, max_segments, sink)
    }

    fn qp(&self, cfg: QpCfg<'_, Self>, sink: Sink<Self>) -> Result<Qp> {
        Qp::new(&self.station, cfg, sink)
    }

    fn listen(&self, port: Port, backlog: usize, sink: Sink<Self>) -> Result<Listener> {
        self.station.channel.listen(self.station.device.address, port, backlog, sink)
    }

    fn port(&self, listener: &Listener) -> u64 {
        listener.port.into()
    }

    fn reject(&self, request: Request, private: &[u8]) -> Result<()> {
        request.refuse(private);
        Ok(())
    }

    fn watch(&self, sink: Option<Sink<Self>>) {
        self.station.watch(sink);
    }

    fn progress(&self) {
        self.station.look();
    }

    fn spin(&self) -> Duration {
        self.spin
    }

    fn sleep_on(&self, cq: &Cq, wake: &Wake, deadline: Option<Instant>) -> WakeReason {
        cq.0.sleep(wake, deadline)
    }

    fn interrupt(&self) {
        self.station.interrupt();
    }
}
