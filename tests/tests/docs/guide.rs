//! Verifies docs/guide.md: its programs are compiled by the lines of the page, run over both
//! adapters that need no setup, and print what the page shows.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Output, Stdio};
use std::sync::PoisonError;

use opendat_tests::{Dist, Skip, find_program};
use tempfile::TempDir;

use super::{FIXED_PORTS, Killed, blocks, clone_of, read, shell, skip_if_missing, text, workspace};

const PAGE: &str = "docs/guide.md";
const ADAPTERS: [&str; 2] = ["tcp-emu", "softroce"];

/// The page, and a directory with its compiled programs.
struct Guide {
    page: String,
    dir: TempDir,
    /// The lines of the page that set variables. Every shell needs them.
    exports: String,
}

impl Guide {
    /// Compiles the programs with the first block of the page.
    fn compile() -> Result<Self, Skip> {
        let dist = Dist::locate()?;
        find_program("cc", "gcc")?;
        find_program("pkg-config", "pkg-config")?;
        let page = read(PAGE);
        let lines = blocks(&page, "sh")[0];
        let exports = lines.lines().filter(|line| line.starts_with("export "));
        let exports = exports.map(|line| format!("{line}\n")).collect();
        let guide = Self { dir: clone_of(&dist), exports, page: page.clone() };
        text(&guide.run(lines));
        Ok(guide)
    }

    /// Runs lines of shell, for five minutes at most.
    fn run(&self, lines: &str) -> Output {
        let mut shell = shell(&self.dir, "timeout 300 bash -ec \"$TYPED\"");
        let typed = format!("{}{lines}", self.exports);
        shell.env("TYPED", typed).output().expect("the program starts")
    }

    /// Returns everything that lines of shell print, which may fail. The directory of the test is
    /// not part of it.
    fn print(&self, lines: &str) -> String {
        let printed = self.run(&format!("exec 2>&1\n{lines} || true")).stdout;
        let directory = format!("{}/", self.dir.path().display());
        String::from_utf8_lossy(&printed).replace(&directory, "")
    }

    /// Returns the part of the page below a heading, up to the next heading of the same level.
    fn section(&self, heading: &str) -> &str {
        let (level, _) = heading.split_once(' ').expect("a heading");
        let (_, rest) = self.page.split_once(&format!("\n{heading}\n")).expect(heading);
        rest.split(&format!("\n{level} ")).next().unwrap_or(rest)
    }

    /// Runs the server and the clients of a pattern. They must print what the page shows.
    fn run_pattern(&self, heading: &str, adapter: &str) {
        let section = self.section(heading);
        let [lines] = blocks(section, "sh")[..] else { panic!("one block of sh: {section}") };
        let [of_server, of_clients] = blocks(section, "text")[..] else {
            panic!("two blocks of output: {section}")
        };
        let (server, clients) = lines.split_once('\n').expect("the lines of the clients");
        let server = server.split('#').next().unwrap_or(server).trim_end();
        let clients = clients.replace("127.0.0.1", &format!("127.0.0.1 {adapter}"));

        let mut command = shell(&self.dir, &format!("{}exec {server} {adapter}", self.exports));
        let mut running = Killed(command.stdout(Stdio::piped()).spawn().expect("a server"));
        let mut output = BufReader::new(running.0.stdout.take().expect("the output is piped"));
        let mut printed = String::new();
        output.read_line(&mut printed).expect("a line");
        assert_eq!(text(&self.run(&clients)), of_clients, "{clients}");
        if section.contains("SIGTERM") {
            text(&self.run(&format!("kill {}", running.0.id())));
        }
        output.read_to_string(&mut printed).expect("text");
        assert_eq!(printed, of_server, "{server} {adapter}");
        assert!(running.0.wait().expect("an exit code").success(), "{server} {adapter}");
    }
}

#[test]
fn the_patterns_run_over_both_adapters() {
    skip_if_missing(|| {
        let guide = Guide::compile()?;
        let _turn = FIXED_PORTS.lock().unwrap_or_else(PoisonError::into_inner);
        let patterns = guide.section("## Patterns");
        let headings = patterns.lines().filter(|line| line.starts_with("### "));
        assert_eq!(headings.clone().count(), 4, "{patterns}");
        for (heading, adapter) in headings.flat_map(|heading| ADAPTERS.map(|ia| (heading, ia))) {
            guide.run_pattern(heading, adapter);
        }
        Ok(())
    });
}

#[test]
fn the_program_for_two_versions_is_compiled_for_each() {
    skip_if_missing(|| {
        let guide = Guide::compile()?;
        for (program, adapter) in ["./versions", "./versions-1.2"]
            .into_iter()
            .flat_map(|program| ADAPTERS.map(|adapter| (program, adapter)))
        {
            let printed = text(&guide.run(&format!("{program} {adapter}")));
            assert_eq!(printed, "rejected\nwritten: through a window\n", "{program} {adapter}");
        }
        Ok(())
    });
}

/// The example of docs/softroce.md: a server answers two clients through one endpoint.
#[test]
fn the_example_of_datagrams_answers_each_client() {
    skip_if_missing(|| {
        let guide = Guide::compile()?;
        text(&guide.run(
            "cc -Wall -Wextra -Werror -o datagrams examples/datagrams/datagrams.c \
             $(pkg-config --cflags --libs dat2)",
        ));
        let _turn = FIXED_PORTS.lock().unwrap_or_else(PoisonError::into_inner);
        let server = format!("{}exec ./datagrams server softroce 2", guide.exports);
        let mut command = shell(&guide.dir, &server);
        let mut running = Killed(command.stdout(Stdio::piped()).spawn().expect("a server"));
        let mut output = BufReader::new(running.0.stdout.take().expect("the output is piped"));
        let mut printed = String::new();
        output.read_line(&mut printed).expect("a line");
        assert_eq!(printed, "listening\n");
        // The server gets both requests before it answers either of them.
        let both = "for i in 1 2; do ./datagrams client 127.0.0.1 softroce & done; wait";
        assert_eq!(text(&guide.run(both)), "server: read you\n".repeat(2));
        output.read_to_string(&mut printed).expect("text");
        let mut lines: Vec<&str> = printed.lines().collect();
        lines.sort();
        let questions = ["client 0: do you read me?", "client 1: do you read me?", "listening"];
        assert_eq!(lines, questions);
        assert!(running.0.wait().expect("an exit code").success());

        let refused = guide.print("./datagrams server tcp-emu");
        assert!(refused.starts_with("dat_ep_create: DAT_MODEL_NOT_SUPPORTED"), "{refused}");

        // A client of another server, which accepts without private data.
        let source = read("examples/datagrams/datagrams.c");
        let silent = source.replace("ep, sizeof number, &number)", "ep, 0, NULL)");
        assert_ne!(source, silent);
        fs::write(guide.dir.path().join("silent.c"), silent).expect("a file");
        text(&guide.run("cc -o silent silent.c $(pkg-config --cflags --libs dat2)"));
        let server = format!("{}exec ./silent server softroce", guide.exports);
        let mut command = shell(&guide.dir, &server);
        let mut running = Killed(command.stdout(Stdio::piped()).spawn().expect("a server"));
        let mut output = BufReader::new(running.0.stdout.take().expect("the output is piped"));
        output.read_line(&mut printed).expect("a line");
        let refused = guide.print("./datagrams client 127.0.0.1 softroce || echo status $?");
        assert_eq!(refused, "the server sends no number\nstatus 1\n");
        Ok(())
    });
}

/// Compiles the lines for uDAPL 1.2 with the header of 2.0. The compiler must object to everything
/// that the page's first table of differences names.
#[test]
fn what_breaks_the_build_is_what_the_table_names() {
    skip_if_missing(|| {
        let guide = Guide::compile()?;
        let source = read("examples/guide/versions.c").replace("<dat/udat.h>", "<dat2/udat.h>");
        fs::write(guide.dir.path().join("moved.c"), source).expect("a file");
        let errors = guide.print("cc -DUDAPL_1_2 -c moved.c $(pkg-config --cflags dat2)");
        let rows = guide.section("### What breaks the build");
        for name in ["dat_lmr_create", "dat_rmr_bind", "dat_cr_reject", "target_address"] {
            assert!(errors.contains(name), "{name}: {errors}");
            assert!(rows.contains(&format!("| `{name}`")), "{name}: {rows}");
        }
        for (header, library) in [("dat", "dat2"), ("dat2", "dat")] {
            let define = if header == "dat" { "-DUDAPL_1_2" } else { "" };
            let printed = guide.print(&format!(
                "cc {define} -o mixed examples/guide/versions.c $(pkg-config --cflags {header}) \
                 $(pkg-config --libs {library}) && ./mixed"
            ));
            assert!(printed.contains("DAT_MAJOR_NOT_FOUND"), "{header} {library}: {printed}");
        }
        Ok(())
    });
}

/// Runs the rows of the table of mistakes. Each program must print the statuses that the row names
/// for its adapter, and must not print the first of them if the mistake is mended. The program
/// prints the same over both adapters if the row says the same about both.
#[test]
fn each_mistake_has_the_statuses_of_its_row() {
    skip_if_missing(|| {
        let guide = Guide::compile()?;
        let section = guide.section("## The ten most common mistakes");
        let rows: Vec<&str> = section.lines().filter(|line| line.starts_with("| [")).collect();
        assert_eq!(rows.len(), 10, "{section}");
        for row in rows {
            let cells: Vec<&str> = row.split('|').map(str::trim).collect();
            let [_, mistake, tcp_emu, softroce, _] = cells[..] else { panic!("{row}") };
            let [name] = quoted(mistake)[..] else { panic!("{row}") };
            let [over_tcp_emu, over_softroce] =
                ADAPTERS.map(|adapter| text(&guide.run(&format!("./mistakes {name} {adapter}"))));
            assert_eq!(tcp_emu == softroce, over_tcp_emu == over_softroce, "{name}");
            for (adapter, statuses, printed) in
                [(ADAPTERS[0], tcp_emu, over_tcp_emu), (ADAPTERS[1], softroce, over_softroce)]
            {
                let statuses = quoted(statuses);
                for status in &statuses {
                    assert!(printed.contains(status), "{name} {adapter}: {status}: {printed}");
                }
                let mended = text(&guide.run(&format!("./mistakes {name} {adapter} mended")));
                assert!(!mended.contains(statuses[0]), "{name} {adapter}: {mended}");
            }
        }
        Ok(())
    });
}

/// Runs the commands in the blocks ```` ```console ````. Each command must print the lines that
/// follow it. With DOCS_UPDATE=1 the test updates the page.
#[test]
fn the_commands_of_the_guide_print_what_it_shows() {
    skip_if_missing(|| {
        let guide = Guide::compile()?;
        let mut now = guide.page.clone();
        let shown = blocks(&guide.page, "console");
        assert_eq!(shown.len(), 3, "blocks of commands");
        for block in shown {
            for shown in block.split("$ ").skip(1) {
                let (command, before) = shown.split_once('\n').expect("a command");
                let printed = guide.print(command);
                if comparable(&printed) != comparable(before) {
                    now = now.replace(
                        &format!("$ {command}\n{before}"),
                        &format!("$ {command}\n{printed}"),
                    );
                }
            }
        }
        if std::env::var_os("DOCS_UPDATE").is_some() {
            fs::write(workspace().join(PAGE), &now).expect("the file can be written");
        } else {
            assert_eq!(now, guide.page, "run with DOCS_UPDATE=1 to update the page");
        }
        Ok(())
    });
}

/// Returns the parts of a text that are in backquotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Returns what a program prints in a form that is the same in each run. Lines of the log have no
/// process, times, handles and ports, and come sorted after the other lines.
fn comparable(printed: &str) -> Vec<String> {
    let is_log = |line: &&str| line.starts_with("dat[");
    let mut log: Vec<String> = printed.lines().filter(is_log).map(without_numbers).collect();
    log.sort();
    printed.lines().filter(|line| !is_log(line)).map(str::to_owned).chain(log).collect()
}

fn without_numbers(line: &str) -> String {
    let words = line.split_whitespace().skip(2);
    let words = words.map(|word| match word.rsplit_once(':') {
        Some((address, port)) if port.parse::<u16>().is_ok() => format!("{address}:port"),
        _ => match (word.split_once("0x"), word.split_once("_ns=")) {
            (Some((name, handle)), _) if handle.len() >= 8 => format!("{name}handle"),
            (_, Some((clock, _))) => format!("{clock}_ns"),
            _ => word.to_owned(),
        },
    });
    words.collect::<Vec<_>>().join(" ")
}
