//! The provider's function table for uDAPL 1.2.
//!
//! Each function here converts its arguments, calls the corresponding function of the 2.0 table,
//! and converts the results. These modules do the conversion:
//!
//! - [`convert::status`] converts each status.
//! - [`record`] converts the structures that differ.
//! - [`mask`] converts masks.
//!
//! A NULL pointer stays NULL, so that the 2.0 function checks it. Handles need no conversion: the
//! handles of an adapter that was opened for 1.2 have the 1.2 table as their first word.

mod convert;
mod ep;
mod evd;
mod function_table;
mod ia;
mod mask;
mod mem;
mod post;
mod record;
mod same;

pub(super) use self::function_table::{TableV1, table};
