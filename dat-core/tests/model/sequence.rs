//! A test with one thread that calls two adapters and checks every result and every event.

use dat_sys::*;
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};

use crate::call::{self, Call, EPS, EVDS, Step, listing};
use crate::client;
use crate::model::Model;
use crate::queue::{Event, Source};
use crate::world::{Answer, ObservedEvent, World};

/// Makes calls and compares the results with the model.
struct Comparison {
    world: World,
    model: Model,
    cookie: u64,
}

impl Comparison {
    fn make(&mut self, call: Call) -> Result<(), String> {
        self.answer(call)?;
        for ep in (0..EPS).filter(|ep| self.model.ep(*ep).is_some()) {
            let wrong = |why| format!("ep{ep} after {call:?}: {why}");
            self.model.check_reported(ep, &self.world.reported(ep)).map_err(wrong)?;
        }
        Ok(())
    }

    fn answer(&mut self, call: Call) -> Result<(), String> {
        let verdict = self.model.judge(call);
        if verdict.slot_occupied {
            return Ok(());
        }
        self.cookie += 1;
        let answer = self.world.make(call, self.cookie);
        let kind = answer.kind;
        let complain = |why: &str| Err(format!("{call:?} returned {kind:#x}, {why}"));
        if !verdict.must.is_empty() {
            let must = &verdict.must;
            return if must.contains(&kind) || verdict.may.contains(&kind) {
                Ok(())
            } else {
                complain(&format!("not one of {must:#x?}"))
            };
        }
        match call {
            Call::EvdDequeue { evd } => self.dequeued(evd, 1, DAT_QUEUE_EMPTY, &answer),
            Call::EvdWait { evd, threshold }
                if kind == DAT_SUCCESS || kind == DAT_TIMEOUT_EXPIRED =>
            {
                self.dequeued(evd, threshold as usize, DAT_TIMEOUT_EXPIRED, &answer)
            }
            Call::CnoWait { cno } => self.cno_waited(cno, &answer),
            _ if kind == DAT_SUCCESS => self.model.apply(call, self.cookie, &answer),
            _ if verdict.may.contains(&kind) => Ok(()),
            _ => return complain("but should have succeeded"),
        }
        .map_err(|why| format!("{call:?}: {why}"))
    }

    /// Checks a dat_evd_dequeue, or a dat_evd_wait for `threshold` events with a timeout of 0.
    fn dequeued(
        &mut self,
        slot: usize,
        threshold: usize,
        nothing: DAT_RETURN,
        answer: &Answer,
    ) -> Result<(), String> {
        let Some(evd) = self.model.evd[slot].as_mut() else { return Ok(()) };
        let (least, most) = evd.queue.count().into_inner();
        let Some(seen) = &answer.event else {
            let broken = evd.overflow && answer.kind == DAT_INVALID_STATE;
            return if answer.kind != nothing && !broken {
                Err(format!(
                    "the call returned {:#x}, but {least} to {most} events are queued",
                    answer.kind
                ))
            } else if least >= threshold {
                Err(format!(
                    "the call returned no event, but at least {least} are queued: {:#?}",
                    evd.queue
                ))
            } else if answer.kind == DAT_TIMEOUT_EXPIRED && !(least..=most).contains(&answer.more) {
                Err(format!("nmore is {}, but {least} to {most} events are queued", answer.more))
            } else {
                Ok(())
            };
        };
        if most < threshold {
            return Err(format!(
                "the call returned an event, but only {most} are queued: {seen:?}"
            ));
        }
        let (source, event) = evd.queue.take(seen)?;
        let left = evd.queue.count();
        // Optional events that did not arrive are not counted in `nmore`.
        let (low, high) = (least.saturating_sub(1), most - 1);
        if nothing == DAT_TIMEOUT_EXPIRED && !(low..=high).contains(&answer.more) {
            return Err(format!("nmore is {} but should be {low} to {high}", answer.more));
        }
        if *left.start() == 0 {
            evd.triggered = false;
        }
        self.model.may_trigger(slot);
        self.taken(source, &event, seen);
        Ok(())
    }

    /// Records that the consumer has taken the event.
    fn taken(&mut self, source: Source, event: &Event, seen: &ObservedEvent) {
        match (source, event, seen) {
            (_, Event::Arrival { attempt, .. }, _) => self.model.cr.push(*attempt),
            (Source::Receives(i) | Source::Requests(i), Event::Dto { cookie, .. }, _) => {
                if let Some(ep) = self.model.ep.iter_mut().flatten().find(|ep| ep.incarnation == i)
                {
                    let receive = matches!(source, Source::Receives(_));
                    let open = if receive { &mut ep.open_recvs } else { &mut ep.open_requests };
                    // When the completion of this request is taken, this request and all suppressed
                    // requests before it no longer occupy the queue.
                    if let Some(at) = open.iter().position(|open| open == cookie) {
                        open.drain(..=at);
                    }
                }
            }
            _ => {}
        }
    }

    fn cno_waited(&mut self, slot: usize, answer: &Answer) -> Result<(), String> {
        let due = self.model.evd.iter().flatten().any(|evd| evd.cno == Some(slot) && evd.triggered);
        let Some(cno) = self.model.cno[slot].as_mut() else { return Ok(()) };
        let may = due || cno.may;
        match answer.kind {
            DAT_SUCCESS if may => {
                // The returned EVD is a hint and may be stale, but it must not be NULL.
                if answer.handle == 0 {
                    return Err("no EVD handle".into());
                }
                for evd in self.model.evd.iter_mut().flatten().filter(|evd| evd.cno == Some(slot)) {
                    evd.triggered = false;
                }
                Ok(())
            }
            DAT_QUEUE_EMPTY if !due => {
                cno.may = false;
                match answer.handle {
                    0 => Ok(()),
                    _ => Err("an EVD handle without a trigger".into()),
                }
            }
            kind => Err(format!(
                "returned {kind:#x}; must be triggered: {due}, may be triggered: {may}"
            )),
        }
    }

    /// Takes all events that must arrive, and compares the numbers of remaining objects.
    fn end(mut self) -> Result<(), String> {
        for evd in 0..EVDS {
            while *self.model.evd(evd).map_or(0..=0, |evd| evd.queue.count()).start() > 0 {
                self.make(Call::EvdDequeue { evd })?;
            }
        }
        for side in 0..2 {
            while let Some((event, _)) = self.world.async_event(side) {
                if event == DAT_ASYNC_ERROR_EVD_OVERFLOW && self.model.overflow {
                    continue;
                }
                return Err(format!("asynchronous event {event:#x} on adapter {side}"));
            }
        }
        // The model does not predict how closing one adapter affects the other.
        for side in 0..2 {
            let left = self.model.objects(side);
            let answer = self.world.close(side, DAT_CLOSE_GRACEFUL_FLAG);
            let expected = if left > 0 { DAT_INVALID_STATE } else { DAT_SUCCESS };
            if answer != expected {
                return Err(format!(
                    "dat_ia_close(ia{side}, graceful) with {left} objects returned {answer:#x}"
                ));
            }
            if left > 0 {
                let answer = self.world.close(side, DAT_CLOSE_ABRUPT_FLAG);
                if answer != DAT_SUCCESS {
                    return Err(format!("dat_ia_close(ia{side}, abrupt): {answer:#x}"));
                }
            }
        }
        Ok(())
    }
}

fn compare(thread_safe: bool, steps: &[Step]) -> Result<(), String> {
    let (table, name) = client::mem(thread_safe);
    let handles = dat_core::handle::live_count();
    let world = World::open(table, &name);
    let mut comparison = Comparison { world, model: Model::default(), cookie: 0 };
    for call in
        call::prelude().into_iter().chain(steps.iter().flat_map(|step| step.0.iter().copied()))
    {
        comparison.make(call)?;
    }
    comparison.end()?;
    match dat_core::handle::live_count() - handles {
        0 => Ok(()),
        left => Err(format!("{left} handles are left")),
    }
}

#[test]
fn random_calls_return_what_the_standard_says() {
    let _alone = crate::alone();
    let input = (any::<bool>(), call::sequence(60));
    let mut runner = TestRunner::new(crate::cases(4000));
    let outcome = runner.run(&input, |(thread_safe, steps)| {
        compare(thread_safe, &steps).map_err(TestCaseError::fail)
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(why, (_, steps))) => {
            panic!("{why}\nafter the calls of `prelude`, and then\n{}", listing(&steps))
        }
        Err(abort) => panic!("{abort}"),
    }
}
