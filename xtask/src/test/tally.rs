//! Counting over many test programs, from what they print with `--show-output`.
//!
//! A test says that it could not run in one of three ways, all counted as skipped and never as passed:
//! `#[ignore = "reason"]`, libtest-mimic's `Completion::ignored_with(reason)`, or a printed
//! line `SKIP: reason`.
//!
//! What only looks like a test is not counted at all: `#[ignore = "not a test: reason"]` marks the part that
//! a test runs in a process of its own, or a measurement.

use std::fmt;

/// Results so far.
#[derive(Default)]
pub(crate) struct Tally {
    passed: usize,
    failures: Vec<String>,
    skips: Vec<String>,
    /// The program that runs now: it has begun and has not printed its result yet.
    program: Option<String>,
    /// Names of failed tests of this program, as far as they were printed.
    named: Vec<String>,
    /// The successful test whose output is being shown, until it has said SKIP.
    shown: Option<String>,
    /// SKIP lines of this program: the program itself counts these tests as passed.
    said_skip: usize,
    /// All tests of this program have ended, and it prints what it has captured of their output.
    shows: bool,
    /// The same, of the tests that have passed.
    shows_successes: bool,
    /// A test that has begun and has printed something itself, so that its outcome comes on a later line.
    open: Option<String>,
    /// Ignored tests of this program, as far as they were printed.
    ignored: usize,
    /// There is one program, not a cargo that runs several.
    alone: bool,
    /// The last result that it has printed. Before that it may have printed others: the captured output of
    /// failed tests that run the program again.
    last_result: Option<String>,
    /// How many tests have passed, failed or were ignored, by the results of programs.
    counted: usize,
}

/// The end of a test, as a line of output tells it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It has passed or was ignored.
    Ended(String),
    Failed(String),
}

/// The outcome of a test in a line, if there is one. Text that the test itself has printed may come before
/// it.
fn outcome_in(text: &str) -> Option<&str> {
    let text = text.find("ignored (").map_or(text, |at| &text[at..]);
    (text == "ok" || text.ends_with("FAILED") || text.starts_with("ignored")).then_some(text)
}

impl Tally {
    /// Of a program with tests, called so.
    pub(crate) fn of_program(name: &str) -> Self {
        Self { program: Some(name.to_owned()), alone: true, ..Self::default() }
    }

    /// Of something that did not come as far as the tests.
    pub(crate) fn of_failure(what: &str, why: &str) -> Self {
        Self { failures: vec![format!("{what}: {why}")], ..Self::default() }
    }

    /// Of something that cannot be done here.
    pub(crate) fn of_skip(what: &str, why: &str) -> Self {
        Self { skips: vec![format!("{what}: {why}")], ..Self::default() }
    }

    pub(crate) fn passed(&self) -> usize {
        self.passed
    }

    pub(crate) fn failed(&self) -> usize {
        self.failures.len()
    }

    pub(crate) fn skipped(&self) -> usize {
        self.skips.len()
    }

    /// Adds another run to this one; both are finished.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failures.extend(other.failures);
        self.skips.extend(other.skips);
    }

    /// Takes the next line of output.
    pub(crate) fn line(&mut self, line: &str) -> Option<Told> {
        let text = line.trim();
        let program = text.strip_prefix("Running ").or_else(|| text.strip_prefix("Doc-tests "));
        if let Some(program) = program.filter(|_| !self.alone) {
            self.close();
            self.program = Some(program.to_owned());
        } else if let Some(result) = text.strip_prefix("test result: ") {
            if self.alone {
                self.last_result = Some(result.to_owned());
            } else {
                self.result(result);
            }
        } else if line.trim_end() == "failures:" || line.trim_end() == "successes:" {
            self.shows = true;
            self.shows_successes = line.starts_with("successes");
        } else if let Some(name) =
            text.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            self.shown = Some(name.to_owned());
        } else if let Some(reason) = text.strip_prefix("SKIP: ") {
            if self.shows_successes
                && let Some(name) = self.shown.take()
            {
                self.said_skip += 1;
                self.skips.push(format!("{name}: {reason}"));
            }
        } else if !self.shows
            && let Some((name, outcome)) =
                text.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
        {
            let (name, outcome) = (name.trim(), outcome.trim());
            if let Some(outcome) = outcome_in(outcome) {
                return Some(self.test(name.to_owned(), outcome));
            }
            // What the test itself prints comes before its outcome.
            self.open = Some(name.to_owned());
        } else if let Some(name) = self.open.take() {
            match outcome_in(text) {
                Some(outcome) => return Some(self.test(name, outcome)),
                None => self.open = Some(name),
            }
        }
        None
    }

    /// The program that is running hangs: a failure, whatever comes of it.
    pub(crate) fn hung(&mut self, how: &str) {
        let program = self.program.as_deref().unwrap_or("cargo test");
        self.failures.push(format!("{program}: {how}"));
    }

    fn test(&mut self, name: String, outcome: &str) -> Told {
        self.open = None;
        // libtest: `ignored, reason`; libtest-mimic: `ignored (reason)`.
        if let Some(reason) = outcome.strip_prefix("ignored") {
            let reason = reason.trim_start_matches([',', ' ', '(']).trim_end_matches(')');
            let reason = if reason.is_empty() { "no reason given" } else { reason };
            self.ignored += 1;
            if !reason.starts_with("not a test: ") {
                self.skips.push(format!("{name}: {reason}"));
            }
        } else if outcome.ends_with("FAILED") {
            self.named.push(name.clone());
            return Told::Failed(name);
        }
        Told::Ended(name)
    }

    /// `ok. 3 passed; 1 failed; 2 ignored; …`
    fn result(&mut self, text: &str) {
        let count = |word: &str| {
            let (before, _) = text.split_once(word)?;
            before.trim_end().rsplit([' ', ';']).next()?.parse::<usize>().ok()
        };
        self.passed += count("passed").unwrap_or(0).saturating_sub(self.said_skip);
        let failed = count("failed").unwrap_or(0);
        self.counted += count("passed").unwrap_or(0) + failed + count("ignored").unwrap_or(0);
        let unseen =
            count("ignored").unwrap_or(0).saturating_sub(std::mem::take(&mut self.ignored));
        if unseen > 0 {
            let program = self.program.as_deref().unwrap_or_default();
            self.failures
                .push(format!("{program}: the reasons of {unseen} ignored tests were not seen"));
        }
        let program = self.program.take().unwrap_or_default();
        let mut names = std::mem::take(&mut self.named);
        names.truncate(failed);
        names.resize(failed, "(a test whose name was not printed)".to_owned());
        self.failures.extend(names.iter().map(|name| format!("{name} [{program}]")));
        self.said_skip = 0;
        self.shown = None;
    }

    /// A program that has begun and never reported was killed or crashed.
    fn close(&mut self) {
        (self.shows, self.shows_successes, self.open) = (false, false, None);
        if let Some(result) = self.last_result.take() {
            self.result(&result);
        }
        self.named.clear();
        self.said_skip = 0;
        self.shown = None;
        if let Some(program) = self.program.take() {
            self.failures.push(format!("{program}: ended without a result"));
        }
    }

    /// The program, which has ended, has listed so many tests: so many must have run. None is lost, and none
    /// runs twice.
    pub(crate) fn check_count(&mut self, listed: usize) {
        let (Some(program), true) = (self.program.clone(), self.last_result.is_some()) else {
            return;
        };
        self.close();
        if self.counted != listed {
            let counted = self.counted;
            self.failures
                .push(format!("{program}: {listed} tests were listed, and {counted} have run"));
        }
    }

    /// Ends the count; `status` is how the process ended. A failure that no test reported, such as one of the
    /// compiler, counts as one.
    pub(crate) fn finish(&mut self, success: bool, status: &str) {
        self.close();
        if !success && self.failures.is_empty() {
            self.failures.push(format!("cargo test: {status}"));
        }
    }
}

/// The reasons of the skips, the names of the failures, and the closing line.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for skip in &self.skips {
            writeln!(f, "skipped: {skip}")?;
        }
        for failure in &self.failures {
            writeln!(f, "failed: {failure}")?;
        }
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed(), self.skipped())
    }
}

#[cfg(test)]
mod tests {
    use super::{Tally, Told};

    fn tally(output: &str, success: bool) -> String {
        let mut tally = Tally::default();
        for line in output.lines() {
            tally.line(line);
        }
        tally.finish(success, "exit status: 101");
        tally.to_string()
    }

    #[test]
    fn adds_programs() {
        let output = "     Running unittests src/lib.rs (target/debug/deps/a)\n\
                      running 2 tests\ntest one ... ok\ntest two ... ok\n\
                      test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n\
                      \x20  Doc-tests a\nrunning 1 test\n\
                      test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured\n";
        assert_eq!(tally(output, true), "3 passed, 0 failed, 0 skipped");
    }

    #[test]
    fn a_skip_is_not_a_pass() {
        let output = "     Running tests/x.rs (target/debug/deps/x)\nrunning 4 tests\n\
                      test a ... ok\ntest b ... ignored, needs a device\ntest c ... ok\n\
                      test d ... ignored (no gcc)\n\
                      successes:\n\n---- a stdout ----\nSKIP: no dtest\n\n\
                      test result: ok. 2 passed; 0 failed; 2 ignored; 0 measured\n";
        assert_eq!(
            tally(output, true),
            "skipped: b: needs a device\nskipped: d: no gcc\nskipped: a: no dtest\n1 passed, 0 failed, 3 skipped"
        );
    }

    #[test]
    fn what_is_not_a_test_is_not_counted() {
        let output = "     Running tests/x.rs (x)\ntest a ... ok\ntest child ... ignored, not a test: run by a\n\
                      test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured\n";
        assert_eq!(tally(output, true), "1 passed, 0 failed, 0 skipped");
    }

    #[test]
    fn names_failures() {
        let output = "     Running tests/x.rs (target/debug/deps/x)\ntest a ... FAILED\n\
                      test result: FAILED. 0 passed; 1 failed; 0 ignored\n";
        assert_eq!(
            tally(output, false),
            "failed: a [tests/x.rs (target/debug/deps/x)]\n0 passed, 1 failed, 0 skipped"
        );
    }

    #[test]
    fn a_crash_is_a_failure() {
        let output = "     Running tests/x.rs (x)\ntest a ... ok\n     Running tests/y.rs (y)\n\
                      test result: ok. 1 passed; 0 failed; 0 ignored\n";
        assert_eq!(
            tally(output, false),
            "failed: tests/x.rs (x): ended without a result\n1 passed, 1 failed, 0 skipped"
        );
    }

    #[test]
    fn standing_still_is_a_failure_even_if_all_goes_well_then() {
        let mut tally = Tally::default();
        tally.line("     Running tests/x.rs (x)");
        tally.hung("nothing was said");
        tally.line("test result: ok. 1 passed; 0 failed; 0 ignored");
        tally.finish(true, "exit status: 0");
        let expected = "failed: tests/x.rs (x): nothing was said\n1 passed, 1 failed, 0 skipped";
        assert_eq!(tally.to_string(), expected);
    }

    #[test]
    fn a_compile_error_is_a_failure() {
        let expected = "failed: cargo test: exit status: 101\n0 passed, 1 failed, 0 skipped";
        assert_eq!(tally("error[E0425]: cannot find value", false), expected);
    }

    #[test]
    fn what_a_failed_test_shows_of_another_run_is_not_counted() {
        let output = "running 2 tests\ntest a ... FAILED\ntest b ... ok\n\nfailures:\n\n\
                      ---- a stdout ----\nrunning 1 test\ntest child ... FAILED\n\nfailures:\n    child\n\n\
                      test result: FAILED. 0 passed; 1 failed; 0 ignored\n\nfailures:\n    a\n\n\
                      test result: FAILED. 1 passed; 1 failed; 0 ignored\n";
        let mut tally = Tally::of_program("x");
        for line in output.lines() {
            tally.line(line);
        }
        tally.finish(false, "exit status: 101");
        assert_eq!(tally.to_string(), "failed: a [x]\n1 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn a_program_that_is_killed_is_a_failure() {
        let mut tally = Tally::of_program("x");
        assert_eq!(tally.line("test a ... ok"), Some(Told::Ended("a".to_owned())));
        assert_eq!(tally.line("test b ... FAILED"), Some(Told::Failed("b".to_owned())));
        tally.finish(false, "signal: 9");
        assert_eq!(
            tally.to_string(),
            "failed: x: ended without a result\n0 passed, 1 failed, 0 skipped"
        );
    }

    #[test]
    fn what_a_test_prints_itself_hides_no_outcome() {
        let output = "running 3 tests\ntest a ... dat: cannot open\nmore\nok\ntest b ... text\nFAILED\n\
                      test c ... textignored (no device)\ntest d ... one line\nignored (no gcc)\n\
                      test result: FAILED. 1 passed; 1 failed; 2 ignored\n";
        let mut tally = Tally::of_program("x");
        let told: Vec<_> = output.lines().filter_map(|line| tally.line(line)).collect();
        let ended = |name: &str| Told::Ended(name.to_owned());
        assert_eq!(told, [ended("a"), Told::Failed("b".to_owned()), ended("c"), ended("d")]);
        tally.finish(false, "exit status: 101");
        let expected = "skipped: c: no device\nskipped: d: no gcc\nfailed: b [x]\n1 passed, 1 failed, 2 skipped";
        assert_eq!(tally.to_string(), expected);
    }

    #[test]
    fn an_ignored_test_that_was_not_seen_is_a_failure() {
        let mut tally = Tally::of_program("x");
        tally.line("test result: ok. 1 passed; 0 failed; 1 ignored");
        tally.finish(true, "exit status: 0");
        let expected = "failed: x: the reasons of 1 ignored tests were not seen\n1 passed, 1 failed, 0 skipped";
        assert_eq!(tally.to_string(), expected);
    }

    #[test]
    fn tests_that_do_not_run_are_missed() {
        let count = |listed| {
            let mut tally = Tally::of_program("x");
            tally.line("test a ... ok");
            tally.line("test b ... ignored, no gcc");
            tally.line("test result: ok. 1 passed; 0 failed; 1 ignored");
            tally.check_count(listed);
            tally.finish(true, "exit status: 0");
            tally.to_string()
        };
        assert_eq!(count(2), "skipped: b: no gcc\n1 passed, 0 failed, 1 skipped");
        let expected = "skipped: b: no gcc\nfailed: x: 3 tests were listed, and 2 have run\n\
                        1 passed, 1 failed, 1 skipped";
        assert_eq!(count(3), expected);
        let mut none = Tally::of_program("x");
        none.line("test result: ok. 0 passed; 0 failed; 0 ignored");
        none.check_count(1);
        assert_eq!(
            none.to_string(),
            "failed: x: 1 tests were listed, and 0 have run\n0 passed, 1 failed, 0 skipped"
        );
    }
}
