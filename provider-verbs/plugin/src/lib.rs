//! See the package description.

dat_core::export_provider!(provider_verbs::Verbs);
