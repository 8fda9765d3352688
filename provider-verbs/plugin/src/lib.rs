//! The provider `verbs` as a loadable library.

dat_core::export_provider!(provider_verbs::Verbs);
