//! The adapter `tcp-emu` as a loadable provider, `libdat_tcp_emu.so`.

dat_core::export_provider!(builtin::tcp_emu());
