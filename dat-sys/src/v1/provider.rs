//! The provider function table of uDAPL 1.2, and the signatures of its functions. Three functions
//! have other arguments than in 2.0. In some others, the structures behind pointers differ.

use core::ffi::c_char;

use crate::describe::records;
use crate::functions::provider_table;
use crate::v1::{
    DAT_CNO_PARAM, DAT_EP_ATTR, DAT_EP_PARAM, DAT_EVENT, DAT_IA_ATTR, DAT_LMR_PARAM,
    DAT_LMR_TRIPLET, DAT_PROVIDER_ATTR, DAT_RMR_PARAM, DAT_RMR_TRIPLET,
};
use crate::*;

provider_functions! {
    1.2 => provider_table,
    "../../reference/"
    /// The function table behind every handle. The table has 70 words, at the offsets of the first
    /// 70 words of the table of 2.0.
}
