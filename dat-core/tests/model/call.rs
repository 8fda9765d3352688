//! The calls that a consumer may make, whether they are legal or not. Each call names its objects
//! by slots.
//!
//! Slots with even numbers belong to one adapter, and slots with odd numbers to the other. If no
//! object was ever created in a slot, its handle is garbage. If the object was freed, the handle is
//! stale. So any sequence of calls can be made, and so can any part of a sequence, which lets
//! proptest shrink a failure.

use std::fmt;

use dat_sys::*;
use proptest::prelude::*;

pub(crate) const CNOS: usize = 2;
pub(crate) const EVDS: usize = 8;
pub(crate) const PZS: usize = 4;
pub(crate) const LMRS: usize = 4;
pub(crate) const EPS: usize = 4;
pub(crate) const SPS: usize = 4;
pub(crate) const SRQS: usize = 2;
/// The length of every region in bytes.
pub(crate) const BYTES: u32 = 64;
/// The maximum number of outstanding work requests on either queue of an endpoint.
pub(crate) const DTOS: usize = 3;
/// The number of a slot whose handle is always NULL.
pub(crate) const NULL: usize = usize::MAX;

/// The flags of an EVD that takes completions, connection events and software events.
pub(crate) const WORK: DAT_EVD_FLAGS =
    DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG | DAT_EVD_SOFTWARE_FLAG;

#[derive(Clone, Copy)]
pub(crate) enum Call {
    CnoCreate { cno: usize },
    CnoFree { cno: usize },
    CnoWait { cno: usize },
    EvdCreate { evd: usize, qlen: DAT_COUNT, cno: usize, flags: DAT_EVD_FLAGS },
    EvdFree { evd: usize },
    EvdDequeue { evd: usize },
    EvdWait { evd: usize, threshold: DAT_COUNT },
    EvdPostSe { evd: usize, number: DAT_EVENT_NUMBER },
    EvdResize { evd: usize, qlen: DAT_COUNT },
    EvdModifyCno { evd: usize, cno: usize },
    EvdSetWaitable { evd: usize, waitable: bool },
    EvdEnable { evd: usize, enable: bool },
    PzCreate { pz: usize },
    PzFree { pz: usize },
    LmrCreate { lmr: usize, pz: usize, privileges: DAT_MEM_PRIV_FLAGS },
    LmrFree { lmr: usize },
    EpCreate { ep: usize, pz: usize, recv: usize, request: usize, connect: usize, kind: Kind },
    EpModify { ep: usize, change: Change },
    EpFree { ep: usize },
    EpReset { ep: usize },
    EpStatus { ep: usize },
    EpConnect { ep: usize, qualifier: DAT_CONN_QUAL },
    EpDisconnect { ep: usize, flags: DAT_CLOSE_FLAGS },
    PostRecv { ep: usize, lmr: usize, length: u32, flags: DAT_COMPLETION_FLAGS },
    PostSend { ep: usize, lmr: usize, length: u32, flags: DAT_COMPLETION_FLAGS },
    PostWrite { ep: usize, lmr: usize, length: u32, remote: usize },
    SrqCreate { srq: usize, pz: usize, depth: DAT_COUNT },
    SrqFree { srq: usize },
    SrqResize { srq: usize, depth: DAT_COUNT },
    SrqPost { srq: usize, lmr: usize, length: u32 },
    PspCreate { sp: usize, evd: usize, qualifier: DAT_CONN_QUAL },
    RspCreate { sp: usize, ep: usize, evd: usize, qualifier: DAT_CONN_QUAL },
    SpFree { sp: usize },
    CrAccept { cr: usize, ep: usize, private: usize },
    CrReject { cr: usize },
}

/// The properties with which an endpoint is created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    /// The slot of the endpoint's shared receive queue, or [`NULL`].
    pub(crate) srq: usize,
    /// Whether the endpoint's requests and receives may be unsignalled.
    pub(crate) unsignalled: bool,
}

/// The properties of most endpoints.
pub(crate) const DEFAULT_KIND: Kind = Kind { srq: NULL, unsignalled: false };

/// The change that dat_ep_modify makes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    MaxRecvDtos(DAT_COUNT),
    MaxRequestDtos(DAT_COUNT),
    Unsignalled(bool),
    Recv(usize),
    Request(usize),
    Pz(usize),
}

/// Calls that often occur together. When proptest shrinks a failure, it can omit single steps.
#[derive(Clone, Debug)]
pub(crate) struct Step(pub(crate) Vec<Call>);

/// The calls, one on each line.
pub(crate) fn listing(steps: &[Step]) -> String {
    steps.iter().flat_map(|step| &step.0).map(|call| format!("    {call:?}\n")).collect()
}

/// Formats a call as source code.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |kind: &'static str, slot: usize| match slot {
            NULL => "NULL".to_owned(),
            slot => format!("{kind}{slot}"),
        };
        let (evd, ep, pz) = (|s| name("evd", s), |s| name("ep", s), |s| name("pz", s));
        let (cno, lmr, sp) = (|s| name("cno", s), |s| name("lmr", s), |s| name("sp", s));
        let srq = |s| name("srq", s);
        match *self {
            Call::CnoCreate { cno: c } => write!(f, "dat_cno_create({})", cno(c)),
            Call::CnoFree { cno: c } => write!(f, "dat_cno_free({})", cno(c)),
            Call::CnoWait { cno: c } => write!(f, "dat_cno_wait({}, timeout 0)", cno(c)),
            Call::EvdCreate { evd: e, qlen, cno: c, flags } => {
                write!(f, "dat_evd_create({}, qlen {qlen}, {}, flags {flags:#x})", evd(e), cno(c))
            }
            Call::EvdFree { evd: e } => write!(f, "dat_evd_free({})", evd(e)),
            Call::EvdDequeue { evd: e } => write!(f, "dat_evd_dequeue({})", evd(e)),
            Call::EvdWait { evd: e, threshold } => {
                write!(f, "dat_evd_wait({}, timeout 0, threshold {threshold})", evd(e))
            }
            Call::EvdPostSe { evd: e, number } => {
                write!(f, "dat_evd_post_se({}, event number {number:#x})", evd(e))
            }
            Call::EvdResize { evd: e, qlen } => {
                write!(f, "dat_evd_resize({}, qlen {qlen})", evd(e))
            }
            Call::EvdModifyCno { evd: e, cno: c } => {
                write!(f, "dat_evd_modify_cno({}, {})", evd(e), cno(c))
            }
            Call::EvdSetWaitable { evd: e, waitable: true } => {
                write!(f, "dat_evd_clear_unwaitable({})", evd(e))
            }
            Call::EvdSetWaitable { evd: e, .. } => write!(f, "dat_evd_set_unwaitable({})", evd(e)),
            Call::EvdEnable { evd: e, enable: true } => write!(f, "dat_evd_enable({})", evd(e)),
            Call::EvdEnable { evd: e, .. } => write!(f, "dat_evd_disable({})", evd(e)),
            Call::PzCreate { pz: p } => write!(f, "dat_pz_create({})", pz(p)),
            Call::PzFree { pz: p } => write!(f, "dat_pz_free({})", pz(p)),
            Call::LmrCreate { lmr: l, pz: p, privileges } => {
                write!(f, "dat_lmr_create({}, {}, privileges {privileges:#x})", lmr(l), pz(p))
            }
            Call::LmrFree { lmr: l } => write!(f, "dat_lmr_free({})", lmr(l)),
            Call::EpCreate {
                ep: x,
                pz: p,
                recv,
                request,
                connect,
                kind: Kind { srq: q, unsignalled },
            } => {
                let (recv, request, connect) = (evd(recv), evd(request), evd(connect));
                write!(f, "dat_ep_create({}, {}, {recv}, {request}, {connect}", ep(x), pz(p))?;
                write!(f, ", {}{})", srq(q), if unsignalled { ", unsignalled" } else { "" })
            }
            Call::EpModify { ep: x, change } => {
                let change = match change {
                    Change::Recv(e) => format!("receive EVD {}", evd(e)),
                    Change::Request(e) => format!("request EVD {}", evd(e)),
                    Change::Pz(p) => pz(p),
                    other => format!("{other:?}"),
                };
                write!(f, "dat_ep_modify({}, {change})", ep(x))
            }
            Call::EpFree { ep: x } => write!(f, "dat_ep_free({})", ep(x)),
            Call::EpReset { ep: x } => write!(f, "dat_ep_reset({})", ep(x)),
            Call::EpStatus { ep: x } => write!(f, "dat_ep_get_status({})", ep(x)),
            Call::EpConnect { ep: x, qualifier } => {
                write!(f, "dat_ep_connect({}, {qualifier})", ep(x))
            }
            Call::EpDisconnect { ep: x, flags: DAT_CLOSE_ABRUPT_FLAG } => {
                write!(f, "dat_ep_disconnect({}, abrupt)", ep(x))
            }
            Call::EpDisconnect { ep: x, .. } => write!(f, "dat_ep_disconnect({}, graceful)", ep(x)),
            Call::PostRecv { ep: x, lmr: l, length, flags } => {
                write!(
                    f,
                    "dat_ep_post_recv({}, {length} bytes of {}, flags {flags:#x})",
                    ep(x),
                    lmr(l)
                )
            }
            Call::SrqCreate { srq: q, pz: p, depth } => {
                write!(f, "dat_srq_create({}, {}, max_recv_dtos {depth})", srq(q), pz(p))
            }
            Call::SrqFree { srq: q } => write!(f, "dat_srq_free({})", srq(q)),
            Call::SrqResize { srq: q, depth } => write!(f, "dat_srq_resize({}, {depth})", srq(q)),
            Call::SrqPost { srq: q, lmr: l, length } => {
                write!(f, "dat_srq_post_recv({}, {length} bytes of {})", srq(q), lmr(l))
            }
            Call::PostSend { ep: x, lmr: l, length, flags } => {
                write!(
                    f,
                    "dat_ep_post_send({}, {length} bytes of {}, flags {flags:#x})",
                    ep(x),
                    lmr(l)
                )
            }
            Call::PostWrite { ep: x, lmr: l, length, remote } => {
                let remote = lmr(remote);
                write!(
                    f,
                    "dat_ep_post_rdma_write({}, {length} bytes of {}, to {remote})",
                    ep(x),
                    lmr(l)
                )
            }
            Call::PspCreate { sp: s, evd: e, qualifier } => {
                write!(f, "dat_psp_create({}, {qualifier}, {})", sp(s), evd(e))
            }
            Call::RspCreate { sp: s, ep: x, evd: e, qualifier } => {
                write!(f, "dat_rsp_create({}, {qualifier}, {}, {})", sp(s), ep(x), evd(e))
            }
            Call::SpFree { sp: s } => write!(f, "dat_psp_free or dat_rsp_free({})", sp(s)),
            Call::CrAccept { cr, ep: x, private } => {
                let cr = if cr == LATEST_REQUEST { "latest".to_owned() } else { cr.to_string() };
                write!(f, "dat_cr_accept(cr{cr}, {}, {private} bytes of private data)", ep(x))
            }
            Call::CrReject { cr } => write!(f, "dat_cr_reject(cr{cr})"),
        }
    }
}

/// The calls with which every sequence begins. After them, both adapters can connect and transfer
/// data, but nothing is connected. The objects of adapter 0 are in even slots, and the objects of
/// adapter 1 in odd slots.
pub(crate) fn prelude() -> Vec<Call> {
    let mut calls = Vec::new();
    for side in 0..2 {
        calls.push(Call::PzCreate { pz: side });
        calls.push(Call::EvdCreate { evd: side, qlen: 256, cno: NULL, flags: WORK });
        calls.push(Call::EvdCreate { evd: side + 2, qlen: 2, cno: NULL, flags: DAT_EVD_CR_FLAG });
        calls.push(Call::EvdCreate {
            evd: side + 6,
            qlen: 256,
            cno: NULL,
            flags: DAT_EVD_DTO_FLAG,
        });
        calls.push(Call::LmrCreate { lmr: side, pz: side, privileges: DAT_MEM_PRIV_ALL_FLAG });
        for ep in [side, side + 2] {
            calls.push(Call::EpCreate {
                ep,
                pz: side,
                recv: side,
                request: side,
                connect: side,
                kind: DEFAULT_KIND,
            });
        }
        let (sp, qualifier) = (side, 1000 + side as u64);
        calls.push(Call::PspCreate { sp, evd: side + 2, qualifier });
    }
    calls
}

/// Any sequence of up to `steps` steps.
pub(crate) fn sequence(steps: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..steps)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => call().prop_map(|call| Step(vec![call])),
        2 => (0..EPS, 0..EPS, 0u64..4, 0..8usize).prop_map(|(ep, to, qualifier, cr)| {
            // The usual order of calls: connect, take the request, accept it, take the events.
            Step(vec![
                Call::EpConnect { ep, qualifier: 1000 + qualifier },
                Call::EvdDequeue { evd: 2 + qualifier as usize % 2 },
                Call::CrAccept { cr, ep: to, private: 5 },
                Call::EvdDequeue { evd: 0 },
                Call::EvdDequeue { evd: 1 },
            ])
        }),
        // The usual order again. With these endpoints and this service point every call succeeds,
        // unless an earlier call has changed them.
        2 => any::<bool>().prop_map(|second| {
            let (ep, to) = if second { (2, 3) } else { (0, 1) };
            Step(vec![
                Call::EpConnect { ep, qualifier: 1001 },
                Call::EvdDequeue { evd: 3 },
                Call::CrAccept { cr: 0, ep: to, private: 5 },
            ])
        }),
    ]
}

fn or_null(slots: usize) -> impl Strategy<Value = usize> {
    prop_oneof![9 => 0..slots, 1 => Just(NULL)]
}

fn call() -> impl Strategy<Value = Call> {
    let qlen = || prop::sample::select(vec![-1, 0, 1, 2, 4, 256]);
    let stream = || {
        let (dto, cr, soft) = (DAT_EVD_DTO_FLAG, DAT_EVD_CR_FLAG, DAT_EVD_SOFTWARE_FLAG);
        prop::sample::select(vec![
            WORK,
            WORK,
            soft,
            cr,
            cr | soft,
            dto,
            DAT_EVD_CONNECTION_FLAG,
            0,
            0x8000,
        ])
    };
    let length = || prop::sample::select(vec![0, 8, 8, BYTES, BYTES + 1]);
    let privileges = prop::sample::select(vec![
        DAT_MEM_PRIV_ALL_FLAG,
        DAT_MEM_PRIV_LOCAL_READ_FLAG,
        DAT_MEM_PRIV_LOCAL_READ_FLAG | DAT_MEM_PRIV_LOCAL_WRITE_FLAG,
        0x4000,
    ]);
    let close = prop::sample::select(vec![DAT_CLOSE_ABRUPT_FLAG, DAT_CLOSE_GRACEFUL_FLAG]);
    let number = prop::sample::select(vec![
        DAT_SOFTWARE_EVENT,
        DAT_SOFTWARE_EVENT,
        DAT_DTO_COMPLETION_EVENT,
    ]);
    let flags = prop::sample::select(vec![
        DAT_COMPLETION_DEFAULT_FLAG,
        DAT_COMPLETION_DEFAULT_FLAG,
        DAT_COMPLETION_SUPPRESS_FLAG,
        // Only some endpoints are created for unsignalled completions.
        DAT_COMPLETION_UNSIGNALLED_FLAG,
    ]);
    let recv_flags = prop::sample::select(vec![0, 0, 0, DAT_COMPLETION_UNSIGNALLED_FLAG]);
    let private = prop::sample::select(vec![0usize, 5, 5, 1 << 20]);
    let qualifier = || 1000u64..1004;
    let objects = prop_oneof![
        (0..CNOS).prop_map(|cno| Call::CnoCreate { cno }),
        (0..CNOS).prop_map(|cno| Call::CnoFree { cno }),
        (0..EVDS, qlen(), prop_oneof![3 => Just(NULL), 2 => 0..CNOS], stream())
            .prop_map(|(evd, qlen, cno, flags)| Call::EvdCreate { evd, qlen, cno, flags }),
        (0..EVDS).prop_map(|evd| Call::EvdFree { evd }),
        (0..EVDS, qlen()).prop_map(|(evd, qlen)| Call::EvdResize { evd, qlen }),
        (0..EVDS, or_null(CNOS)).prop_map(|(evd, cno)| Call::EvdModifyCno { evd, cno }),
        (0..PZS).prop_map(|pz| Call::PzCreate { pz }),
        (0..PZS).prop_map(|pz| Call::PzFree { pz }),
        (0..LMRS, or_null(PZS), privileges).prop_map(|(lmr, pz, privileges)| Call::LmrCreate {
            lmr,
            pz,
            privileges
        }),
        (0..LMRS).prop_map(|lmr| Call::LmrFree { lmr }),
        (0..EPS, or_null(PZS), 0..EVDS, 0..EVDS, or_null(EVDS)).prop_map(
            |(ep, pz, recv, request, connect)| Call::EpCreate {
                ep,
                pz,
                recv,
                request,
                connect,
                kind: DEFAULT_KIND
            }
        ),
        (0..EPS, 0..2usize).prop_map(|(ep, second)| {
            let (pz, evd) = (ep % 2, ep % 2 + 6 * second);
            let kind = Kind { unsignalled: second > 0, ..DEFAULT_KIND };
            Call::EpCreate { ep, pz, recv: evd, request: evd, connect: ep % 2, kind }
        }),
        (0..EPS).prop_map(|ep| Call::EpFree { ep }),
        modification(),
        modification(),
    ];
    let events = prop_oneof![
        4 => (0..EVDS).prop_map(|evd| Call::EvdDequeue { evd }),
        2 => (0..EVDS, prop::sample::select(vec![1, 1, 1, 2, 0, -1, 1 << 20]))
            .prop_map(|(evd, threshold)| Call::EvdWait { evd, threshold }),
        2 => (0..EVDS, number).prop_map(|(evd, number)| Call::EvdPostSe { evd, number }),
        2 => (0..CNOS).prop_map(|cno| Call::CnoWait { cno }),
        1 => (0..EVDS, any::<bool>())
            .prop_map(|(evd, waitable)| Call::EvdSetWaitable { evd, waitable }),
        1 => (0..EVDS, any::<bool>()).prop_map(|(evd, enable)| Call::EvdEnable { evd, enable }),
    ];
    let connections = prop_oneof![
        (0..EPS, qualifier()).prop_map(|(ep, qualifier)| Call::EpConnect { ep, qualifier }),
        (0..EPS, close).prop_map(|(ep, flags)| Call::EpDisconnect { ep, flags }),
        (0..EPS).prop_map(|ep| Call::EpReset { ep }),
        (0..EPS).prop_map(|ep| Call::EpStatus { ep }),
        (0..SPS, 0..EVDS, qualifier()).prop_map(|(sp, evd, qualifier)| Call::PspCreate {
            sp,
            evd,
            qualifier
        }),
        (0..SPS, 0..EPS, 0..EVDS, qualifier())
            .prop_map(|(sp, ep, evd, qualifier)| Call::RspCreate { sp, ep, evd, qualifier }),
        (0..SPS).prop_map(|sp| Call::SpFree { sp }),
        (0..8usize, or_null(EPS), private).prop_map(|(cr, ep, private)| Call::CrAccept {
            cr,
            ep,
            private
        }),
        (0..8usize).prop_map(|cr| Call::CrAccept { cr, ep: NULL, private: 0 }),
        (0..8usize).prop_map(|cr| Call::CrReject { cr }),
    ];
    let transfers = prop_oneof![
        (0..EPS, 0..LMRS, length(), recv_flags)
            .prop_map(|(ep, lmr, length, flags)| Call::PostRecv { ep, lmr, length, flags }),
        (0..EPS).prop_map(|ep| Call::PostRecv { ep, lmr: ep % 2, length: 8, flags: 0 }),
        (0..EPS, 0..LMRS, length(), flags.clone())
            .prop_map(|(ep, lmr, length, flags)| Call::PostSend { ep, lmr, length, flags }),
        (0..EPS, flags).prop_map(|(ep, flags)| Call::PostSend {
            ep,
            lmr: ep % 2,
            length: 8,
            flags
        }),
        (0..EPS, 0..LMRS, length(), 0..LMRS)
            .prop_map(|(ep, lmr, length, remote)| Call::PostWrite { ep, lmr, length, remote }),
    ];
    prop_oneof![3 => objects, 4 => events, 4 => connections, 4 => transfers]
}

/// The variety of each endpoint in [`varied_prelude`].
pub(crate) type EndpointVarieties = [u8; EPS];

/// The calls with which the sequences of `conservation` begin. They are the calls of [`prelude`],
/// but the endpoints differ: some have an EVD that may overflow, some have no EVD, and some use a
/// shared receive queue.
pub(crate) fn varied_prelude(varieties: EndpointVarieties) -> Vec<Call> {
    let mut calls = Vec::new();
    for side in 0..2 {
        calls.push(Call::PzCreate { pz: side });
        calls.push(Call::EvdCreate { evd: side, qlen: 256, cno: NULL, flags: WORK });
        calls.push(Call::EvdCreate { evd: side + 2, qlen: 4, cno: NULL, flags: DAT_EVD_CR_FLAG });
        calls.push(Call::EvdCreate { evd: side + 4, qlen: 4, cno: NULL, flags: DAT_EVD_DTO_FLAG });
        calls.push(Call::EvdCreate {
            evd: side + 6,
            qlen: 256,
            cno: NULL,
            flags: DAT_EVD_DTO_FLAG,
        });
        calls.push(Call::LmrCreate { lmr: side, pz: side, privileges: DAT_MEM_PRIV_ALL_FLAG });
        calls.push(Call::SrqCreate { srq: side, pz: side, depth: 4 });
        for ep in [side, side + 2] {
            // The endpoints of one side share EVDs, so their completion flags must match.
            calls.push(varied_ep(ep, varieties[ep], varieties[side] >> 6 & 1 != 0));
        }
        calls.push(Call::PspCreate { sp: side, evd: side + 2, qualifier: 1000 + side as u64 });
    }
    calls
}

fn varied_ep(ep: usize, variety: u8, unsignalled: bool) -> Call {
    let side = ep % 2;
    let evd = |kind: u8| match kind % 4 {
        // An EVD for unsignalled completions takes no other events.
        0 | 1 if unsignalled => side + 6,
        0 | 1 => side,
        2 => side + 4,
        _ => NULL,
    };
    let srq = if variety >> 4 & 3 == 0 { side } else { NULL };
    let kind = Kind { srq, unsignalled };
    Call::EpCreate {
        ep,
        pz: side,
        recv: evd(variety),
        request: evd(variety >> 2),
        connect: side,
        kind,
    }
}

/// Any sequence of calls of all kinds. Most of them move data.
pub(crate) fn everything(steps: usize) -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(busy_step(), 1..steps)
}

/// Returns two endpoints that connect to each other.
fn partners(second: bool) -> (usize, usize) {
    if second { (2, 3) } else { (0, 1) }
}

fn busy_step() -> impl Strategy<Value = Step> {
    let close = prop::sample::select(vec![DAT_CLOSE_ABRUPT_FLAG, DAT_CLOSE_GRACEFUL_FLAG]);
    let connect = |second| {
        let (ep, to) = partners(second);
        vec![
            Call::EpConnect { ep, qualifier: 1001 },
            Call::EvdDequeue { evd: 3 },
            Call::CrAccept { cr: LATEST_REQUEST, ep: to, private: 5 },
        ]
    };
    prop_oneof![
        3 => call().prop_map(|call| Step(vec![call])),
        3 => any::<bool>().prop_map(move |second| Step(connect(second))),
        // A disconnect, followed by a new connection.
        2 => (any::<bool>(), close).prop_map(move |(second, flags)| {
            let (ep, to) = partners(second);
            let mut calls = vec![Call::EpDisconnect { ep, flags }, Call::EvdDequeue { evd: 0 }];
            calls.extend([Call::EpReset { ep }, Call::EpReset { ep: to }]);
            calls.extend(connect(second));
            Step(calls)
        }),
        14 => post().prop_map(|call| Step(vec![call])),
        3 => change().prop_map(|call| Step(vec![call])),
        4 => (0..EVDS, 1..6usize).prop_map(|(evd, n)| Step(vec![Call::EvdDequeue { evd }; n])),
    ]
}

/// Stands for the latest connection request that the consumer has got.
pub(crate) const LATEST_REQUEST: usize = usize::MAX;

/// Generates posts, most of which are legal.
fn post() -> impl Strategy<Value = Call> {
    let flags = prop::sample::select(vec![
        DAT_COMPLETION_DEFAULT_FLAG,
        DAT_COMPLETION_SUPPRESS_FLAG,
        DAT_COMPLETION_SUPPRESS_FLAG,
        DAT_COMPLETION_UNSIGNALLED_FLAG,
        DAT_COMPLETION_UNSIGNALLED_FLAG | DAT_COMPLETION_SUPPRESS_FLAG,
    ]);
    let recv_flags =
        prop::sample::select(vec![DAT_COMPLETION_DEFAULT_FLAG, 0, DAT_COMPLETION_UNSIGNALLED_FLAG]);
    // A message that is too long ends the connection.
    let length = || prop::sample::select(vec![0, 8, 8, 8, 8, 8, 8, 8, BYTES]);
    prop_oneof![
        4 => (0..EPS, recv_flags, length())
            .prop_map(|(ep, flags, length)| Call::PostRecv { ep, lmr: ep % 2, length, flags }),
        4 => (0..EPS, flags, length())
            .prop_map(|(ep, flags, length)| Call::PostSend { ep, lmr: ep % 2, length, flags }),
        1 => (0..EPS, length())
            .prop_map(|(ep, length)| {
                Call::PostWrite { ep, lmr: ep % 2, length, remote: 1 - ep % 2 }
            }),
        2 => (0..SRQS, length()).prop_map(|(srq, length)| Call::SrqPost { srq, lmr: srq, length }),
    ]
}

/// A random call of dat_ep_modify.
fn modification() -> impl Strategy<Value = Call> {
    let modify = |change| move |ep| Call::EpModify { ep, change };
    let evd = |ep: usize, kind: usize| [ep % 2, ep % 2 + 4, NULL][kind];
    prop_oneof![
        (0..EPS, 0..5).prop_map(move |(ep, n)| modify(Change::MaxRecvDtos(n))(ep)),
        (0..EPS, 0..5).prop_map(move |(ep, n)| modify(Change::MaxRequestDtos(n))(ep)),
        (0..EPS, any::<bool>()).prop_map(move |(ep, on)| modify(Change::Unsignalled(on))(ep)),
        (0..EPS, 0..3usize).prop_map(move |(ep, kind)| modify(Change::Recv(evd(ep, kind)))(ep)),
        (0..EPS, 0..3usize).prop_map(move |(ep, kind)| modify(Change::Request(evd(ep, kind)))(ep)),
        (0..EPS, or_null(PZS)).prop_map(move |(ep, pz)| modify(Change::Pz(pz))(ep)),
    ]
}

/// Calls that change an endpoint, a queue or an EVD.
fn change() -> impl Strategy<Value = Call> {
    prop_oneof![
        6 => modification(),
        1 => (0..EPS, any::<u8>()).prop_map(|(ep, variety)| varied_ep(ep, variety, variety >> 6 & 1 != 0)),
        1 => (0..EPS).prop_map(|ep| Call::EpFree { ep }),
        1 => (0..EPS).prop_map(|ep| Call::EpReset { ep }),
        1 => (0..SRQS, 0..6).prop_map(|(srq, depth)| Call::SrqResize { srq, depth }),
        1 => (0..SRQS, 1..6).prop_map(|(srq, depth)| Call::SrqCreate { srq, pz: srq, depth }),
        1 => (0..SRQS).prop_map(|srq| Call::SrqFree { srq }),
        1 => (0..EVDS, 1..8).prop_map(|(evd, qlen)| Call::EvdResize { evd, qlen }),
        1 => (0..2usize, 1..6).prop_map(|(side, qlen)| Call::EvdCreate {
            evd: side + 4,
            qlen,
            cno: NULL,
            flags: DAT_EVD_DTO_FLAG
        }),
        1 => (4..EVDS).prop_map(|evd| Call::EvdFree { evd }),
    ]
}
