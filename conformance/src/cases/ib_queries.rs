//! Cases about dat_ib_open_query and dat_ib_close_query. The C library implements them.

use std::ffi::{CStr, c_char};
use std::ptr::{null, null_mut};

use dat_sys::ib::*;
use dat_sys::*;

use crate::case::{Row, must};
use crate::check::{answers, ensure_equal, ok};
use crate::rig::Rig;

/// A mask bit that no mask defines.
const STRANGE: u64 = 1 << 63;

/// The arguments of dat_ib_open_query, as words.
struct Query {
    name: *const c_char,
    handle: *mut DAT_HANDLE,
    ia_mask: u64,
    ia_attr: *mut DAT_IA_ATTR,
    provider_mask: u64,
    provider_attr: *mut DAT_PROVIDER_ATTR,
}

impl Query {
    /// A query for no attributes.
    fn of(name: &CStr, handle: &mut DAT_HANDLE) -> Query {
        let (ia_attr, provider_attr) = (null_mut(), null_mut());
        let name = name.as_ptr();
        Query { name, handle, ia_mask: 0, ia_attr, provider_mask: 0, provider_attr }
    }

    fn open(self, rig: &Rig) -> DAT_RETURN {
        let words = [
            self.name.expose_provenance() as u64,
            self.handle.expose_provenance() as u64,
            self.ia_mask,
            self.ia_attr.expose_provenance() as u64,
            self.provider_mask,
            self.provider_attr.expose_provenance() as u64,
        ];
        rig.api.dat_extension_op(DAT_HANDLE_NULL, DAT_IB_OPEN_QUERY_OP, words)
    }
}

fn close(rig: &Rig, handle: DAT_HANDLE) -> DAT_RETURN {
    rig.api.dat_extension_op(handle, DAT_IB_CLOSE_QUERY_OP, [0; 6])
}

pub(super) const CASES: &[Row] = &[
    must(
        "dat_ib_open_query/attributes",
        "2.0 headers: dat_ib_open_query",
        "dat_ib_open_query returns the attributes that dat_ia_query returns.",
        |rig| {
            let (mut handle, mut attr, mut provider) =
                (null_mut(), DAT_IA_ATTR::zeroed(), DAT_PROVIDER_ATTR::zeroed());
            let query = Query {
                ia_mask: DAT_IA_FIELD_ALL,
                ia_attr: &mut attr,
                provider_mask: DAT_PROVIDER_FIELD_ALL,
                provider_attr: &mut provider,
                ..Query::of(rig.name(), &mut handle)
            };
            ok(query.open(rig))?;
            ensure_equal("max_eps", attr.max_eps, rig.attr.max_eps)?;
            ensure_equal(
                "max_private_data_size",
                provider.max_private_data_size,
                rig.provider.max_private_data_size,
            )?;
            ok(close(rig, handle))
        },
    ),
    must(
        "dat_ib_open_query/bad-arguments",
        "2.0 headers: dat_ib_open_query",
        "dat_ib_open_query refuses null pointers for the name, for the handle and for requested \
         attributes, undefined bits of both masks, an unknown name, and a name that is not UTF-8.",
        |rig| {
            let mut handle = null_mut();
            let (mut attr, mut provider) = (DAT_IA_ATTR::zeroed(), DAT_PROVIDER_ATTR::zeroed());
            let mut refused = |change: fn(&mut Query), kind| {
                let mut query = Query {
                    ia_attr: &mut attr,
                    provider_attr: &mut provider,
                    ..Query::of(rig.name(), &mut handle)
                };
                change(&mut query);
                answers(query.open(rig), kind)
            };
            refused(|query| query.name = null(), DAT_INVALID_PARAMETER)?;
            refused(|query| query.handle = null_mut(), DAT_INVALID_PARAMETER)?;
            refused(|query| query.ia_mask = STRANGE, DAT_INVALID_PARAMETER)?;
            refused(|query| query.provider_mask = STRANGE, DAT_INVALID_PARAMETER)?;
            refused(
                |query| (query.ia_mask, query.ia_attr) = (DAT_IA_FIELD_ALL, null_mut()),
                DAT_INVALID_PARAMETER,
            )?;
            refused(
                |query| {
                    query.provider_mask = DAT_PROVIDER_FIELD_ALL;
                    query.provider_attr = null_mut();
                },
                DAT_INVALID_PARAMETER,
            )?;
            refused(|query| query.name = c"no such adapter".as_ptr(), DAT_PROVIDER_NOT_FOUND)?;
            refused(|query| query.name = c"\xff".as_ptr(), DAT_PROVIDER_NOT_FOUND)
        },
    ),
    must(
        "dat_ib_close_query/once",
        "2.0 headers: dat_ib_close_query",
        "dat_ib_close_query refuses a null handle, the handle of an IA that dat_ia_openv opened, \
         and the handle of a query that has already ended.",
        |rig| {
            let mut handle = null_mut();
            ok(Query::of(rig.name(), &mut handle).open(rig))?;
            answers(close(rig, DAT_HANDLE_NULL), DAT_INVALID_HANDLE)?;
            answers(close(rig, rig.ia), DAT_INVALID_HANDLE)?;
            ok(close(rig, handle))?;
            answers(close(rig, handle), DAT_INVALID_HANDLE)
        },
    ),
];
