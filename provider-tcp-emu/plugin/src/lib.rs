//! libdat_tcp_emu.so: provider-tcp-emu for any DAT registry that loads providers by name.

dat_core::export_provider!(provider_tcp_emu::TcpEmu);
