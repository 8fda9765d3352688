//! What packages install beside the program, made from what its commands say of themselves.

use std::fs;
use std::io::{Write, stdout};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;

use crate::Cli;

#[derive(Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

/// Prints what the shell has to know to complete the program's arguments.
pub(crate) fn completions(options: &Completions) -> Result<bool> {
    // Bash would be told of those that are hidden, too.
    let all = Cli::command();
    let commands = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut shown = Command::new("dat").args(all.get_arguments().cloned()).subcommands(commands);
    // clap_complete panics where it cannot write.
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut shown, "dat", &mut text);
    stdout().write_all(&text)?;
    Ok(true)
}

#[derive(Args)]
pub(crate) struct Manual {
    /// Where they are written to
    directory: PathBuf,
}

/// Writes the pages of the manual, dat(1) and one for each command.
pub(crate) fn manual(options: &Manual) -> Result<bool> {
    let directory = &options.directory;
    fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    clap_mangen::generate_to(Cli::command(), directory)
        .with_context(|| format!("writing to {}", directory.display()))?;
    Ok(true)
}
