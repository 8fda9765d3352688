//! The loopback transport as a loadable provider, `libdat_mem.so`: for the suite, not for installing.

dat_core::export_provider!(provider_loopback::Mem);
