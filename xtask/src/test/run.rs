//! Runs jobs in parallel and shows their progress.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};
use std::{io, thread};

use anyhow::{Result, anyhow};

use super::job::{Job, Load, Prepared, Runs, Stage};
use super::job_slots::JobSlots;
use super::process::{Output, Process};
use super::screen::{Colour, Screen, clock};
use super::tally::Tally;
use super::times::Times;

/// A run of jobs.
pub(crate) struct Run<'a> {
    screen: &'a mut Screen,
    times: &'a mut Times,
    logs: PathBuf,
    slots: JobSlots,
    began: Instant,
    /// The names of the stages that are being prepared.
    preparing: BTreeMap<usize, &'static str>,
    left: Vec<Job>,
    running: BTreeMap<usize, Process>,
    /// The jobs that were started.
    started: usize,
    tally: Tally,
    /// The number of tests of jobs that have ended.
    done: usize,
    /// The number of failed tests of all jobs.
    failed: usize,
    slowest: Vec<(Duration, String)>,
}

enum Event {
    /// The preparation of a stage has ended.
    Prepared(usize, Result<Prepared>),
    /// A job has output or has ended.
    Job(usize, Output),
}

/// The result of a run.
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    /// The slowest tests.
    pub(crate) slowest: Vec<(Duration, String)>,
}

/// How many of the slowest tests are shown.
const SLOWEST_COUNT: usize = 8;
/// How often the screen is redrawn and jobs are checked for hangs if nothing else happens.
const REFRESH_INTERVAL: Duration = Duration::from_millis(500);

impl<'a> Run<'a> {
    pub(crate) fn new(screen: &'a mut Screen, times: &'a mut Times, logs: PathBuf) -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        Self {
            screen,
            times,
            logs,
            slots: JobSlots::of(processors),
            began: Instant::now(),
            preparing: BTreeMap::new(),
            left: Vec::new(),
            running: BTreeMap::new(),
            started: 0,
            tally: Tally::default(),
            done: 0,
            failed: 0,
            slowest: Vec::new(),
        }
    }

    /// Runs all jobs of these stages.
    pub(crate) fn run(mut self, stages: Vec<Stage>) -> Outcome {
        let (sender, events) = mpsc::channel();
        for (number, Stage { name, prepare }) in stages.into_iter().enumerate() {
            self.preparing.insert(number, name);
            let sender = sender.clone();
            thread::spawn(move || {
                let prepared = catch_unwind(AssertUnwindSafe(prepare));
                let prepared = prepared.unwrap_or_else(|_| Err(anyhow!("panicked, see above")));
                sender.send(Event::Prepared(number, prepared))
            });
        }
        while !(self.preparing.is_empty() && self.left.is_empty() && self.running.is_empty()) {
            self.next(&events, &sender);
            self.check_for_hangs();
            self.show();
        }
        self.screen.clear();
        self.slowest.truncate(SLOWEST_COUNT);
        Outcome { tally: self.tally, slowest: self.slowest }
    }

    /// Waits for the next event and handles it.
    fn next(&mut self, events: &Receiver<Event>, sender: &Sender<Event>) {
        match events.recv_timeout(REFRESH_INTERVAL) {
            Ok(Event::Prepared(stage, prepared)) => self.prepared(stage, prepared),
            Ok(Event::Job(job, Output::Text(octets))) => self.take_output(job, &octets),
            Ok(Event::Job(job, Output::End(status))) => self.ended(job, &status),
            // The channel cannot be disconnected, because this thread also has a sender.
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
        }
        self.start(sender);
    }

    fn prepared(&mut self, stage: usize, prepared: Result<Prepared>) {
        let Some(name) = self.preparing.remove(&stage) else { return };
        match prepared {
            Ok(Prepared::Jobs(jobs)) => {
                // Long jobs start first, so that no long job runs alone at the end. Jobs whose time
                // is unknown count as long. The jobs of this stage are inserted at the front,
                // because jobs that need preparation are the longest.
                self.left.splice(0..0, jobs);
                let time = |job: &Job| self.times.of(&job.name).unwrap_or(Duration::MAX);
                self.left.sort_by_key(|job| std::cmp::Reverse(time(job)));
            }
            Ok(Prepared::Cannot(why)) => self.tally.add(Tally::of_skip(name, &why)),
            Err(error) => self.fails(name, &format!("{error:#}")),
        }
    }

    /// Counts the failure of a step that is not a test.
    fn fails(&mut self, what: &str, why: &str) {
        self.screen.print_marked(Colour::Red, "FAILED", format!("{what}: {why}"));
        self.failed += 1;
        self.tally.add(Tally::of_failure(what, why));
    }

    /// Starts jobs while there are free slots.
    fn start(&mut self, sender: &Sender<Event>) {
        loop {
            let left: Vec<Load> = self.left.iter().map(|job| job.load).collect();
            let running: Vec<Load> = self.running.values().map(|job| job.load).collect();
            let Some(next) = self.slots.next(&left, &running) else { return };
            let (job, number, sender) = (self.left.remove(next), self.started, sender.clone());
            let name = job.name.clone();
            let tell = move |heard| sender.send(Event::Job(number, heard)).is_ok();
            match Process::start(job, &self.logs, tell) {
                Ok(process) => drop(self.running.insert(number, process)),
                Err(error) => self.fails(&name, &format!("{error:#}")),
            }
            self.started += 1;
        }
    }

    fn take_output(&mut self, job: usize, octets: &[u8]) {
        let Some(process) = self.running.get_mut(&job) else { return };
        for test in process.take_output(octets) {
            if test.failed {
                self.failed += 1;
                process.shown_failures += 1;
                let again = format!("cargo xtask test '{}'", test.name);
                let line = format!("{} [{}]   again: {again}", test.name, process.name);
                self.screen.print_marked(Colour::Red, "FAILED", line);
            }
            self.slowest.push((test.took, test.name));
        }
        self.slowest.sort_by(|one, other| other.cmp(one));
        self.slowest.truncate(10 * SLOWEST_COUNT);
    }

    fn ended(&mut self, job: usize, status: &io::Result<ExitStatus>) {
        let Some(process) = self.running.remove(&job) else { return };
        let (name, log, time) =
            (process.name.clone(), process.log_path.clone(), process.began.elapsed());
        self.done += process.done;
        let (shown_failures, test) = (process.shown_failures, process.test.clone());
        let (tally, failures) = process.end(status);
        if tally.failed() > shown_failures {
            // The job failed, but not because of a test: the program has crashed, or the count of
            // tests is wrong.
            self.failed += tally.failed() - shown_failures;
            let at = test.map(|test| format!(", in {test}")).unwrap_or_default();
            let status = status.as_ref().map_or_else(ToString::to_string, ToString::to_string);
            self.screen.print_marked(Colour::Red, "FAILED", format!("{name}: {status}{at}"));
        }
        if let Some(failures) = failures {
            self.screen.print(format!(
                "---- {name}, whole in {} \
                                       ----\n{failures}\n----",
                log.display()
            ));
        } else {
            self.times.set(name, time);
        }
        self.tally.add(tally);
    }

    /// Kills jobs that hang.
    fn check_for_hangs(&mut self) {
        let mut lines = Vec::new();
        for process in self.running.values_mut() {
            lines.extend(process.check_for_hang());
        }
        for line in lines {
            self.screen.print_marked(Colour::Red, "HANGS", line);
        }
        let lost: Vec<usize> = self
            .running
            .iter()
            .filter(|(_, process)| process.output_outlives_process())
            .map(|(&job, _)| job)
            .collect();
        for job in lost {
            self.ended(
                job,
                &Err(io::Error::other("a process that the job has started does not end")),
            );
        }
    }

    fn show(&mut self) {
        let done = self.done + self.running.values().map(|process| process.done).sum::<usize>();
        let listed = |job: &Job| if let Runs::Program(tests) = job.runs { tests } else { 0 };
        let total = self.done
            + self.running.values().map(|process| process.tests).sum::<usize>()
            + self.left.iter().map(listed).sum::<usize>();
        let elapsed = self.began.elapsed();
        let failed =
            if self.failed > 0 { format!(", {} FAILED", self.failed) } else { String::new() };
        // The job whose current test has run longest comes first.
        let mut now: Vec<(Duration, String)> = self
            .running
            .values()
            .map(|process| (process.test_began.elapsed(), process.label()))
            .collect();
        now.sort_by(|one, other| other.cmp(one));
        let names = now.into_iter().map(|(time, name)| format!("{name} ({} s)", time.as_secs()));
        let names: Vec<String> = names
            .chain(self.preparing.values().map(|name| format!("preparing {name}")))
            .take(3)
            .collect();
        let names = names.join(", ");
        self.screen.progress(|| {
            format!("{:>5}  {done} of {total} tests{failed}: {names}", clock(elapsed))
        });
    }
}
