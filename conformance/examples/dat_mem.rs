//! Builds the loopback transport as a loadable provider, `libdat_mem.so`. The library is for the
//! suite, not for installation.

dat_core::export_provider!(provider_loopback::Mem);
