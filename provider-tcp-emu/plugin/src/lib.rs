//! The library `libdat_tcp_emu.so`: provider-tcp-emu as a loadable DAT provider.

dat_core::export_provider!(provider_tcp_emu::TcpEmu);
