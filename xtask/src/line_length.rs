//! Checks that comments and documents have at most 100 columns. rustfmt checks code.

use std::fs;

use crate::cargo::workspace;
use crate::unsafe_files::files;

const MAX_COLUMNS: usize = 100;

#[test]
fn comments_and_documents_have_at_most_100_columns() {
    let mut long = Vec::new();
    for file in files().into_iter().filter(|file| !file.contains("/golden/")) {
        let has_prose: fn(&str) -> bool = match file.rsplit_once('.') {
            Some((_, "rs" | "c" | "h")) => is_comment,
            Some((_, "md")) => |_| true,
            _ => continue,
        };
        let text = fs::read_to_string(workspace().join(&file)).expect("a text file");
        let long_lines = long_lines(&text, has_prose);
        long.extend(long_lines.map(|(number, columns)| format!("{file}:{number}: {columns}")));
    }
    assert!(long.is_empty(), "lines of more than {MAX_COLUMNS} columns: {long:#?}");
}

/// Returns the numbers and lengths of lines that are too long. Tables, code blocks and links may be
/// longer.
fn long_lines(text: &str, has_prose: fn(&str) -> bool) -> impl Iterator<Item = (usize, usize)> {
    let mut in_code_block = false;
    (1..).zip(text.lines()).filter_map(move |(number, line)| {
        let content = line.trim_start_matches([' ', '/', '!', '*']);
        in_code_block ^= content.starts_with("```");
        let may_be_longer = in_code_block || content.starts_with('|') || content.contains("://");
        let columns = line.chars().count();
        (columns > MAX_COLUMNS && !may_be_longer && has_prose(line)).then_some((number, columns))
    })
}

/// Returns whether a line of Rust or C is a comment.
fn is_comment(line: &str) -> bool {
    ["//", "/*", "* "].iter().any(|start| line.trim_start().starts_with(start))
}

#[test]
fn long_prose_is_found() {
    let long = "x".repeat(90);
    let text = format!("/// short\n    /// {long} and so on\nlet x = \"{long} and so on\";\n");
    assert_eq!(long_lines(&text, is_comment).collect::<Vec<_>>(), [(2, 108)]);
    let text = format!("{long} and so on\n| {long} and so on |\n```\n{long} and so on\n```\n");
    assert_eq!(long_lines(&text, |_| true).collect::<Vec<_>>(), []);
    let text = format!("{long} and so on, too\n");
    assert_eq!(long_lines(&text, |_| true).collect::<Vec<_>>(), [(1, 105)]);
}
