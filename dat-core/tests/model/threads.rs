//! A test with several threads and one thread-safe adapter on each side of a connection. Whatever
//! the threads call at the same time, no event may be lost or duplicated, each stream must keep its
//! order, and no object may be left at the end.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Barrier;

use dat_core::Error;
use dat_sys::*;
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};

use crate::client::{self, Side, cookie, dat};

const THREADS: usize = 3;

/// One operation of a thread. `side` is 0 or 1.
#[derive(Clone, Copy, Debug)]
enum Op {
    PostSe {
        side: usize,
    },
    Dequeue {
        side: usize,
    },
    Wait {
        side: usize,
        threshold: DAT_COUNT,
    },
    PostSend {
        side: usize,
    },
    PostRecv {
        side: usize,
    },
    SetWaitable {
        side: usize,
        waitable: bool,
    },
    Enable {
        side: usize,
        enable: bool,
    },
    ModifyCno {
        side: usize,
        attach: bool,
    },
    CnoWait {
        side: usize,
    },
    Resize {
        side: usize,
        qlen: DAT_COUNT,
    },
    Status {
        side: usize,
    },
    /// Creates an object and frees it.
    LmrCycle {
        side: usize,
    },
    EvdCycle {
        side: usize,
    },
    EpCycle {
        side: usize,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let side = || 0..2usize;
    prop_oneof![
        4 => side().prop_map(|side| Op::PostSe { side }),
        4 => side().prop_map(|side| Op::Dequeue { side }),
        3 => (side(), 1..3).prop_map(|(side, threshold)| Op::Wait { side, threshold }),
        4 => side().prop_map(|side| Op::PostSend { side }),
        4 => side().prop_map(|side| Op::PostRecv { side }),
        1 => (side(), any::<bool>())
            .prop_map(|(side, waitable)| Op::SetWaitable { side, waitable }),
        1 => (side(), any::<bool>()).prop_map(|(side, enable)| Op::Enable { side, enable }),
        1 => (side(), any::<bool>()).prop_map(|(side, attach)| Op::ModifyCno { side, attach }),
        1 => side().prop_map(|side| Op::CnoWait { side }),
        1 => (side(), 256..512).prop_map(|(side, qlen)| Op::Resize { side, qlen }),
        1 => side().prop_map(|side| Op::Status { side }),
        1 => side().prop_map(|side| Op::LmrCycle { side }),
        1 => side().prop_map(|side| Op::EvdCycle { side }),
        1 => side().prop_map(|side| Op::EpCycle { side }),
    ]
}

/// The events that one thread causes on one side. The consumer must get them in the order in which
/// the thread caused them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Software,
    Receives,
    Requests,
}

/// Identifies an event by its side, its stream, and the number that the thread gave it.
type Mark = (usize, Source, u64);

/// The events that a thread has caused and taken.
#[derive(Default)]
struct Log {
    made: Vec<Mark>,
    taken: Vec<Mark>,
    disconnected: [usize; 2],
}

/// The objects that the threads share.
#[derive(Clone, Copy)]
struct SharedObjects {
    sides: [(Side, DAT_EP_HANDLE); 2],
    cnos: [DAT_CNO_HANDLE; 2],
}

// SAFETY: handles of a thread-safe adapter may be used from any thread.
unsafe impl Send for SharedObjects {}
// SAFETY: handles of a thread-safe adapter may be used from any thread.
unsafe impl Sync for SharedObjects {}

impl SharedObjects {
    /// Performs `op`. `number` is unique, and a thread uses increasing numbers.
    fn perform(&self, op: Op, number: u64, log: &mut Log) -> Result<(), String> {
        let ok = &[][..];
        match op {
            Op::PostSe { side } => {
                let mut event = DAT_EVENT::zeroed();
                event.event_number = DAT_SOFTWARE_EVENT;
                event.event_data.software_event_data =
                    DAT_SOFTWARE_EVENT_DATA { pointer: number as *mut c_void };
                let Side { table, evd, .. } = self.sides[side].0;
                let answer = dat!(table, evd_post_se_func(evd, &event));
                self.made(answer, op, ok, (side, Source::Software, number), log)
            }
            Op::PostSend { side } | Op::PostRecv { side } => {
                let (Side { table, .. }, ep) = self.sides[side];
                let (none, cookie, full) =
                    (null_mut(), cookie(number), &[DAT_INSUFFICIENT_RESOURCES][..]);
                match op {
                    Op::PostSend { .. } => {
                        let answer = dat!(table, ep_post_send_func(ep, 0, none, cookie, 0));
                        self.made(answer, op, full, (side, Source::Requests, number), log)
                    }
                    _ => {
                        let answer = dat!(table, ep_post_recv_func(ep, 0, none, cookie, 0));
                        self.made(answer, op, full, (side, Source::Receives, number), log)
                    }
                }
            }
            Op::Dequeue { side } => self.take(side, None, log).map(drop),
            Op::Wait { side, threshold } => self.take(side, Some(threshold), log).map(drop),
            other => self.control(other),
        }
    }

    fn made(
        &self,
        answer: Result<(), Error>,
        op: Op,
        may: &[DAT_RETURN],
        mark: Mark,
        log: &mut Log,
    ) -> Result<(), String> {
        if answer.is_ok() {
            log.made.push(mark);
        }
        allowed(answer, op, may)
    }

    /// Takes an event with dat_evd_dequeue, or with dat_evd_wait for a threshold with a timeout of
    /// 0. Returns false if there was no event.
    fn take(
        &self,
        side: usize,
        threshold: Option<DAT_COUNT>,
        log: &mut Log,
    ) -> Result<bool, String> {
        let Side { table, evd, .. } = self.sides[side].0;
        let (mut event, mut more) = (DAT_EVENT::zeroed(), 0);
        let answer = match threshold {
            None => dat!(table, evd_dequeue_func(evd, &mut event)),
            Some(threshold) => dat!(table, evd_wait_func(evd, 0, threshold, &mut event, &mut more)),
        };
        if let Err(error) = answer {
            let nothing = if threshold.is_some() { DAT_TIMEOUT_EXPIRED } else { DAT_QUEUE_EMPTY };
            // Another thread is waiting at this moment, or the EVD is unwaitable.
            return match error.kind() {
                kind if kind == nothing || kind == DAT_INVALID_STATE => Ok(false),
                _ => Err(format!("dequeue or wait, threshold {threshold:?}: {error:?}")),
            };
        }
        match event.event_number {
            DAT_SOFTWARE_EVENT => {
                // SAFETY: the number of the event says that this member of the union is valid.
                let number = unsafe { event.event_data.software_event_data.pointer } as u64;
                log.taken.push((side, Source::Software, number));
            }
            DAT_DTO_COMPLETION_EVENT => {
                // SAFETY: the number of the event says that this member of the union is valid.
                let data = unsafe { event.event_data.dto_completion_event_data };
                let receive = data.operation == DAT_DTO_RECEIVE;
                let source = if receive { Source::Receives } else { Source::Requests };
                // SAFETY: the cookie may have any 64 bits.
                log.taken.push((side, source, unsafe { data.user_cookie.as_64 }));
            }
            DAT_CONNECTION_EVENT_DISCONNECTED => log.disconnected[side] += 1,
            other => return Err(format!("event {other:#x} on side {side}")),
        }
        Ok(true)
    }

    fn control(&self, op: Op) -> Result<(), String> {
        let ok = &[][..];
        match op {
            Op::SetWaitable { side, waitable } => {
                let Side { table: t, evd, .. } = self.sides[side].0;
                let answer = match waitable {
                    true => dat!(t, evd_clear_unwaitable_func(evd)),
                    false => dat!(t, evd_set_unwaitable_func(evd)),
                };
                allowed(answer, op, ok)
            }
            Op::Enable { side, enable } => {
                let Side { table: t, evd, .. } = self.sides[side].0;
                let answer = if enable {
                    dat!(t, evd_enable_func(evd))
                } else {
                    dat!(t, evd_disable_func(evd))
                };
                allowed(answer, op, ok)
            }
            Op::ModifyCno { side, attach } => {
                let Side { table, evd, .. } = self.sides[side].0;
                let cno = if attach { self.cnos[side] } else { null_mut() };
                allowed(dat!(table, evd_modify_cno_func(evd, cno)), op, ok)
            }
            Op::CnoWait { side } => {
                let mut evd = null_mut();
                let answer =
                    dat!(self.sides[side].0.table, cno_wait_func(self.cnos[side], 0, &mut evd));
                match (answer, evd.is_null()) {
                    (Ok(()), true) => Err("dat_cno_wait: no EVD".into()),
                    (answer, _) => allowed(answer, op, &[DAT_QUEUE_EMPTY]),
                }
            }
            Op::Resize { side, qlen } => {
                let Side { table, evd, .. } = self.sides[side].0;
                // Another thread may be waiting on the EVD.
                allowed(dat!(table, evd_resize_func(evd, qlen)), op, &[DAT_INVALID_STATE])
            }
            Op::Status { side } => {
                let (Side { table, .. }, ep) = self.sides[side];
                let (mut state, mut recv, mut request) = (0, 0, 0);
                let answer =
                    dat!(table, ep_get_status_func(ep, &mut state, &mut recv, &mut request));
                match state {
                    DAT_EP_STATE_CONNECTED => allowed(answer, op, ok),
                    state => Err(format!("the state is {state}")),
                }
            }
            Op::LmrCycle { side } => {
                let mut buffer = [0; 8];
                let lmr = self.sides[side].0.register(&mut buffer);
                allowed(dat!(self.sides[side].0.table, lmr_free_func(lmr.handle)), op, ok)
            }
            Op::EvdCycle { side } => {
                let evd = self.sides[side].0.new_evd(DAT_EVD_SOFTWARE_FLAG);
                allowed(dat!(self.sides[side].0.table, evd_free_func(evd)), op, ok)
            }
            Op::EpCycle { side } => {
                let ep = self.sides[side].0.new_ep();
                allowed(dat!(self.sides[side].0.table, ep_free_func(ep)), op, ok)
            }
            _ => unreachable!("no control operation: {op:?}"),
        }
    }
}

fn allowed(answer: Result<(), Error>, op: Op, may: &[DAT_RETURN]) -> Result<(), String> {
    match answer {
        Err(error) if !may.contains(&error.kind()) => Err(format!("{op:?} answered {error:?}")),
        _ => Ok(()),
    }
}

fn race(threads: &[Vec<Op>]) -> Result<(), String> {
    let handles = dat_core::handle::live_count();
    let sides = client::connected(true);
    let shared = SharedObjects { sides, cnos: sides.map(|(side, _)| side.new_cno()) };
    let start = Barrier::new(threads.len());
    let run = |(thread, ops): (usize, &Vec<Op>)| {
        let mut log = Log::default();
        start.wait();
        for (n, op) in ops.iter().enumerate() {
            shared.perform(*op, ((thread as u64) << 32) | (n as u64 + 1), &mut log)?;
        }
        Ok::<_, String>(log)
    };
    let run = &run;
    let mut logs = std::thread::scope(|s| {
        let threads: Vec<_> =
            threads.iter().enumerate().map(|work| s.spawn(move || run(work))).collect();
        let ended = threads.into_iter().map(|t| t.join().map_err(|_| "a panic".to_owned())?);
        ended.collect::<Result<Vec<Log>, String>>()
    })?;
    let mut rest = Log::default();
    let (Side { table, .. }, ep) = sides[0];
    dat!(table, ep_disconnect_func(ep, DAT_CLOSE_ABRUPT_FLAG)).map_err(|e| format!("{e:?}"))?;
    for (side, (objects, _)) in sides.iter().enumerate() {
        while shared.take(side, None, &mut rest)? {}
        let mut event = DAT_EVENT::zeroed();
        if dat!(table, evd_dequeue_func(objects.async_evd, &mut event)).is_ok() {
            return Err(format!("asynchronous event {:#x}", event.event_number));
        }
    }
    if rest.disconnected != [1, 1] {
        return Err(format!("disconnect events: {:?}", rest.disconnected));
    }
    logs.push(rest);
    check(&logs)?;
    sides.iter().for_each(|(side, _)| side.close());
    match dat_core::handle::live_count() - handles {
        0 => Ok(()),
        left => Err(format!("{left} handles are left")),
    }
}

/// Checks that every event was taken exactly once, and that no thread took events of another thread
/// in the wrong order.
fn check(logs: &[Log]) -> Result<(), String> {
    let sorted = |marks: fn(&Log) -> &Vec<Mark>| {
        let mut all: Vec<Mark> = logs.iter().flat_map(|log| marks(log).iter().copied()).collect();
        all.sort_unstable();
        all
    };
    let (made, taken) = (sorted(|log| &log.made), sorted(|log| &log.taken));
    if made != taken {
        let lost: Vec<_> = made.iter().filter(|mark| !taken.contains(mark)).collect();
        let alien: Vec<_> = taken.iter().filter(|mark| !made.contains(mark)).collect();
        return Err(format!(
            "{} events made, {} taken; lost: {lost:?}, unknown: {alien:?}",
            made.len(),
            taken.len()
        ));
    }
    for log in logs {
        let mut last = BTreeMap::new();
        for mark @ (side, source, number) in &log.taken {
            let before = last.insert((side, source, number >> 32), number);
            if before.is_some_and(|before| before > number) {
                return Err(format!("{mark:?} was taken after {before:?}, which is later"));
            }
        }
    }
    Ok(())
}

#[test]
fn threads_neither_lose_nor_duplicate_nor_reorder_events() {
    let _alone = crate::alone();
    let threads = prop::collection::vec(prop::collection::vec(op(), 1..40), THREADS);
    let mut runner = TestRunner::new(crate::cases(1000));
    let outcome = runner.run(&threads, |threads| race(&threads).map_err(TestCaseError::fail));
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, threads)) => {
            let listing =
                |ops: &Vec<Op>| ops.iter().map(|op| format!("    {op:?}\n")).collect::<String>();
            let threads: Vec<String> = threads.iter().map(listing).collect();
            panic!("{why}\nthe threads:\n{}", threads.join("    and at the same time\n"));
        }
        Err(abort) => panic!("{abort}"),
    }
}
