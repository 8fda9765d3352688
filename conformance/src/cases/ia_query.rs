//! dat_ia_query.

use std::ptr::null_mut;

use dat_sys::*;

use crate::case::{Row, must, should};
use crate::check::{Outcome, answers, ensure, ensure_equal, failed, ok};
use crate::rig::{Rig, named, text};

pub(super) const CASES: &[Row] = &[
    must("dat_ia_query/null-handle", "RETURN VALUES 3", "A null IA handle is refused.", |rig| {
        let mut attr = DAT_IA_ATTR::zeroed();
        let answer = rig.api.dat_ia_query(
            DAT_HANDLE_NULL,
            null_mut(),
            DAT_IA_FIELD_ALL,
            &mut attr,
            0,
            null_mut(),
        );
        answers(answer, DAT_INVALID_HANDLE)
    }),
    must(
        "dat_ia_query/closed-handle",
        "PARAMETERS 1",
        "The handle of a closed IA is refused.",
        |rig| {
            let ia = rig.other_ia()?;
            ok(rig.api.dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG))?;
            rig.forget_ia(ia);
            let mut attr = DAT_IA_ATTR::zeroed();
            let answer =
                rig.api.dat_ia_query(ia, null_mut(), DAT_IA_FIELD_ALL, &mut attr, 0, null_mut());
            answers(answer, DAT_INVALID_HANDLE)
        },
    ),
    must(
        "dat_ia_query/other-kind-of-handle",
        "PARAMETERS 1",
        "dat_ia_query refuses the handle of an object that is not an IA.",
        |rig| {
            let mut attr = DAT_IA_ATTR::zeroed();
            let pz = rig.pz()?;
            let answer =
                rig.api.dat_ia_query(pz, null_mut(), DAT_IA_FIELD_ALL, &mut attr, 0, null_mut());
            answers(answer, DAT_INVALID_HANDLE)
        },
    ),
    must(
        "dat_ia_query/async-evd",
        "PARAMETERS 2",
        "dat_ia_query returns the asynchronous EVD with which the IA was opened.",
        |rig| {
            let mut evd = DAT_HANDLE_NULL;
            ok(rig.api.dat_ia_query(rig.ia, &mut evd, 0, null_mut(), 0, null_mut()))?;
            ensure_equal("async_evd_handle", evd, rig.async_evd)
        },
    ),
    must(
        "dat_ia_query/fills-structures",
        "DESCRIPTION 1",
        "dat_ia_query fills in both structures that the consumer passes.",
        |rig| {
            let mut ia = DAT_IA_ATTR { max_eps: -7, ..DAT_IA_ATTR::zeroed() };
            let mut provider =
                DAT_PROVIDER_ATTR { max_private_data_size: -7, ..DAT_PROVIDER_ATTR::zeroed() };
            let (all_ia, all_provider) = (DAT_IA_FIELD_ALL, DAT_PROVIDER_FIELD_ALL);
            ok(rig.api.dat_ia_query(
                rig.ia,
                null_mut(),
                all_ia,
                &mut ia,
                all_provider,
                &mut provider,
            ))?;
            ensure(ia.max_eps != -7, "the IA attributes have not been filled in")?;
            ensure(
                provider.max_private_data_size != -7,
                "the provider attributes have not been filled in",
            )
        },
    ),
    must(
        "dat_ia_query/null-structures-with-empty-masks",
        "DESCRIPTION 2",
        "If both masks of dat_ia_query are empty, the pointers for the structures may be null.",
        |rig| ok(rig.api.dat_ia_query(rig.ia, null_mut(), 0, null_mut(), 0, null_mut())),
    ),
    must(
        "dat_ia_query/null-ia-attributes",
        "RETURN VALUES 2",
        "dat_ia_query refuses a mask of IA attributes with a null pointer for the structure.",
        |rig| {
            let answer = rig.api.dat_ia_query(
                rig.ia,
                null_mut(),
                DAT_IA_FIELD_ALL,
                null_mut(),
                0,
                null_mut(),
            );
            answers(answer, DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_ia_query/null-provider-attributes",
        "RETURN VALUES 2",
        "dat_ia_query refuses a mask of provider attributes with a null pointer for the structure.",
        |rig| {
            let mask = DAT_PROVIDER_FIELD_ALL;
            let answer = rig.api.dat_ia_query(rig.ia, null_mut(), 0, null_mut(), mask, null_mut());
            answers(answer, DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_ia_query/unknown-mask-bit",
        "RETURN VALUES 2",
        "dat_ia_query refuses a mask with undefined bits.",
        |rig| {
            let (mut ia, mut provider) = (DAT_IA_ATTR::zeroed(), DAT_PROVIDER_ATTR::zeroed());
            let (ia_mask, provider_mask) = (DAT_IA_FIELD_ALL + 1, DAT_PROVIDER_FIELD_ALL + 1);
            let of_ia = rig.api.dat_ia_query(rig.ia, null_mut(), ia_mask, &mut ia, 0, null_mut());
            answers(of_ia, DAT_INVALID_PARAMETER)?;
            let of_provider = rig.api.dat_ia_query(
                rig.ia,
                null_mut(),
                0,
                null_mut(),
                provider_mask,
                &mut provider,
            );
            answers(of_provider, DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_ia_query/one-field",
        "DESCRIPTION 2",
        "If the mask contains a single field, dat_ia_query returns the field with the same value \
         as for all fields.",
        |rig| {
            let mut attr = DAT_IA_ATTR::zeroed();
            let mask = DAT_IA_FIELD_IA_MAX_EVD_QLEN;
            ok(rig.api.dat_ia_query(rig.ia, null_mut(), mask, &mut attr, 0, null_mut()))?;
            ensure_equal("max_evd_qlen", attr.max_evd_qlen, rig.attr.max_evd_qlen)?;
            let mut attr = DAT_PROVIDER_ATTR::zeroed();
            let mask = DAT_PROVIDER_FIELD_MAX_PRIVATE_DATA_SIZE;
            ok(rig.api.dat_ia_query(rig.ia, null_mut(), 0, null_mut(), mask, &mut attr))?;
            ensure_equal(
                "max_private_data_size",
                attr.max_private_data_size,
                rig.provider.max_private_data_size,
            )
        },
    ),
    must(
        "dat_ia_query/common-to-all-opens",
        "Interface Adapter Attributes 1",
        "The IA attributes are the same for all opens of an adapter.",
        |rig| {
            let mut attr = DAT_IA_ATTR::zeroed();
            let ia = rig.other_ia()?;
            ok(rig.api.dat_ia_query(ia, null_mut(), DAT_IA_FIELD_ALL, &mut attr, 0, null_mut()))?;
            ensure_equal("adapter_name", text(&attr.adapter_name), text(&rig.attr.adapter_name))?;
            let limits = |attr: &DAT_IA_ATTR| {
                let a = [
                    attr.max_eps,
                    attr.max_dto_per_ep,
                    attr.max_evds,
                    attr.max_evd_qlen,
                    attr.max_lmrs,
                ];
                let b = [attr.max_pzs, attr.max_rmrs, attr.max_srqs, attr.max_iov_segments_per_dto];
                (a, b, attr.max_message_size, attr.max_rdma_size)
            };
            ensure_equal("the limits", limits(&attr), limits(&rig.attr))
        },
    ),
    must(
        "dat_ia_query/adapter-name",
        "Interface Adapter Attributes: adapter name",
        "The attribute adapter_name is the name with which the adapter was opened.",
        |rig| {
            let name = rig.name().to_string_lossy().into_owned();
            ensure_equal("adapter_name", text(&rig.attr.adapter_name), Some(name))
        },
    ),
    must(
        "dat_ia_query/names-are-terminated",
        "Interface Adapter Attributes: vendor name",
        "The names of the vendor and of the provider are NUL-terminated and not empty.",
        |rig| {
            for (what, field) in [
                ("vendor_name", &rig.attr.vendor_name),
                ("provider_name", &rig.provider.provider_name),
            ] {
                let name = text(field).ok_or_else(|| failed(format_args!("{what} has no end")))?;
                ensure(!name.is_empty(), format_args!("{what} is empty"))?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ia_query/address",
        "Interface Adapter Attributes: address",
        "An adapter has an address, and other EPs can connect to this address.",
        |rig| {
            ensure(!rig.attr.ia_address_ptr.is_null(), "ia_address_ptr is null")?;
            rig.pair().map(drop)
        },
    ),
    must(
        "dat_ia_query/limits-are-positive",
        "Interface Adapter Attributes: maxima",
        "The limits of objects that every adapter must have are positive.",
        |rig| {
            let attr = &rig.attr;
            for (what, limit) in [
                ("max_eps", attr.max_eps),
                ("max_dto_per_ep", attr.max_dto_per_ep),
                ("max_evds", attr.max_evds),
                ("max_evd_qlen", attr.max_evd_qlen),
                ("max_iov_segments_per_dto", attr.max_iov_segments_per_dto),
                ("max_lmrs", attr.max_lmrs),
                ("max_pzs", attr.max_pzs),
            ] {
                ensure(limit > 0, format_args!("{what} is {limit}"))?;
            }
            ensure(attr.max_lmr_block_size > 0, "max_lmr_block_size is 0")?;
            ensure(attr.max_message_size > 0, "max_message_size is 0")?;
            ensure(attr.max_rdma_size > 0, "max_rdma_size is 0")
        },
    ),
    must(
        "dat_ia_query/max-dto-per-ep",
        "Interface Adapter Attributes: DTOs for each EP",
        "An EP can have as many outstanding receives as max_dto_per_ep says, and no EP can have \
         more.",
        |rig| {
            let max = rig.attr.max_dto_per_ep;
            let attr = DAT_EP_ATTR { max_recv_dtos: max, max_request_dtos: max, ..rig.ep_attr() };
            let ep = rig.ep_with(&attr)?;
            for index in 0..max {
                ok(rig.recv(ep.ep, &[], index as u64))?;
            }
            let Some(more) = max.checked_add(1) else { return Ok(()) };
            refused(rig, &DAT_EP_ATTR { max_recv_dtos: more, ..rig.ep_attr() })?;
            refused(rig, &DAT_EP_ATTR { max_request_dtos: more, ..rig.ep_attr() })
        },
    ),
    must(
        "dat_ia_query/max-rdma-reads",
        "Interface Adapter Attributes: RDMA reads for each EP",
        "An EP can have as many incoming and outgoing RDMA reads as the adapter's limits, and no \
         EP can have more.",
        |rig| {
            let (max_in, max_out) =
                (rig.attr.max_rdma_read_per_ep_in, rig.attr.max_rdma_read_per_ep_out);
            let attr = |max_rdma_read_in, max_rdma_read_out| DAT_EP_ATTR {
                max_rdma_read_in,
                max_rdma_read_out,
                ..rig.ep_attr()
            };
            rig.pair_with(&attr(max_in, max_out))?;
            refused(rig, &attr(max_in + 1, max_out))?;
            refused(rig, &attr(max_in, max_out + 1))
        },
    ),
    must(
        "dat_ia_query/max-evd-qlen",
        "Interface Adapter Attributes: EVD queue size",
        "The queue of an EVD can be as long as max_evd_qlen, and no queue can be longer.",
        |rig| {
            let max = rig.attr.max_evd_qlen;
            rig.evd_of(rig.ia, max, DAT_EVD_DTO_FLAG)?;
            let (mut evd, Some(more)) = (null_mut(), max.checked_add(1)) else { return Ok(()) };
            let answer =
                rig.api.dat_evd_create(rig.ia, more, DAT_HANDLE_NULL, DAT_EVD_DTO_FLAG, &mut evd);
            rig.answers_or(answer, DAT_INSUFFICIENT_RESOURCES, &[DAT_INVALID_PARAMETER])
        },
    ),
    must(
        "dat_ia_query/max-iov-segments",
        "Interface Adapter Attributes: IOV segments",
        "A message can have as many segments as max_iov_segments_per_dto, and no EP allows more \
         segments.",
        |rig| {
            let max = rig.attr.max_iov_segments_per_dto;
            let attr = DAT_EP_ATTR { max_recv_iov: max, max_request_iov: max, ..rig.ep_attr() };
            let pair = rig.pair_with(&attr)?;
            let (from, to) = (rig.memory(max as u32)?, rig.memory(max as u32)?);
            from.store(0, &(0..max as u32).map(|n| n as u8).collect::<Vec<_>>());
            let bytes = |region: &crate::rig::Region| {
                (0..max as u32).map(|n| region.part(n, 1)).collect::<Vec<_>>()
            };
            ok(rig.recv(pair.passive.ep, &bytes(&to), 1))?;
            ok(rig.send(pair.active.ep, &bytes(&from), 2))?;
            rig.completes(pair.passive.recv, 1, DAT_DTO_SUCCESS)?;
            ensure_equal("the message", to.load(0, max as u32), from.load(0, max as u32))?;
            refused(rig, &DAT_EP_ATTR { max_recv_iov: max + 1, ..rig.ep_attr() })?;
            refused(rig, &DAT_EP_ATTR { max_request_iov: max + 1, ..rig.ep_attr() })
        },
    ),
    must(
        "dat_ia_query/max-message-and-rdma-size",
        "Interface Adapter Attributes: message size, RDMA size",
        "The attributes of an EP can be as large as the maximum sizes of the IA, and no larger.",
        |rig| {
            let (max_message_size, max_rdma_size) =
                (rig.attr.max_message_size, rig.attr.max_rdma_size);
            rig.ep_with(&DAT_EP_ATTR { max_message_size, max_rdma_size, ..rig.ep_attr() })?;
            if let Some(max_message_size) = max_message_size.checked_add(1) {
                refused(rig, &DAT_EP_ATTR { max_message_size, ..rig.ep_attr() })?;
            }
            match max_rdma_size.checked_add(1) {
                Some(max_rdma_size) => {
                    refused(rig, &DAT_EP_ATTR { max_rdma_size, ..rig.ep_attr() })
                }
                None => Ok(()),
            }
        },
    ),
    must(
        "dat_ia_query/max-lmr-virtual-address",
        "Interface Adapter Attributes: LMR virtual address, RMR target address",
        "All memory that can be registered lies below the adapter's highest address.",
        |rig| {
            let end = rig.memory(64)?.address + 63;
            ensure(
                rig.attr.max_lmr_virtual_address >= end,
                "max_lmr_virtual_address is below the address of an LMR",
            )?;
            ensure(
                rig.attr.max_rmr_target_address >= end,
                "max_rmr_target_address is below the address of an LMR",
            )
        },
    ),
    must(
        "dat_ia_query/max-rmrs",
        "Interface Adapter Attributes: RMRs",
        "As many RMRs can be created as max_rmrs says. If max_rmrs is 0, no RMR can be created.",
        |rig| {
            let mut rmr = null_mut();
            let answer = rig.api.dat_rmr_create(rig.pz()?, &mut rmr);
            let created = answer == DAT_SUCCESS;
            let max = rig.attr.max_rmrs;
            ensure(
                created == (max > 0),
                format_args!("max_rmrs is {max}, and an RMR {}", can(created)),
            )
        },
    ),
    must(
        "dat_ia_query/named-attributes",
        "Interface Adapter Attributes: transport-specific, vendor-specific",
        "An adapter has as many named attributes as it reports. Each has a name and a value.",
        |rig| {
            let (ia, provider) = (&rig.attr, &rig.provider);
            named("transport_attr", ia.num_transport_attr, ia.transport_attr)?;
            named("vendor_attr", ia.num_vendor_attr, ia.vendor_attr)?;
            named(
                "provider_specific_attr",
                provider.num_provider_specific_attr,
                provider.provider_specific_attr,
            )
            .map(drop)
        },
    ),
    must(
        "dat_ia_query/api-version",
        "DAPL Provider Attributes: API version",
        "The attributes contain the API version with which the adapter was opened.",
        |rig| {
            let version = (rig.provider.dapl_version_major, rig.provider.dapl_version_minor);
            ensure_equal("the API version", version, (2, 0))
        },
    ),
    must(
        "dat_ia_query/memory-types",
        "DAPL Provider Attributes: LMR memory types",
        "With every provider, virtual memory, LMRs and shared virtual memory can be registered.",
        |rig| {
            let all = DAT_MEM_TYPE_VIRTUAL | DAT_MEM_TYPE_LMR | DAT_MEM_TYPE_SHARED_VIRTUAL;
            ensure_equal("lmr_mem_types_supported", rig.provider.lmr_mem_types_supported, all)
        },
    ),
    must(
        "dat_ia_query/iov-ownership",
        "DAPL Provider Attributes: IOV ownership",
        "If the consumer owns the IOV when the post returns, a later change of the IOV does not \
         affect the transfer.",
        |rig| {
            match rig.provider.iov_ownership_on_return {
                DAT_IOV_CONSUMER => {}
                DAT_IOV_PROVIDER_NOMOD | DAT_IOV_PROVIDER_MOD => return Ok(()),
                other => return Err(failed(format_args!("iov_ownership_on_return is {other}"))),
            }
            let pair = rig.pair()?;
            let (from, to) = (rig.memory(8)?, rig.memory(8)?);
            from.store(0, b"as given");
            let (mut recv, mut send) = ([to.all()], [from.all()]);
            ok(rig.recv(pair.passive.ep, &recv, 1))?;
            recv[0] = DAT_LMR_TRIPLET::zeroed();
            ok(rig.send(pair.active.ep, &send, 2))?;
            send[0] = DAT_LMR_TRIPLET::zeroed();
            rig.completes(pair.passive.recv, 1, DAT_DTO_SUCCESS)?;
            // The IOVs are read after the transfer, so that the compiler cannot omit the changes
            // above.
            ensure_equal(
                "the changed IOVs",
                (recv[0].segment_length, send[0].segment_length),
                (0, 0),
            )?;
            ensure_equal("the message", to.load(0, 8), b"as given".to_vec())
        },
    ),
    must(
        "dat_ia_query/qos",
        "DAPL Provider Attributes: QoS",
        "A connection can have each quality of service that dat_qos_supported lists, and no other.",
        |rig| {
            let listener = rig.listen()?;
            for qos in [
                DAT_QOS_BEST_EFFORT,
                DAT_QOS_HIGH_THROUGHPUT,
                DAT_QOS_LOW_LATENCY,
                DAT_QOS_ECONOMY,
                DAT_QOS_PREMIUM,
            ] {
                let (ep, address) = (rig.ep()?, rig.attr.ia_address_ptr);
                let flags = DAT_CONNECT_DEFAULT_FLAG;
                let answer = rig.api.dat_ep_connect(
                    ep.ep,
                    address,
                    listener.qualifier,
                    crate::rig::event_timeout_us(),
                    0,
                    null_mut(),
                    qos,
                    flags,
                );
                let reported = qos & !rig.provider.dat_qos_supported == 0;
                answers(answer, if reported { DAT_SUCCESS } else { DAT_MODEL_NOT_SUPPORTED })?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ia_query/completion-flags",
        "DAPL Provider Attributes: completion flags",
        "The attribute completion_flags_supported lists suppressed, unsignalled, solicited-wait \
         and barrier-fence completions.",
        |rig| {
            let all = DAT_COMPLETION_SUPPRESS_FLAG
                | DAT_COMPLETION_UNSIGNALLED_FLAG
                | DAT_COMPLETION_SOLICITED_WAIT_FLAG
                | DAT_COMPLETION_BARRIER_FENCE_FLAG;
            let flags = rig.provider.completion_flags_supported;
            ensure_equal("completion_flags_supported, limited to the four flags,", flags & all, all)
        },
    ),
    must(
        "dat_ia_query/thread-safety",
        "DAPL Provider Attributes: thread safety",
        "If an open requests a thread-safe provider, the attribute is_thread_safe of the open is \
         true.",
        |rig| {
            let (mut ia, mut evd) = (null_mut(), DAT_HANDLE_NULL);
            let name = rig.name().as_ptr().cast_mut();
            let answer = rig.api.dat_ia_openv(name, 8, &mut evd, &mut ia, 2, 0, DAT_TRUE);
            if DAT_GET_TYPE(answer) == DAT_PROVIDER_NOT_FOUND {
                return crate::check::unsupported(
                    "the registry has no thread-safe provider of this name",
                );
            }
            ok(answer)?;
            let mut attr = DAT_PROVIDER_ATTR::zeroed();
            let mask = DAT_PROVIDER_FIELD_IS_THREAD_SAFE;
            let requested =
                ok(rig.api.dat_ia_query(ia, null_mut(), 0, null_mut(), mask, &mut attr));
            ok(rig.api.dat_ia_close(ia, DAT_CLOSE_ABRUPT_FLAG))?;
            requested?;
            ensure_equal("is_thread_safe", attr.is_thread_safe, DAT_TRUE)
        },
    ),
    must(
        "dat_ia_query/private-data-size",
        "DAPL Provider Attributes: private data",
        "The provider allows at least 64 bytes of private data. Private data of the maximum size \
         arrive.",
        |rig| {
            let max = rig.provider.max_private_data_size;
            ensure(max >= 64, format_args!("max_private_data_size is {max}"))?;
            let sent: Vec<u8> = (0..max).map(|n| n as u8).collect();
            let (_, arrival) = rig.request(&sent)?;
            let mut param = DAT_CR_PARAM::zeroed();
            ok(rig.api.dat_cr_query(arrival.cr, DAT_CR_FIELD_ALL, &mut param))?;
            ensure(
                param.private_data_size >= max,
                format_args!("{} bytes arrived", param.private_data_size),
            )?;
            ensure_equal("the private data", crate::rig::private(param.private_data, max), sent)
        },
    ),
    must(
        "dat_ia_query/multipath",
        "DAPL Provider Attributes: multipathing",
        "A connection over several paths is refused if and only if supports_multipath is false.",
        |rig| {
            let (ep, listener) = (rig.ep()?, rig.listen()?);
            let answer = rig.api.dat_ep_connect(
                ep.ep,
                rig.attr.ia_address_ptr,
                listener.qualifier,
                crate::rig::event_timeout_us(),
                0,
                null_mut(),
                DAT_QOS_BEST_EFFORT,
                DAT_CONNECT_MULTIPATH_REQUIRED_FLAG,
            );
            let there_are = rig.provider.supports_multipath != DAT_FALSE;
            answers(answer, if there_are { DAT_SUCCESS } else { DAT_MODEL_NOT_SUPPORTED })
        },
    ),
    must(
        "dat_ia_query/ep-creator",
        "DAPL Provider Attributes: EP creator",
        "A PSP can be created with each flag that ep_creator allows, and with no other flag.",
        |rig| {
            let (consumer, provider) = match rig.provider.ep_creator {
                DAT_PSP_CREATES_EP_NEVER => (true, false),
                DAT_PSP_CREATES_EP_IFASKED => (true, true),
                DAT_PSP_CREATES_EP_ALWAYS => (false, true),
                other => return Err(failed(format_args!("ep_creator is {other}"))),
            };
            for (flags, can) in
                [(DAT_PSP_CONSUMER_FLAG, consumer), (DAT_PSP_PROVIDER_FLAG, provider)]
            {
                let (evd, mut psp, mut qualifier) = (rig.evd(DAT_EVD_CR_FLAG)?, null_mut(), 0);
                let answer =
                    rig.api.dat_psp_create_any(rig.ia, &mut qualifier, evd, flags, &mut psp);
                answers(answer, if can { DAT_SUCCESS } else { DAT_MODEL_NOT_SUPPORTED })?;
            }
            Ok(())
        },
    ),
    must(
        "dat_ia_query/pz-support",
        "DAPL Provider Attributes: PZ support",
        "The attribute pz_support has one of the values that the standard defines.",
        |rig| {
            let kind = rig.provider.pz_support;
            ensure(
                [DAT_PZ_UNIQUE, DAT_PZ_SHAREABLE].contains(&kind),
                format_args!("pz_support is {kind}"),
            )
        },
    ),
    must(
        "dat_ia_query/optimal-alignment",
        "DAPL Provider Attributes: optimal buffer alignment",
        "The attribute optimal_buffer_alignment is a divisor of 256.",
        |rig| {
            let alignment = rig.provider.optimal_buffer_alignment as usize;
            let divides = alignment > 0 && DAT_OPTIMAL_ALIGNMENT.is_multiple_of(alignment);
            ensure(divides, format_args!("optimal_buffer_alignment is {alignment}"))
        },
    ),
    must(
        "dat_ia_query/merging-matrix",
        "DAPL Provider Attributes: EVD stream merging",
        "The matrix evd_stream_merging_supported is boolean and symmetric. It says which two \
         streams an EVD can have.",
        |rig| {
            let merging = &rig.provider.evd_stream_merging_supported;
            for (a, row) in merging.iter().enumerate() {
                for (b, &can) in row.iter().enumerate() {
                    ensure(can <= DAT_TRUE, format_args!("row {a}, column {b} is {can}"))?;
                    ensure_equal("an entry, compared with its mirror image,", can, merging[b][a])?;
                    let mut evd = null_mut();
                    let flags = STREAMS[a] | STREAMS[b];
                    let answer =
                        rig.api.dat_evd_create(rig.ia, 8, DAT_HANDLE_NULL, flags, &mut evd);
                    ensure(
                        (answer == DAT_SUCCESS) == (can == DAT_TRUE),
                        format_args!(
                            "row {a}, column {b} is {can}, dat_evd_create answers {answer:#x}"
                        ),
                    )?;
                }
            }
            Ok(())
        },
    ),
    should(
        "dat_ia_query/merges-everything",
        "DAPL Provider Attributes: EVD stream merging",
        "All event streams can share an EVD.",
        |rig| {
            ensure_equal(
                "the matrix",
                rig.provider.evd_stream_merging_supported,
                [[DAT_TRUE; 6]; 6],
            )
        },
    ),
];

/// The event streams, in the order of the rows and columns of evd_stream_merging_supported.
const STREAMS: [DAT_EVD_FLAGS; 6] = [
    DAT_EVD_SOFTWARE_FLAG,
    DAT_EVD_CR_FLAG,
    DAT_EVD_DTO_FLAG,
    DAT_EVD_CONNECTION_FLAG,
    DAT_EVD_RMR_BIND_FLAG,
    DAT_EVD_ASYNC_FLAG,
];

fn can(created: bool) -> &'static str {
    if created { "can be created" } else { "cannot be created" }
}

/// Checks that dat_ep_create refuses these attributes.
#[track_caller]
fn refused(rig: &Rig, attr: &DAT_EP_ATTR) -> Outcome {
    let (evds, mut ep) = (rig.evds_of_an_ep()?, null_mut());
    let pz = rig.pz()?;
    let answer =
        rig.api.dat_ep_create(rig.ia, pz, evds.recv, evds.request, evds.connect, attr, &mut ep);
    rig.answers_or(answer, DAT_INVALID_PARAMETER, &[DAT_INSUFFICIENT_RESOURCES])
}
