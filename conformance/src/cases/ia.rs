//! Cases about adapters, handles, contexts and the registry.

use std::ptr::null_mut;

use dat_sys::*;

use crate::case::{Row, must};
use crate::check::{Outcome, answers, answers_with, ensure, ensure_equal, ok};
use crate::rig::{Rig, cookie, named_infos};

pub(super) const CASES: &[Row] = &[
    must(
        "dat_ia_openv/unknown-name",
        "dat_ia_open, RETURN VALUES",
        "dat_ia_openv returns DAT_PROVIDER_NOT_FOUND for a name that is not in the registry.",
        |rig| {
            let answer = rig.openv(c"no such adapter", 8, &mut null_mut(), &mut null_mut());
            answers(answer, DAT_PROVIDER_NOT_FOUND)
        },
    ),
    must(
        "dat_ia_openv/other-version",
        "dat_ia_open, RETURN VALUES",
        "dat_ia_openv returns DAT_PROVIDER_NOT_FOUND for a major version that is not in the \
         registry.",
        |rig| {
            let (mut evd, name) = (DAT_HANDLE_NULL, rig.name().as_ptr().cast_mut());
            let answer = rig.api.dat_ia_openv(name, 8, &mut evd, &mut null_mut(), 77, 0, DAT_FALSE);
            answers(answer, DAT_PROVIDER_NOT_FOUND)
        },
    ),
    must(
        "dat_ia_openv/bad-arguments",
        "dat_ia_open, RETURN VALUES",
        "dat_ia_openv refuses a null name, and null pointers for the EVD and for the new handle.",
        |rig| {
            let (api, name, mut evd, mut ia) =
                (rig.api, rig.name().as_ptr().cast_mut(), DAT_HANDLE_NULL, null_mut());
            answers(
                api.dat_ia_openv(null_mut(), 8, &mut evd, &mut ia, 2, 0, DAT_FALSE),
                DAT_INVALID_PARAMETER,
            )?;
            answers(
                api.dat_ia_openv(name, 8, null_mut(), &mut ia, 2, 0, DAT_FALSE),
                DAT_INVALID_PARAMETER,
            )?;
            let answer = api.dat_ia_openv(name, 8, &mut evd, null_mut(), 2, 0, DAT_FALSE);
            rig.answers_or(answer, DAT_INVALID_HANDLE, &[DAT_INVALID_PARAMETER])
        },
    ),
    must(
        "dat_ia_openv/again",
        "dat_ia_open, DESCRIPTION",
        "An adapter can be opened several times. Each open has its own handle and its own \
         asynchronous EVD.",
        |rig| {
            let (ia, evd) = rig.open_again(DAT_HANDLE_NULL)?;
            ensure(
                ia != rig.ia && evd != rig.async_evd,
                "the second open has a handle of the first open",
            )
        },
    ),
    must(
        "dat_ia_openv/shared-async-evd",
        "dat_ia_open, DESCRIPTION",
        "A second open of an adapter can use the asynchronous EVD of the first open.",
        |rig| {
            let (ia, evd) = rig.open_again(rig.async_evd)?;
            ensure_equal("the EVD", evd, rig.async_evd)?;
            let mut returned = DAT_HANDLE_NULL;
            ok(rig.api.dat_ia_query(ia, &mut returned, 0, null_mut(), 0, null_mut()))?;
            ensure_equal("the EVD that dat_ia_query returns", returned, rig.async_evd)
        },
    ),
    must(
        "dat_ia_openv/async-evd-elsewhere",
        "dat_ia_open, DESCRIPTION",
        "If an open uses DAT_EVD_ASYNC_EXISTS, dat_ia_query returns DAT_EVD_OUT_OF_SCOPE as its \
         asynchronous EVD.",
        |rig| {
            let (ia, _) = rig.open_again(DAT_EVD_ASYNC_EXISTS)?;
            let mut returned = DAT_HANDLE_NULL;
            ok(rig.api.dat_ia_query(ia, &mut returned, 0, null_mut(), 0, null_mut()))?;
            ensure_equal("the EVD that dat_ia_query returns", returned, DAT_EVD_OUT_OF_SCOPE)
        },
    ),
    must(
        "dat_ia_openv/bad-async-evd",
        "dat_ia_open, RETURN VALUES",
        "dat_ia_openv refuses an asynchronous EVD that does not have the stream of asynchronous \
         events.",
        |rig| {
            let (mut evd, mut ia) = (rig.evd(DAT_EVD_DTO_FLAG)?, null_mut());
            answers(rig.openv(rig.name(), 8, &mut evd, &mut ia), DAT_INVALID_HANDLE)
        },
    ),
    must(
        "dat_ia_close/graceful-with-objects",
        "DESCRIPTION",
        "A graceful close succeeds only if the adapter has no objects except its asynchronous EVD.",
        |rig| {
            let ia = rig.other_ia()?;
            let pz = rig.pz_of(ia)?;
            answers(rig.api.dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG), DAT_INVALID_STATE)?;
            ok(rig.api.dat_pz_free(pz))?;
            ok(rig.api.dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG))?;
            rig.forget_ia(ia);
            Ok(())
        },
    ),
    must(
        "dat_ia_close/abrupt",
        "DESCRIPTION",
        "An abrupt close destroys all objects of the adapter. Their handles are refused \
         afterwards.",
        |rig| {
            let ia = rig.other_ia()?;
            let (pz, evd) = (rig.pz_of(ia)?, rig.evd_of(ia, 8, DAT_EVD_SOFTWARE_FLAG)?);
            ok(rig.api.dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG))?;
            rig.forget_ia(ia);
            answers(rig.api.dat_pz_free(pz), DAT_INVALID_HANDLE)?;
            answers(rig.api.dat_evd_free(evd), DAT_INVALID_HANDLE)?;
            answers(rig.api.dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG), DAT_INVALID_HANDLE)
        },
    ),
    must(
        "dat_ia_close/wakes-waiters",
        "DESCRIPTION",
        "An abrupt close ends each wait on an EVD of the adapter with DAT_ABORT.",
        |rig| {
            let ia = rig.other_ia()?;
            let evd = rig.evd_of(ia, 8, DAT_EVD_SOFTWARE_FLAG)?;
            let woken =
                rig.while_waiting(evd, || ok(rig.api.dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG)))?;
            rig.forget_ia(ia);
            answers(woken, DAT_ABORT)
        },
    ),
    must(
        "dat_ia_close/unknown-flags",
        "RETURN VALUES",
        "Close flags that the standard does not know are invalid.",
        |rig| answers(rig.api.dat_ia_close(rig.ia, 0x40), DAT_INVALID_PARAMETER),
    ),
    must(
        "dat_get_handle_type/every-kind",
        "DESCRIPTION",
        "For each handle, dat_get_handle_type returns the type of the object.",
        |rig| {
            for (object, wanted) in one_of_each(rig)? {
                let mut kind = DAT_HANDLE_TYPE::MAX;
                ok(rig.api.dat_get_handle_type(object, &mut kind))?;
                ensure_equal("the type of the handle", kind, wanted)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_get_handle_type/bad-arguments",
        "RETURN VALUES",
        "dat_get_handle_type refuses a null handle and a null pointer for the type.",
        |rig| {
            answers(rig.api.dat_get_handle_type(DAT_HANDLE_NULL, &mut 0), DAT_INVALID_HANDLE)?;
            answers(rig.api.dat_get_handle_type(rig.pz()?, null_mut()), DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_set_consumer_context/every-kind",
        "DESCRIPTION",
        "The consumer can set a context for an object of each type, and the object keeps the \
         context.",
        |rig| {
            for (value, (object, _)) in (0xfeed_0000_0000_u64..).zip(one_of_each(rig)?) {
                ok(rig.api.dat_set_consumer_context(object, cookie(value)))?;
                let mut context = cookie(0);
                ok(rig.api.dat_get_consumer_context(object, &mut context))?;
                ensure_equal(
                    "the context",
                    format!("{context:?}"),
                    format!("{:?}", cookie(value)),
                )?;
            }
            Ok(())
        },
    ),
    must(
        "dat_get_consumer_context/bad-handle",
        "RETURN VALUES",
        "The functions for consumer contexts refuse a null handle and the handle of a freed \
         object.",
        |rig| {
            let pz = rig.new_pz()?;
            ok(rig.api.dat_pz_free(pz))?;
            for object in [DAT_HANDLE_NULL, pz] {
                answers(
                    rig.api.dat_get_consumer_context(object, &mut cookie(0)),
                    DAT_INVALID_HANDLE,
                )?;
                answers(rig.api.dat_set_consumer_context(object, cookie(0)), DAT_INVALID_HANDLE)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_registry_list_providers/lists",
        "DESCRIPTION",
        "The list of dat_registry_list_providers contains the open adapter.",
        |rig| {
            let names = named_infos(rig)?;
            let name = rig.name().to_string_lossy();
            ensure(
                names.iter().any(|listed| *listed == name),
                format_args!("the list does not contain the adapter: {names:?}"),
            )
        },
    ),
    must(
        "dat_registry_list_providers/bad-arguments",
        "RETURN VALUES",
        "dat_registry_list_providers refuses null pointers for the number of providers and for the \
         list.",
        |rig| {
            let mut count = 0;
            answers(
                rig.api.dat_registry_list_providers(1, null_mut(), null_mut()),
                DAT_INVALID_PARAMETER,
            )?;
            answers(
                rig.api.dat_registry_list_providers(1, &mut count, null_mut()),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_registry_providers_related/unknown-name",
        "2.0 headers: dat_registry_providers_related",
        "dat_registry_providers_related fails if the registry does not have one of the two \
         adapters.",
        |rig| {
            let mut related = 0;
            let name = rig.name().as_ptr();
            let answer = rig.api.dat_registry_providers_related(
                name,
                c"no such adapter".as_ptr(),
                &mut related,
            );
            answers(answer, DAT_PROVIDER_NOT_FOUND)
        },
    ),
    must(
        "dat_strerror/every-status",
        "DESCRIPTION",
        "dat_strerror returns texts for each status. It refuses an unknown status and null \
         pointers for the texts.",
        |rig| {
            let (mut major, mut minor) = (std::ptr::null(), std::ptr::null());
            for status in [
                DAT_SUCCESS,
                DAT_ERROR(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP),
                DAT_ERROR(DAT_QUEUE_EMPTY, 0),
            ] {
                ok(rig.api.dat_strerror(status, &mut major, &mut minor))?;
                ensure(!major.is_null() && !minor.is_null(), "a text is null")?;
            }
            answers(
                rig.api.dat_strerror(0xabcd_ef01, &mut major, &mut minor),
                DAT_INVALID_PARAMETER,
            )?;
            answers(
                rig.api.dat_strerror(DAT_SUCCESS, null_mut(), &mut minor),
                DAT_INVALID_PARAMETER,
            )
        },
    ),
    must(
        "dat_ia_openv/thread-safety",
        "dat_ia_open, RETURN VALUES",
        "If no thread-safe provider is registered, an open that requests one fails, and the \
         subtype of the status gives this reason.",
        |rig| {
            let (mut evd, mut ia, name) =
                (DAT_HANDLE_NULL, null_mut(), rig.name().as_ptr().cast_mut());
            match rig.api.dat_ia_openv(name, 8, &mut evd, &mut ia, 2, 0, DAT_TRUE) {
                DAT_SUCCESS => ok(rig.api.dat_ia_close(ia, DAT_CLOSE_GRACEFUL_FLAG)),
                status => answers_with(status, DAT_PROVIDER_NOT_FOUND, DAT_THREAD_SAFETY_NOT_FOUND),
            }
        },
    ),
];

/// Creates one object of each type. Returns their handles and the adapter's handle, each with its
/// type.
fn one_of_each(rig: &Rig) -> Outcome<Vec<(DAT_HANDLE, DAT_HANDLE_TYPE)>> {
    let (ep, reserved, evd, qualifier) =
        (rig.ep()?, rig.ep()?, rig.evd(DAT_EVD_CR_FLAG)?, rig.free_qualifier()?);
    let mut rsp = null_mut();
    ok(rig.api.dat_rsp_create(rig.ia, qualifier, reserved.ep, evd, &mut rsp))?;
    let mut all = vec![
        (rig.ia, DAT_HANDLE_TYPE_IA),
        (rig.pz()?, DAT_HANDLE_TYPE_PZ),
        (evd, DAT_HANDLE_TYPE_EVD),
        (rig.cno()?, DAT_HANDLE_TYPE_CNO),
        (ep.ep, DAT_HANDLE_TYPE_EP),
        (rig.memory(8)?.lmr, DAT_HANDLE_TYPE_LMR),
        (rig.listen()?.psp, DAT_HANDLE_TYPE_PSP),
        (rsp, DAT_HANDLE_TYPE_RSP),
        (rig.request(b"")?.1.cr, DAT_HANDLE_TYPE_CR),
    ];
    if rig.provider.srq_supported != DAT_FALSE {
        all.push((rig.srq(4)?, DAT_HANDLE_TYPE_SRQ));
    }
    if rig.attr.max_rmrs > 0 {
        all.push((rig.rmr()?, DAT_HANDLE_TYPE_RMR));
    }
    Ok(all)
}
