//! Decides which entries are opened. Opening an entry takes a process, and a registry file may have
//! any number of entries.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::Result;
use registry::entry::Api;
use registry::{Candidate, Entry};

use super::isolated_open::{Answer, open_isolated};

/// How many entries are opened at the same time. The limit does not depend on the number of
/// processors, because an attempt to open an entry may mostly wait, for example for the resolver.
const MAX_AT_ONCE: usize = 16;

/// Opens entries. Equal entries are opened once, and there is a limit for entries of the registry
/// file.
pub(super) struct Opener<'a, P> {
    /// The function that opens an entry. Tests pass a function that counts its calls.
    open: P,
    /// How many more entries of the registry file may be opened.
    left: usize,
    answers: HashMap<OpeningKey<'a>, Answer>,
    /// Libraries of the registry file that do not load, and why. The other entries of such a
    /// library are not tried.
    broken: HashMap<&'a str, String>,
}

/// The fields of an entry on which the result of opening it depends. Entries with equal keys have
/// the same result.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct OpeningKey<'a> {
    name: &'a str,
    api: Api,
    threadsafe: bool,
    library: &'a str,
    ia_params: &'a str,
    is_builtin: bool,
}

impl<'a> OpeningKey<'a> {
    fn new(candidate: &'a Candidate) -> OpeningKey<'a> {
        let Entry { ia_name: name, api, threadsafe, library, ia_params, .. } = &candidate.entry;
        let (api, threadsafe) = (*api, *threadsafe);
        OpeningKey {
            name,
            api,
            threadsafe,
            library,
            ia_params,
            is_builtin: candidate.builtin.is_some(),
        }
    }
}

impl<'a, P: Fn(&Candidate) -> Result<Answer> + Sync> Opener<'a, P> {
    pub(super) fn new(limit: usize, open: P) -> Opener<'a, P> {
        Opener { open, left: limit, answers: HashMap::new(), broken: HashMap::new() }
    }

    /// Opens as many entries as the limit permits: first all built-in entries and the first entry
    /// of each library, then the other entries in their order. Calls `done` after each of them.
    pub(super) fn open(&mut self, candidates: &[&'a Candidate], done: impl Fn() + Sync) {
        // The first entry of each library shows whether the library loads. If the library does not
        // load, its other entries are not opened.
        let mut libraries = HashSet::new();
        let mut is_first = |key: &OpeningKey<'a>| key.is_builtin || libraries.insert(key.library);
        self.open_some(candidates, &mut is_first, &done);
        self.open_some(candidates, &mut |_| true, &done);
    }

    fn open_some(
        &mut self,
        candidates: &[&'a Candidate],
        is_meant: &mut dyn FnMut(&OpeningKey<'a>) -> bool,
        done: &(impl Fn() + Sync),
    ) {
        let mut chosen = HashSet::new();
        let mut jobs = Vec::new();
        for &candidate in candidates {
            let key = OpeningKey::new(candidate);
            let is_known = self.answer(candidate).is_some() || chosen.contains(&key);
            if is_known || !is_meant(&key) || (self.left == 0 && !key.is_builtin) {
                continue;
            }
            self.left -= usize::from(!key.is_builtin);
            chosen.insert(key);
            jobs.push((key, candidate));
        }
        let threads = jobs.len().min(MAX_AT_ONCE);
        let (answers, broken) = (Mutex::new(&mut self.answers), Mutex::new(&mut self.broken));
        let (open, jobs) = (&self.open, Mutex::new(jobs.into_iter()));
        let work = || {
            loop {
                // This lock is released before the entry is opened.
                let Some((key, candidate)) = lock(&jobs).next() else { break };
                // Since the candidates were chosen, another entry of the same library may have
                // shown that no entry of it opens.
                if !key.is_builtin && lock(&broken).contains_key(key.library) {
                    continue;
                }
                let answer =
                    open(candidate).unwrap_or_else(|error| Answer::Fails(format!("{error:#}")));
                if let Answer::Broken(reason) = &answer
                    && !key.is_builtin
                {
                    lock(&broken).entry(key.library).or_insert_with(|| reason.clone());
                }
                lock(&answers).insert(key, answer);
                done();
            }
        };
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
        });
    }

    /// Returns whether the entry opens. The answer may come from an equal entry, or from the
    /// entry's library if the library does not load. Returns `None` if the entry was not opened
    /// because of the limit.
    pub(super) fn answer(&self, candidate: &'a Candidate) -> Option<Answer> {
        let key = OpeningKey::new(candidate);
        let of_library = || {
            let reason = self.broken.get(key.library).filter(|_| !key.is_builtin)?;
            Some(Answer::Fails(reason.clone()))
        };
        self.answers.get(&key).cloned().or_else(of_library)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether one of the entries opens. Returns `None` if every attempt has failed but the limit
/// prevented further attempts.
pub(crate) fn any_opens(candidates: &[&Candidate], limit: usize) -> Option<bool> {
    let mut opener = Opener::new(limit, open_isolated);
    opener.open(candidates, || ());
    let mut all_were_opened = true;
    for candidate in candidates {
        match opener.answer(candidate) {
            Some(Answer::Opens(_)) => return Some(true),
            Some(Answer::Fails(_) | Answer::Broken(_)) => {}
            None => all_were_opened = false,
        }
    }
    all_were_opened.then_some(false)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use registry::List;

    use super::*;

    fn candidates(lines: &str) -> Vec<Candidate> {
        let (entries, errors) = registry::conf::parse(Path::new("dat.conf"), lines.as_bytes());
        assert!(errors.is_empty(), "{errors:?}");
        entries.into_iter().map(|entry| Candidate { entry, builtin: None }).collect()
    }

    fn line(name: &str, library: &str, params: &str) -> String {
        format!("{name} u2.0 nonthreadsafe default {library} v.1.0 \"{params}\" \"\"\n")
    }

    /// Returns the answers for all candidates, and the sorted names of the entries that were
    /// opened.
    fn opened(
        candidates: &[Candidate],
        limit: usize,
        answer: impl Fn(&Candidate) -> Answer + Sync,
    ) -> (Vec<Option<Answer>>, Vec<String>) {
        let names = Mutex::new(Vec::new());
        let mut opener = Opener::new(limit, |candidate: &Candidate| {
            lock(&names).push(candidate.entry.ia_name.clone());
            Ok(answer(candidate))
        });
        opener.open(&candidates.iter().collect::<Vec<_>>(), || ());
        let answers = candidates.iter().map(|candidate| opener.answer(candidate)).collect();
        let mut names = names.into_inner().expect("no panic");
        names.sort();
        (answers, names)
    }

    fn opens(_: &Candidate) -> Answer {
        Answer::Opens(Vec::new())
    }

    #[test]
    fn a_limited_number_of_entries_is_opened() {
        let lines: String = (0..10_000).map(|n| line(&format!("ia{n}"), "x.so", "lo")).collect();
        let (answers, names) = opened(&candidates(&lines), 64, opens);
        assert_eq!(names.len(), 64);
        assert!(answers[..64].iter().all(Option::is_some), "the first entries must be opened");
        assert!(answers[64..].iter().all(Option::is_none));
    }

    #[test]
    fn equal_entries_are_opened_once() {
        let equal = line("a", "x.so", "lo").repeat(1000);
        let lines = equal.clone()
            + &line("a", "x.so", "eth0")
            + &line("a", "y.so", "lo")
            + &line("b", "x.so", "lo")
            + &line("a", "x.so", "lo").replace("u2.0", "u2.1")
            + &line("a", "x.so", "lo").replace("nonthreadsafe", "threadsafe")
            + &equal;
        let (answers, names) = opened(&candidates(&lines), 6, opens);
        assert_eq!(names, ["a", "a", "a", "a", "a", "b"]);
        assert!(answers.iter().all(Option::is_some));
    }

    #[test]
    fn a_library_that_does_not_load_is_tried_once_and_known_beyond_the_limit() {
        let lines = line("a", "gone.so", "lo")
            + &line("b", "gone.so", "lo")
            + &line("c", "x.so", "lo")
            + &line("d", "x.so", "lo")
            + &line("e", "gone.so", "lo");
        let answer = |candidate: &Candidate| match candidate.entry.library.as_str() {
            "gone.so" => Answer::Broken("it is gone".to_owned()),
            _ => Answer::Fails("why".to_owned()),
        };
        let (answers, names) = opened(&candidates(&lines), 2, answer);
        assert_eq!(names, ["a", "c"]);
        let gone = Some(Answer::Fails("it is gone".to_owned()));
        let first = Some(Answer::Broken("it is gone".to_owned()));
        assert_eq!(answers, [first, gone.clone(), Some(Answer::Fails("why".into())), None, gone]);
    }

    #[test]
    fn the_first_entry_of_each_library_comes_before_the_others() {
        let lines: String =
            ["ax", "bx", "cx", "dy", "ey"].map(|name| line(name, &name[1..], "lo")).concat();
        assert_eq!(opened(&candidates(&lines), 2, opens).1, ["ax", "dy"]);
        assert_eq!(opened(&candidates(&lines), 3, opens).1, ["ax", "bx", "dy"]);
    }

    #[test]
    fn several_entries_are_opened_at_the_same_time() {
        let both = std::sync::Barrier::new(2);
        let answer = |_: &Candidate| {
            // The first entry waits here until the others are opened, too. If entries were opened
            // one after the other, it would wait for ever.
            both.wait();
            Answer::Opens(Vec::new())
        };
        let lines = line("a", "x.so", "lo") + &line("b", "y.so", "lo");
        assert_eq!(opened(&candidates(&lines), 2, answer).1, ["a", "b"]);
    }

    #[test]
    fn the_limit_does_not_apply_to_built_in_entries() {
        let list = List::new(Some("/dev/null".into()), None, dat::builtins());
        let candidates: Vec<Candidate> = list.candidates().into_iter().cloned().collect();
        let (answers, _) = opened(&candidates, 0, opens);
        assert!(!answers.is_empty() && answers.iter().all(Option::is_some));
    }
}
