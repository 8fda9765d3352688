//! Builds the provider mem as a loadable provider, `libdat_mem.so`. Only the tests of the
//! conformance suite use this library, so it is not installed.

use dat_core::export::AnyProvider;

dat_core::export_provider!(AnyProvider::of::<provider_mem::Mem>());
