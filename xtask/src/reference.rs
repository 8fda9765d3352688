//! The reference of DAT's functions. Its source is a page in `dat-sys/reference` for each function.
//! Four things come from a page: the manual page in section 3dat, the comment in the C headers, the
//! documentation of the function's type in `dat-sys`, and a chapter of the book. The manual page
//! and the chapter also define the structures that the function takes, as the headers do.
//!
//! `cargo xtask reference` copies the prototypes of the headers to the pages, and the comments to
//! the headers.

mod book;
mod header;
mod manual;
mod structures;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use reference::{Page, pages};

use crate::cargo::workspace;
use header::Header;

/// Options of `cargo xtask reference`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Change nothing, and fail if a page or a header is out of date
    #[arg(long)]
    check: bool,
    /// Add the pages to a book. mdBook calls this as a preprocessor, first with the question
    /// whether a format is supported
    #[arg(long, value_names = ["supports", "FORMAT"], num_args = 0..=2)]
    book: Option<Vec<String>>,
}

/// The headers of uDAPL 2.0 and 1.2, in this order.
const HEADERS: [&str; 2] = ["libdat/include/dat2", "libdat/include/dat"];

/// Brings the pages and the headers up to date, and prints the mistakes of the pages. Returns false
/// if a page has a mistake, or if `--check` finds a file that is out of date.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if let Some(question) = &options.book {
        // The pages are Markdown, which every format supports.
        if question.is_empty() {
            book::preprocess(&complete_pages()?)?;
        }
        return Ok(true);
    }
    let mut problems = problems()?;
    for (path, text) in current()? {
        if fs::read_to_string(&path).with_context(|| path.display().to_string())? == text {
            continue;
        }
        if options.check {
            problems.push(format!("{}: out of date", path.display()));
        } else {
            fs::write(&path, text).with_context(|| path.display().to_string())?;
            println!("{}: updated", path.display());
        }
    }
    problems.iter().for_each(|problem| println!("{problem}"));
    Ok(problems.is_empty())
}

/// The mistakes of the pages: functions without a page, pages of functions that no header declares,
/// incomplete pages, and references to pages that do not exist.
fn problems() -> Result<Vec<String>> {
    let pages = pages()?;
    let exists = |name: &str| pages.iter().any(|page| page.documents(name));
    let mut problems = Vec::new();
    let headers = headers()?;
    for header in &headers {
        let functions = header.functions().into_iter().filter(|name| !exists(name));
        problems
            .extend(functions.map(|name| format!("{}: {name}: no page", header.path.display())));
    }
    for page in &pages {
        problems.extend(page.problems());
        if page.is_function() && !headers.iter().any(|header| header.declares(page)) {
            problems.push(format!("{}: no header declares the function", page.path.display()));
        }
        let dangling = page.see_also().into_iter().filter(|name| !exists(name));
        problems.extend(dangling.map(|name| format!("{}: {name}: no page", page.path.display())));
    }
    Ok(problems)
}

/// The pages with the definitions of structures.
fn complete_pages() -> Result<Vec<Page>> {
    let (mut pages, headers) = (pages()?, headers()?);
    for page in &mut pages {
        page.text = structures::with_structures(page, &headers);
    }
    Ok(pages)
}

/// Writes the manual pages to a directory. A function that is documented on the page of another
/// function gets a page that refers to it.
pub(crate) fn install_manual(man3: &Path) -> Result<()> {
    fs::create_dir_all(man3).with_context(|| man3.display().to_string())?;
    let write = |name: &str, text: &str| {
        let path = man3.join(format!("{name}.3dat"));
        fs::write(&path, text).with_context(|| path.display().to_string())
    };
    for page in complete_pages()? {
        write(&page.name, &manual::render(&page)?)?;
        for other in page.other_functions() {
            write(&other, &format!(".so man3/{}.3dat\n", page.name))?;
        }
    }
    Ok(())
}

/// The files with all generated parts as they should be.
fn current() -> Result<Vec<(PathBuf, String)>> {
    let (pages, mut headers) = (pages()?, headers()?);
    let mut files = Vec::new();
    for page in &pages {
        let prototypes: Vec<_> = headers.iter().filter_map(|h| h.prototype(&page.name)).collect();
        files.push((page.path.clone(), page.with_synopsis(&prototypes)));
    }
    for header in &mut headers {
        for page in &pages {
            header.set_comments(page);
        }
        files.push((header.path.clone(), header.text.clone()));
    }
    Ok(files)
}

fn headers() -> Result<Vec<Header>> {
    let mut paths = Vec::new();
    for directory in HEADERS {
        let mut of_version = paths_in(&workspace().join(directory), "h")?;
        of_version.sort();
        paths.extend(of_version);
    }
    paths.into_iter().map(Header::read).collect()
}

/// The files of a directory that have this extension.
fn paths_in(directory: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    let paths: Result<Vec<_>, _> = entries.map(|entry| entry.map(|e| e.path())).collect();
    Ok(paths?.into_iter().filter(|p| p.extension().is_some_and(|e| e == extension)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_headers_are_up_to_date() {
        for (path, text) in current().unwrap() {
            let is_current = fs::read_to_string(&path).unwrap() == text;
            assert!(is_current, "{}: run `cargo xtask reference`", path.display());
        }
    }

    #[test]
    fn each_page_becomes_a_manual_page() {
        for page in complete_pages().unwrap() {
            manual::render(&page).unwrap_or_else(|e| panic!("{}: {e}", page.path.display()));
        }
    }

    #[test]
    fn code_fits_a_manual_page_and_figures_fit_a_terminal() {
        for page in complete_pages().unwrap() {
            for (block, limit) in page.text.split("```").skip(1).step_by(2).map(|block| match block
                .strip_prefix("c\n")
            {
                Some(code) => (code, header::CODE_WIDTH),
                None => (block, 80),
            }) {
                let wide: Vec<_> = block.lines().filter(|line| line.len() > limit).collect();
                assert!(wide.is_empty(), "{}: {wide:#?}", page.path.display());
            }
        }
    }

    #[test]
    fn the_pages_have_no_mistakes() {
        let problems = problems().unwrap();
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
}
