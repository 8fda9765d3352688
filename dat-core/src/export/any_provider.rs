//! Types that hide the Rust types of providers and opened transports. Only [`AnyProvider::of`],
//! [`Opened::new`] and the function tables depend on the type of the transport. So the code that
//! registers entries and implements dat_ia_open exists only once, and a provider can choose between
//! transports.

use std::any::TypeId;
use std::ffi::c_char;

use dat_sys::*;

use super::register::Version;
use super::{function_table, v1};
use crate::error::OpenError;
use crate::handle;
use crate::ia::{self, AsyncEvd, Entry, Ia};
use crate::provider::{Attrs, Provider, Transport};

/// A provider whose Rust type is hidden.
#[derive(Clone, Copy, Debug)]
pub struct AnyProvider {
    /// The provider's name as `dat_ia_query` reports it.
    pub(super) name: &'static str,
    pub(super) open: OpenFn,
    /// The function tables that are registered for the provider.
    pub(super) tables: ProviderTables,
}

/// Opens an adapter, like [`Provider::open`].
pub type OpenFn = fn(&str, &str) -> Result<Opened, OpenError>;

impl AnyProvider {
    /// Hides the type of a provider. Each adapter gets a new value of that type.
    pub const fn of<P: Provider + Default>() -> Self {
        AnyProvider {
            name: P::NAME,
            open: |ia, params| P::default().open(ia, params).map(Opened::new),
            tables: ProviderTables::of::<P::Transport>(),
        }
    }

    /// Returns the same provider, except that `open` opens its adapters and chooses the transport
    /// of each adapter. The registered table is still the table of the provider's own transport.
    /// The handles of an adapter with another transport lead to the table of that other transport.
    pub const fn opened_by(self, open: OpenFn) -> Self {
        AnyProvider { open, ..self }
    }
}

/// An opened transport whose Rust type is hidden.
pub struct Opened(pub(super) Box<dyn AnyTransport>);

impl Opened {
    /// Hides the type of a transport.
    pub fn new<T: Transport>(transport: T) -> Self {
        Opened(Box::new(transport))
    }

    /// The limits and names of the adapter.
    pub fn attrs(&self) -> &Attrs {
        self.0.attrs()
    }
}

/// The functions of a [`Transport`] that [`Opened`] needs.
pub(super) trait AnyTransport {
    fn attrs(&self) -> &Attrs;
    /// The function tables of the transport.
    fn tables(&self) -> ProviderTables;
    /// Creates an adapter on the transport. Returns the handles of the adapter and of its
    /// asynchronous EVD.
    ///
    /// # Safety
    /// The requirements of [`ia::open`] apply.
    unsafe fn create_ia(
        self: Box<Self>,
        entry: Entry<'_>,
        async_evd: AsyncEvd,
    ) -> Result<(DAT_IA_HANDLE, DAT_EVD_HANDLE), OpenError>;
}

impl<T: Transport> AnyTransport for T {
    fn attrs(&self) -> &Attrs {
        Transport::attrs(self)
    }

    fn tables(&self) -> ProviderTables {
        ProviderTables::of::<T>()
    }

    unsafe fn create_ia(
        self: Box<Self>,
        entry: Entry<'_>,
        async_evd: AsyncEvd,
    ) -> Result<(DAT_IA_HANDLE, DAT_EVD_HANDLE), OpenError> {
        // SAFETY: the caller fulfils the contract of this function.
        let ia = unsafe { ia::open_with_transport(*self, entry, async_evd) }?;
        let ia = handle::pin_created(ia);
        Ok((ia.handle(), ia.async_evd_handle()))
    }
}

/// The function tables of a transport.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProviderTables {
    /// The type of the transport, by which tables are compared.
    pub(super) transport: TypeId,
    /// Creates a function table for a version of uDAPL, with or without thread safety. The last
    /// argument is the IA name, which must outlive the table.
    pub(super) make: fn(Version, bool, *const c_char) -> ProviderTable,
    /// Returns whether a handle refers to an adapter with this transport.
    pub(super) has_adapter: fn(DAT_HANDLE) -> bool,
}

impl ProviderTables {
    const fn of<T: Transport>() -> Self {
        ProviderTables {
            transport: TypeId::of::<T>(),
            make: |version, thread_safe, name| match (version, thread_safe) {
                (Version::V1_2, true) => ProviderTable::V1(v1::table::<T, true>(name)),
                (Version::V1_2, false) => ProviderTable::V1(v1::table::<T, false>(name)),
                (Version::V2_0, true) => ProviderTable::V2(function_table::table::<T, true>(name)),
                (Version::V2_0, false) => {
                    ProviderTable::V2(function_table::table::<T, false>(name))
                }
            },
            has_adapter: handle::is_live::<Ia<T>>,
        }
    }
}

/// A function table of uDAPL 1.2 or 2.0.
pub(super) enum ProviderTable {
    V1(v1::TableV1),
    V2(DAT_PROVIDER),
}

impl ProviderTable {
    /// The address of the table, in the type that registries and handles use for both versions. The
    /// caller of a table's function knows which version it has opened.
    pub(super) fn address(&self) -> *const DAT_PROVIDER {
        match self {
            ProviderTable::V1(table) => std::ptr::from_ref(table).cast(),
            ProviderTable::V2(table) => table,
        }
    }
}
