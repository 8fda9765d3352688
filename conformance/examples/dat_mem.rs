//! Builds the loopback transport as a loadable provider, `libdat_mem.so`. The library is for the
//! suite, not for installation.

use dat_core::export::AnyProvider;

dat_core::export_provider!(AnyProvider::of::<provider_loopback::Mem>());
