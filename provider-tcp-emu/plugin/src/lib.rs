//! provider-tcp-emu as a loadable DAT provider, `libdat_tcp_emu.so`.

dat_core::export_provider!(provider_tcp_emu::TcpEmu);
