//! Counts tests over many test programs, from their output with `--show-output`.
//!
//! A test reports in one of three ways that it could not run. Such a test is counted as skipped,
//! never as passed: `#[ignore = "reason"]`, libtest-mimic's `Completion::ignored_with(reason)`, or
//! a printed line `SKIP: reason`.
//!
//! Some functions are not tests and are not counted: `#[ignore = "not a test: reason"]` marks code
//! that a test runs in a process of its own, or a measurement.

use std::fmt;

/// The results so far.
#[derive(Default)]
pub(crate) struct Tally {
    passed: usize,
    failures: Vec<String>,
    skips: Vec<String>,
    /// The current program, which has not printed its result yet.
    program: Option<String>,
    /// The names of the current program's failed tests, as far as they were printed.
    named: Vec<String>,
    /// The successful test whose output is being shown, until it prints SKIP.
    shown: Option<String>,
    /// The number of SKIP lines of the current program. The program itself counts the tests that
    /// printed these lines as passed.
    skip_lines: usize,
    /// Whether all tests of the current program have ended, so that it now prints their captured
    /// output.
    label: bool,
    /// Whether the program now prints the captured output of passed tests.
    shows_successes: bool,
    /// The name of a test that has printed text of its own, so that its outcome comes on a later
    /// line.
    open: Option<String>,
    /// The number of the current program's ignored tests, as far as they were printed.
    ignored: usize,
    /// Whether the output comes from one test program. The output of `cargo test` comes from
    /// several test programs.
    alone: bool,
    /// The last result line that the program has printed. Earlier result lines may belong to the
    /// captured output of failed tests that have started the program again.
    last_result: Option<String>,
    /// The number of tests that have passed, failed or were ignored, according to the programs'
    /// results.
    counted: usize,
}

/// The end of a test, according to a line of output.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TestEnd {
    /// The test with this name has passed or was ignored.
    Ended(String),
    Failed(String),
}

/// Returns the outcome of a test that the text contains, if there is one. Text that the test itself
/// has printed may precede the outcome.
fn outcome_in(text: &str) -> Option<&str> {
    let text = text.find("ignored (").map_or(text, |at| &text[at..]);
    (text == "ok" || text.ends_with("FAILED") || text.starts_with("ignored")).then_some(text)
}

impl Tally {
    /// Starts a count for a test program with this name.
    pub(crate) fn of_program(name: &str) -> Self {
        Self { program: Some(name.to_owned()), alone: true, ..Self::default() }
    }

    /// Returns a count with one failure of a step that is not a test.
    pub(crate) fn of_failure(what: &str, why: &str) -> Self {
        Self { failures: vec![format!("{what}: {why}")], ..Self::default() }
    }

    /// Returns a count with one skip of a step that is not possible on this machine.
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

    /// Adds another count to this count. Both counts are finished.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failures.extend(other.failures);
        self.skips.extend(other.skips);
    }

    /// Processes the next line of output.
    pub(crate) fn line(&mut self, line: &str) -> Option<TestEnd> {
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
            self.label = true;
            self.shows_successes = line.starts_with("successes");
        } else if let Some(name) =
            text.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            self.shown = Some(name.to_owned());
        } else if let Some(reason) = text.strip_prefix("SKIP: ") {
            if self.shows_successes
                && let Some(name) = self.shown.take()
            {
                self.skip_lines += 1;
                self.skips.push(format!("{name}: {reason}"));
            }
        } else if !self.label
            && let Some((name, outcome)) =
                text.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
        {
            let (name, outcome) = (name.trim(), outcome.trim());
            if let Some(outcome) = outcome_in(outcome) {
                return Some(self.test(name.to_owned(), outcome));
            }
            // The outcome is missing, because the text that the test itself prints comes before the
            // outcome.
            self.open = Some(name.to_owned());
        } else if let Some(name) = self.open.take() {
            match outcome_in(text) {
                Some(outcome) => return Some(self.test(name, outcome)),
                None => self.open = Some(name),
            }
        }
        None
    }

    /// Counts the current program as hung. Whatever the program prints later, the hang counts as a
    /// failure.
    pub(crate) fn hung(&mut self, how: &str) {
        let program = self.program.as_deref().unwrap_or("cargo test");
        self.failures.push(format!("{program}: {how}"));
    }

    fn test(&mut self, name: String, outcome: &str) -> TestEnd {
        self.open = None;
        // libtest prints `ignored, reason`, and libtest-mimic prints `ignored (reason)`.
        if let Some(reason) = outcome.strip_prefix("ignored") {
            let reason = reason.trim_start_matches([',', ' ', '(']).trim_end_matches(')');
            let reason = if reason.is_empty() { "no reason given" } else { reason };
            self.ignored += 1;
            if !reason.starts_with("not a test: ") {
                self.skips.push(format!("{name}: {reason}"));
            }
        } else if outcome.ends_with("FAILED") {
            self.named.push(name.clone());
            return TestEnd::Failed(name);
        }
        TestEnd::Ended(name)
    }

    /// Parses `ok. 3 passed; 1 failed; 2 ignored; …`.
    fn result(&mut self, text: &str) {
        let count = |word: &str| {
            let (before, _) = text.split_once(word)?;
            before.trim_end().rsplit([' ', ';']).next()?.parse::<usize>().ok()
        };
        self.passed += count("passed").unwrap_or(0).saturating_sub(self.skip_lines);
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
        self.skip_lines = 0;
        self.shown = None;
    }

    /// Ends the count of the current program. A program that has begun and never reported a result
    /// was killed or has crashed.
    fn close(&mut self) {
        (self.label, self.shows_successes, self.open) = (false, false, None);
        if let Some(result) = self.last_result.take() {
            self.result(&result);
        }
        self.named.clear();
        self.skip_lines = 0;
        self.shown = None;
        if let Some(program) = self.program.take() {
            self.failures.push(format!("{program}: ended without a result"));
        }
    }

    /// Checks, after the program has ended, that as many tests have run as the program had listed.
    /// So no test is lost, and no test runs twice.
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

    /// Finishes the count. `status` describes how the process ended. A failure that no test has
    /// reported, for example a failure of the compiler, counts as one failure.
    pub(crate) fn finish(&mut self, success: bool, status: &str) {
        self.close();
        if !success && self.failures.is_empty() {
            self.failures.push(format!("cargo test: {status}"));
        }
    }
}

/// Prints the reasons of the skips, the names of the failures, and the closing line.
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
    use super::{Tally, TestEnd};

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
            "skipped: b: needs a device\nskipped: d: no gcc\nskipped: a: no dtest\n1 passed, 0 \
             failed, 3 skipped"
        );
    }

    #[test]
    fn what_is_not_a_test_is_not_counted() {
        let output = "     Running tests/x.rs (x)\ntest a ... ok\ntest child ... ignored, not a \
                      test: run by a\ntest result: ok. 1 passed; 0 failed; 1 ignored; 0 measured\n";
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
                      ---- a stdout ----\nrunning 1 test\ntest child ... \
                      FAILED\n\nfailures:\n    child\n\ntest result: FAILED. 0 passed; 1 failed; 0 \
                      ignored\n\nfailures:\n    a\n\ntest result: FAILED. 1 passed; 1 failed; 0 \
                      ignored\n";
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
        assert_eq!(tally.line("test a ... ok"), Some(TestEnd::Ended("a".to_owned())));
        assert_eq!(tally.line("test b ... FAILED"), Some(TestEnd::Failed("b".to_owned())));
        tally.finish(false, "signal: 9");
        assert_eq!(
            tally.to_string(),
            "failed: x: ended without a result\n0 passed, 1 failed, 0 skipped"
        );
    }

    #[test]
    fn what_a_test_prints_itself_hides_no_outcome() {
        let output = "running 3 tests\ntest a ... dat: cannot open\nmore\nok\ntest b ... \
                      text\nFAILED\ntest c ... textignored (no device)\ntest d ... one \
                      line\nignored (no gcc)\ntest result: FAILED. 1 passed; 1 failed; 2 ignored\n";
        let mut tally = Tally::of_program("x");
        let ends: Vec<_> = output.lines().filter_map(|line| tally.line(line)).collect();
        let ended = |name: &str| TestEnd::Ended(name.to_owned());
        assert_eq!(ends, [ended("a"), TestEnd::Failed("b".to_owned()), ended("c"), ended("d")]);
        tally.finish(false, "exit status: 101");
        let expected = "skipped: c: no device\nskipped: d: no gcc\nfailed: b [x]\n1 passed, 1 \
                        failed, 2 skipped";
        assert_eq!(tally.to_string(), expected);
    }

    #[test]
    fn an_ignored_test_that_was_not_seen_is_a_failure() {
        let mut tally = Tally::of_program("x");
        tally.line("test result: ok. 1 passed; 0 failed; 1 ignored");
        tally.finish(true, "exit status: 0");
        let expected = "failed: x: the reasons of 1 ignored tests were not seen\n1 passed, 1 \
                        failed, 0 skipped";
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
