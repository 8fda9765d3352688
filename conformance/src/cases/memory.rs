//! Cases about zones, and about local and remote memory regions.

use std::ptr::null_mut;

use dat_sys::*;

use super::bad_requests::{bind, refused_or_fails};
use crate::case::{Row, must};
use crate::check::{Outcome, answers, ensure, ensure_equal, ok, supported, unsupported};
use crate::rig::{EVD_QUEUE_LENGTH, Region, Rig, cookie};

pub(super) const CASES: &[Row] = &[
    must(
        "dat_pz_create/query",
        "DESCRIPTION",
        "A new zone belongs to its IA, and its handle has the type of a zone.",
        |rig| {
            let (pz, mut param, mut kind) = (rig.new_pz()?, DAT_PZ_PARAM::zeroed(), 0);
            ok(rig.api.dat_pz_query(pz, DAT_PZ_FIELD_ALL, &mut param))?;
            ensure_equal("ia_handle", param.ia_handle, rig.ia)?;
            ok(rig.api.dat_get_handle_type(pz, &mut kind))?;
            ensure_equal("the type of the handle", kind, DAT_HANDLE_TYPE_PZ)
        },
    ),
    must(
        "dat_pz_free/in-use",
        "RETURN VALUES",
        "A zone that contains a region, an EP or an SRQ cannot be freed.",
        |rig| {
            let pz = rig.new_pz()?;
            let region = rig.memory_with(pz, 8, DAT_MEM_PRIV_ALL_FLAG)?;
            answers(rig.api.dat_pz_free(pz), DAT_INVALID_STATE)?;
            ok(rig.api.dat_lmr_free(region.lmr))?;
            let ep = rig.ep_in(pz, None)?;
            answers(rig.api.dat_pz_free(pz), DAT_INVALID_STATE)?;
            ok(rig.api.dat_ep_free(ep.ep))?;
            ok(rig.api.dat_pz_free(pz))?;
            answers(rig.api.dat_pz_free(pz), DAT_INVALID_HANDLE)
        },
    ),
    must(
        "dat_lmr_create/covers",
        "DESCRIPTION",
        "The range that dat_lmr_create registers covers the requested range.",
        |rig| {
            let (at, pz) = (rig.allocate(1000), rig.pz()?);
            let region = DAT_REGION_DESCRIPTION { for_va: at };
            let (mut lmr, mut lmr_context, mut rmr_context, mut size, mut address) =
                (null_mut(), 0, 0, 0, 0);
            ok(rig.api.dat_lmr_create(
                rig.ia,
                DAT_MEM_TYPE_VIRTUAL,
                region,
                1000,
                pz,
                DAT_MEM_PRIV_ALL_FLAG,
                DAT_VA_TYPE_VA,
                &mut lmr,
                &mut lmr_context,
                &mut rmr_context,
                &mut size,
                &mut address,
            ))?;
            let requested = at as DAT_VADDR;
            ensure(
                address <= requested,
                "the registered memory begins after the requested memory",
            )?;
            ensure(
                address + size >= requested + 1000,
                "the registered memory ends before the requested memory",
            )
        },
    ),
    must(
        "dat_lmr_query/parameters",
        "DESCRIPTION",
        "dat_lmr_query returns the parameters with which the region was created.",
        |rig| {
            let (pz, region, mut param) = (rig.pz()?, rig.memory(64)?, DAT_LMR_PARAM::zeroed());
            ok(rig.api.dat_lmr_query(region.lmr, DAT_LMR_FIELD_ALL, &mut param))?;
            ensure_equal("the IA and the zone", (param.ia_handle, param.pz_handle), (rig.ia, pz))?;
            ensure_equal(
                "the type, length and privileges",
                (param.mem_type, param.length, param.mem_priv),
                (DAT_MEM_TYPE_VIRTUAL, 64, DAT_MEM_PRIV_ALL_FLAG),
            )?;
            ensure_equal(
                "the contexts of the region",
                (param.lmr_context, param.rmr_context),
                (region.lmr_context, region.rmr_context),
            )
        },
    ),
    must(
        "dat_lmr_create/no-remote-privilege",
        "DESCRIPTION: rmr_context",
        "A region without a remote privilege has no RMR context.",
        |rig| {
            let local = DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG;
            ensure_equal("rmr_context", rig.memory_with(rig.pz()?, 8, local)?.rmr_context, 0)
        },
    ),
    must(
        "dat_lmr_create/of-an-lmr",
        "DESCRIPTION: memory type",
        "A region can be created from another region, in another zone and with other privileges. \
         It stays valid when the first region is freed.",
        |rig| {
            let first = rig.memory(8)?;
            let other = rig.new_pz()?;
            let (mut lmr, mut lmr_context, mut rmr_context, mut size, mut address) =
                (null_mut(), 0, 0, 0, 0);
            let read_only = DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_REMOTE_READ_FLAG;
            ok(rig.api.dat_lmr_create(
                rig.ia,
                DAT_MEM_TYPE_LMR,
                DAT_REGION_DESCRIPTION { for_lmr_handle: first.lmr },
                8,
                other,
                read_only,
                DAT_VA_TYPE_VA,
                &mut lmr,
                &mut lmr_context,
                &mut rmr_context,
                &mut size,
                &mut address,
            ))?;
            ok(rig.api.dat_lmr_free(first.lmr))?;
            let passive = rig.ep_in(other, Some(&rig.ep_attr()))?;
            let pair = rig.pair_of(rig.ep()?, passive)?;
            first.store(0, b"the same");
            let near = rig.memory(8)?;
            ok(rig.read(
                pair.active.ep,
                &[near.all()],
                1,
                &first.remote_through(rmr_context, 0, 8),
            ))?;
            rig.completes(pair.active.request, 1, DAT_DTO_SUCCESS)?;
            ensure_equal("the memory", near.load(0, 8), b"the same".to_vec())
        },
    ),
    must(
        "dat_lmr_create/shared-virtual",
        "DESCRIPTION: memory type",
        "Shared memory can be registered under a cookie, and then once more under the same cookie.",
        |rig| {
            let memory = rig.to_share(4096)?;
            let (at, mut first, mut second) = (rig.map(&memory)?, Region::none(), Region::none());
            ok(rig.share_at(at, &memory, &mut first)?)?;
            ok(rig.share_at(at, &memory, &mut second)?)?;
            ensure(first.lmr != second.lmr, "both registrations have returned the same region")
        },
    ),
    must(
        "dat_lmr_create/shared-by-processes",
        "DESCRIPTION: shared memory",
        "Another process can register the same memory under the same cookie. Both processes see \
         data that arrive in the memory.",
        |rig| {
            let (mut peer, memory) = (rig.peer()?, rig.to_share(4096)?);
            ok(peer.share(&memory)?)?;
            let (mut here, pair, from) = (Region::none(), rig.pair()?, rig.memory(8)?);
            ok(rig.share(&memory, &mut here)?)?;
            from.store(0, b"for both");
            ok(rig.write(pair.active.ep, &[from.all()], 1, &here.remote_part(0, 8)))?;
            rig.completes(pair.active.request, 1, DAT_DTO_SUCCESS)?;
            rig.wait_for_writes(pair)?;
            let elsewhere = Region { address: rig.map(&memory)? as DAT_VADDR, ..here };
            ensure_equal("the other mapping", elsewhere.load(0, 8), b"for both".to_vec())
        },
    ),
    must(
        "dat_lmr_create/shared-cookie",
        "DESCRIPTION: shared memory",
        "All 40 bytes of a cookie are significant. One cookie cannot name two memories, but \
         cookies with different last bytes can.",
        |rig| {
            let (mut peer, first, mut second) =
                (rig.peer()?, rig.to_share(4096)?, rig.to_share(4096)?);
            ok(rig.share(&first, &mut Region::none())?)?;
            second.cookie.clone_from(&first.cookie);
            answers(rig.share(&second, &mut Region::none())?, DAT_INVALID_PARAMETER)?;
            answers(peer.share(&second)?, DAT_INVALID_PARAMETER)?;
            if let Some(last) = second.cookie.last_mut() {
                *last ^= 1;
            }
            ok(peer.share(&second)?)?;
            ok(rig.share(&second, &mut Region::none())?)
        },
    ),
    must(
        "dat_lmr_create/not-shared",
        "RETURN VALUES: invalid state",
        "Memory that processes cannot share cannot be registered as shared memory.",
        |rig| {
            let named = rig.to_share(4096)?;
            answers(
                rig.share_at(rig.allocate(4096), &named, &mut Region::none())?,
                DAT_INVALID_STATE,
            )
        },
    ),
    must(
        "dat_lmr_create/zero-based",
        "2.0 headers: DAT_VA_TYPE_ZB",
        "A zero-based region can be created if and only if zb_supported is true. Segments then use \
         offsets into the region.",
        |rig| {
            let (at, pz) = (rig.allocate(64), rig.pz()?);
            let (mut lmr, mut lmr_context, mut rmr_context, mut size, mut address) =
                (null_mut(), 0, 0, 0, 0);
            let answer = rig.api.dat_lmr_create(
                rig.ia,
                DAT_MEM_TYPE_VIRTUAL,
                DAT_REGION_DESCRIPTION { for_va: at },
                64,
                pz,
                DAT_MEM_PRIV_ALL_FLAG,
                DAT_VA_TYPE_ZB,
                &mut lmr,
                &mut lmr_context,
                &mut rmr_context,
                &mut size,
                &mut address,
            );
            if rig.attr.zb_supported == DAT_FALSE {
                return answers(answer, DAT_MODEL_NOT_SUPPORTED);
            }
            ok(answer)?;
            let (pair, to) = (rig.pair()?, rig.memory(8)?);
            let from =
                Region { lmr, lmr_context, rmr_context, address: at as DAT_VADDR, length: 64 };
            from.store(40, b"from 40.");
            ok(rig.recv(pair.passive.ep, &[to.all()], 1))?;
            let part = DAT_LMR_TRIPLET { virtual_address: 40, segment_length: 8, lmr_context };
            ok(rig.send(pair.active.ep, &[part], 2))?;
            rig.completes(pair.passive.recv, 1, DAT_DTO_SUCCESS)?;
            ensure_equal("the message", to.load(0, 8), b"from 40.".to_vec())
        },
    ),
    must(
        "dat_lmr_create/bad-arguments",
        "RETURN VALUES",
        "dat_lmr_create refuses a length of 0, a null zone, and unknown privileges.",
        |rig| {
            let (at, pz, mut region) = (rig.allocate(64), rig.pz()?, rig.memory(8)?);
            let all = DAT_MEM_PRIV_ALL_FLAG;
            rig.answers_or(
                rig.register(at, 0, pz, all, &mut region),
                DAT_LENGTH_ERROR,
                &[DAT_INVALID_PARAMETER],
            )?;
            answers(rig.register(at, 64, DAT_HANDLE_NULL, all, &mut region), DAT_INVALID_HANDLE)?;
            answers(rig.register(at, 64, pz, 0x4000, &mut region), DAT_INVALID_PARAMETER)?;
            answers(rig.register(null_mut(), 64, pz, all, &mut region), DAT_INVALID_PARAMETER)
        },
    ),
    must(
        "dat_lmr_free/dead",
        "DESCRIPTION",
        "After a region has been freed, its contexts are invalid, and a send from the region is \
         refused.",
        |rig| {
            let (pair, region) = (rig.pair()?, rig.memory(8)?);
            ok(rig.api.dat_lmr_free(region.lmr))?;
            answers(rig.api.dat_lmr_free(region.lmr), DAT_INVALID_HANDLE)?;
            let answer = rig.send(pair.active.ep, &[region.all()], 1);
            refused_or_fails(rig, answer, DAT_PRIVILEGES_VIOLATION, pair.active)
        },
    ),
    must(
        "dat_lmr_sync_rdma_read/checks",
        "DESCRIPTION",
        "dat_lmr_sync_rdma_read accepts segments inside of regions, and refuses a segment outside \
         of all regions.",
        |rig| {
            let region = rig.memory(8)?;
            let (inside, outside) = ([region.all(), region.part(2, 3)], [region.part(4, 5)]);
            ok(rig.api.dat_lmr_sync_rdma_read(rig.ia, inside.as_ptr(), 2))?;
            answers(
                rig.api.dat_lmr_sync_rdma_read(rig.ia, outside.as_ptr(), 1),
                DAT_INVALID_PARAMETER,
            )?;
            answers(
                rig.api.dat_lmr_sync_rdma_read(DAT_HANDLE_NULL, inside.as_ptr(), 2),
                DAT_INVALID_HANDLE,
            )
        },
    ),
    must(
        "dat_lmr_sync_rdma_write/checks",
        "DESCRIPTION",
        "dat_lmr_sync_rdma_write accepts segments inside of regions, and refuses a segment outside \
         of all regions.",
        |rig| {
            let region = rig.memory(8)?;
            let (inside, outside) = ([region.all()], [region.part(4, 5)]);
            ok(rig.api.dat_lmr_sync_rdma_write(rig.ia, inside.as_ptr(), 1))?;
            answers(
                rig.api.dat_lmr_sync_rdma_write(rig.ia, outside.as_ptr(), 1),
                DAT_INVALID_PARAMETER,
            )?;
            answers(
                rig.api.dat_lmr_sync_rdma_write(DAT_HANDLE_NULL, inside.as_ptr(), 1),
                DAT_INVALID_HANDLE,
            )
        },
    ),
    must(
        "dat_rmr_create/query",
        "DESCRIPTION",
        "A new RMR belongs to its zone and is not bound.",
        |rig| {
            let (rmr, mut param) = (rig.rmr()?, DAT_RMR_PARAM::zeroed());
            ok(rig.api.dat_rmr_query(rmr, DAT_RMR_FIELD_ALL, &mut param))?;
            ensure_equal(
                "the IA and the zone",
                (param.ia_handle, param.pz_handle),
                (rig.ia, rig.pz()?),
            )?;
            ensure_equal(
                "the length and the privileges",
                (param.lmr_triplet.segment_length, param.mem_priv),
                (0, 0),
            )
        },
    ),
    must(
        "dat_rmr_bind/peers-use-it",
        "DESCRIPTION",
        "With the context of a bound RMR, peers can read and write only inside of the range of the \
         RMR.",
        |rig| {
            let (pair, memory, near) = (rig.pair()?, rig.memory(64)?, rig.memory(64)?);
            let (rmr, mut context, part) = (rig.rmr()?, 0, memory.part(16, 16));
            let (va, id, flags, all) =
                (DAT_VA_TYPE_VA, cookie(7), DAT_COMPLETION_DEFAULT_FLAG, DAT_MEM_PRIV_ALL_FLAG);
            ok(rig.api.dat_rmr_bind(
                rmr,
                memory.lmr,
                &part,
                all,
                va,
                pair.passive.ep,
                id,
                flags,
                &mut context,
            ))?;
            let bound = rig.bind_completion(pair.passive.request)?;
            ensure_equal(
                "the event",
                (bound.rmr, bound.cookie, bound.status),
                (rmr, 7, DAT_RMR_BIND_SUCCESS),
            )?;
            near.store(0, &[9; 16]);
            ok(rig.write(
                pair.active.ep,
                &[near.part(0, 16)],
                1,
                &memory.remote_through(context, 16, 16),
            ))?;
            rig.completes(pair.active.request, 1, DAT_DTO_SUCCESS)?;
            ok(rig.read(
                pair.active.ep,
                &[near.part(32, 16)],
                2,
                &memory.remote_through(context, 16, 16),
            ))?;
            rig.completes(pair.active.request, 2, DAT_DTO_SUCCESS)?;
            ensure_equal("what was written and read", near.load(32, 16), vec![9; 16])?;
            ok(rig.write(
                pair.active.ep,
                &[near.part(0, 16)],
                3,
                &memory.remote_through(context, 17, 16),
            ))?;
            rig.connection(pair.passive.connect, DAT_CONNECTION_EVENT_BROKEN).map(drop)
        },
    ),
    must(
        "dat_rmr_bind/new-context",
        "DESCRIPTION",
        "Each bind returns a new context. The previous context of the RMR is then invalid.",
        |rig| {
            let (pair, memory) = (rig.pair()?, rig.memory(64)?);
            let (rmr, mut old, mut new) = (rig.rmr()?, 0, 0);
            ok(bind(rig, rmr, &memory, DAT_MEM_PRIV_ALL_FLAG, pair.passive.ep, 1, &mut old))?;
            ok(bind(rig, rmr, &memory, DAT_MEM_PRIV_ALL_FLAG, pair.passive.ep, 2, &mut new))?;
            rig.bind_completion(pair.passive.request)?;
            rig.bind_completion(pair.passive.request)?;
            ensure(old != new, "both binds have returned the same context")?;
            dead(rig, &memory, old, pair)
        },
    ),
    must(
        "dat_rmr_bind/length-0-unbinds",
        "DESCRIPTION",
        "A bind of length 0 unbinds the RMR.",
        |rig| {
            let (pair, memory) = (rig.pair()?, rig.memory(64)?);
            let (rmr, mut context, mut none) = (rig.rmr()?, 0, 0);
            ok(bind(rig, rmr, &memory, DAT_MEM_PRIV_ALL_FLAG, pair.passive.ep, 1, &mut context))?;
            let (nothing, va, flags) =
                (memory.part(0, 0), DAT_VA_TYPE_VA, DAT_COMPLETION_DEFAULT_FLAG);
            let all = DAT_MEM_PRIV_ALL_FLAG;
            ok(rig.api.dat_rmr_bind(
                rmr,
                memory.lmr,
                &nothing,
                all,
                va,
                pair.passive.ep,
                cookie(2),
                flags,
                &mut none,
            ))?;
            rig.bind_completion(pair.passive.request)?;
            rig.bind_completion(pair.passive.request)?;
            // The region can be freed now, because the RMR is no longer bound to it.
            ok(rig.api.dat_lmr_free(memory.lmr))
        },
    ),
    must(
        "dat_rmr_bind/keeps-the-lmr",
        "dat_lmr_free, RETURN VALUES",
        "A region to which an RMR is bound cannot be freed.",
        |rig| {
            let (pair, memory) = (rig.pair()?, rig.memory(64)?);
            let (rmr, mut context) = (rig.rmr()?, 0);
            ok(bind(rig, rmr, &memory, DAT_MEM_PRIV_ALL_FLAG, pair.passive.ep, 1, &mut context))?;
            rig.bind_completion(pair.passive.request)?;
            answers(rig.api.dat_lmr_free(memory.lmr), DAT_INVALID_STATE)?;
            ok(rig.api.dat_rmr_free(rmr))?;
            ok(rig.api.dat_lmr_free(memory.lmr))
        },
    ),
    must(
        "dat_rmr_bind/other-pz",
        "RETURN VALUES",
        "dat_rmr_bind succeeds only if RMR, region and EP are in the same zone.",
        |rig| {
            let (pair, strange) =
                (rig.pair()?, rig.memory_with(rig.new_pz()?, 64, DAT_MEM_PRIV_ALL_FLAG)?);
            let (rmr, mut context) = (rig.rmr()?, 0);
            let answer =
                bind(rig, rmr, &strange, DAT_MEM_PRIV_ALL_FLAG, pair.passive.ep, 1, &mut context);
            rig.answers_or(answer, DAT_PROTECTION_VIOLATION, &[DAT_INVALID_PARAMETER])
        },
    ),
    must(
        "dat_rmr_bind/privileges",
        "RETURN VALUES",
        "An RMR cannot grant the privilege to write to a region that does not have this privilege.",
        |rig| {
            let read_only = rig.memory_with(rig.pz()?, 64, DAT_MEM_PRIV_LOCAL_READ_FLAG)?;
            let (pair, rmr, mut context) = (rig.pair()?, rig.rmr()?, 0);
            let answer = bind(
                rig,
                rmr,
                &read_only,
                DAT_MEM_PRIV_REMOTE_WRITE_FLAG,
                pair.passive.ep,
                1,
                &mut context,
            );
            rig.answers_or(answer, DAT_PRIVILEGES_VIOLATION, &[DAT_INVALID_PARAMETER])
        },
    ),
    must(
        "dat_rmr_bind/outside-lmr",
        "RETURN VALUES",
        "dat_rmr_bind refuses a range that exceeds the region.",
        |rig| {
            let (pair, memory, rmr, mut context) = (rig.pair()?, rig.memory(64)?, rig.rmr()?, 0);
            let (part, va, all) = (memory.part(60, 5), DAT_VA_TYPE_VA, DAT_MEM_PRIV_ALL_FLAG);
            let answer = rig.api.dat_rmr_bind(
                rmr,
                memory.lmr,
                &part,
                all,
                va,
                pair.passive.ep,
                cookie(1),
                0,
                &mut context,
            );
            rig.answers_or(answer, DAT_INVALID_PARAMETER, &[DAT_LENGTH_ERROR])
        },
    ),
    must(
        "dat_rmr_bind/too-many",
        "RETURN VALUES: insufficient resources",
        "A bind occupies one of the EP's slots for requests. The bind is refused if no slot is \
         free.",
        |rig| {
            let (pair, memory, rmr) = (rig.ended_pair()?, rig.memory(64)?, rig.rmr()?);
            let (ep, mut context) = (pair.active.ep, 0);
            let max = rig.query(ep)?.ep_attr.max_request_dtos;
            if max >= EVD_QUEUE_LENGTH {
                return unsupported("the EP accepts more requests than an EVD can hold events");
            }
            // On a disconnected EP, a bind occupies its slot until its event is dequeued.
            let mut bind =
                |id| bind(rig, rmr, &memory, DAT_MEM_PRIV_ALL_FLAG, ep, id, &mut context);
            (0..max).try_for_each(|id| ok(bind(id as u64)))?;
            answers(bind(98), DAT_INSUFFICIENT_RESOURCES)?;
            answers(rig.send(ep, &[], 99), DAT_INSUFFICIENT_RESOURCES)?;
            ensure_equal("the first bind", rig.bind_completion(pair.active.request)?.cookie, 0)?;
            // One event has been dequeued, so the request queue has room for one more request.
            ok(rig.send(ep, &[], 100))?;
            answers(bind(101), DAT_INSUFFICIENT_RESOURCES)
        },
    ),
    must(
        "dat_rmr_free/bound",
        "DESCRIPTION",
        "A bound RMR can be freed. Its context is invalid afterwards.",
        |rig| {
            let (pair, memory) = (rig.pair()?, rig.memory(64)?);
            let (rmr, mut context) = (rig.rmr()?, 0);
            ok(bind(rig, rmr, &memory, DAT_MEM_PRIV_ALL_FLAG, pair.passive.ep, 1, &mut context))?;
            rig.bind_completion(pair.passive.request)?;
            ok(rig.api.dat_rmr_free(rmr))?;
            answers(rig.api.dat_rmr_free(rmr), DAT_INVALID_HANDLE)?;
            dead(rig, &memory, context, pair)
        },
    ),
    must(
        "dat_rmr_create_for_ep/creates",
        "2.0 headers: dat_rmr_create_for_ep",
        "An RMR with the scope of an EP can be created.",
        |rig| {
            let (mut rmr, mut param) = (null_mut(), DAT_RMR_PARAM::zeroed());
            supported(rig.api.dat_rmr_create_for_ep(rig.pz()?, &mut rmr))?;
            ok(rig.api.dat_rmr_query(rmr, DAT_RMR_FIELD_ALL, &mut param))?;
            ensure_equal("rmr_scope", param.rmr_scope, DAT_RMR_SCOPE_EP)
        },
    ),
    must(
        "dat_rmr_create_for_ep/only-its-ep",
        "2.0 headers: DAT_RMR_SCOPE_EP",
        "If an RMR has the scope of an EP, only the peer of the EP to which the bind was posted \
         can access the memory.",
        |rig| {
            let (mine, other, memory) = (rig.pair()?, rig.pair()?, rig.memory(64)?);
            let (mut rmr, mut context) = (null_mut(), 0);
            supported(rig.api.dat_rmr_create_for_ep(rig.pz()?, &mut rmr))?;
            ok(bind(rig, rmr, &memory, DAT_MEM_PRIV_ALL_FLAG, mine.passive.ep, 1, &mut context))?;
            rig.bind_completion(mine.passive.request)?;
            let near = rig.memory(8)?;
            let remote = memory.remote_through(context, 0, 8);
            ok(rig.read(mine.active.ep, &[near.all()], 1, &remote))?;
            rig.completes(mine.active.request, 1, DAT_DTO_SUCCESS)?;
            dead(rig, &memory, context, other)
        },
    ),
    must(
        "dat_ep_post_rdma_read_to_rmr/reads",
        "2.0 headers: dat_ep_post_rdma_read_to_rmr",
        "The data of the peer are read into the local memory that the context of an RMR or the \
         remote context of a region names.",
        |rig| {
            let (pair, from, to) = (rig.pair()?, rig.memory(16)?, rig.memory(16)?);
            from.store(0, b"into the window!");
            let (local, remote, flags) = (to.remote(), from.remote(), DAT_COMPLETION_DEFAULT_FLAG);
            supported(rig.api.dat_ep_post_rdma_read_to_rmr(
                pair.active.ep,
                &local,
                cookie(3),
                &remote,
                flags,
            ))?;
            rig.completes(pair.active.request, 3, DAT_DTO_SUCCESS)?;
            ensure_equal("the memory", to.load(0, 16), b"into the window!".to_vec())
        },
    ),
];

/// Checks that a write through this context breaks the connection and does not change the memory.
#[track_caller]
fn dead(rig: &Rig, memory: &Region, context: DAT_RMR_CONTEXT, pair: crate::rig::Pair) -> Outcome {
    let from = rig.memory(8)?;
    from.store(0, &[0xff; 8]);
    ok(rig.write(pair.active.ep, &[from.all()], 99, &memory.remote_through(context, 0, 8)))?;
    rig.connection(pair.passive.connect, DAT_CONNECTION_EVENT_BROKEN)?;
    ensure_equal("the memory", memory.load(0, 8), vec![0; 8])
}
