//! Memory that goes away, or whose file is cut, while it is registered: where the kernel copies, the
//! connection ends and the process goes on.

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
use dat_core::provider::{Port, Remote, Segment};
use dat_sys::*;
use provider_tcp_emu::{Tcp, TcpEmu};

unsafe extern "C" fn no_table(_: *const DAT_PROVIDER, _: *const DAT_PROVIDER_INFO) -> DAT_RETURN {
    DAT_SUCCESS
}

unsafe extern "C" fn no_mapping(_: DAT_IA_HANDLE, _: *mut DAT_IA_HANDLE) -> DAT_RETURN {
    DAT_INVALID_HANDLE
}

const PATIENCE: DAT_TIMEOUT = 60_000_000;
/// Far more than one system call copies to a place of the engine's own.
const SIZE: usize = 4 << 20;
/// From here on the memory goes away.
const HALF: usize = SIZE / 2;

/// Memory of a file that has no name.
struct Mapped {
    start: *mut c_void,
    file: i32,
}

/// How memory goes away.
#[derive(Clone, Copy, Debug)]
enum Loss {
    /// An access is a SIGSEGV, as where memory was unmapped; but no other thread's mmap can get these addresses.
    Protected,
    /// The file is cut: an access is a SIGBUS.
    Cut,
}

impl Mapped {
    fn new() -> Self {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new file and a new mapping.
        unsafe {
            let file = libc::memfd_create(c"memory".as_ptr(), libc::MFD_CLOEXEC);
            assert!(file >= 0 && libc::ftruncate(file, SIZE as libc::off_t) == 0);
            let start = libc::mmap(null_mut(), SIZE, rights, libc::MAP_SHARED, file, 0);
            assert_ne!(start, libc::MAP_FAILED);
            Mapped { start, file }
        }
    }

    fn lose(&self, loss: Loss, from: usize) {
        // SAFETY: nobody but the adapter touches it, which is what is tested.
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
        // SAFETY: it is not registered any more.
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
        // SAFETY: no dispatcher is given.
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
        // SAFETY: what becomes of the memory is what is tested; nobody else uses it.
        unsafe { lmr::create(self.ia, range, self.pz, DAT_MEM_PRIV_ALL_FLAG, DAT_VA_TYPE_VA) }
            .unwrap()
    }

    fn receive(&self, segment: Segment, id: u64) {
        // SAFETY: one thread posts; the memory is registered.
        unsafe { self.ep.post_recv(&[segment], id, DAT_COMPLETION_DEFAULT_FLAG) }.unwrap();
    }

    fn send(&self, segment: Segment, id: u64) {
        // SAFETY: as above.
        unsafe { self.ep.post_send(&[segment], id, DAT_COMPLETION_DEFAULT_FLAG) }.unwrap();
    }
}

fn part(lmr: &Node<Lmr<Tcp>>, memory: &Mapped, from: usize, len: usize) -> Segment {
    Segment { addr: (memory.start.addr() + from) as u64, len: len as u32, key: lmr.context() }
}

fn remote(lmr: &Node<Lmr<Tcp>>, memory: &Mapped) -> Remote {
    Remote { addr: memory.start.addr() as u64, key: lmr.rmr_context() }
}

/// What the two ends of a connection have been told.
#[derive(Default)]
struct Told {
    /// Cookie and status of each completion.
    done: [Vec<(u64, DAT_DTO_COMPLETION_STATUS)>; 2],
    /// The event that ended the connection.
    end: [Option<DAT_EVENT_NUMBER>; 2],
}

impl Told {
    fn note(&mut self, n: usize, event: &DAT_EVENT) {
        if event.event_number == DAT_DTO_COMPLETION_EVENT {
            // SAFETY: the number says which member.
            let dto = unsafe { event.event_data.dto_completion_event_data };
            // SAFETY: all cookies are numbers.
            self.done[n].push((unsafe { dto.user_cookie.as_64 }, dto.status));
        } else {
            self.end[n] = Some(event.event_number);
        }
    }
}

/// How the program learns of events.
#[derive(Clone, Copy, Debug)]
enum Style {
    /// It looks all the time, and so makes progress.
    Polls,
    /// It sleeps, so that the poller has to tell.
    Waits,
}

/// Takes events of both sides, from one thread, until both know that the connection has ended.
fn until_ended(sides: [&Side; 2], style: Style) -> Told {
    let (mut told, start) = (Told::default(), Instant::now());
    while told.end.contains(&None) {
        let waited = start.elapsed();
        assert!(
            waited < Duration::from_micros(PATIENCE.into()),
            "no end; {:?} {:?}",
            told.done,
            told.end
        );
        for (n, side) in
            sides.iter().enumerate().filter(|(n, _)| told.end[*n].is_none()).collect::<Vec<_>>()
        {
            // SAFETY: one thread takes events.
            let event = unsafe {
                match style {
                    Style::Polls => side.all.dequeue(),
                    Style::Waits => side
                        .all
                        .begin_wait(1)
                        .unwrap()
                        .wait(PATIENCE)
                        .and_then(|waited| waited.event),
                }
            };
            match event {
                Ok(event) => told.note(n, &event),
                Err(error) => {
                    assert_eq!(error.kind(), DAT_QUEUE_EMPTY, "{:?} {:?}", told.done, told.end)
                }
            }
        }
    }
    for (n, side) in sides.iter().enumerate() {
        // What was posted after the end. SAFETY: one thread takes events.
        while let Ok(event) = unsafe { side.all.dequeue() } {
            told.note(n, &event);
        }
    }
    told
}

fn connected() -> [Side; 2] {
    let [a, b] = [Side::new(), Side::new()];
    let psp = psp::create(b.ia, Port::Any, b.all, DAT_PSP_CONSUMER_FLAG).unwrap();
    let to = "127.0.0.1:0".parse().unwrap();
    a.ep.connect(to, psp.qualifier(), PATIENCE, b"", DAT_QOS_BEST_EFFORT, 0).unwrap();
    let start = Instant::now();
    let (mut accepted, mut established) = (false, 0);
    while established < 2 {
        assert!(
            start.elapsed() < Duration::from_micros(PATIENCE.into()),
            "not connected: accepted {accepted}"
        );
        for side in [&a, &b] {
            // SAFETY: one thread takes events.
            let Ok(event) = (unsafe { side.all.dequeue() }) else { continue };
            match event.event_number {
                DAT_CONNECTION_REQUEST_EVENT => {
                    // SAFETY: the number says which member; the request is live until it is answered.
                    let request = unsafe {
                        handle::get::<Cr<Tcp>>(event.event_data.cr_arrival_event_data.cr_handle)
                    };
                    // SAFETY: nobody uses the request any more.
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
        // SAFETY: nobody uses it any more.
        unsafe { ia::close(side.ia, DAT_CLOSE_ABRUPT_FLAG) }.unwrap();
    }
}

/// Calls of the test with both ways of losing memory; `flow` has two connected sides, and memory of the first.
fn each_loss(flow: impl Fn(&[Side; 2], &Mapped, (Loss, Style))) {
    for loss in [Loss::Protected, Loss::Cut] {
        for style in [Style::Polls, Style::Waits] {
            let (sides, memory) = (connected(), Mapped::new());
            flow(&sides, &memory, (loss, style));
            close(sides);
            drop(memory);
        }
    }
}

/// Octets that go away of the end of a message which both sockets have room for, so that no poller tells of
/// it: a page, and what is more than one piece of a kernel's copy.
const ENDS: [usize; 4] = [4 << 10, 20 << 10, 36 << 10, 100 << 10];
/// That message.
const SHORT: usize = 256 << 10;

const BROKEN: Option<DAT_EVENT_NUMBER> = Some(DAT_CONNECTION_EVENT_BROKEN);

#[test]
fn a_send_from_memory_that_is_gone() {
    each_loss(|[a, b], memory, (loss, style)| {
        let (lmr, sink) = (a.register(memory), Mapped::new());
        let place = b.register(&sink);
        for id in [1, 2] {
            b.receive(part(place, &sink, 0, SIZE), id);
        }
        memory.lose(loss, HALF);
        // The first is as good as ever, though both are given to the kernel together.
        a.send(part(lmr, memory, 0, HALF / 4), 11);
        a.send(part(lmr, memory, HALF, HALF), 12);
        a.send(part(lmr, memory, 0, 8), 13);
        let told = until_ended([a, b], style);
        let failed = (12, DAT_DTO_ERR_LOCAL_PROTECTION);
        assert_eq!(
            told.done[0],
            [(11, DAT_DTO_SUCCESS), failed, (13, DAT_DTO_ERR_FLUSHED)],
            "{loss:?} {style:?}"
        );
        assert_eq!(
            told.done[1],
            [(1, DAT_DTO_SUCCESS), (2, DAT_DTO_ERR_FLUSHED)],
            "{loss:?} {style:?}"
        );
        assert_eq!(told.end, [BROKEN; 2], "{loss:?} {style:?}");
    });
}

#[test]
fn a_send_of_which_the_second_half_is_gone() {
    each_loss(|[a, b], memory, (loss, style)| {
        let (lmr, sink) = (a.register(memory), Mapped::new());
        let place = b.register(&sink);
        b.receive(part(place, &sink, 0, SIZE), 1);
        memory.lose(loss, HALF);
        a.send(part(lmr, memory, 0, SIZE), 11);
        let told = until_ended([a, b], style);
        assert_eq!(told.done[0], [(11, DAT_DTO_ERR_LOCAL_PROTECTION)], "{loss:?} {style:?}");
        assert!(
            told.done[1].iter().all(|&(_, status)| status != DAT_DTO_SUCCESS),
            "{loss:?} {style:?}"
        );
        assert_eq!(told.end, [BROKEN; 2], "{loss:?} {style:?}");
    });
}

#[test]
fn a_peer_reads_memory_that_is_gone() {
    each_loss(|[a, b], memory, (loss, style)| {
        let (lmr, sink) = (a.register(memory), Mapped::new());
        let place = b.register(&sink);
        memory.lose(loss, 0);
        let (to, from) = (part(place, &sink, 0, SIZE), remote(lmr, memory));
        // SAFETY: one thread posts; the sink is registered.
        unsafe { b.ep.post_rdma_read(&[to], 21, from, SIZE as u64, DAT_COMPLETION_DEFAULT_FLAG) }
            .unwrap();
        let told = until_ended([a, b], style);
        assert_eq!(told.done[1], [(21, DAT_DTO_ERR_REMOTE_ACCESS)], "{loss:?} {style:?}");
        assert_eq!(told.end, [BROKEN; 2], "{loss:?} {style:?}");
    });
}

#[test]
fn a_message_arrives_for_memory_of_which_half_is_gone() {
    each_loss(|[a, b], memory, (loss, style)| {
        let (lmr, source) = (a.register(memory), Mapped::new());
        let from = b.register(&source);
        a.receive(part(lmr, memory, 0, SIZE), 1);
        memory.lose(loss, HALF);
        b.send(part(from, &source, 0, SIZE), 11);
        let told = until_ended([a, b], style);
        assert_eq!(told.done[0], [(1, DAT_DTO_ERR_LOCAL_PROTECTION)], "{loss:?} {style:?}");
        assert_eq!(told.end, [BROKEN; 2], "{loss:?} {style:?}");
    });
}

#[test]
fn a_read_goes_to_memory_of_which_half_is_gone() {
    each_loss(|[a, b], memory, (loss, style)| {
        let (lmr, source) = (a.register(memory), Mapped::new());
        let from = b.register(&source);
        memory.lose(loss, HALF);
        let (to, from) = (part(lmr, memory, 0, SIZE), remote(from, &source));
        // SAFETY: one thread posts; what becomes of the sink is what is tested.
        unsafe { a.ep.post_rdma_read(&[to], 21, from, SIZE as u64, DAT_COMPLETION_DEFAULT_FLAG) }
            .unwrap();
        let told = until_ended([a, b], style);
        assert_eq!(told.done[0], [(21, DAT_DTO_ERR_LOCAL_PROTECTION)], "{loss:?} {style:?}");
        assert_eq!(told.end, [BROKEN; 2], "{loss:?} {style:?}");
    });
}

#[test]
fn a_peer_writes_to_memory_of_which_half_is_gone() {
    each_loss(|[a, b], memory, (loss, style)| {
        let (lmr, source) = (a.register(memory), Mapped::new());
        let from = b.register(&source);
        memory.lose(loss, HALF);
        let (from, to) = (part(from, &source, 0, SIZE), remote(lmr, memory));
        // SAFETY: one thread posts; the source is registered.
        unsafe { b.ep.post_rdma_write(&[from], 21, to, SIZE as u64, DAT_COMPLETION_DEFAULT_FLAG) }
            .unwrap();
        let told = until_ended([a, b], style);
        assert!(told.done[0].is_empty(), "{loss:?} {style:?}");
        assert_eq!(told.end, [BROKEN; 2], "{loss:?} {style:?}");
    });
}

#[test]
fn a_short_send_of_which_the_end_is_gone() {
    for end in ENDS {
        each_loss(|[a, b], memory, (loss, style)| {
            let (lmr, sink) = (a.register(memory), Mapped::new());
            let place = b.register(&sink);
            b.receive(part(place, &sink, 0, SIZE), 1);
            memory.lose(loss, SHORT - end);
            a.send(part(lmr, memory, 0, SHORT), 11);
            let told = until_ended([a, b], style);
            assert_eq!(
                told.done[0],
                [(11, DAT_DTO_ERR_LOCAL_PROTECTION)],
                "{end} {loss:?} {style:?}"
            );
            assert!(
                told.done[1].iter().all(|&(_, status)| status != DAT_DTO_SUCCESS),
                "{end} {loss:?} {style:?}"
            );
            assert_eq!(told.end, [BROKEN; 2], "{end} {loss:?} {style:?}");
        });
    }
}

#[test]
fn a_short_message_arrives_for_memory_of_which_the_end_is_gone() {
    for end in ENDS {
        each_loss(|[a, b], memory, (loss, style)| {
            let (lmr, source) = (a.register(memory), Mapped::new());
            let from = b.register(&source);
            a.receive(part(lmr, memory, 0, SIZE), 1);
            memory.lose(loss, SHORT - end);
            b.send(part(from, &source, 0, SHORT), 11);
            let told = until_ended([a, b], style);
            assert_eq!(
                told.done[0],
                [(1, DAT_DTO_ERR_LOCAL_PROTECTION)],
                "{end} {loss:?} {style:?}"
            );
            assert_eq!(told.end, [BROKEN; 2], "{end} {loss:?} {style:?}");
        });
    }
}
