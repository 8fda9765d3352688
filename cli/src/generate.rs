//! Generates the shell completions and manual pages that packages install, from the commands'
//! definitions.

use std::fs;
use std::io::{self, Write, stdout};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;

#[derive(Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

/// Prints a completion script for the shell. `all` is the definition of the whole program.
pub(crate) fn completions(options: &Completions, all: &Command) -> Result<bool> {
    // Without this list of visible commands, Bash would also complete hidden commands.
    let commands = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut shown = Command::new("dat").args(all.get_arguments().cloned()).subcommands(commands);
    // The script is written to memory first, because clap_complete panics if it cannot write.
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut shown, "dat", &mut text);
    stdout().write_all(&text)?;
    Ok(true)
}

#[derive(Args)]
pub(crate) struct Manual {
    /// The directory to write to
    directory: PathBuf,
}

/// Writes the manual pages: dat(1), and one for each command. `all` is the definition of the whole
/// program.
pub(crate) fn manual(options: &Manual, all: Command) -> Result<bool> {
    let directory = &options.directory;
    fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    let mut all = all.disable_help_subcommand(true);
    all.build();
    let shown = all.get_subcommands().filter(|command| !command.is_hide_set());
    for command in std::iter::once(&all).chain(shown) {
        let manual = Man::new(command.clone());
        let file = directory.join(manual.get_filename());
        let written = page(&manual, command).and_then(|text| fs::write(&file, text));
        written.with_context(|| format!("writing {}", file.display()))?;
    }
    Ok(true)
}

/// Returns a page in roff.
fn page(manual: &Man, command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    manual.render_title(&mut page)?;
    manual.render_name_section(&mut page)?;
    manual.render_synopsis_section(&mut page)?;
    manual.render_description_section(&mut page)?;
    manual.render_options_section(&mut page)?;
    if command.get_subcommands().any(|command| !command.is_hide_set()) {
        manual.render_subcommands_section(&mut page)?;
    }
    // The text after the options in `--help` is a table, whose layout must be kept.
    let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (heading, table) = help.split_once(":\n").unwrap_or_default();
    if !table.is_empty() {
        let escaped: String =
            table.lines().map(|line| format!("\\&{}\n", line.replace('\\', "\\e"))).collect();
        writeln!(page, ".SH {}\n.nf\n{escaped}.fi", heading.to_uppercase())?;
    }
    let see_also = match command.get_name() {
        "dat" => ".BR dat.conf (5)",
        _ => ".BR dat (1),\n.BR dat.conf (5)",
    };
    writeln!(
        page,
        ".SH EXIT STATUS\n{}\n.SH SEE ALSO\n{see_also}",
        exit_status(command.get_name())
    )?;
    Ok(page)
}

/// Returns a command's exit codes in words.
fn exit_status(command: &str) -> &'static str {
    match command {
        "list" => "0, or 1 if the registry file has errors; 2 for a wrong command line.",
        "doctor" => "0, or 1 if there is a problem; 2 for a wrong command line.",
        "check" => {
            "0, or 1 if there are errors (with \\-\\-strict: or warnings); 2 if the file cannot be \
             read, or for a wrong command line."
        }
        "conformance" => {
            "0 if nothing failed, 1 if something did; 2 if the provider could not be tested, or \
             for a wrong command line."
        }
        "trace" => {
            "The exit status of the traced program; 127 if it does not exist, 126 if it cannot be \
             run; 2 for a wrong command line."
        }
        _ => "0 on success, 1 on failure; 2 for a wrong command line.",
    }
}
