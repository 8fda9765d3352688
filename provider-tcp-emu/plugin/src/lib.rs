//! See the package description.

dat_core::export_provider!(provider_tcp_emu::TcpEmu);
