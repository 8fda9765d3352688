//! Generates the shell completions and manual pages that packages install, from the commands'
//! definitions.

mod examples;

use std::fs;
use std::io::{self, Write, stdout};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Arg, Args, Command, ValueHint};
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
    let shown = Command::new("dat").args(all.get_arguments().cloned()).subcommands(commands);
    let mut shown = without_file_names(shown).mut_subcommands(without_file_names);
    // The script is written to memory first, because clap_complete panics if it cannot write.
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut shown, "dat", &mut text);
    stdout().write_all(&text)?;
    Ok(true)
}

/// Shells complete file names for an argument whose values are not known. Only arguments that are
/// paths keep this completion.
fn without_file_names(command: Command) -> Command {
    command.mut_args(|argument| match argument.get_value_hint() {
        ValueHint::Unknown if argument.get_action().takes_values() => {
            argument.value_hint(ValueHint::Other)
        }
        _ => argument,
    })
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
    writeln!(page, "{}", title(&manual.get_filename()))?;
    manual.render_name_section(&mut page)?;
    writeln!(page, ".SH SYNOPSIS\n.nh\n.ad l\n{}\n.ad b\n.hy", synopsis(command))?;
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
        // The table is as wide as a terminal, so it is not indented.
        writeln!(page, ".SH {}\n.in 0\n.nf\n{escaped}.fi", heading.to_uppercase())?;
    }
    writeln!(page, ".SH EXAMPLES")?;
    for example in examples::of(command.get_name()) {
        writeln!(page, ".PP\n{}\n.PP\n.in 2n\n.nf", escape(example.purpose))?;
        for line in example.lines {
            writeln!(page, "$ {}", escape(line))?;
        }
        writeln!(page, ".fi\n.in")?;
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

/// Returns the title of the page in this file. The third argument is the date, which is empty: a
/// page is the same whenever it is made. [`Man`] does not quote an empty date, and then the name
/// takes its place.
fn title(file: &str) -> String {
    let (name, section) = file.rsplit_once('.').unwrap_or((file, "1"));
    let version = env!("CARGO_PKG_VERSION");
    format!(".TH \"{}\" {section} \"\" \"OpenDAT {version}\" \"OpenDAT\"", escape(name))
}

/// Returns the synopsis: the command with all its options and their values.
fn synopsis(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or(command.get_name());
    let mut words = vec![format!("\\fB{}\\fR", escape(name))];
    let shown = || command.get_arguments().filter(|argument| !argument.is_hide_set());
    words.extend(shown().filter(|argument| !argument.is_positional()).map(option));
    words.extend(shown().filter(|argument| argument.is_positional()).map(|argument| {
        let many = argument.get_num_args().is_some_and(|range| range.max_values() > 1);
        let text = format!("{}{}", values(argument), if many { " ..." } else { "" });
        if argument.is_required_set() { text } else { format!("[{text}]") }
    }));
    if command.get_subcommands().any(|command| !command.is_hide_set()) {
        words.push("[\\fICOMMAND\\fR]".to_owned());
    }
    words.join(" ")
}

/// Returns an option in the form that a synopsis has: `[-s|--size SIZE]`.
fn option(argument: &Arg) -> String {
    let short = argument.get_short().map(|short| format!("\\fB\\-{short}\\fR"));
    let long = argument.get_long().map(|long| format!("\\fB\\-\\-{}\\fR", escape(long)));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    let value = match argument.get_action().takes_values() {
        // The name of the option and its value stay in one line.
        true => format!("\\ {}", values(argument)),
        false => String::new(),
    };
    format!("[{}{value}]", names.join("|"))
}

/// Returns the names of an argument's values.
fn values(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let names: Vec<String> = names.iter().map(|name| format!("\\fI{}\\fR", escape(name))).collect();
    names.join(" ")
}

/// Escapes the characters of a text that have a meaning in roff.
fn escape(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace('\'', "\\(aq")
}

/// Returns a command's exit codes in words.
fn exit_status(command: &str) -> &'static str {
    match command {
        "serve" => "Does not end by itself: 1 on failure, 2 for a wrong command line.",
        "list" => {
            "0, or 1 if the registry file has errors or no entry has NAME in its name; 2 for a \
             wrong command line."
        }
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
