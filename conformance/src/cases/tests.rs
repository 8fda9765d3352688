use std::collections::HashSet;

use super::all;

#[test]
fn a_name_is_a_function_and_words() {
    let mut seen = HashSet::new();
    for case in all() {
        let (function, about) = case.id.split_once('/').expect(&case.id);
        assert!(function == "rust" || function.starts_with("dat_"), "{}", case.id);
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(!about.is_empty() && about.chars().all(plain), "{}", case.id);
        assert!(case.requirement.ends_with('.') && !case.clause.is_empty(), "{}", case.id);
        assert!(seen.insert(case.id.clone()), "{} is there twice", case.id);
    }
}
