//! Verifies docs/: the programs of the pages are compiled and run, they print the output that the
//! pages show, and the links lead to existing files.
#![forbid(unsafe_code)]

#[path = "docs/guide.rs"]
mod guide;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};

use opendat_tests::{Dist, Skip, find_program, skip};
use tempfile::TempDir;

/// A lock that every test holds while it runs programs with fixed ports.
static FIXED_PORTS: Mutex<()> = Mutex::new(());

/// Runs a test that needs programs which a machine may lack. If a program is missing, the function
/// prints that, and the test counts as skipped.
fn skip_if_missing(test: impl FnOnce() -> Result<(), Skip>) {
    if let Err(reason) = test() {
        skip(&reason);
    }
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = workspace().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the paths of the pages in docs/.
fn pages() -> Vec<PathBuf> {
    let entries = fs::read_dir(workspace().join("docs")).expect("docs");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn text(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Returns a directory like a clone of the project, with its examples and target/dist.
fn clone_of(dist: &Dist) -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    fs::create_dir(dir.path().join("target")).expect("a directory");
    symlink(dist.root(), dir.path().join("target/dist")).expect("a link");
    symlink(workspace().join("examples"), dir.path().join("examples")).expect("a link");
    dir
}

/// Returns a shell that runs lines as a reader of the pages types them.
fn shell(dir: &TempDir, lines: &str) -> Command {
    let mut shell = Command::new("bash");
    shell
        .args(["-ec", lines])
        .current_dir(dir.path())
        .env("DAT_OVERRIDE", "/dev/null")
        .env_remove("LD_LIBRARY_PATH");
    shell
}

/// Returns the blocks of a page with this language, in their order.
fn blocks<'p>(page: &'p str, language: &str) -> Vec<&'p str> {
    let fence = format!("\n```{language}\n");
    let starts: Vec<&str> = page.split(&fence).skip(1).collect();
    starts.into_iter().map(|rest| rest.split("```").next().unwrap_or(rest)).collect()
}

/// Runs the lines of docs/tutorial.md, section "In C", one by one. Then runs them over the other
/// adapter that needs no setup, as the page says further down.
#[test]
fn the_program_in_c_of_the_tutorial_prints_what_it_says() {
    skip_if_missing(|| {
        let dist = Dist::locate()?;
        let _turn = FIXED_PORTS.lock().unwrap_or_else(PoisonError::into_inner);
        find_program("cc", "gcc")?;
        find_program("pkg-config", "pkg-config")?;
        let (dir, page) = (clone_of(&dist), read("docs/tutorial.md"));
        let [_, server, client] = blocks(&page, "sh")[..] else {
            panic!("the page needs three blocks of sh lines: {page}")
        };
        for ia in ["", " softroce"] {
            let [server, client] =
                [server, client].map(|lines| format!("{}{ia}", lines.trim_end()));
            let mut server = shell(&dir, &server.replace("./hello server", "exec ./hello server"));
            let mut server =
                Killed(server.stdout(Stdio::piped()).spawn().expect("the program starts"));
            let mut output = BufReader::new(server.0.stdout.take().expect("the output is piped"));
            let mut line = String::new();
            output.read_line(&mut line).expect("a line");
            let client = shell(&dir, &client).output().expect("the program starts");
            assert_eq!(text(&client), read("examples/hello/client.txt"), "{ia}");
            output.read_to_string(&mut line).expect("text");
            assert_eq!(line, read("examples/hello/server.txt"), "{ia}");
        }
        // A line of the page may end anywhere within the text below, so line breaks count as
        // blanks.
        let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(page.contains("`./hello server softroce` and `./hello client 127.0.0.1 softroce`"));
        Ok(())
    });
}

/// Runs the commands in the blocks ```` ```console ```` of the pages. Each line that begins with `$
/// ` must print the lines that follow it. With DOCS_UPDATE=1 the test updates the page.
#[test]
fn what_commands_print_is_as_the_pages_show() {
    skip_if_missing(|| {
        let dist = Dist::locate()?;
        for name in ["docs/dat-conf.md"] {
            let (page, dir) = (read(name), clone_of(&dist));
            fs::copy(workspace().join("examples/registry/my.conf"), dir.path().join("my.conf"))
                .expect("a copy");
            let shown = blocks(&page, "console");
            assert!(!shown.is_empty(), "{name}");
            let mut now = page.clone();
            for block in shown {
                let commands = block.lines().filter_map(|line| line.strip_prefix("$ "));
                let printed: String = commands
                    .map(|command| {
                        let paths = "export LD_LIBRARY_PATH=$PWD/target/dist/lib \
                             PATH=$PWD/target/dist/bin:$PATH";
                        let output =
                            shell(&dir, &format!("{paths}; exec 2>&1; {command} || true")).output();
                        let printed =
                            String::from_utf8_lossy(&output.expect("the program starts").stdout)
                                .into_owned();
                        let prefix = format!("{}/", dir.path().display());
                        format!("$ {command}\n{}", printed.replace(&prefix, ""))
                    })
                    .collect();
                now = now.replace(block, &printed);
            }
            if std::env::var_os("DOCS_UPDATE").is_some() {
                fs::write(workspace().join(name), &now).expect("the file can be written");
            } else {
                assert_eq!(now, page, "{name} is out of date: run with DOCS_UPDATE=1 to update it");
            }
        }
        Ok(())
    });
}

/// The maximum number of times that lines are run until their programs pass.
const MAX_ATTEMPTS: usize = 5;

/// Runs these lines of shell. Each server `dtest -s &` in them has a client, and both must pass.
fn dtests_pass(dir: &TempDir, lines: &str) {
    let passed = 2 * lines.matches(" -s &").count();
    let attempt = || {
        // A `dtest -s` whose client fails waits forever. `timeout` ends all processes.
        let mut shell = shell(dir, "timeout 60 bash -c \"$TYPED\"");
        let output =
            shell.env("TYPED", format!("{lines}\nwait")).output().expect("the program starts");
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let all = output.status.success()
            && stdout.matches("DAPL Test Complete. PASSED").count() == passed;
        if all { Ok(()) } else { Err(stdout + &String::from_utf8_lossy(&output.stderr)) }
    };
    // The server of dtest sends its address to the client before it listens, so the client may
    // connect too early. This test checks the lines and not dtest, so a failed attempt may be
    // repeated.
    let mut outcome = attempt();
    for _ in 1..MAX_ATTEMPTS {
        outcome = outcome.or_else(|_| attempt());
    }
    assert_eq!(outcome, Ok(()), "{lines}");
}

/// Runs the lines of docs/moving.md, section "In three steps", with dtest and the built-in name.
#[test]
fn a_program_is_moved_in_three_steps() {
    skip_if_missing(|| {
        let dist = Dist::locate()?;
        let _turn = FIXED_PORTS.lock().unwrap_or_else(PoisonError::into_inner);
        find_program("dtest", "dapl2-utils")?;
        let (dir, page) = (clone_of(&dist), read("docs/moving.md"));
        // The blocks are indented, because they belong to a list.
        let page: String = page.lines().map(|line| format!("{}\n", line.trim_start())).collect();
        let [library, name] = blocks(&page, "sh")[..] else {
            panic!("the page needs two blocks of sh lines: {page}")
        };
        let library = library.strip_prefix("cargo xtask dist\n").expect("the first line");
        let ia = name.split_whitespace().nth(2).expect("a name");
        let run = format!("dtest -P {ia} -s & sleep 1\ndtest -P {ia} -h 127.0.0.1");
        dtests_pass(&dir, &format!("{library}{name}{run}"));
        Ok(())
    });
}

/// Runs the lines of docs/using.md, section "Use it", with an example program in place of `prog.c`.
#[test]
fn the_lines_of_the_page_for_users_do_what_they_say() {
    skip_if_missing(|| {
        let dist = Dist::locate()?;
        let _turn = FIXED_PORTS.lock().unwrap_or_else(PoisonError::into_inner);
        find_program("cc", "gcc")?;
        find_program("pkg-config", "pkg-config")?;
        find_program("dtest", "dapl2-utils")?;
        let (dir, page) = (clone_of(&dist), read("docs/using.md"));
        fs::copy(workspace().join("examples/hello/hello.c"), dir.path().join("prog.c"))
            .expect("a copy");
        let (_, page) = page.split_once("\n## Use it\n").expect("the chapter");
        let [lines, ..] = blocks(page, "")[..] else { panic!("lines: {page}") };
        let lines = lines.replace("/tmp/", &format!("{}/", dir.path().display()));
        let parts = lines.split("\n\n");
        assert_eq!(parts.clone().count(), 5, "{lines}");
        parts.for_each(|part| dtests_pass(&dir, part));
        let files = fs::read_dir(dir.path()).expect("the directory exists").filter_map(Result::ok);
        let captures =
            files.filter(|file| file.path().extension().is_some_and(|end| end == "pcapng"));
        // Each attempt leaves one capture.
        assert!((1..=MAX_ATTEMPTS).contains(&captures.count()));
        assert!(dir.path().join("a.out").exists());
        Ok(())
    });
}

/// Runs the lines of README.md in the blocks for an existing program and for a new one.
#[test]
fn the_lines_of_the_readme_do_what_they_say() {
    skip_if_missing(|| {
        let dist = Dist::locate()?;
        let _turn = FIXED_PORTS.lock().unwrap_or_else(PoisonError::into_inner);
        find_program("cc", "gcc")?;
        find_program("pkg-config", "pkg-config")?;
        find_program("dtest", "dapl2-utils")?;
        let (dir, page) = (clone_of(&dist), read("README.md"));
        let [existing, new] = blocks(&page, "sh")[..] else {
            panic!("the page needs two blocks of sh lines: {page}")
        };
        let existing =
            existing.strip_prefix("cargo xtask dist").and_then(|rest| rest.split_once('\n'));
        let (_, existing) = existing.expect("the block starts with `cargo xtask dist`");
        assert_eq!(existing.matches(" -s &").count(), 1, "{existing}");
        dtests_pass(&dir, existing);
        // The page then asks for `dat doctor`.
        let export = existing.lines().find(|line| line.starts_with("export ")).expect("variables");
        let found = shell(&dir, &format!("{export}\ncommand -v dat")).output().expect("bash");
        assert!(text(&found).ends_with("/target/dist/bin/dat\n"), "{}", text(&found));
        let output =
            text(&shell(&dir, &format!("{new}wait")).output().expect("the program starts"));
        let (client, server) =
            (read("examples/hello/client.txt"), read("examples/hello/server.txt"));
        for line in client.lines().chain(server.lines()) {
            assert!(output.lines().any(|other| other == line), "{line}: {output}");
        }
        Ok(())
    });
}

#[test]
fn the_summary_has_every_page() {
    let summary = read("docs/SUMMARY.md");
    let named: BTreeSet<&str> =
        summary.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let pages = pages();
    let there: BTreeSet<&str> = pages
        .iter()
        .filter_map(|path| path.file_name()?.to_str())
        .filter(|name| *name != "SUMMARY.md")
        .collect();
    assert_eq!(named, there);
}

/// Checks the links of the documents as users get them, in the layout. Links of the pages must lead
/// to pages, so that they work in the book too. Links of the other documents must lead to files of
/// the layout.
#[test]
fn links_lead_somewhere() {
    let links = |text: &str| -> Vec<String> {
        let links = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let files = links.map(|link| link.split('#').next().unwrap_or(link).to_owned());
        files
            .filter(|file| !(file.is_empty() || file.contains("://") || file.contains(' ')))
            .collect()
    };
    let mut checked = 0;
    for page in pages() {
        for link in links(&read(&page)) {
            assert!(
                !link.contains('/') && page.with_file_name(&link).exists(),
                "{}: {link}",
                page.display()
            );
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked} links were found");
    let dist = match Dist::locate() {
        Ok(dist) => dist,
        Err(reason) => return skip(&reason),
    };
    let documents = dist.root().join("share/doc/opendat");
    for name in ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"] {
        for link in links(&read(documents.join(name))) {
            for root in [workspace(), &documents] {
                assert!(root.join(&link).exists(), "{name}: {link} is not in {}", root.display());
            }
        }
    }
    for page in pages() {
        let name = page.file_name().expect("a name");
        let is_same = read(documents.join("docs").join(name)) == read(&page);
        assert!(is_same, "{} differs from its copy in {}", page.display(), documents.display());
    }
}

/// Checks that quoted parts of files are current. A page has `<!-- quotes FILE:ANCHOR -->` before a
/// block that is a part of a file, or `<!-- quotes FILE -->` before a block that is the whole file.
/// The part is between lines that end in `ANCHOR: NAME` and `ANCHOR_END: NAME`. With quotations, a
/// page is complete wherever it is read.
///
/// With `DOCS_UPDATE=1` the test updates the pages.
#[test]
fn quotations_are_what_the_files_say() {
    let mut checked = 0;
    for page in pages() {
        let (text, mut quoted) = (read(&page), String::new());
        let mut lines = text.split_inclusive('\n');
        while let Some(line) = lines.next() {
            quoted += line;
            let Some(source) =
                line.strip_prefix("<!-- quotes ").and_then(|rest| rest.strip_suffix(" -->\n"))
            else {
                continue;
            };
            let fence = lines.next().unwrap_or_default();
            assert!(fence.starts_with("```"), "{}: no block after {line}", page.display());
            quoted += fence;
            quoted += &part_of(source);
            quoted += lines.find(|line| line.starts_with("```")).unwrap_or_default();
            checked += 1;
        }
        if std::env::var_os("DOCS_UPDATE").is_some() {
            fs::write(&page, &quoted).expect("the page can be written");
        }
        assert_eq!(
            text,
            quoted,
            "{} is out of date: run with DOCS_UPDATE=1 to update it",
            page.display()
        );
    }
    assert!(checked > 20, "{checked} quotations were found");
}

/// Returns the text of `FILE`, or of the part `FILE:ANCHOR`, without the lines that mark parts.
fn part_of(source: &str) -> String {
    let (file, anchor) =
        source.split_once(':').map_or((source, None), |(file, anchor)| (file, Some(anchor)));
    let (mut inside, mut ends, mut part) = (anchor.is_none(), anchor.is_none(), String::new());
    for line in read(file).split_inclusive('\n') {
        let mark = line.trim_end().trim_end_matches(" */");
        if let Some((_, name)) = mark.split_once("ANCHOR: ") {
            inside |= anchor == Some(name);
        } else if let Some((_, name)) = mark.split_once("ANCHOR_END: ") {
            ends |= anchor == Some(name);
            inside &= anchor != Some(name);
        } else if inside {
            part += line;
        }
    }
    assert!(ends && !part.is_empty(), "{source}: no such part");
    part
}
