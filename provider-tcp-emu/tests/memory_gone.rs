//! Tests with registered memory that is unmapped, or whose file is truncated. If the kernel copies
//! the data, the connection ends and the process continues.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use dat_core::conn::cr::{self, Cr};
use dat_core::conn::psp;
use dat_core::ep::{self, Ep, Handles};
use dat_core::evd::{self, Evd};
use dat_core::handle::{self, Node};
use dat_core::ia::{self, AsyncEvd, Entry, Ia};
use dat_core::mem::lmr::{self, Lmr, Memory};
use dat_core::mem::{Pz, pz};
use dat_core::provider::{Remote, Segment};
use dat_sys::*;
use provider_tcp_emu::{Tcp, TcpEmu};

unsafe extern "C" fn no_table(_: *const DAT_PROVIDER, _: *const DAT_PROVIDER_INFO) -> DAT_RETURN {
    DAT_SUCCESS
}

unsafe extern "C" fn no_mapping(_: DAT_IA_HANDLE, _: *mut DAT_IA_HANDLE) -> DAT_RETURN {
    DAT_INVALID_HANDLE
}

const EVENT_LIMIT: DAT_TIMEOUT = 60_000_000;
/// A size far above the number of octets that one system call copies to a buffer of the engine.
const SIZE: usize = 4 << 20;
/// The offset at which the lost memory begins.
const HALF: usize = SIZE / 2;

/// Memory of a file without a name.
struct Mapped {
    start: *mut c_void,
    file: i32,
}

/// The way in which the memory is lost.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// An access raises SIGSEGV, as for unmapped memory. Unlike unmapped addresses, these addresses
    /// cannot be reused by an mmap of another thread.
    Protected,
    /// The file is truncated, so an access raises SIGBUS.
    Cut,
}

impl Mapped {
    fn new() -> Self {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the file and the mapping are new.
        unsafe {
            let file = libc::memfd_create(c"memory".as_ptr(), libc::MFD_CLOEXEC);
            assert!(file >= 0 && libc::ftruncate(file, SIZE as libc::off_t) == 0);
            let start = libc::mmap(null_mut(), SIZE, rights, libc::MAP_SHARED, file, 0);
            assert_ne!(start, libc::MAP_FAILED);
            Mapped { start, file }
        }
    }

    fn lose(&self, loss: Loss, from: usize) {
        // SAFETY: only the adapter accesses the memory. The test shows how it does that.
        let done = unsafe {
            match loss {
                Loss::Protected => {
                    libc::mprotect(self.start.wrapping_byte_add(from), SIZE - from, libc::PROT_NONE)
                }
                Loss::Cut => libc::ftruncate(self.file, from as libc::off_t),
            }
        };
        assert_eq!(done, 0);
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the memory is no longer registered.
        unsafe {
            libc::munmap(self.start, SIZE);
            libc::close(self.file);
        }
    }
}

struct Side {
    ia: &'static Node<Ia<Tcp>>,
    pz: &'static Node<Pz<Tcp>>,
    ep: &'static Node<Ep<Tcp>>,
    all: &'static Node<Evd<Tcp>>,
}

impl Side {
    fn new() -> Side {
        let registry = RegistryFns {
            add_provider: no_table,
            remove_provider: no_table,
            get_ia_handle: no_mapping,
        };
        let entry = Entry {
            name: "lo",
            provider: "tcp-emu",
            table: std::ptr::null(),
            registry,
            thread_safe: false,
        };
        // SAFETY: the call names no dispatcher.
        let ia = unsafe { ia::open(&TcpEmu, "lo spin=0", entry, AsyncEvd::Exists) }.unwrap();
        let streams = DAT_EVD_DTO_FLAG | DAT_EVD_CONNECTION_FLAG | DAT_EVD_CR_FLAG;
        let (all, pz) = (evd::create(ia, 64, None, streams).unwrap(), pz::create(ia).unwrap());
        let handles = Handles {
            pz: Some(pz),
            recv: Some(all),
            request: Some(all),
            connect: Some(all),
            srq: None,
        };
        Side { ia, pz, ep: ep::create(ia, handles, None).unwrap(), all }
    }

    fn register(&self, memory: &Mapped) -> &'static Node<Lmr<Tcp>> {
        let range = Memory::Virtual { addr: memory.start, length: SIZE as DAT_VLEN };
        // SAFETY: only the adapter accesses the memory. The test shows what the adapter does when
        // the memory is lost.
        unsafe { lmr::create(self.ia, range, self.pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA) }
            .unwrap()
    }

    fn receive(&self, segment: Segment, id: u64) {
        // SAFETY: only one thread posts, and the memory is registered.
        unsafe { self.ep.post_recv(&[segment], id, DAT_COMPLETION_DEFAULT_FLAG) }.unwrap();
    }

    fn send(&self, segment: Segment, id: u64) {
        // SAFETY: only one thread posts, and the memory is registered.
        unsafe { self.ep.post_send(&[segment], id, DAT_COMPLETION_DEFAULT_FLAG) }.unwrap();
    }
}

fn part(lmr: &Node<Lmr<Tcp>>, memory: &Mapped, from: usize, len: usize) -> Segment {
    Segment { addr: (memory.start.addr() + from) as u64, len: len as u32, key: lmr.context() }
}

fn remote(lmr: &Node<Lmr<Tcp>>, memory: &Mapped) -> Remote {
    Remote { addr: memory.start.addr() as u64, key: lmr.rmr_context() }
}

/// The events of the two ends of a connection.
#[derive(Default)]
struct Events {
    /// The cookie and the status of each completion.
    done: [Vec<(u64, DAT_DTO_COMPLETION_STATUS)>; 2],
    /// The event that ended the connection.
    end: [Option<DAT_EVENT_NUMBER>; 2],
}

impl Events {
    fn note(&mut self, n: usize, event: &DAT_EVENT) {
        if event.event_number == DAT_DTO_COMPLETION_EVENT {
            // SAFETY: the event's number says which member is valid.
            let dto = unsafe { event.event_data.dto_completion_event_data };
            // SAFETY: every cookie is a number.
            self.done[n].push((unsafe { dto.user_cookie.as_64 }, dto.status));
        } else {
            self.end[n] = Some(event.event_number);
        }
    }
}

/// The way in which the program gets events.
#[derive(Clone, Copy, Debug)]
enum WaitMode {
    /// The program polls without pause, and so makes progress.
    Polls,
    /// The program sleeps, so that the poller must report events.
    Waits,
}

/// Takes events of both sides, in one thread, until both sides have seen the connection's end.
fn until_ended(sides: [&Side; 2], wait_mode: WaitMode) -> Events {
    let (mut events, start) = (Events::default(), Instant::now());
    while events.end.contains(&None) {
        let waited = start.elapsed();
        assert!(
            waited < Duration::from_micros(EVENT_LIMIT.into()),
            "no end; {:?} {:?}",
            events.done,
            events.end
        );
        for (n, side) in
            sides.iter().enumerate().filter(|(n, _)| events.end[*n].is_none()).collect::<Vec<_>>()
        {
            // SAFETY: only this thread takes events from the EVD.
            let event = unsafe {
                match wait_mode {
                    WaitMode::Polls => side.all.dequeue(),
                    WaitMode::Waits => side
                        .all
                        .begin_wait(1)
                        .unwrap()
                        .wait(EVENT_LIMIT)
                        .and_then(|waited| waited.event),
                }
            };
            match event {
                Ok(event) => events.note(n, &event),
                Err(error) => {
                    assert_eq!(error.kind(), DAT_QUEUE_EMPTY, "{:?} {:?}", events.done, events.end)
                }
            }
        }
    }
    for (n, side) in sides.iter().enumerate() {
        // These are completions of operations that were posted after the end.
        // SAFETY: only this thread takes events from the EVD.
        while let Ok(event) = unsafe { side.all.dequeue() } {
            events.note(n, &event);
        }
    }
    events
}

fn connected() -> [Side; 2] {
    let [a, b] = [Side::new(), Side::new()];
    let psp =
        psp::create(b.ia, dat_core::conn::Qualifier::Any, b.all, DAT_PSP_CONSUMER_FLAG).unwrap();
    let to = "127.0.0.1:0".parse().unwrap();
    a.ep.connect(to, psp.qualifier(), EVENT_LIMIT, b"", DAT_QOS_BEST_EFFORT, 0).unwrap();
    let start = Instant::now();
    let (mut accepted, mut established) = (false, 0);
    while established < 2 {
        assert!(
            start.elapsed() < Duration::from_micros(EVENT_LIMIT.into()),
            "not connected: accepted {accepted}"
        );
        for side in [&a, &b] {
            // SAFETY: only this thread takes events from the EVD.
            let Ok(event) = (unsafe { side.all.dequeue() }) else { continue };
            match event.event_number {
                DAT_CONNECTION_REQUEST_EVENT => {
                    // SAFETY: the event's number says which member is valid. The request exists
                    // until it is answered.
                    let request = unsafe {
                        handle::get::<Cr<Tcp>>(event.event_data.cr_arrival_event_data.cr_handle)
                    };
                    // SAFETY: nothing uses the request any more.
                    unsafe { cr::accept(request.unwrap(), Some(b.ep), b"") }.unwrap();
                    accepted = true;
                }
                DAT_CONNECTION_EVENT_ESTABLISHED => established += 1,
                other => panic!("event {other:#x}"),
            }
        }
    }
    [a, b]
}

fn close(sides: [Side; 2]) {
    for side in sides {
        // SAFETY: nothing uses the adapter any more.
        unsafe { ia::close(side.ia, DAT_CLOSE_ABRUPT_FLAG) }.unwrap();
    }
}

/// Runs the test for each way of losing memory. `flow` gets two connected sides, and the memory
/// that it must lose.
fn each_loss(flow: impl Fn(&[Side; 2], &Mapped, (Loss, WaitMode))) {
    for loss in [Loss::Protected, Loss::Cut] {
        for wait_mode in [WaitMode::Polls, WaitMode::Waits] {
            let (sides, memory) = (connected(), Mapped::new());
            flow(&sides, &memory, (loss, wait_mode));
            close(sides);
            drop(memory);
        }
    }
}

/// The numbers of octets that are lost at the end of a message. Both sockets have room for the
/// whole message, so the poller reports no event. The numbers are one page, and sizes above the
/// pieces in which the kernel copies.
const LOST_LENGTHS: [usize; 4] = [4 << 10, 20 << 10, 36 << 10, 100 << 10];
/// The length of a message for which both sockets have room.
const SHORT_MESSAGE_LEN: usize = 256 << 10;

const BROKEN: Option<DAT_EVENT_NUMBER> = Some(DAT_CONNECTION_EVENT_BROKEN);

#[test]
fn a_send_from_memory_that_is_gone() {
    each_loss(|[a, b], memory, (loss, wait_mode)| {
        let (lmr, sink) = (a.register(memory), Mapped::new());
        let place = b.register(&sink);
        for id in [1, 2] {
            b.receive(part(place, &sink, 0, SIZE), id);
        }
        memory.lose(loss, HALF);
        // The first message arrives intact, although the kernel gets it together with the second
        // message, whose memory is lost.
        a.send(part(lmr, memory, 0, HALF / 4), 11);
        a.send(part(lmr, memory, HALF, HALF), 12);
        a.send(part(lmr, memory, 0, 8), 13);
        let events = until_ended([a, b], wait_mode);
        let failed = (12, DAT_DTO_ERR_LOCAL_PROTECTION);
        assert_eq!(
            events.done[0],
            [(11, DAT_DTO_SUCCESS), failed, (13, DAT_DTO_ERR_FLUSHED)],
            "{loss:?} {wait_mode:?}"
        );
        assert_eq!(
            events.done[1],
            [(1, DAT_DTO_SUCCESS), (2, DAT_DTO_ERR_FLUSHED)],
            "{loss:?} {wait_mode:?}"
        );
        assert_eq!(events.end, [BROKEN; 2], "{loss:?} {wait_mode:?}");
    });
}

#[test]
fn a_send_of_which_the_second_half_is_gone() {
    each_loss(|[a, b], memory, (loss, wait_mode)| {
        let (lmr, sink) = (a.register(memory), Mapped::new());
        let place = b.register(&sink);
        b.receive(part(place, &sink, 0, SIZE), 1);
        memory.lose(loss, HALF);
        a.send(part(lmr, memory, 0, SIZE), 11);
        let events = until_ended([a, b], wait_mode);
        assert_eq!(events.done[0], [(11, DAT_DTO_ERR_LOCAL_PROTECTION)], "{loss:?} {wait_mode:?}");
        assert!(
            events.done[1].iter().all(|&(_, status)| status != DAT_DTO_SUCCESS),
            "{loss:?} {wait_mode:?}"
        );
        assert_eq!(events.end, [BROKEN; 2], "{loss:?} {wait_mode:?}");
    });
}

#[test]
fn a_peer_reads_memory_that_is_gone() {
    each_loss(|[a, b], memory, (loss, wait_mode)| {
        let (lmr, sink) = (a.register(memory), Mapped::new());
        let place = b.register(&sink);
        memory.lose(loss, 0);
        let (to, from) = (part(place, &sink, 0, SIZE), remote(lmr, memory));
        // SAFETY: only one thread posts, and the sink is registered.
        unsafe { b.ep.post_rdma_read(&[to], 21, from, SIZE as u64, DAT_COMPLETION_DEFAULT_FLAG) }
            .unwrap();
        let events = until_ended([a, b], wait_mode);
        assert_eq!(events.done[1], [(21, DAT_DTO_ERR_REMOTE_ACCESS)], "{loss:?} {wait_mode:?}");
        assert_eq!(events.end, [BROKEN; 2], "{loss:?} {wait_mode:?}");
    });
}

#[test]
fn a_message_arrives_for_memory_of_which_half_is_gone() {
    each_loss(|[a, b], memory, (loss, wait_mode)| {
        let (lmr, source) = (a.register(memory), Mapped::new());
        let from = b.register(&source);
        a.receive(part(lmr, memory, 0, SIZE), 1);
        memory.lose(loss, HALF);
        b.send(part(from, &source, 0, SIZE), 11);
        let events = until_ended([a, b], wait_mode);
        assert_eq!(events.done[0], [(1, DAT_DTO_ERR_LOCAL_PROTECTION)], "{loss:?} {wait_mode:?}");
        assert_eq!(events.end, [BROKEN; 2], "{loss:?} {wait_mode:?}");
    });
}

#[test]
fn a_read_goes_to_memory_of_which_half_is_gone() {
    each_loss(|[a, b], memory, (loss, wait_mode)| {
        let (lmr, source) = (a.register(memory), Mapped::new());
        let from = b.register(&source);
        memory.lose(loss, HALF);
        let (to, from) = (part(lmr, memory, 0, SIZE), remote(from, &source));
        // SAFETY: only one thread posts. The test shows what happens when the sink is lost.
        unsafe { a.ep.post_rdma_read(&[to], 21, from, SIZE as u64, DAT_COMPLETION_DEFAULT_FLAG) }
            .unwrap();
        let events = until_ended([a, b], wait_mode);
        assert_eq!(events.done[0], [(21, DAT_DTO_ERR_LOCAL_PROTECTION)], "{loss:?} {wait_mode:?}");
        assert_eq!(events.end, [BROKEN; 2], "{loss:?} {wait_mode:?}");
    });
}

#[test]
fn a_peer_writes_to_memory_of_which_half_is_gone() {
    each_loss(|[a, b], memory, (loss, wait_mode)| {
        let (lmr, source) = (a.register(memory), Mapped::new());
        let from = b.register(&source);
        memory.lose(loss, HALF);
        let (from, to) = (part(from, &source, 0, SIZE), remote(lmr, memory));
        // SAFETY: only one thread posts, and the source is registered.
        unsafe { b.ep.post_rdma_write(&[from], 21, to, SIZE as u64, DAT_COMPLETION_DEFAULT_FLAG) }
            .unwrap();
        let events = until_ended([a, b], wait_mode);
        assert!(events.done[0].is_empty(), "{loss:?} {wait_mode:?}");
        // The write waits for the report that it is placed, and is refused instead.
        assert_eq!(events.done[1], [(21, DAT_DTO_ERR_REMOTE_ACCESS)], "{loss:?} {wait_mode:?}");
        assert_eq!(events.end, [BROKEN; 2], "{loss:?} {wait_mode:?}");
    });
}

#[test]
fn a_short_send_of_which_the_end_is_gone() {
    for end in LOST_LENGTHS {
        each_loss(|[a, b], memory, (loss, wait_mode)| {
            let (lmr, sink) = (a.register(memory), Mapped::new());
            let place = b.register(&sink);
            b.receive(part(place, &sink, 0, SIZE), 1);
            memory.lose(loss, SHORT_MESSAGE_LEN - end);
            a.send(part(lmr, memory, 0, SHORT_MESSAGE_LEN), 11);
            let events = until_ended([a, b], wait_mode);
            assert_eq!(
                events.done[0],
                [(11, DAT_DTO_ERR_LOCAL_PROTECTION)],
                "{end} {loss:?} {wait_mode:?}"
            );
            assert!(
                events.done[1].iter().all(|&(_, status)| status != DAT_DTO_SUCCESS),
                "{end} {loss:?} {wait_mode:?}"
            );
            assert_eq!(events.end, [BROKEN; 2], "{end} {loss:?} {wait_mode:?}");
        });
    }
}

#[test]
fn a_short_message_arrives_for_memory_of_which_the_end_is_gone() {
    for end in LOST_LENGTHS {
        each_loss(|[a, b], memory, (loss, wait_mode)| {
            let (lmr, source) = (a.register(memory), Mapped::new());
            let from = b.register(&source);
            a.receive(part(lmr, memory, 0, SIZE), 1);
            memory.lose(loss, SHORT_MESSAGE_LEN - end);
            b.send(part(from, &source, 0, SHORT_MESSAGE_LEN), 11);
            let events = until_ended([a, b], wait_mode);
            assert_eq!(
                events.done[0],
                [(1, DAT_DTO_ERR_LOCAL_PROTECTION)],
                "{end} {loss:?} {wait_mode:?}"
            );
            assert_eq!(events.end, [BROKEN; 2], "{end} {loss:?} {wait_mode:?}");
        });
    }
}
