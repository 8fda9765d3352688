//! Provokes the mistakes that docs/causes.md lists, and compares the sentences at both ends. The
//! tests of the providers run these cases, too.

use std::ptr::{null, null_mut};
use std::time::{Duration, Instant};

use dat_core::Error;
use dat_sys::ib::*;
use dat_sys::opendat::DAT_OPENDAT_EP_LAST_CAUSE_OP;
use dat_sys::*;

use crate::client::*;

/// What the provider under test uses to reach the peer. Protocols differ in what they tell a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(dead_code)] // Each test program uses one of them.
pub(crate) enum Protocol {
    /// The memory of the process.
    Mem,
    Iwarp,
    Roce,
}

/// A mistake: its name in docs/causes.md, and the function that makes it.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// Makes the mistake, and returns what `x` and `y` say about it.
    provoke: fn(&Pair) -> [String; 2],
}

/// Two endpoints. `x` of `a` is connected to `y` of `b`, unless the case connects them.
pub(crate) struct Pair {
    wire: Protocol,
    a: Side,
    x: DAT_EP_HANDLE,
    b: Side,
    y: DAT_EP_HANDLE,
}

/// Every case.
pub(crate) const CASES: &[Case] = &[
    Case { name: "no receive posted", provoke: no_receive },
    Case { name: "receive too small", provoke: receive_too_small },
    Case { name: "no privilege for remote writes", provoke: no_write_privilege },
    Case { name: "no privilege for remote reads", provoke: no_read_privilege },
    Case { name: "no privilege for remote atomics", provoke: no_atomic_privilege },
    Case { name: "no remote privileges", provoke: no_remote_privileges },
    Case { name: "region freed", provoke: region_freed },
    Case { name: "key of no region", provoke: unknown_key },
    Case { name: "other protection zone", provoke: other_zone },
    Case { name: "octets outside the region", provoke: outside },
    Case { name: "atomic not aligned", provoke: misaligned },
    Case { name: "RMR bound for reads only", provoke: rmr_for_reads },
    Case { name: "RMR unbound", provoke: rmr_unbound },
    Case { name: "RMR invalidated", provoke: rmr_invalidated },
    Case { name: "region invalidated", provoke: region_invalidated },
    Case { name: "receive's region freed", provoke: receive_freed },
    Case { name: "segment of a post", provoke: refused_posts },
    Case { name: "hard watermark", provoke: hard_watermark },
    Case { name: "shared receive queue empty", provoke: srq_empty },
    Case { name: "disconnected", provoke: disconnected },
    Case { name: "no listener", provoke: no_listener },
    Case { name: "rejected by the program", provoke: rejected },
    Case { name: "not accepted in time", provoke: not_accepted },
];

/// Checks that docs/causes.md has a row for each case, and no other rows in that table.
#[allow(dead_code)] // The tests of dat-core call this.
pub(crate) fn the_document_lists_each_case(document: &str) {
    let (_, table) = document.split_once("|---|---|---|\n").expect("a table of three columns");
    let rows = table.lines().map_while(|line| line.strip_prefix("| "));
    let mut listed: Vec<&str> = rows.filter_map(|row| row.split(" |").next()).collect();
    let mut tested: Vec<&str> = CASES.iter().map(|case| case.name).collect();
    listed.sort_unstable();
    tested.sort_unstable();
    assert_eq!(listed, tested);
}

/// Runs all cases over a provider.
pub(crate) fn sentences_are_right(table: ProviderTable, name: &str, wire: Protocol) {
    for case in CASES {
        let (a, b) = (Side::new(table, name), Side::new(table, name));
        let pair = Pair { wire, a, x: a.new_ep(), b, y: b.new_ep() };
        let expected = (case.provoke)(&pair);
        for ((side, ep), expected) in [(&pair.a, pair.x), (&pair.b, pair.y)].iter().zip(&expected) {
            let (actual, of) = (last_cause(side, *ep), case.name);
            assert_eq!(
                &actual,
                expected,
                "{of} over {wire:?} at {}",
                if *ep == pair.x { "x" } else { "y" }
            );
        }
        pair.a.close();
        pair.b.close();
    }
}

/// The last cause of an endpoint.
pub(crate) fn last_cause(side: &Side, ep: DAT_EP_HANDLE) -> String {
    let mut buffer = [0xFF_u8; 1024];
    let args = [word(&buffer), buffer.len() as u64];
    extended(side.table, ep, DAT_OPENDAT_EP_LAST_CAUSE_OP as DAT_IB_OP, &args, 2).unwrap();
    // The call has written to the buffer through the pointer.
    let buffer = std::hint::black_box(&mut buffer);
    let text = std::ffi::CStr::from_bytes_until_nul(buffer).expect("the text ends with a NUL");
    text.to_str().expect("UTF-8").to_owned()
}

/// Sends a message without a receive, over a provider that does not let it wait.
#[allow(dead_code)] // Only tcp-emu has such a provider.
pub(crate) fn no_receive_ends_the_connection(table: ProviderTable, name: &str) {
    let (a, b) = (Side::new(table, name), Side::new(table, name));
    let pair = Pair { wire: Protocol::Iwarp, a, x: a.new_ep(), b, y: b.new_ep() };
    pair.connect();
    let mut octets = [0; 64];
    pair.send(&pair.a.register(&mut octets), 64);
    pair.await_ends();
    assert_eq!(
        last_cause(&pair.a, pair.x),
        "a message of 64 octets failed because peer 127.0.0.1 has no receive posted: its program \
         must post a receive for each message of this side, the first ones before it connects or \
         accepts"
    );
    assert_eq!(last_cause(&pair.b, pair.y), NO_RECEIVE);
    pair.a.close();
    pair.b.close();
}

/// A connection qualifier on which no test listens. Its port is privileged, so no system gives it
/// to a program that listens on any port.
const UNUSED_QUALIFIER: DAT_CONN_QUAL = 1;

/// What a receiver says about a message of 64 octets.
const NO_RECEIVE: &str = "peer 127.0.0.1 sent 64 octets and no receive is posted on this endpoint: \
    post a receive for each message of the peer, the first ones before you connect or accept";

/// The sentence of a side that knows of no failure.
const NONE: &str = "";

impl Pair {
    fn connect(&self) {
        let (psp, qualifier) = self.b.new_psp(DAT_PSP_CONSUMER_FLAG);
        self.a.connect(self.x, qualifier, b"");
        dat!(self.b.table, cr_accept_func(self.b.arrival(), self.y, 0, null_mut())).unwrap();
        for side in [&self.a, &self.b] {
            assert_eq!(side.next(side.evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
        }
        dat!(self.b.table, psp_free_func(psp)).unwrap();
    }

    /// Takes events at both sides until each has reported the end of the connection.
    fn await_ends(&self) {
        for side in [&self.a, &self.b] {
            while !is_end(side.next(side.evd).event_number) {}
        }
    }

    fn send(&self, from: &Lmr, octets: u32) {
        let mut iov = from.local(0, octets);
        dat!(self.a.table, ep_post_send_func(self.x, 1, &mut iov, cookie(1), 0)).unwrap();
    }

    fn receive(&self, to: &Lmr, octets: u32) {
        let mut iov = to.local(0, octets);
        dat!(self.b.table, ep_post_recv_func(self.y, 1, &mut iov, cookie(2), 0)).unwrap();
    }

    fn write(&self, from: &Lmr, to: &DAT_RMR_TRIPLET) {
        let mut iov = from.local(0, to.segment_length);
        dat!(self.a.table, ep_post_rdma_write_func(self.x, 1, &mut iov, cookie(1), to, 0)).unwrap();
    }

    fn read(&self, to: &Lmr, from: &DAT_RMR_TRIPLET) {
        let mut iov = to.local(0, from.segment_length);
        dat!(self.a.table, ep_post_rdma_read_func(self.x, 1, &mut iov, cookie(1), from, 0))
            .unwrap();
    }

    /// Waits until an endpoint has a cause.
    fn await_cause(&self, side: &Side, ep: DAT_EP_HANDLE) {
        let start = Instant::now();
        while last_cause(side, ep).is_empty() {
            assert!(start.elapsed() < Duration::from_secs(60), "there is no cause");
            let (mut event, mut more) = (DAT_EVENT::zeroed(), 0);
            // The wait only passes the time and makes progress. No event comes.
            let evd = side.cr_evd;
            dat!(side.table, evd_wait_func(evd, 1_000, 1, &mut event, &mut more)).unwrap_err();
        }
    }

    /// What the owner of memory says about an access that is refused.
    fn refused(&self, access: &str, at: &DAT_RMR_TRIPLET, why: &str) -> String {
        format!("peer 127.0.0.1 may not {}: {why}", named(access, at))
    }

    /// What the requester says. RoCE does not say why a peer refuses an access.
    fn refused_by_peer(&self, access: &str, at: &DAT_RMR_TRIPLET, flag: &str, why: &str) -> String {
        let why = match self.wire {
            Protocol::Roce => format!(
                "compare the key, the address and the length with those of the peer's region or \
                 RMR, which must still exist, must be in the protection zone of the peer's \
                 endpoint, and must be created with {flag}"
            ),
            _ => why.to_owned(),
        };
        format!("peer 127.0.0.1 does not let this side {}: {why}", named(access, at))
    }
}

fn is_end(number: DAT_EVENT_NUMBER) -> bool {
    (DAT_CONNECTION_EVENT_PEER_REJECTED..=DAT_CONNECTION_EVENT_UNREACHABLE).contains(&number)
}

fn named(access: &str, at: &DAT_RMR_TRIPLET) -> String {
    format!(
        "{access} {} octets at {:#x} with the RMR context {:#010x}",
        at.segment_length, at.virtual_address, at.rmr_context
    )
}

/// Checks what dat_opendat_ep_last_cause does with its arguments.
#[allow(dead_code)] // The tests of dat-core call this.
pub(crate) fn arguments_are_checked(table: ProviderTable, name: &str) {
    let side = Side::new(table, name);
    let (ep, mut buffer) = (side.new_ep(), [0xFF_u8; 8]);
    let op = DAT_OPENDAT_EP_LAST_CAUSE_OP as DAT_IB_OP;
    let ask = |handle, buffer: u64, size: u64| extended(table, handle, op, &[buffer, size], 2);
    let place = buffer.as_mut_ptr().expose_provenance() as u64;
    let not_an_ep = ask(side.pz, place, 8).unwrap_err();
    assert_eq!(not_an_ep, Error::new(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE_EP));
    let not_a_handle = ask(null_mut(), place, 8).unwrap_err();
    assert_eq!(not_a_handle, Error::new(DAT_INVALID_HANDLE, DAT_INVALID_HANDLE1));
    assert_eq!(ask(ep, 0, 8).unwrap_err(), Error::arg(3));
    for size in [0, -1_i64 as u64] {
        assert_eq!(ask(ep, place, size).unwrap_err(), Error::arg(4));
    }
    assert_eq!(buffer, [0xFF; 8]);
    // Without a cause the text is empty.
    ask(ep, place, 8).unwrap();
    assert_eq!(std::hint::black_box(&buffer)[..2], [0, 0xFF]);
    // A sentence that does not fit is cut off.
    side.connect(ep, UNUSED_QUALIFIER, b"");
    assert!(is_end(side.next(side.evd).event_number));
    ask(ep, place, 8).unwrap();
    assert_eq!(std::hint::black_box(&buffer), b"no prog\0");
    side.close();
}

const WRITE: &str = "DAT_MEM_PRIV_REMOTE_WRITE_FLAG";
const READ: &str = "DAT_MEM_PRIV_REMOTE_READ_FLAG";
const ATOMIC: &str = "DAT_IB_MEM_PRIV_REMOTE_ATOMIC";
/// What the owner of memory says about a missing privilege.
fn right(whose: &str, accesses: &str, flag: &str) -> String {
    format!(
        "{whose}, or the RMR that is bound to it, does not allow {accesses}: create the region, and \
         bind the RMR, with {flag}"
    )
}

/// What iWARP says about both an unknown key and a missing privilege.
const UNKNOWN_OR_WRITE: &str = "the peer's region does not exist any more or does not allow \
    remote writes: compare the key with the one that the peer has passed on, and create the region \
    with DAT_MEM_PRIV_REMOTE_WRITE_FLAG";
const UNKNOWN: &str = "no region and no bound RMR has this key: it was freed, unbound or \
    invalidated, or the key was passed on wrongly. Free a region or unbind an RMR only after the \
    last access to it";

fn no_receive(pair: &Pair) -> [String; 2] {
    pair.connect();
    let mut octets = [0; 64];
    pair.send(&pair.a.register(&mut octets), 64);
    pair.await_cause(&pair.b, pair.y);
    let sender = match pair.wire {
        // The message waits in TCP or in the requester's queue, which says nothing.
        Protocol::Mem | Protocol::Iwarp => NONE.to_owned(),
        Protocol::Roce => {
            pair.await_cause(&pair.a, pair.x);
            "a message of 64 octets waits because peer 127.0.0.1 has no receive posted: its \
             program must post a receive for each message of this side, the first ones before it \
             connects or accepts"
                .to_owned()
        }
    };
    [sender, NO_RECEIVE.to_owned()]
}

fn srq_empty(pair: &Pair) -> [String; 2] {
    pair.connect();
    let (a, b, mut octets) = (&pair.a, &pair.b, [0; 64]);
    let (x, mut y, attr) = (a.new_ep(), null_mut(), attributes(b));
    let srq = b.new_srq(4);
    dat!(b.table, ep_create_with_srq_func(b.ia, b.pz, b.evd, b.evd, b.evd, srq, &attr, &mut y))
        .unwrap();
    let on_srq = Pair { x, y, ..*pair };
    on_srq.connect();
    on_srq.send(&a.register(&mut octets), 64);
    on_srq.await_cause(b, y);
    assert_eq!(
        last_cause(b, y),
        "peer 127.0.0.1 sent 64 octets and the shared receive queue is empty: post more buffers to \
         it, and post them again sooner"
    );
    // The other connection goes on.
    [NONE.to_owned(), NONE.to_owned()]
}

fn receive_too_small(pair: &Pair) -> [String; 2] {
    let (mut from, mut to) = ([0; 64], [0; 16]);
    pair.receive(&pair.b.register(&mut to), 16);
    pair.connect();
    pair.send(&pair.a.register(&mut from), 64);
    pair.await_ends();
    let sender = match pair.wire {
        Protocol::Roce => {
            "peer 127.0.0.1 refuses a message of 64 octets: most likely its receive buffer is \
             shorter. Its program must post longer receive buffers, or this side must send shorter \
             messages"
        }
        _ => {
            "a message of 64 octets is longer than the receive buffer of peer 127.0.0.1: its \
             program must post longer receive buffers, or this side must send shorter messages"
        }
    };
    let receiver = "peer 127.0.0.1 sent 64 octets and the receive buffer has room for 16: post \
                    receive buffers that are as long as the longest message";
    [sender.to_owned(), receiver.to_owned()]
}

/// Connects, makes an access to memory of `b` that has `privileges`, and waits for the ends.
fn access(
    pair: &Pair,
    privileges: DAT_MEM_PRIV_FLAGS,
    make: impl FnOnce(&Lmr, &Lmr) -> DAT_RMR_TRIPLET,
) -> DAT_RMR_TRIPLET {
    pair.connect();
    let (mut near, mut far) = ([0; 64], [0_u64; 8]);
    // SAFETY: the array has 64 octets.
    let far = unsafe { std::slice::from_raw_parts_mut(far.as_mut_ptr().cast::<u8>(), 64) };
    let near = pair.a.register(&mut near);
    let far = pair.b.register_as(far, privileges, DAT_VA_TYPE_VA);
    let at = make(&near, &far);
    pair.await_ends();
    at
}

/// What both sides say about a write that a region or its RMR does not allow.
fn write_is_not_allowed(pair: &Pair, at: &DAT_RMR_TRIPLET) -> [String; 2] {
    let why = match pair.wire {
        Protocol::Iwarp => UNKNOWN_OR_WRITE.to_owned(),
        _ => right("the peer's region", "remote writes", WRITE),
    };
    let owner = right("the region", "remote writes", WRITE);
    [pair.refused_by_peer("write", at, WRITE, &why), pair.refused("write", at, &owner)]
}

fn no_write_privilege(pair: &Pair) -> [String; 2] {
    let of_peer = DAT_MEM_PRIV_LOCAL_WRITE_FLAG | DAT_MEM_PRIV_REMOTE_READ_FLAG;
    let at = access(pair, of_peer, |near, far| {
        let at = far.remote(0, 32);
        pair.write(near, &at);
        at
    });
    write_is_not_allowed(pair, &at)
}

/// Such a region has the RMR context 0.
fn no_remote_privileges(pair: &Pair) -> [String; 2] {
    let at = access(pair, DAT_MEM_PRIV_LOCAL_WRITE_FLAG, |near, far| {
        let at = far.remote(0, 32);
        pair.write(near, &at);
        at
    });
    assert_eq!(at.rmr_context, 0);
    let why = format!(
        "the RMR context 0 is that of a region without remote privileges: create the region with \
         {WRITE}"
    );
    let requester = format!("peer 127.0.0.1 does not let this side {}: {why}", named("write", &at));
    [requester, pair.refused("write", &at, &why)]
}

fn no_read_privilege(pair: &Pair) -> [String; 2] {
    let of_peer = DAT_MEM_PRIV_LOCAL_WRITE_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG;
    let at = access(pair, of_peer, |near, far| {
        let at = far.remote(0, 32);
        pair.read(near, &at);
        at
    });
    let why = right("the peer's region", "remote reads", READ);
    let owner = right("the region", "remote reads", READ);
    [pair.refused_by_peer("read", &at, READ, &why), pair.refused("read", &at, &owner)]
}

/// Posts an atomic addition to eight octets.
fn fetch_add(pair: &Pair, near: &Lmr, at: &DAT_RMR_TRIPLET) {
    let sink = near.local(0, 8);
    let args = [1, word(&sink), 0, word(at), 0];
    extended(pair.a.table, pair.x, DAT_IB_FETCH_AND_ADD_OP, &args, 4).unwrap();
}

fn no_atomic_privilege(pair: &Pair) -> [String; 2] {
    let of_peer = DAT_MEM_PRIV_LOCAL_WRITE_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG;
    let at = access(pair, of_peer, |near, far| {
        let at = far.remote(0, 8);
        fetch_add(pair, near, &at);
        at
    });
    let (access, allows) = ("perform an atomic operation on", "remote atomic operations");
    let why = right("the peer's region", allows, ATOMIC);
    let owner = right("the region", allows, ATOMIC);
    [pair.refused_by_peer(access, &at, ATOMIC, &why), pair.refused(access, &at, &owner)]
}

fn misaligned(pair: &Pair) -> [String; 2] {
    let all = DAT_MEM_PRIV_ALL_FLAG | DAT_IB_MEM_PRIV_REMOTE_ATOMIC;
    let at = access(pair, all, |near, far| {
        let at = far.remote(4, 8);
        fetch_add(pair, near, &at);
        at
    });
    let (access, why) = (
        "perform an atomic operation on",
        "the address of an atomic operation must be a multiple of 8",
    );
    let requester = match pair.wire {
        Protocol::Mem => pair.refused_by_peer(access, &at, ATOMIC, why),
        Protocol::Iwarp => {
            "peer 127.0.0.1 refuses an RDMA read or an atomic operation: this side has \
                        more of them outstanding than the peer's max_rdma_read_in, or the target \
                        of an atomic operation is not a multiple of 8"
                .to_owned()
        }
        Protocol::Roce => {
            "peer 127.0.0.1 refuses a request of 8 octets: most likely more RDMA reads \
                       and atomic operations are outstanding than its max_rdma_read_in, or the \
                       target of an atomic operation is not a multiple of 8"
                .to_owned()
        }
    };
    [requester, pair.refused(access, &at, why)]
}

/// What both sides say about a write with a key that is not known.
fn unknown(pair: &Pair, at: &DAT_RMR_TRIPLET) -> [String; 2] {
    let why = if pair.wire == Protocol::Iwarp { UNKNOWN_OR_WRITE } else { UNKNOWN };
    [pair.refused_by_peer("write", at, WRITE, why), pair.refused("write", at, UNKNOWN)]
}

fn region_freed(pair: &Pair) -> [String; 2] {
    let at = access(pair, DAT_MEM_PRIV_ALL_FLAG, |near, far| {
        dat!(pair.b.table, lmr_free_func(far.handle)).unwrap();
        let at = far.remote(0, 32);
        pair.write(near, &at);
        at
    });
    unknown(pair, &at)
}

fn unknown_key(pair: &Pair) -> [String; 2] {
    let at = access(pair, DAT_MEM_PRIV_ALL_FLAG, |near, far| {
        let rmr_context = far.rmr_context ^ 1;
        let at = DAT_RMR_TRIPLET { rmr_context, ..far.remote(0, 32) };
        pair.write(near, &at);
        at
    });
    unknown(pair, &at)
}

fn other_zone(pair: &Pair) -> [String; 2] {
    let at = access(pair, DAT_MEM_PRIV_ALL_FLAG, |near, _| {
        let mut pz = null_mut();
        dat!(pair.b.table, pz_create_func(pair.b.ia, &mut pz)).unwrap();
        let octets = Box::leak(Box::new([0; 64]));
        let at = Side { pz, ..pair.b }.register(octets).remote(0, 32);
        pair.write(near, &at);
        at
    });
    let why = |whose: &str| {
        format!(
            "{whose} belongs to another protection zone than the endpoint, or the RMR to another \
             endpoint: create both in the same zone"
        )
    };
    [
        pair.refused_by_peer("write", &at, WRITE, &why("the peer's region")),
        pair.refused("write", &at, &why("the region")),
    ]
}

fn outside(pair: &Pair) -> [String; 2] {
    let at = access(pair, DAT_MEM_PRIV_ALL_FLAG, |near, far| {
        let at = far.remote(40, 32);
        pair.write(near, &at);
        at
    });
    let why = |whose: &str| {
        format!(
            "these octets are not inside {whose}: compare the address and the length with those of \
             the region or RMR"
        )
    };
    [
        pair.refused_by_peer("write", &at, WRITE, &why("the peer's region")),
        pair.refused("write", &at, &why("the region")),
    ]
}

/// Binds an RMR to a region of `b`, or unbinds it. Returns its context.
fn bind(pair: &Pair, rmr: DAT_RMR_HANDLE, lmr: &Lmr, octets: u32) -> DAT_RMR_CONTEXT {
    let peers = DAT_MEM_PRIV_REMOTE_READ_FLAG | DAT_MEM_PRIV_REMOTE_WRITE_FLAG;
    bind_for(pair, rmr, lmr, octets, peers)
}

/// Binds an RMR with these privileges of peers.
fn bind_for(
    pair: &Pair,
    rmr: DAT_RMR_HANDLE,
    lmr: &Lmr,
    octets: u32,
    peers: DAT_MEM_PRIV_FLAGS,
) -> DAT_RMR_CONTEXT {
    let (mut context, to) = (0, lmr.local(0, octets));
    let va = DAT_VA_TYPE_VA;
    dat!(
        pair.b.table,
        rmr_bind_func(rmr, lmr.handle, &to, peers, va, pair.y, cookie(0), 0, &mut context)
    )
    .unwrap();
    assert_eq!(pair.b.next(pair.b.evd).event_number, DAT_RMR_BIND_COMPLETION_EVENT);
    context
}

/// The region allows remote writes, but its RMR does not.
fn rmr_for_reads(pair: &Pair) -> [String; 2] {
    let at = access(pair, DAT_MEM_PRIV_ALL_FLAG, |near, far| {
        let mut rmr = null_mut();
        dat!(pair.b.table, rmr_create_func(pair.b.pz, &mut rmr)).unwrap();
        let rmr_context = bind_for(pair, rmr, far, 64, DAT_MEM_PRIV_REMOTE_READ_FLAG);
        let at = DAT_RMR_TRIPLET { rmr_context, ..far.remote(0, 32) };
        pair.write(near, &at);
        at
    });
    write_is_not_allowed(pair, &at)
}

fn rmr_unbound(pair: &Pair) -> [String; 2] {
    let at = access(pair, DAT_MEM_PRIV_ALL_FLAG, |near, far| {
        let mut rmr = null_mut();
        dat!(pair.b.table, rmr_create_func(pair.b.pz, &mut rmr)).unwrap();
        let rmr_context = bind(pair, rmr, far, 64);
        bind(pair, rmr, &Lmr::default(), 0);
        let at = DAT_RMR_TRIPLET { rmr_context, ..far.remote(0, 32) };
        pair.write(near, &at);
        at
    });
    unknown(pair, &at)
}

/// Sends a message that invalidates a key.
fn send_invalidating(pair: &Pair, near: &Lmr, key: DAT_RMR_CONTEXT) {
    let mut iov = near.local(0, 8);
    dat!(
        pair.a.table,
        ep_post_send_with_invalidate_func(pair.x, 1, &mut iov, cookie(3), 0, DAT_TRUE, key)
    )
    .unwrap();
}

fn rmr_invalidated(pair: &Pair) -> [String; 2] {
    let mut buffer = [0; 8];
    pair.receive(&pair.b.register(&mut buffer), 8);
    let at = access(pair, DAT_MEM_PRIV_ALL_FLAG, |near, far| {
        let mut rmr = null_mut();
        dat!(pair.b.table, rmr_create_for_ep_func(pair.b.pz, &mut rmr)).unwrap();
        let rmr_context = bind(pair, rmr, far, 64);
        send_invalidating(pair, near, rmr_context);
        let at = DAT_RMR_TRIPLET { rmr_context, ..far.remote(0, 32) };
        pair.write(near, &at);
        at
    });
    unknown(pair, &at)
}

fn region_invalidated(pair: &Pair) -> [String; 2] {
    let mut buffer = [0; 8];
    pair.receive(&pair.b.register(&mut buffer), 8);
    let at = access(pair, DAT_MEM_PRIV_ALL_FLAG, |near, far| {
        send_invalidating(pair, near, far.rmr_context);
        far.remote(0, 8)
    });
    let access = format!("invalidate the RMR context {:#010x}", at.rmr_context);
    let why = "the key is that of a region, and only the key of an RMR can be invalidated";
    let requester = match pair.wire {
        Protocol::Roce => {
            "compare the key, the address and the length with those of the peer's region or RMR, \
             which must still exist, must be in the protection zone of the peer's endpoint"
        }
        _ => why,
    };
    [
        format!("peer 127.0.0.1 does not let this side {access}: {requester}"),
        format!("peer 127.0.0.1 may not {access}: {why}"),
    ]
}

const PEER_FAILED: &str = "peer 127.0.0.1 could not carry out a request because of a mistake on \
    its own side, such as a region that was freed too soon or an exceeded watermark: the log of \
    the peer's program says more";

fn receive_freed(pair: &Pair) -> [String; 2] {
    let (mut from, mut to) = ([0; 64], [0; 64]);
    let region = pair.b.register(&mut to);
    pair.receive(&region, 64);
    pair.connect();
    dat!(pair.b.table, lmr_free_func(region.handle)).unwrap();
    pair.send(&pair.a.register(&mut from), 64);
    pair.await_ends();
    let owner = "the memory of a receive is no longer registered: free a region only after the \
                 operations that use it have completed";
    [PEER_FAILED.to_owned(), owner.to_owned()]
}

/// Posts with each mistake that a segment can have. The connection goes on.
fn refused_posts(pair: &Pair) -> [String; 2] {
    pair.connect();
    let (a, mut octets) = (&pair.a, [0; 64]);
    let refused = |side: &Side, octets: &mut [u8], privileges, from: u64| {
        let mut iov = side.register_as(octets, privileges, DAT_VA_TYPE_VA).local(from, 64);
        dat!(a.table, ep_post_recv_func(pair.x, 1, &mut iov, cookie(2), 0)).unwrap_err();
        last_cause(a, pair.x)
    };
    let all = DAT_MEM_PRIV_ALL_FLAG;
    let start = "a post was refused: the memory of a receive ";
    assert_eq!(
        refused(a, &mut octets, all, 8),
        format!(
            "{start}is not inside its region: compare the address and the length of each segment \
             with those of the region"
        )
    );
    let mut pz = null_mut();
    dat!(a.table, pz_create_func(a.ia, &mut pz)).unwrap();
    assert_eq!(
        refused(&Side { pz, ..*a }, &mut octets, all, 0),
        format!(
            "{start}belongs to another protection zone than the endpoint: create the region in the \
             endpoint's zone"
        )
    );
    let own_only = DAT_MEM_PRIV_LOCAL_READ_FLAG;
    let privilege = format!(
        "{start}does not allow this use: create the region with DAT_MEM_PRIV_LOCAL_WRITE_FLAG"
    );
    assert_eq!(refused(a, &mut octets, own_only, 0), privilege);
    [privilege, NONE.to_owned()]
}

/// Attributes with the defaults of the adapter.
fn attributes(side: &Side) -> DAT_EP_ATTR {
    let (ep, mut param) = (side.new_ep(), DAT_EP_PARAM::zeroed());
    dat!(side.table, ep_query_func(ep, DAT_EP_FIELD_ALL, &mut param)).unwrap();
    dat!(side.table, ep_free_func(ep)).unwrap();
    param.ep_attr
}

fn hard_watermark(pair: &Pair) -> [String; 2] {
    pair.connect();
    let (a, b, mut from, mut to) = (&pair.a, &pair.b, [0; 8], [0; 8]);
    let conn = [a, b].map(|side| side.new_evd(DAT_EVD_CONNECTION_FLAG));
    let (mut x, mut y, attr) = (null_mut(), null_mut(), attributes(b));
    let (srq, evd, table) = (b.new_srq(8), b.new_evd(DAT_EVD_DTO_FLAG), b.table);
    dat!(table, ep_create_func(a.ia, a.pz, a.evd, a.evd, conn[0], null(), &mut x)).unwrap();
    dat!(table, ep_create_with_srq_func(b.ia, b.pz, evd, b.evd, conn[1], srq, &attr, &mut y))
        .unwrap();
    dat!(table, ep_set_watermark_func(y, DAT_HW_DEFAULT, 1)).unwrap();
    let (from, to) = (a.register(&mut from), b.register(&mut to));
    for _ in 0..4 {
        let mut iov = to.local(0, 8);
        dat!(table, srq_post_recv_func(srq, 1, &mut iov, cookie(0))).unwrap();
    }
    let (psp, qualifier) = b.new_psp(DAT_PSP_CONSUMER_FLAG);
    a.connect(x, qualifier, b"");
    dat!(table, cr_accept_func(b.arrival(), y, 0, null_mut())).unwrap();
    for (side, evd) in [(a, conn[0]), (b, conn[1])] {
        assert_eq!(side.next(evd).event_number, DAT_CONNECTION_EVENT_ESTABLISHED);
    }
    dat!(table, psp_free_func(psp)).unwrap();
    let held = Pair { x, y, ..*pair };
    held.send(&from, 8);
    held.send(&from, 8);
    for (side, evd) in [(a, conn[0]), (b, conn[1])] {
        assert!(is_end(side.next(evd).event_number));
    }
    let sender = match pair.wire {
        Protocol::Roce => PEER_FAILED.to_owned(),
        wire => format!(
            "a message{} failed because peer 127.0.0.1 has no receive posted: its program must \
             post a receive for each message of this side, the first ones before it connects or \
             accepts",
            if wire == Protocol::Iwarp { " of 8 octets" } else { "" }
        ),
    };
    assert_eq!(last_cause(a, x), sender);
    assert_eq!(
        last_cause(b, y),
        "the endpoint holds more receive buffers than its hard watermark: dequeue completions \
         sooner, or raise the mark with dat_ep_set_watermark"
    );
    [NONE.to_owned(), NONE.to_owned()]
}

fn disconnected(pair: &Pair) -> [String; 2] {
    pair.connect();
    dat!(pair.a.table, ep_disconnect_func(pair.x, DAT_CLOSE_ABRUPT_FLAG)).unwrap();
    pair.await_ends();
    let gone = "peer 127.0.0.1 has disconnected, or its program has ended";
    ["this side has disconnected".to_owned(), gone.to_owned()]
}

fn no_listener(pair: &Pair) -> [String; 2] {
    pair.a.connect(pair.x, UNUSED_QUALIFIER, b"");
    assert!(is_end(pair.a.next(pair.a.evd).event_number));
    let sentence = "no program listens on this connection qualifier of peer 127.0.0.1: start it \
                    before this side connects, and compare the qualifier with that of its service \
                    point";
    [sentence.to_owned(), NONE.to_owned()]
}

fn rejected(pair: &Pair) -> [String; 2] {
    let (_, qualifier) = pair.b.new_psp(DAT_PSP_CONSUMER_FLAG);
    pair.a.connect(pair.x, qualifier, b"");
    dat!(pair.b.table, cr_reject_func(pair.b.arrival(), 0, null_mut())).unwrap();
    assert!(is_end(pair.a.next(pair.a.evd).event_number));
    let sentence = "the program of peer 127.0.0.1 rejected the connection request with \
                    dat_cr_reject: its private data or its log may say why";
    [sentence.to_owned(), NONE.to_owned()]
}

fn not_accepted(pair: &Pair) -> [String; 2] {
    let (_, qualifier) = pair.b.new_psp(DAT_PSP_CONSUMER_FLAG);
    let address = dat_core::addr::SockAddr::from(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    let (qos, flags, after) = (DAT_QOS_BEST_EFFORT, DAT_CONNECT_DEFAULT_FLAG, 200_000);
    dat!(
        pair.a.table,
        ep_connect_func(pair.x, address.as_ptr(), qualifier, after, 0, null_mut(), qos, flags)
    )
    .unwrap();
    assert!(is_end(pair.a.next(pair.a.evd).event_number));
    let sentence = "peer 127.0.0.1 has not accepted the connection within the time limit of the \
                    call: its program must accept sooner, or this side must wait longer";
    [sentence.to_owned(), NONE.to_owned()]
}
