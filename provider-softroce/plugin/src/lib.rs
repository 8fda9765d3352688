//! The library of provider-softroce as a loadable DAT provider.

dat_core::export_provider!(provider_softroce::SoftRoce);
