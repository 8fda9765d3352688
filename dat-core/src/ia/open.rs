//! dat_ia_open.

use dat_sys::*;
use telemetry::Hex;
use telemetry::threads::BlockedSignals;
use tracing::info;

use super::{Entry, Ia, sharing};
use crate::error::{Error, OpenError, Result};
use crate::evd::{self, Evd};
use crate::handle::{self, HandleSlot, Node, Pin, Ref};
use crate::provider::{Provider, Receiver, Sink, Transport, Upcall};
use crate::stats;

/// The EVD to which an adapter reports asynchronous errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvd {
    /// A new EVD for at least this many events. It is freed with the adapter.
    Create(DAT_COUNT),
    /// The consumer's EVD, which belongs to another open of the same adapter.
    Given(DAT_EVD_HANDLE),
    /// No EVD of this process. The EVD of asynchronous errors exists in another process or in the
    /// kernel (`DAT_EVD_ASYNC_EXISTS`).
    Exists,
}

/// The minimum depth of an asynchronous EVD that dat_ia_open creates.
const MIN_ASYNC_EVD_DEPTH: DAT_COUNT = 4096;

/// Opens the adapter that an entry of the registry describes. If the consumer's arguments are
/// wrong, the error has an empty reason.
///
/// # Safety
/// Nobody frees a given EVD during this call, unless the EVD's adapter is thread-safe. The
/// functions of `entry` are those of a registry, and its table is valid as long as the adapter is
/// open.
pub unsafe fn open<P: Provider>(
    provider: &P,
    params: &str,
    entry: Entry<'_>,
    async_evd: AsyncEvd,
) -> std::result::Result<&'static Node<Ia<P::Transport>>, OpenError> {
    async_evd.check_live().map_err(|code| OpenError::new(code, ""))?;
    // Block signals, so that the adapter is opened completely even if the signal of a timer arrives
    // very often.
    let _blocked = BlockedSignals::during_a_call();
    // SAFETY: the caller guarantees that nobody frees the EVD during this call, and that the
    // functions and the table of `entry` stay valid.
    unsafe { open_with_transport(provider.open(entry.name, params)?, entry, async_evd) }
}

/// Creates an adapter on a transport that a provider has opened.
///
/// # Safety
/// The requirements of [`open`] apply.
pub unsafe fn open_with_transport<T: Transport>(
    transport: T,
    entry: Entry<'_>,
    async_evd: AsyncEvd,
) -> std::result::Result<&'static Node<Ia<T>>, OpenError> {
    let refuse = |code| OpenError::new(code, "");
    // Check the EVD before the adapter gets a handle. Other threads may guess the handle, and each
    // thread must pin EVDs before adapters.
    let given = match async_evd {
        AsyncEvd::Given(evd) => {
            // SAFETY: the caller guarantees that nobody frees the EVD during this call, unless its
            // adapter is thread-safe.
            let checked = unsafe { sharing::check::<T>(evd, entry.name) };
            Some(checked.map_err(refuse)?)
        }
        AsyncEvd::Create(_) | AsyncEvd::Exists => None,
    };
    let ia = handle::insert(entry.table, entry.thread_safe, |_| Ok(Ia::new(transport, &entry)));
    let ia = ia.map_err(refuse)?;
    set_initial_async_evd(ia, async_evd, given).map_err(|code| {
        drop(handle::pin_created(ia));
        // SAFETY: nobody was told the handle, and the call waits for threads that have guessed it.
        let removed = unsafe {
            handle::with_exclusive(ia.handle(), |ia: &Node<Ia<T>>| Ok(handle::remove(ia)))
        };
        drop(removed);
        refuse(code)
    })?;
    // SAFETY: dat_ia_close removes the sink before the adapter is freed.
    ia.transport.watch(Some(unsafe { Sink::new(ia) }));
    stats::add_adapter(ia);
    let handle = Hex(ia.handle() as usize);
    info!(target: "dat::ia", ia = ia.name, %handle, provider = ia.provider, "opened");
    Ok(ia)
}

impl<T: Transport> Receiver<T> for Node<Ia<T>> {
    fn upcall(&self, up: Upcall<'_, T>) {
        let reason = match up {
            Upcall::Failed => DAT_IA_CATASTROPHIC_ERROR,
            // OFED's providers do not give a more specific reason either.
            Upcall::PortDown => DAT_IA_OTHER_ERROR,
            _ => return,
        };
        self.report(DAT_ASYNC_ERROR_IA_CATASTROPHIC, self.consumer_handle(), reason);
    }
}

/// Sets the EVD of asynchronous errors. `given` is the consumer's EVD, if the consumer has passed
/// one.
fn set_initial_async_evd<T: Transport>(
    ia: &Node<Ia<T>>,
    async_evd: AsyncEvd,
    given: Option<Pin<Evd<T>>>,
) -> Result<()> {
    match (async_evd, given) {
        (_, Some(evd)) => sharing::add_reporter(ia, &evd),
        (AsyncEvd::Create(min_qlen), None) => {
            // Make the EVD longer than the consumer requested, because events that do not fit are
            // lost, and thousands of endpoints may fail at once. The standard permits this: the
            // consumer's length is a minimum.
            let most =
                DAT_COUNT::try_from(ia.transport.attrs().max_evd_depth).unwrap_or(DAT_COUNT::MAX);
            let depth =
                if min_qlen > 0 { min_qlen.max(MIN_ASYNC_EVD_DEPTH.min(most)) } else { min_qlen };
            // If the length is invalid, the error of `evd::create` names argument 2. The length is
            // argument 2 of dat_ia_open as well.
            let evd = evd::create(ia, depth, None, DAT_EVD_ASYNC_FLAG)?;
            ia.set_async_evd(Some(Ref::new(&handle::pin_created(evd))));
            Ok(())
        }
        (AsyncEvd::Given(_) | AsyncEvd::Exists, None) => Ok(()),
    }
}

impl AsyncEvd {
    /// Converts the second and third arguments of dat_ia_open, which are the minimum length of the
    /// EVD and the EVD.
    pub fn from_c(min_qlen: DAT_COUNT, evd: DAT_EVD_HANDLE) -> Result<Self> {
        match evd {
            DAT_HANDLE_NULL if min_qlen <= 0 => Err(Error::arg(2)),
            DAT_HANDLE_NULL => Ok(AsyncEvd::Create(min_qlen)),
            DAT_EVD_ASYNC_EXISTS => Ok(AsyncEvd::Exists),
            given => Ok(AsyncEvd::Given(given)),
        }
    }

    /// Checks that the consumer has passed the handle of an EVD, so that no adapter is opened in
    /// vain. After the adapter is opened, another check makes sure that the EVD belongs to an
    /// adapter of the same name and transport.
    pub fn check_live(self) -> Result<()> {
        match self {
            AsyncEvd::Given(evd)
                if handle::live_slot(evd).map(HandleSlot::kind) != Ok(DAT_HANDLE_TYPE_EVD) =>
            {
                Err(Error::handle(DAT_INVALID_HANDLE_EVD_ASYNC))
            }
            AsyncEvd::Given(_) | AsyncEvd::Create(_) | AsyncEvd::Exists => Ok(()),
        }
    }
}
