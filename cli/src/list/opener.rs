//! Decides which entries are opened. Opening an entry takes a process, and a registry file may have
//! any number of entries.

use std::collections::HashMap;

use anyhow::Result;
use registry::entry::Api;
use registry::{Candidate, Entry};

use super::probe::{Answer, probe_entry};

/// Opens entries, equal ones once, and those of a registry file up to a limit.
pub(super) struct Opener<'a, P> {
    /// Opens an entry. The other fields do not depend on it, so that a test can count the calls.
    probe: P,
    /// How many more entries of the registry file may be opened.
    left: usize,
    answers: HashMap<Key<'a>, Answer>,
    /// Libraries of the registry file that do not load, and why. They are tried once for all of
    /// their entries.
    broken: HashMap<&'a str, String>,
}

/// What an adapter depends on. Entries with equal keys open equally.
#[derive(PartialEq, Eq, Hash)]
struct Key<'a> {
    name: &'a str,
    api: Api,
    threadsafe: bool,
    library: &'a str,
    ia_params: &'a str,
    is_builtin: bool,
}

impl<'a, P: FnMut(&Candidate) -> Result<Answer>> Opener<'a, P> {
    pub(super) fn new(limit: usize, probe: P) -> Opener<'a, P> {
        Opener { probe, left: limit, answers: HashMap::new(), broken: HashMap::new() }
    }

    /// Opens the entry, or returns the answer of an equal one. Returns `None` if the limit does not
    /// permit it.
    pub(super) fn open(&mut self, candidate: &'a Candidate) -> Option<Answer> {
        let Entry { ia_name: name, api, threadsafe, library, ia_params, .. } = &candidate.entry;
        let is_builtin = candidate.builtin.is_some();
        let (api, threadsafe) = (*api, *threadsafe);
        let key = Key { name, api, threadsafe, library, ia_params, is_builtin };
        if let Some(answer) = self.answers.get(&key) {
            return Some(answer.clone());
        }
        if !is_builtin {
            if let Some(reason) = self.broken.get(library.as_str()) {
                return Some(Answer::Fails(reason.clone()));
            }
            self.left = self.left.checked_sub(1)?;
        }
        let answer =
            (self.probe)(candidate).unwrap_or_else(|error| Answer::Fails(format!("{error:#}")));
        if let Answer::Broken(reason) = &answer
            && !is_builtin
        {
            self.broken.insert(library, reason.clone());
        }
        self.answers.insert(key, answer.clone());
        Some(answer)
    }
}

/// Whether one of the entries opens. `None` if none does of those that the limit permits to open,
/// and there are others.
pub(crate) fn any_opens<'a>(
    candidates: impl Iterator<Item = &'a Candidate>,
    limit: usize,
) -> Option<bool> {
    let mut opener = Opener::new(limit, probe_entry);
    let mut all_were_opened = true;
    for candidate in candidates {
        match opener.open(candidate) {
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

    /// Returns the answers for all candidates, and the names of the entries that were opened.
    fn opened(
        candidates: &[Candidate],
        limit: usize,
        answer: impl Fn(&Candidate) -> Answer,
    ) -> (Vec<Option<Answer>>, Vec<String>) {
        let mut names = Vec::new();
        let mut opener = Opener::new(limit, |candidate: &Candidate| {
            names.push(candidate.entry.ia_name.clone());
            Ok(answer(candidate))
        });
        let answers = candidates.iter().map(|candidate| opener.open(candidate)).collect();
        (answers, names)
    }

    fn opens(_: &Candidate) -> Answer {
        Answer::Opens(Vec::new())
    }

    #[test]
    fn a_limited_number_of_entries_is_opened() {
        let lines: String = (0..100_000).map(|n| line(&format!("ia{n}"), "x.so", "lo")).collect();
        let (answers, names) = opened(&candidates(&lines), 64, opens);
        assert_eq!(names.len(), 64);
        assert!(answers[..64].iter().all(Option::is_some), "the first ones are opened");
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
        assert_eq!(names, ["a", "a", "a", "b", "a", "a"]);
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
    fn the_limit_does_not_apply_to_built_in_entries() {
        let list = List::new(Some("/dev/null".into()), None, dat::builtins());
        let candidates: Vec<Candidate> = list.candidates().into_iter().cloned().collect();
        let (answers, _) = opened(&candidates, 0, opens);
        assert!(!answers.is_empty() && answers.iter().all(Option::is_some));
    }
}
