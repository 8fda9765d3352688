//! Adapters with several engines: threads with connections of their own, and completion queues that
//! several engines use.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use dat_core::provider::{Provider, Queue, Transport, WcStatus};
use provider_mem::contract::rig::{
    DEPTH, EVENT_TIMEOUT, End, Event, Log, QUEUE, Rig, SEND, Service, cfg, pattern, poll, signalled,
};
use provider_tcp_emu::{Tcp, TcpEmu};
use waiting::Wake;

/// The size of each message, in octets.
const LEN: usize = 1000;
/// The number of messages in each direction.
const MESSAGES: u64 = 200;

fn open(params: &str) -> Tcp {
    TcpEmu.open("tcp-emu", params).unwrap_or_else(|error| panic!("{params}: {error}"))
}

fn engines(t: &Tcp) -> u64 {
    let counters = t.counters();
    counters.iter().find(|(name, _)| name == "engines").expect("a counter").1
}

/// Waits in the way of dat_evd_wait until the next completion of a receive.
fn wait(end: &End<'_, Tcp>, sleeps: bool) -> (u64, WcStatus) {
    let wake = Wake::new();
    let limit = Instant::now() + EVENT_TIMEOUT;
    loop {
        if let Some(wc) = poll::<Tcp>(&end.recvs, 1).first() {
            return (wc.id, wc.status);
        }
        assert!(Instant::now() < limit, "a message is lost");
        match sleeps {
            // Nothing signals `wake`, so the sleep ends with the deadline.
            true => {
                let tick = Instant::now() + std::time::Duration::from_micros(50);
                end.t.sleep_on(&end.recvs, &wake, Some(tick));
            }
            false => end.t.progress_on(&end.recvs),
        }
    }
}

/// Exchanges messages, one at a time in each direction, in the thread of one end.
fn exchange(end: &End<'_, Tcp>, seed: u64, is_first: bool, sleeps: bool) {
    let expected = |n| pattern(seed << 32 | n, LEN);
    let receive = |n| end.recv(n, &[end.mem.segment(LEN, LEN)]);
    receive(0);
    if is_first {
        // If the other end has not posted its receive yet, the message waits.
        end.mem.write(0, &expected(0));
        end.send(0, &[end.mem.segment(0, LEN)]);
    }
    for n in 0..MESSAGES {
        assert_eq!(wait(end, sleeps), (n, WcStatus::Success));
        assert_eq!(end.mem.read(LEN, LEN), expected(n));
        let next = n + u64::from(is_first);
        if n + 1 < MESSAGES {
            receive(n + 1);
        }
        if next < MESSAGES {
            end.mem.write(0, &expected(next));
            end.send(next, &[end.mem.segment(0, LEN)]);
        }
        poll::<Tcp>(&end.requests, QUEUE);
    }
}

#[test]
fn threads_with_connections_of_their_own_have_engines_of_their_own() {
    for (params, sleeps) in [
        ("127.0.0.1 threads=3", false),
        ("127.0.0.1 threads=3", true),
        ("127.0.0.1 threads=3 shm=off", true),
        ("127.0.0.1 threads=3 crc=on", false),
        ("127.0.0.1 threads=1", true),
    ] {
        let (ta, tb) = (open(params), open(params));
        let rig = Rig { a: &ta, b: &tb };
        let pairs: Vec<_> = (0..4).map(|_| rig.pair()).collect();
        let expected = if params.contains("threads=1") { 1 } else { 3 };
        assert_eq!([engines(&ta), engines(&tb)], [expected; 2], "{params}");
        std::thread::scope(|threads| {
            for (seed, (a, b)) in (0..).zip(&pairs) {
                threads.spawn(move || exchange(a, seed, true, sleeps));
                threads.spawn(move || exchange(b, seed, false, sleeps));
            }
        });
    }
}

/// The requests of two endpoints complete in one queue, although their receives complete in queues
/// of different engines.
#[test]
fn a_completion_queue_of_several_engines_loses_nothing() {
    let (ta, tb) = (open("127.0.0.1 threads=2"), open("127.0.0.1"));
    let rig = Rig { a: &ta, b: &tb };
    let first = End::new(&ta);
    let second = End::new(&ta);
    // The receives of this endpoint belong to the engine of the second one, and its requests to
    // that of the first one.
    let log = Log::new(&ta);
    let both = cfg::<Tcp>(&second.pd, &first.requests, &second.recvs, None);
    let both = ta.qp(both, log.sink()).expect("queue pair");
    assert_eq!(engines(&ta), 2);
    let service = Service::new(&tb, 8);
    let peers: Vec<_> = (0..2).map(|_| End::new(&tb)).collect();
    let accept = |peer: &End<'_, Tcp>| {
        let (request, ..) = service.request(&rig);
        peer.qp.accept(request, b"", DEPTH).expect("the request is accepted");
    };
    first.connect(service.port(&tb), b"", None);
    accept(&peers[0]);
    let to = dat_core::provider::Connect {
        addr: ta.attrs().address,
        port: service.port(&tb),
        private: b"",
        timeout: None,
        depth: DEPTH,
    };
    both.connect(&to).expect("the attempt to connect begins");
    accept(&peers[1]);
    for log in [&first.log, &log] {
        assert!(matches!(rig.next("the connection", log), Event::Established { .. }));
    }

    let completed = AtomicUsize::new(0);
    let total = 2 * MESSAGES as usize;
    let outstanding_max = QUEUE / 2;
    std::thread::scope(|threads| {
        let queue_pairs = [&first.qp, &both];
        let memory = [&first.mem, &second.mem];
        for (qp, mem) in queue_pairs.into_iter().zip(memory) {
            let completed = &completed;
            threads.spawn(move || {
                for n in 0..MESSAGES as usize {
                    while n > completed.load(Ordering::Acquire) / 2 + outstanding_max / 2 {
                        std::thread::yield_now();
                    }
                    let segments = [mem.segment(0, 1)];
                    let wr = signalled(n as u64, SEND, &segments);
                    // SAFETY: the memory lives longer, and only this thread posts.
                    unsafe { qp.post_send(&wr) }.expect("the post succeeds");
                }
            });
        }
        for peer in &peers {
            threads.spawn(move || {
                let receive = |n| peer.recv(n, &[peer.mem.segment(0, 8)]);
                (0..QUEUE as u64 / 2).for_each(receive);
                for n in 0..MESSAGES {
                    assert_eq!(wait(peer, false), (n, WcStatus::Success));
                    if n + (QUEUE as u64) / 2 < MESSAGES {
                        receive(n + QUEUE as u64 / 2);
                    }
                }
            });
        }
        // The completions of each queue pair are in the order of its posts, so each number comes
        // once from each.
        let mut seen = vec![0_u8; MESSAGES as usize];
        let limit = Instant::now() + EVENT_TIMEOUT;
        while completed.load(Ordering::Relaxed) < total {
            assert!(Instant::now() < limit, "a completion is lost");
            ta.progress_on(&first.requests);
            for wc in poll::<Tcp>(&first.requests, QUEUE) {
                assert_eq!(wc.status, WcStatus::Success);
                seen[wc.id as usize] += 1;
                completed.fetch_add(1, Ordering::Release);
            }
        }
        assert!(seen.iter().all(|&times| times == 2), "each request completes once");
    });
}
