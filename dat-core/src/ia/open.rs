//! dat_ia_open.

use dat_sys::*;
use tracing::info;

use super::{Entry, Ia, sharing};
use crate::error::{Error, OpenError, Result};
use crate::evd::{self, Evd};
use crate::handle::{self, Node, Pin, Ref};
use crate::log::Hex;
use crate::provider::{Provider, Receiver, Sink, Transport, Upcall};
use crate::stats;
use crate::threads::BlockedSignals;

/// Which dispatcher hears of the adapter's asynchronous errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsyncEvd {
    /// A new one for at least this many events; it goes with the adapter.
    Create(DAT_COUNT),
    /// The consumer's, of another open of this adapter.
    Given(DAT_EVD_HANDLE),
    /// None here: there is one in another process or in the kernel (`DAT_EVD_ASYNC_EXISTS`).
    Elsewhere,
}

/// Asynchronous events for which there is room.
const ASYNC_DEPTH: DAT_COUNT = 4096;

/// Opens the adapter that an entry of the registry describes. The reason for the human is empty where the
/// consumer's arguments were wrong.
///
/// # Safety
/// Nobody frees a given dispatcher meanwhile, unless its adapter is thread-safe. The functions of `entry` are
/// a registry's, and its table is valid as long as the adapter is open.
pub unsafe fn open<P: Provider>(
    provider: &P,
    params: &str,
    entry: Entry<'_>,
    async_evd: AsyncEvd,
) -> std::result::Result<&'static Node<Ia<P::Transport>>, OpenError> {
    // SAFETY: as the caller promised.
    unsafe { async_evd.check::<P::Transport>(entry.name) }
        .map_err(|code| OpenError::new(code, ""))?;
    // The adapter is opened to the end however often a timer's signal arrives.
    let _blocked = BlockedSignals::during_a_call();
    // SAFETY: as the caller promised.
    unsafe { enter(provider.open(entry.name, params)?, entry, async_evd) }
}

/// Makes what a provider has opened an adapter.
///
/// # Safety
/// As [`open`].
pub unsafe fn enter<T: Transport>(
    transport: T,
    entry: Entry<'_>,
    async_evd: AsyncEvd,
) -> std::result::Result<&'static Node<Ia<T>>, OpenError> {
    let refuse = |code| OpenError::new(code, "");
    // Before the adapter has a handle that others may guess: a dispatcher is pinned before an adapter.
    let given = match async_evd {
        // SAFETY: as the caller promised.
        AsyncEvd::Given(evd) => {
            Some(unsafe { sharing::check::<T>(evd, entry.name) }.map_err(refuse)?)
        }
        AsyncEvd::Create(_) | AsyncEvd::Elsewhere => None,
    };
    let ia = handle::insert(entry.table, entry.thread_safe, |_| Ok(Ia::new(transport, &entry)));
    let ia = ia.map_err(refuse)?;
    assign(ia, async_evd, given).map_err(|code| {
        drop(handle::made(ia));
        // SAFETY: nobody has been told the handle, and who has guessed it is waited for.
        let gone = unsafe { handle::free(ia.handle(), |ia: &Node<Ia<T>>| Ok(handle::remove(ia))) };
        drop(gone);
        refuse(code)
    })?;
    // SAFETY: dat_ia_close takes it away before the adapter goes.
    ia.transport.watch(Some(unsafe { Sink::new(ia) }));
    stats::enter(ia);
    let handle = Hex(ia.handle() as usize);
    info!(target: "dat::ia", ia = ia.name, %handle, provider = ia.provider, "opened");
    Ok(ia)
}

impl<T: Transport> Receiver<T> for Node<Ia<T>> {
    fn upcall(&self, up: Upcall<'_, T>) {
        let reason = match up {
            Upcall::Failed => DAT_IA_CATASTROPHIC_ERROR,
            // As OFED has it, which gives no reason.
            Upcall::PortDown => DAT_IA_OTHER_ERROR,
            _ => return,
        };
        self.report(DAT_ASYNC_ERROR_IA_CATASTROPHIC, self.consumer_handle(), reason);
    }
}

/// `given` is the consumer's dispatcher, if there is one.
fn assign<T: Transport>(
    ia: &Node<Ia<T>>,
    async_evd: AsyncEvd,
    given: Option<Pin<Evd<T>>>,
) -> Result<()> {
    match (async_evd, given) {
        (_, Some(evd)) => sharing::join(ia, &evd),
        (AsyncEvd::Create(min_qlen), None) => {
            // What does not fit is lost, and endpoints may end by the thousand; the consumer's length is a minimum.
            let most =
                DAT_COUNT::try_from(ia.transport.attrs().max_evd_depth).unwrap_or(DAT_COUNT::MAX);
            let depth = if min_qlen > 0 { min_qlen.max(ASYNC_DEPTH.min(most)) } else { min_qlen };
            // A length that is no length is the second argument there and here.
            let evd = evd::create(ia, depth, None, DAT_EVD_ASYNC_FLAG)?;
            ia.set_async_evd(Some(Ref::new(&handle::made(evd))));
            Ok(())
        }
        (AsyncEvd::Given(_) | AsyncEvd::Elsewhere, None) => Ok(()),
    }
}

impl AsyncEvd {
    /// What the consumer asked for with the second and third argument of dat_ia_open.
    pub fn from_c(min_qlen: DAT_COUNT, evd: DAT_EVD_HANDLE) -> Result<Self> {
        match evd {
            DAT_HANDLE_NULL if min_qlen <= 0 => Err(Error::arg(2)),
            DAT_HANDLE_NULL => Ok(AsyncEvd::Create(min_qlen)),
            DAT_EVD_ASYNC_EXISTS => Ok(AsyncEvd::Elsewhere),
            given => Ok(AsyncEvd::Given(given)),
        }
    }

    /// Whether one that is given is one of an adapter of that name, made of this transport.
    ///
    /// # Safety
    /// Nobody frees it meanwhile, unless its adapter is thread-safe.
    pub unsafe fn check<T: Transport>(self, name: &str) -> Result<()> {
        match self {
            // SAFETY: as the caller promised.
            AsyncEvd::Given(evd) => unsafe { sharing::check::<T>(evd, name) }.map(drop),
            AsyncEvd::Create(_) | AsyncEvd::Elsewhere => Ok(()),
        }
    }
}
