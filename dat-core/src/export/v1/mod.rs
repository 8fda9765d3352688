//! The same provider through the function table of uDAPL 1.2.
//!
//! Each function here converts its arguments, calls the very function of the 2.0 table, and converts what comes back:
//! the status always ([`convert::status`]), structures where they differ ([`record`]), masks ([`mask`]). A pointer that is
//! NULL stays NULL, so that the 2.0 function judges it. Handles need no conversion; those of an adapter that was
//! opened for 1.2 have the 1.2 table as their first word.

mod convert;
mod ep;
mod evd;
mod ia;
mod mask;
mod mem;
mod post;
mod record;
mod same;
mod table;

pub(super) use self::table::{Table, table};
