//! The adapter `verbs` as a loadable provider, `libdat_verbs.so`.

dat_core::export_provider!(builtin::verbs());
