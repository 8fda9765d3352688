//! Cases about sending and receiving datagrams. The sources are the same as in `datagrams.rs`.
//! Where they say nothing, the operations must behave as other DTOs do.
//!
//! A datagram may be lost. A case that waits for one sends it again if it does not arrive.

use std::ptr::null;

use dat_sys::ib::*;
use dat_sys::opendat::DAT_OPENDAT_POST_SEND_UD_IMMED_OP;
use dat_sys::*;

use super::bad_requests::{freed, refused_or_fails_with, strange, unreadable};
use super::extension::{DATAGRAMS, needs, word};
use crate::case::{Row, must};
use crate::check::{Outcome, answers, ensure_equal, failed, ok, one_of, unsupported};
use crate::rig::{DatagramPair, EVD_QUEUE_LENGTH, Ep, Region, Rig, dto_completion};

/// The number of octets before each message in a receive buffer.
const HEADER: u32 = 40;
/// The number of times that a datagram is sent if it does not arrive, and the time to wait for it
/// each time, in microseconds.
const ATTEMPTS: u32 = 20;
const ATTEMPT_TIME: DAT_TIMEOUT = 500_000;

const SEND: &str = "2.0.9, dat_ib_extensions.h: dat_ib_post_send_ud";

pub(super) const CASES: &[Row] = &[
    must(
        "dat_extension_op/ud-send",
        SEND,
        "A datagram arrives after the 40 octets of the receive buffer that are reserved for the \
         header. Both completions are a DAT_IB_DTO_EVENT with the operation. The receive's number \
         of bytes includes the 40 octets.",
        |rig| {
            let Datagrams { pair, from, to } = datagrams(rig)?;
            from.store(0, b"a message of two segments");
            for (sender, receiver, peer) in [
                (pair.active, pair.passive, &pair.to_passive),
                (pair.passive, pair.active, &pair.to_active),
            ] {
                if peer.qpn == 0 {
                    // The network does not tell the passive side the queue pair of the active side.
                    continue;
                }
                to.store(0, &[0x5a; 128]);
                ok(rig.recv(receiver.ep, &[to.part(0, 128)], 7))?;
                let iov = [from.part(0, 10), from.part(10, 15)];
                let received = exchange(rig, sender, &iov, peer, receiver)?;
                let expected = (receiver.ep, DAT_IB_DTO_RECV_UD, DAT_IB_UD_RECV, 7, HEADER + 25);
                ensure_equal("the receive", received, expected)?;
                let message = to.load(HEADER, 25);
                ensure_equal("the message", message, b"a message of two segments".to_vec())?;
                ensure_equal("the rest", to.load(HEADER + 25, 63), vec![0x5a; 63])?;
            }
            Ok(())
        },
    ),
    must(
        "dat_extension_op/ud-send-empty",
        SEND,
        "A datagram may be empty, with or without a segment.",
        |rig| {
            let Datagrams { pair, from, to } = datagrams(rig)?;
            for iov in [&[][..], &[from.part(0, 0)]] {
                ok(rig.recv(pair.passive.ep, &[to.part(0, HEADER)], 3))?;
                let received = exchange(rig, pair.active, iov, &pair.to_passive, pair.passive)?;
                ensure_equal("the bytes of the receive", received.4, HEADER)?;
            }
            Ok(())
        },
    ),
    must(
        "dat_extension_op/ud-send-longest",
        "OFED 2.1.10: the attribute DAT_IB_TRANSPORT_MTU",
        "A datagram that is as long as the attribute says arrives.",
        |rig| {
            needs(rig, DATAGRAMS)?;
            let longest = longest(rig)?;
            let attr = DAT_EP_ATTR { max_message_size: longest, ..rig.datagram_attr() };
            let (active, passive) = (rig.ep_with(&attr)?, rig.ep_with(&attr)?);
            let [peer, _] = rig.introduce(active, passive)?;
            let (from, to) = (rig.memory(longest + 1)?, rig.memory(longest + HEADER + 1)?);
            let message: Vec<u8> = (0..=longest).map(|n| (n % 251) as u8).collect();
            from.store(0, &message);
            ok(rig.recv(passive.ep, &[to.all()], 3))?;
            let received = exchange(rig, active, &[from.part(0, longest)], &peer, passive)?;
            ensure_equal("the bytes of the receive", received.4, longest + HEADER)?;
            let arrived = to.load(HEADER, longest) == message[..longest as usize];
            crate::check::ensure(arrived, "other data than those that were sent")
        },
    ),
    must(
        "dat_extension_op/ud-send-without-receive",
        "2.0.9, dat_ib_extensions.h: DAT_IB_SERVICE_TYPE_UD",
        "A datagram for which there is no receive is lost. The sender does not learn that, and both \
         endpoints can still be used.",
        |rig| {
            let Datagrams { pair, to, .. } = datagrams(rig)?;
            ok(send(rig, pair.active.ep, &[], &pair.to_passive, 9, 0))?;
            sent(rig, pair.active, 9, 0)?;
            rig.expect_no_event(pair.passive.recv)?;
            ok(rig.recv(pair.passive.ep, &[to.all()], 3))?;
            exchange(rig, pair.active, &[], &pair.to_passive, pair.passive).map(drop)
        },
    ),
    must(
        "dat_extension_op/ud-send-suppressed",
        "2.0, dat_ep_post_send: completion flags",
        "The completion of a datagram can be suppressed.",
        |rig| {
            let Datagrams { pair, .. } = datagrams(rig)?;
            let (ep, peer) = (pair.active.ep, &pair.to_passive);
            // There are more datagrams than an endpoint may have outstanding.
            for n in 0..100 {
                let last = n % 8 == 7;
                let flags = if last { 0 } else { DAT_COMPLETION_SUPPRESS_FLAG };
                ok(send(rig, ep, &[], peer, n, flags))?;
                if last {
                    sent(rig, pair.active, n, 0)?;
                }
            }
            rig.expect_no_event(pair.active.request)
        },
    ),
    must(
        "dat_extension_op/ud-other-posts",
        "OFED 2.1.10: dat_ep_post_send of a UD endpoint",
        "Sends and RDMA without an address are refused on an endpoint for datagrams.",
        |rig| {
            let Datagrams { pair, from, to } = datagrams(rig)?;
            let (ep, iov, remote) = (pair.active.ep, [from.part(0, 8)], to.remote_part(0, 8));
            let refused = [DAT_INVALID_STATE, DAT_INVALID_HANDLE];
            one_of(rig.send(ep, &iov, 1), &refused)?;
            one_of(rig.write(ep, &iov, 1, &remote), &refused)?;
            one_of(rig.read(ep, &iov, 1, &remote), &refused)?;
            rig.expect_no_event(pair.active.request)
        },
    ),
    must(
        "dat_extension_op/ud-small-buffer",
        "OFED 2.1.10: receives of a UD endpoint",
        "A datagram that does not fit into the next receive buffer is not received.",
        |rig| {
            let Datagrams { pair, from, to } = datagrams(rig)?;
            to.store(0, &[0x5a; 64]);
            ok(rig.recv(pair.passive.ep, &[to.part(0, HEADER + 8)], 3))?;
            ok(send(rig, pair.active.ep, &[from.part(0, 9)], &pair.to_passive, 1, 0))?;
            sent(rig, pair.active, 1, 9)?;
            ensure_equal("the octet after the buffer", to.load(HEADER + 8, 1), vec![0x5a])?;
            let event = repeat(rig, pair.passive, || {
                ok(send(rig, pair.active.ep, &[from.part(0, 8)], &pair.to_passive, 2, 0))?;
                sent(rig, pair.active, 2, 8)
            })?;
            let received = dto_completion(&event);
            if received.status == DAT_DTO_ERR_LOCAL_LENGTH {
                // Adapters may use the receive up.
                return Ok(());
            }
            ensure_equal("the status", received.status, DAT_DTO_SUCCESS)?;
            let (cookie, length) = (received.cookie, received.length);
            ensure_equal("the receive", (cookie, length), (3, HEADER + 8))
        },
    ),
    must(
        "dat_extension_op/ud-srq",
        "OFED 2.1.10: receives of a UD endpoint with an SRQ",
        "Endpoints for datagrams can take their receives from a shared receive queue.",
        |rig| {
            needs(rig, DATAGRAMS)?;
            let (srq, zone) = (rig.srq(8)?, rig.pz()?);
            let passive = rig.ep_on_with(srq, zone, &rig.datagram_attr())?;
            let active = rig.datagram_ep()?;
            let [peer, _] = rig.introduce(active, passive)?;
            let (from, to) = (rig.memory(16)?, rig.memory(64)?);
            from.store(0, b"through an SRQ.");
            ok(rig.recv_srq(srq, &[to.all()], 5))?;
            let received = exchange(rig, active, &[from.part(0, 15)], &peer, passive)?;
            ensure_equal("cookie and bytes", (received.3, received.4), (5, HEADER + 15))?;
            ensure_equal("the message", to.load(HEADER, 15), b"through an SRQ.".to_vec())
        },
    ),
    must(
        "dat_extension_op/ud-send-immed",
        "OpenDAT: dat_opendat_post_send_ud_immed",
        "A datagram can have 32 bits of immediate data. The operation of the receive is then \
         DAT_IB_DTO_RECV_UD_IMMED.",
        |rig| {
            let Datagrams { pair, from, to } = datagrams(rig)?;
            let (iov, peer) = ([from.part(0, 8)], pair.to_passive);
            ok(rig.recv(pair.passive.ep, &[to.all()], 3))?;
            let post = |ep| Kind::Immediate.post(rig, ep, (1, iov.as_ptr()), &peer, 9, DEFAULT);
            if DAT_GET_TYPE(post(rig.ep()?.ep)) != DAT_INVALID_HANDLE {
                return unsupported("the provider does not have the operation");
            }
            let event = repeat(rig, pair.passive, || {
                ok(post(pair.active.ep))?;
                sent(rig, pair.active, 9, 8)
            })?;
            let operation = dto_completion(&event).operation;
            ensure_equal("the operation", operation, DAT_IB_DTO_RECV_UD_IMMED)?;
            let immediate = event.event_extension_data[1].to_ne_bytes();
            let immediate = u32::from_ne_bytes(std::array::from_fn(|i| immediate[i]));
            ensure_equal("the immediate data", immediate, 0xdead_beef)
        },
    ),
    must(
        "dat_extension_op/ud-send-bad-arguments",
        "2.0: as dat_ep_post_send, RETURN VALUES",
        "A send of a datagram refuses a null handle, the handle of an object that is not an EP, an \
         EP for connections, a negative number of segments, more segments than the EP permits, and \
         a null pointer to the segments.",
        |rig| {
            each(rig, |kind, Datagrams { pair, from, .. }| {
                let (ep, to) = (pair.active.ep, &pair.to_passive);
                let post = |ep, count, iov| kind.post(rig, ep, (count, iov), to, 1, DEFAULT);
                for other in [DAT_HANDLE_NULL, rig.pz()?, rig.ep()?.ep] {
                    answers(post(other, 0, null()), DAT_INVALID_HANDLE)?;
                }
                let segments = [from.part(0, 1); 3];
                for (count, iov) in [(-1, null()), (1, null()), (3, segments.as_ptr())] {
                    answers(post(ep, count, iov), DAT_INVALID_PARAMETER)?;
                }
                rig.expect_no_event(pair.active.request)
            })
        },
    ),
    must(
        "dat_extension_op/ud-send-bad-address",
        "2.0: as dat_ep_post_send, RETURN VALUES: DAT_INVALID_PARAMETER",
        "A send of a datagram refuses a null pointer to the address, a freed address handle, a \
         handle of another type, and a QPN that cannot be.",
        |rig| {
            each(rig, |kind, Datagrams { pair, .. }| {
                let (ep, peer) = (pair.active.ep, pair.to_passive);
                let post = |to: *const _| kind.post(rig, ep, (0, null()), to, 1, DEFAULT);
                answers(post(null()), DAT_INVALID_PARAMETER)?;
                let wrong = [
                    DAT_IB_ADDR_HANDLE { ah: ep.cast(), ..peer },
                    DAT_IB_ADDR_HANDLE { ah: DAT_HANDLE_NULL.cast(), ..peer },
                    DAT_IB_ADDR_HANDLE { qpn: 0, ..peer },
                    DAT_IB_ADDR_HANDLE { qpn: 1 << 24, ..peer },
                ];
                for wrong in &wrong {
                    answers(post(wrong), DAT_INVALID_PARAMETER)?;
                }
                let freed = [word(&peer), 0, 0, 0, 0, 0];
                ok(rig.api.dat_extension_op(ep, DAT_IB_UD_AH_FREE_OP, freed))?;
                answers(post(&peer), DAT_INVALID_PARAMETER)?;
                rig.expect_no_event(pair.active.request)
            })
        },
    ),
    must(
        "dat_extension_op/ud-send-other-zone",
        "2.0: as dat_ep_post_send, RETURN VALUES: DAT_PROTECTION_VIOLATION",
        "An address handle can be used by every endpoint of its protection zone, and by no other.",
        |rig| {
            each(rig, |kind, Datagrams { pair, .. }| {
                let same = rig.datagram_ep()?;
                let other = rig.ep_in(rig.new_pz()?, Some(&rig.datagram_attr()))?;
                for ep in [same, other] {
                    rig.introduce(ep, pair.passive)?;
                }
                let post =
                    |ep: Ep| kind.post(rig, ep.ep, (0, null()), &pair.to_passive, 1, DEFAULT);
                ok(post(same))?;
                sent(rig, same, 1, 0)?;
                answers(post(other), DAT_PROTECTION_VIOLATION)
            })
        },
    ),
    must(
        "dat_extension_op/ud-send-local-memory",
        "2.0: as dat_ep_post_send, RETURN VALUES: protection and privileges violation",
        "A send of a datagram refuses a local segment of another zone, of a freed LMR, and outside \
         of its LMR.",
        |rig| {
            each(rig, |kind, _| {
                let region = rig.memory(8)?;
                for (segment, violation) in [
                    (strange(rig)?, DAT_PROTECTION_VIOLATION),
                    (freed(rig)?, DAT_PRIVILEGES_VIOLATION),
                    (DAT_LMR_TRIPLET { segment_length: 9, ..region.all() }, DAT_INVALID_PARAMETER),
                ] {
                    let DatagramPair { active, to_passive, .. } = rig.datagram_pair()?;
                    let answer =
                        kind.post(rig, active.ep, (1, &raw const segment), &to_passive, 1, DEFAULT);
                    refused_or_fails_with(rig, answer, violation, active, DAT_IB_DTO_EVENT)?;
                }
                Ok(())
            })
        },
    ),
    must(
        "dat_extension_op/ud-send-no-local-read",
        "2.0: as dat_ep_post_send, RETURN VALUES: privileges violation",
        "A send of a datagram from memory without the local read privilege is a privileges \
         violation.",
        |rig| {
            each(rig, |kind, Datagrams { pair, .. }| {
                let near = rig.memory_with(rig.pz()?, 8, DAT_MEM_PRIV_LOCAL_WRITE_FLAG)?.all();
                let (ep, to) = (pair.active.ep, &pair.to_passive);
                unreadable(rig, kind.post(rig, ep, (1, &raw const near), to, 1, DEFAULT))
            })
        },
    ),
    must(
        "dat_extension_op/ud-send-unknown-flags",
        "2.0: as dat_ep_post_send, RETURN VALUES: invalid parameter",
        "A send of a datagram refuses completion flags that the standard does not define.",
        |rig| {
            each(rig, |kind, Datagrams { pair, .. }| {
                let (ep, to) = (pair.active.ep, &pair.to_passive);
                let answer = kind.post(rig, ep, (0, null()), to, 1, 0x4000);
                answers(answer, DAT_INVALID_PARAMETER)
            })
        },
    ),
    must(
        "dat_extension_op/ud-send-too-long",
        "2.0: as dat_ep_post_send, RETURN VALUES: DAT_LENGTH_ERROR",
        "A datagram that is longer than the attribute DAT_IB_TRANSPORT_MTU says is refused, or \
         nobody receives it.",
        |rig| {
            each(rig, |kind, Datagrams { pair, .. }| {
                let longest = longest(rig)?;
                let near = rig.memory(longest + 1)?;
                let room = rig.memory(longest + 1 + HEADER)?;
                ok(rig.recv(pair.passive.ep, &[room.all()], 1))?;
                let (near, to) = (near.all(), &pair.to_passive);
                let answer = kind.post(rig, pair.active.ep, (1, &raw const near), to, 1, DEFAULT);
                one_of(answer, &[DAT_LENGTH_ERROR, DAT_SUCCESS])?;
                rig.expect_no_event(pair.passive.recv)
            })
        },
    ),
    must(
        "dat_extension_op/ud-send-too-many",
        "2.0: as dat_ep_post_send, RETURN VALUES: insufficient resources",
        "A send of a datagram is refused if the EP has no free slot for a request.",
        |rig| {
            each(rig, |kind, Datagrams { pair, .. }| {
                let (ep, to) = (pair.active.ep, &pair.to_passive);
                let max = rig.query(ep)?.ep_attr.max_request_dtos;
                if max >= EVD_QUEUE_LENGTH {
                    return unsupported("the EP accepts more requests than an EVD holds events");
                }
                let post = || kind.post(rig, ep, (0, null()), to, 1, DEFAULT);
                // Nobody takes the completions, so all slots stay occupied.
                (0..max).try_for_each(|_| ok(post()))?;
                answers(post(), DAT_INSUFFICIENT_RESOURCES)
            })
        },
    ),
    must(
        "dat_extension_op/ud-send-states",
        "2.0: as dat_ep_post_send, RETURN VALUES: DAT_INVALID_STATE",
        "An endpoint that has neither asked nor answered does not send a datagram.",
        |rig| {
            each(rig, |kind, Datagrams { pair, .. }| {
                let refused = |ep: DAT_EP_HANDLE, state| {
                    rig.state_is(ep, state)?;
                    let answer = kind.post(rig, ep, (0, null()), &pair.to_passive, 1, DEFAULT);
                    answers(answer, DAT_INVALID_STATE)
                };
                let attr = rig.datagram_attr();
                let states = [
                    (
                        rig.pz()?,
                        DAT_EP_STATE_UNCONNECTED,
                        DAT_EP_STATE_RESERVED,
                        DAT_EP_STATE_PASSIVE_CONNECTION_PENDING,
                    ),
                    (
                        DAT_HANDLE_NULL,
                        DAT_EP_STATE_UNCONFIGURED_UNCONNECTED,
                        DAT_EP_STATE_UNCONFIGURED_RESERVED,
                        DAT_EP_STATE_UNCONFIGURED_PASSIVE,
                    ),
                ];
                for (zone, unconnected, reserved, passive) in states {
                    let ep = rig.ep_in(zone, Some(&attr))?.ep;
                    refused(ep, unconnected)?;
                    let (evd, qualifier) = (rig.evd(DAT_EVD_CR_FLAG)?, rig.free_qualifier()?);
                    let mut rsp = DAT_HANDLE_NULL;
                    crate::check::supported(
                        rig.api.dat_rsp_create(rig.ia, qualifier, ep, evd, &mut rsp),
                    )?;
                    refused(ep, reserved)?;
                    ok(rig.connect(rig.datagram_ep()?.ep, qualifier, b""))?;
                    rig.datagram_request(evd)?;
                    refused(ep, passive)?;
                }
                let listener = rig.listen_for(DAT_PSP_PROVIDER_FLAG, EVD_QUEUE_LENGTH)?;
                ok(rig.connect(rig.datagram_ep()?.ep, listener.qualifier, b""))?;
                let mut request = DAT_CR_PARAM::zeroed();
                let cr = rig.datagram_request(listener.evd)?.cr;
                ok(rig.api.dat_cr_query(cr, DAT_CR_FIELD_ALL, &mut request))?;
                let ep = request.local_ep_handle;
                refused(ep, DAT_EP_STATE_UNCONFIGURED_TENTATIVE)?;
                let param = DAT_EP_PARAM { pz_handle: rig.pz()?, ..DAT_EP_PARAM::zeroed() };
                ok(rig.api.dat_ep_modify(ep, DAT_EP_FIELD_PZ_HANDLE, &param))?;
                refused(ep, DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING)
            })
        },
    ),
];

/// Two endpoints that know each other, and memory for messages and for receives.
struct Datagrams {
    pair: DatagramPair,
    from: Region,
    to: Region,
}

fn datagrams(rig: &Rig) -> Outcome<Datagrams> {
    needs(rig, DATAGRAMS)?;
    let (from, to) = (rig.memory(64)?, rig.memory(128)?);
    Ok(Datagrams { pair: rig.datagram_pair()?, from, to })
}

/// The length of the longest datagram, which an attribute of the provider contains.
fn longest(rig: &Rig) -> Outcome<u32> {
    let DAT_PROVIDER_ATTR { num_provider_specific_attr, provider_specific_attr, .. } = rig.provider;
    let attributes = crate::rig::named(
        "provider attributes",
        num_provider_specific_attr,
        provider_specific_attr,
    )?;
    let value = attributes.iter().find(|(name, _)| name == "DAT_IB_TRANSPORT_MTU");
    let Some((_, value)) = value else {
        return unsupported("the provider has no attribute DAT_IB_TRANSPORT_MTU");
    };
    value.parse().map_err(|_| failed(format_args!("DAT_IB_TRANSPORT_MTU is {value:?}")))
}

/// A kind of send of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// dat_ib_post_send_ud.
    Plain,
    /// dat_opendat_post_send_ud_immed.
    Immediate,
}

const DEFAULT: DAT_COMPLETION_FLAGS = DAT_COMPLETION_DEFAULT_FLAG;

impl Kind {
    /// Posts the operation with this number of segments.
    pub(super) fn post(
        self,
        rig: &Rig,
        ep: DAT_EP_HANDLE,
        (count, iov): (i64, *const DAT_LMR_TRIPLET),
        to: *const DAT_IB_ADDR_HANDLE,
        cookie: u64,
        flags: DAT_COMPLETION_FLAGS,
    ) -> DAT_RETURN {
        let (iov, to) = (iov.expose_provenance() as u64, to.expose_provenance() as u64);
        let (count, flags) = (count as u64, flags.into());
        let (op, words) = match self {
            Kind::Plain => (DAT_IB_UD_SEND_OP, [count, iov, to, cookie, flags, 0]),
            Kind::Immediate => {
                let op = DAT_OPENDAT_POST_SEND_UD_IMMED_OP as u32;
                (op, [count, iov, to, cookie, 0xdead_beef, flags])
            }
        };
        rig.api.dat_extension_op(ep, op, words)
    }
}

/// Runs a check for each kind of send that the provider has, each time with new endpoints.
fn each(rig: &Rig, check: impl Fn(Kind, Datagrams) -> Outcome) -> Outcome {
    for kind in [Kind::Plain, Kind::Immediate] {
        let datagrams = datagrams(rig)?;
        let (ep, to) = (rig.ep()?.ep, &datagrams.pair.to_passive);
        let on_connection = kind.post(rig, ep, (0, null()), to, 1, DEFAULT);
        if kind == Kind::Plain || DAT_GET_TYPE(on_connection) == DAT_INVALID_HANDLE {
            check(kind, datagrams)?;
        }
    }
    Ok(())
}

/// Calls dat_ib_post_send_ud.
pub(super) fn send(
    rig: &Rig,
    ep: DAT_EP_HANDLE,
    iov: &[DAT_LMR_TRIPLET],
    to: &DAT_IB_ADDR_HANDLE,
    cookie: u64,
    flags: DAT_COMPLETION_FLAGS,
) -> DAT_RETURN {
    Kind::Plain.post(rig, ep, (iov.len() as i64, iov.as_ptr()), to, cookie, flags)
}

/// Checks that the next completion says that a datagram was sent.
#[track_caller]
fn sent(rig: &Rig, by: Ep, cookie: u64, length: u32) -> Outcome {
    let event = rig.expect(by.request, DAT_IB_DTO_EVENT)?;
    let dto = dto_completion(&event);
    ensure_equal("the status of the send", dto.status, DAT_DTO_SUCCESS)?;
    let is = (dto.ep, dto.operation, kind(&event), dto.cookie, dto.length);
    ensure_equal("the send", is, (by.ep, DAT_IB_DTO_SEND_UD, DAT_IB_UD_SEND, cookie, length))
}

fn kind(event: &DAT_EVENT) -> DAT_IB_EXT_TYPE {
    let word = event.event_extension_data[0].to_ne_bytes();
    u32::from_ne_bytes(std::array::from_fn(|i| word[i]))
}

/// Sends a datagram until it arrives. Returns the endpoint, operation, type, cookie and length of
/// the receive.
fn exchange(
    rig: &Rig,
    from: Ep,
    iov: &[DAT_LMR_TRIPLET],
    peer: &DAT_IB_ADDR_HANDLE,
    to: Ep,
) -> Outcome<(DAT_EP_HANDLE, DAT_DTOS, DAT_IB_EXT_TYPE, u64, u32)> {
    let length = iov.iter().map(|segment| segment.segment_length).sum();
    let event = repeat(rig, to, || {
        ok(send(rig, from.ep, iov, peer, 11, 0))?;
        sent(rig, from, 11, length)
    })?;
    let dto = dto_completion(&event);
    ensure_equal("the status of the receive", dto.status, DAT_DTO_SUCCESS)?;
    Ok((dto.ep, dto.operation, kind(&event), dto.cookie, dto.length))
}

/// Calls `send` until a datagram arrives. Returns the event of the receive.
fn repeat(rig: &Rig, to: Ep, send: impl Fn() -> Outcome) -> Outcome<DAT_EVENT> {
    let mut event = DAT_EVENT::zeroed();
    for _ in 0..ATTEMPTS {
        send()?;
        match rig.wait(to.recv, ATTEMPT_TIME, 1, &mut event).0 {
            DAT_SUCCESS => {
                ensure_equal("the number of the event", event.event_number, DAT_IB_DTO_EVENT)?;
                return Ok(event);
            }
            status => answers(status, DAT_TIMEOUT_EXPIRED)?,
        }
    }
    Err(failed(format_args!("none of {ATTEMPTS} datagrams has arrived")))
}
