//! The adapter `softroce` as a loadable provider, `libdat_softroce.so`.

dat_core::export_provider!(builtin::softroce());
