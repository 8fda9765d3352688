//! Tests of `dat check`, `dat register` and `dat unregister` on registry files.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

struct File {
    _dir: TempDir,
    path: PathBuf,
}

fn file(name: &str, text: &str) -> File {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join(name);
    fs::write(&path, text).expect("the file can be written");
    File { _dir: dir, path }
}

impl File {
    fn text(&self) -> String {
        fs::read_to_string(&self.path).expect("the file exists")
    }
}

fn dat(file: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
    command
        .args(arguments)
        .env("DAT_OVERRIDE", file)
        .env_remove("DAT_DBG_TYPE")
        .output()
        .expect("the program starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

fn check(file: &File, arguments: &[&str]) -> Output {
    let path = file.path.to_str().expect("UTF-8");
    dat(Path::new("/dev/null"), &[&["check", path], arguments].concat())
}

/// Returns the text in one line. `dat check` wraps its findings to the width of a terminal, and
/// where they are wrapped depends on the path of the file.
fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Each line has a different error, except for the comment and `fine`, whose library exists on
/// every host but is not a provider.
const INVALID_ENTRIES: &str = "\
# ten mistakes, and more
short u2.0 nonthreadsafe
open u2.0 nonthreadsafe default \"liba.so v.1.0 x y
\tapi 2.0 nonthreadsafe default liba.so v.1.0 \"\" \"\"
safety u2.0 threadsave default liba.so v.1.0 \"\" \"\"
word u2.0 threadsafe defualt liba.so v.1.0 \"\" \"\"
version u2.0 threadsafe default liba.so dapl \"\" \"\"
extra u2.0 threadsafe default liba.so v.1.0 eth0 0 \"\"
kernel k1.2 threadsafe default liba.so v.1.0 \"\" \"\"
future u3.0 threadsafe default liba.so v.1.0 \"\" \"\"
gone u2.0 threadsafe default libopendat_gone.so v.1.0 \"\" \"\"
gone u2.0 threadsafe default libopendat_other.so v.1.0 \"\" \"\"
gone u2.0 threadsafe default libopendat_gone.so v.1.0 \"\" \"\"
off u2.0 threadsafe nondefault liba.so v.1.0 \"\" \"\"
libc u2.0 threadsafe default libc.so.6 v.1.0 \"\" \"\"
";

#[test]
fn every_error_has_its_place_and_the_expected_value() {
    let output = check(&file("dat.conf", INVALID_ENTRIES), &["--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let document: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(document["entries"], 7);
    let findings = document["findings"].as_array().expect("findings");
    let found: Vec<_> = findings
        .iter()
        .map(|finding| {
            let number = |name: &str| finding[name].as_u64().expect("a number");
            let text = |name: &str| finding[name].as_str().unwrap_or_default();
            (number("line"), number("column"), text("severity"), text("message"))
        })
        .collect();
    let expected = [
        (2, 25, "error", "the line ends after 3 of 8 fields; expected default or nondefault"),
        (3, 33, "error", "this quote is never closed; expected a second \" on the same line"),
        (4, 6, "error", "unknown API version \"2.0\"; expected u or k and two numbers, as in u2.0"),
        (
            5,
            13,
            "error",
            "unknown thread safety \"threadsave\"; expected threadsafe or nonthreadsafe",
        ),
        (6, 22, "error", "unknown word \"defualt\"; expected default or nondefault"),
        (
            7,
            41,
            "error",
            "unknown provider version \"dapl\"; expected a name and two numbers, as in dapl.2.0",
        ),
        (
            8,
            52,
            "error",
            "unexpected \"\" after the eighth field; quote a value that contains blanks",
        ),
        (9, 1, "warning", "kernel is for kDAPL (k1.2): no program in user space can open it"),
        (10, 1, "warning", "future offers u3.0, but programs ask only for uDAPL 1.2 and 2.0"),
        (
            11,
            1,
            "warning",
            "gone: libopendat_gone.so: cannot open shared object file: No such file or directory",
        ),
        (12, 1, "warning", "gone is in line 11 already, with the same API and thread safety"),
        (13, 1, "warning", "gone is the same as in line 11"),
        (14, 1, "warning", "off is marked nondefault: no program can open it"),
        (15, 1, "warning", "libc: not a DAT provider: "),
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!((found.0, found.1, found.2), (expected.0, expected.1, expected.2), "{found:?}");
        assert!(found.3.starts_with(expected.3), "{found:?}");
    }
    assert!(
        findings
            .iter()
            .all(|finding| finding["severity"] == "error" || finding["help"].is_string())
    );
}

#[test]
fn the_text_shows_the_line_with_a_mark_below() {
    let file = file("dat.conf", INVALID_ENTRIES);
    let output = check(&file, &[]);
    let (text, path) = (stdout(&output), file.path.display());
    let error = format!(
        "{path}:4:6: error: unknown API version \"2.0\"; expected u or k and two numbers, as in u2.0"
    );
    assert!(in_one_line(&text).contains(&error), "{text}");
    let line = "\n    \tapi 2.0 nonthreadsafe default liba.so v.1.0 \"\" \"\"\n    \t    ^\n";
    assert!(text.contains(line), "{text}");
    assert!(text.ends_with("7 entries, 7 errors, 7 warnings\n"), "{text}");
}

#[test]
fn warnings_alone_are_no_failure_unless_that_is_wanted() {
    let line = "net u2.0 nonthreadsafe default /opt/libdat_none.so v.1.0 \"\" \"\"\n";
    let file = file("dat.conf", line);
    assert_eq!(check(&file, &[]).status.code(), Some(0));
    assert_eq!(check(&file, &["--strict"]).status.code(), Some(1));
    let output = check(
        &File {
            _dir: tempfile::tempdir().expect("a temporary directory"),
            path: "/no/such/file".into(),
        },
        &[],
    );
    assert_eq!(
        output.status.code(),
        Some(2),
        "if the file cannot be read, the exit code must be 2, which means that there is no verdict"
    );
    assert!(stderr(&output).contains("reading /no/such/file: No such file"), "{}", stderr(&output));
}

#[test]
fn a_long_line_is_shown_around_its_mistake() {
    let long = "x".repeat(1 << 20);
    let line =
        format!("long u2.0 nonthreadsafe default libdat_tcp_emu.so v.1.0 \"{long}=1\" \"\" more\n");
    let text = stdout(&check(&file("dat.conf", &line), &[]));
    assert!(text.len() < 3000, "{} octets", text.len());
    let mut lines = text.lines().skip_while(|line| !line.starts_with("    … "));
    let (shown, mark) = (lines.next().expect("the line"), lines.next().expect("the mark"));
    let column = mark.chars().count() - 1;
    assert_eq!(mark.trim_start(), "^", "{text}");
    assert_eq!(shown.chars().skip(column).collect::<String>(), "more", "{text}");
    let text = stdout(&check(&file("dat.conf", &line.replace(" more", "")), &[]));
    assert!(text.len() < 3000, "{} octets", text.len());
}

/// Each entry has a different library and device. To compare each entry with all others would take
/// minutes.
#[test]
fn many_lines_are_checked_in_linear_time() {
    let line =
        |n| format!("off{n} u2.0 nonthreadsafe nondefault /none/{n}.so v.1.0 \"no{n}\" \"\"\n");
    let output = check(&file("dat.conf", &(0..20_000).map(line).collect::<String>()), &[]);
    assert!(stdout(&output).ends_with("20000 entries, 0 errors, 20000 warnings\n"));
}

/// Each entry has a different library, so that a process would be needed for each of them.
#[test]
fn the_providers_of_a_limited_number_of_entries_are_started() {
    let line =
        |n| format!("ia{n} u2.0 nonthreadsafe default libopendat_gone{n}.so v.1.0 \"\" \"\"\n");
    let many = file("dat.conf", &(0..70).map(line).collect::<String>());
    let findings = |arguments: &[&str]| {
        let output = check(&many, &[arguments, &["--json"]].concat());
        let document: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        let count = document["findings"].as_array().expect("findings").len();
        (count, document["not_started"].as_u64())
    };
    assert_eq!(findings(&[]), (64, Some(6)));
    assert_eq!(findings(&["--limit", "70"]), (70, None));
    let text = in_one_line(&stdout(&check(&many, &[])));
    assert!(
        text.contains("dat.conf: note: the providers of 6 entries were not started, "),
        "{text}"
    );

    // If the provider of an entry was not started, `dat check` does not know whether the entry is
    // usable.
    let one = file("dat.conf", &line(0));
    assert_eq!(check(&one, &["--limit", "0"]).status.code(), Some(0));
    let output = check(&one, &["--limit", "0", "--strict"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(in_one_line(&stdout(&output)).contains("the provider of 1 entry was not started"));
}

#[test]
fn a_key_that_occurs_twice_is_warned_of() {
    let line = "a u2.0 nonthreadsafe default libdat_tcp_emu.so v.1.0 \"crc=on crc=off\" \"\"\n";
    let text = in_one_line(&stdout(&check(&file("dat.conf", line), &["--limit", "0"])));
    let warning = "dat.conf:1:1: warning: a: ia_params: crc=off: the key crc occurs twice";
    assert!(text.contains(warning), "{text}");
}

#[test]
fn sixty_entries_of_a_library_that_is_gone_are_one_warning() {
    let line =
        |n| format!("gone{n} u2.0 nonthreadsafe default libopendat_gone.so v.1.0 \"\" \"\"\n");
    let file = file("dat.conf", &(0..60).map(line).collect::<String>());
    let text = in_one_line(&stdout(&check(&file, &[])));
    assert!(
        text.contains("(also lines 2-60)") && text.contains("60 entries, 0 errors, 1 warning"),
        "{text}"
    );
}

#[test]
fn a_provider_that_crashes_or_registers_nothing_is_warned_of() {
    let dir = tempfile::tempdir().expect("a directory");
    let library = |name: &str, body: &str| {
        let (source, library) = (dir.path().join(name).with_extension("c"), dir.path().join(name));
        let start = "(const void *info, const char *params) { (void)info; (void)params;";
        fs::write(&source, format!("void dat_provider_init{start} {body} }}\n"))
            .expect("the file can be written");
        let mut compile = Command::new("cc");
        let compiled = compile.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
        assert!(compiled.expect("cc starts").success());
        format!("{name} u2.0 nonthreadsafe default {} v.1.0 \"\" \"\"\n", library.display())
    };
    let text = library("silent", "") + &library("traps", "__builtin_trap();");
    let output = check(&file("dat.conf", &text), &["--strict"]);
    let text = in_one_line(&stdout(&output));
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("silent: its dat_provider_init did not register silent for u2.0"),
        "{text}"
    );
    assert!(
        text.contains("traps: starting ") && text.contains("terminates the program (signal: "),
        "{text}"
    );
    assert!(text.contains("2 entries, 0 errors, 2 warnings"), "{text}");
}

/// Each of a library's entries is checked separately.
#[test]
fn each_entry_of_a_library_is_started() {
    let dir = tempfile::tempdir().expect("a directory");
    let (source, library) = (dir.path().join("picky.c"), dir.path().join("picky.so"));
    // The library registers the entry `good`, crashes for `bad`, and does nothing for others. Its
    // info structure begins with the name.
    let body = "
        #include <stdlib.h>
        #include <string.h>
        int dat_registry_add_provider(const void *provider, const void *info);
        static struct { const char *device_name; void *rest[128]; } table;
        void dat_provider_init(const char *info, const char *params)
        {
            (void)params;
            table.device_name = info;
            if (!strcmp(info, \"bad\"))
                abort();
            if (!strcmp(info, \"good\"))
                dat_registry_add_provider(&table, info);
        }
    ";
    fs::write(&source, body).expect("the file can be written");
    let mut compile = Command::new("cc");
    let compiled = compile.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status();
    assert!(compiled.expect("cc starts").success());
    let line = |name: &str| {
        format!("{name} u2.0 nonthreadsafe default {} v.1.0 \"\" \"\"\n", library.display())
    };
    let text = ["good", "silent", "bad", "mute"].map(line).concat();
    let text = in_one_line(&stdout(&check(&file("dat.conf", &text), &[])));
    assert!(!text.contains("good:"), "{text}");
    for what in [
        "dat.conf:2:1: warning: silent: its dat_provider_init did not register silent for u2.0",
        "dat.conf:3:1: warning: bad: starting ",
        "dat.conf:4:1: warning: mute: its dat_provider_init did not register mute for u2.0",
        "4 entries, 0 errors, 3 warnings",
    ] {
        assert!(text.contains(what), "no {what:?}: {text}");
    }
}

const CONF: &str = "\
# first comment

a u2.0 nonthreadsafe default liba.so v.1.0 \"\" \"\"  # of a
broken line
a u1.2 nonthreadsafe default liba.so v.1.0 \"\" \"\"
b u2.0 nonthreadsafe default libb.so v.1.0 \"\" \"\"";

#[test]
fn an_entry_is_added_and_everything_else_stays() {
    let file = file("dat.conf", CONF);
    let output = dat(
        &file.path,
        &[
            "register",
            "c",
            "libopendat_gone.so",
            "eth0 crc=on",
            "--provider-version",
            "mine.1.2",
            "--threadsafe",
        ],
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let line = "c u2.0 threadsafe default libopendat_gone.so mine.1.2 \"eth0 crc=on\" \"\"";
    assert_eq!(file.text(), format!("{CONF}\n{line}\n"));
    let said = stdout(&output);
    let more = said
        .strip_prefix(&format!("registered in {}: {line}\n", file.path.display()))
        .unwrap_or_default();
    assert!(
        more.starts_with("warning: c: libopendat_gone.so: ")
            && more.contains("\n    install the package that contains it"),
        "{said}"
    );

    let output = dat(&file.path, &["unregister", "c", "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(file.text(), format!("{CONF}\n"));
    let document: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    assert_eq!(document["unregistered"][0], line);
}

#[test]
fn register_warns_of_an_unusable_entry() {
    let file = file("dat.conf", CONF);
    let concerns = |arguments: &[&str]| {
        let output = dat(&file.path, &[&["register", "--json"], arguments].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let document: Value = serde_json::from_str(&stdout(&output)).expect("JSON");
        let texts = document["concerns"].as_array().expect("a list").iter();
        texts
            .map(|concern| concern["message"].as_str().expect("a text").to_owned())
            .collect::<Vec<_>>()
    };
    let gone = concerns(&["d", "libopendat_gone.so"]);
    assert!(matches!(&gone[..], [one] if one.starts_with("d: libopendat_gone.so: ")), "{gone:?}");
    let device = concerns(&["e", "libopendat_gone.so", "--api", "u9.0"]);
    assert!(
        matches!(&device[..], [one] if one.contains("u9.0, but programs ask only for")),
        "{device:?}"
    );
    assert_eq!(
        concerns(&["f", "libopendat_gone.so", "--nondefault"]),
        Vec::<String>::new(),
        "an entry that was registered as nondefault must cause no warning"
    );
}

#[test]
fn an_existing_entry_is_replaced_only_with_replace() {
    let file = file("dat.conf", CONF);
    let output = dat(&file.path, &["register", "a", "libnew.so"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output)
            .contains(&format!("a exists already, at {}:3:1: --replace", file.path.display()))
    );
    assert_eq!(file.text(), CONF);
    let output = dat(&file.path, &["register", "a", "libnew.so", "--replace"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let line = "a u2.0 nonthreadsafe default libnew.so unknown.0.0 \"\" \"\"\n";
    assert_eq!(
        file.text(),
        CONF.replace("a u2.0 nonthreadsafe default liba.so v.1.0 \"\" \"\"  # of a\n", "")
            + "\n"
            + line
    );
}

#[test]
fn a_file_that_cannot_be_opened_is_an_error_with_a_remedy() {
    let file = file("dat.conf", CONF);
    let output = dat(&file.path.join("no/x.conf"), &["register", "n", "liba.so"]);
    assert!(!output.status.success());
    let output = dat(&file.path.with_file_name("no").join("x.conf"), &["register", "n", "liba.so"]);
    assert!(
        stderr(&output)
            .contains("No such file or directory (os error 2); its directory does not exist"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_file_that_is_not_a_registry_is_left_alone() {
    for (name, text) in
        [("program", "\u{7f}ELF\u{2}\u{1}\0\0\0"), ("other.json", "{\n  \"a\": 1\n}\n")]
    {
        let file = file(name, text);
        let output = dat(&file.path, &["register", "n", "liba.so"]);
        let why = format!("{} is left alone: it has no valid entry", file.path.display());
        assert!(!output.status.success() && stderr(&output).contains(&why), "{}", stderr(&output));
        assert_eq!(file.text(), text);
    }
    let file = file("bad.toml", "[[interface]\nname = 'a'\n");
    let output = dat(&file.path, &["register", "n", "liba.so"]);
    assert!(stderr(&output).contains("bad.toml:1:"), "{}", stderr(&output));
}

#[test]
fn unregister_removes_the_selected_entries() {
    let file = file("dat.conf", CONF);
    assert!(dat(&file.path, &["unregister", "a", "--api", "u1.2"]).status.success());
    assert_eq!(
        file.text(),
        CONF.replace("a u1.2 nonthreadsafe default liba.so v.1.0 \"\" \"\"\n", "")
    );
    let output = dat(&file.path, &["unregister", "a", "--library", "other.so"]);
    assert!(
        stderr(&output).contains("has no entry called a with that API and library"),
        "{}",
        stderr(&output)
    );
    let output = dat(Path::new("/no/such/file"), &["unregister", "a"]);
    assert!(
        stderr(&output).contains("there is no registry file /no/such/file"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn toml_is_edited_as_well() {
    let text = "\
# head

# of a
[[interface]]
name = \"a\" # its name
library = \"liba.so\"

# of b
[[interface]]
name = \"b\"
library = \"libb.so\"
";
    let file = file("dat.toml", text);
    assert!(dat(&file.path, &["register", "c", "libc.so"]).status.success());
    assert!(dat(&file.path, &["unregister", "a"]).status.success());
    let now = file.text();
    assert!(
        now.starts_with(
            "# head\n\n# of a\n\n# of b\n[[interface]]\nname = \"b\"\nlibrary = \
                             \"libb.so\"\n\n[[interface]]\nname = \"c\"\n"
        ),
        "{now}"
    );
    assert!(!now.contains("liba.so"));
}

#[test]
fn an_invalid_entry_is_refused_and_nothing_changes() {
    let file = file("dat.conf", CONF);
    for (arguments, why) in [
        (vec!["register", "", "liba.so"], "the IA name is empty"),
        (vec!["register", "n", ""], "the library is empty"),
        (
            vec!["register", "n", "liba.so", "--api", "2.0"],
            "expected u and two numbers, as in u2.0",
        ),
        (vec!["register", "n\nm", "liba.so"], "this is not a valid entry"),
    ] {
        let output = dat(&file.path, &arguments);
        assert!(
            !output.status.success() && stderr(&output).contains(why),
            "{arguments:?}: {}",
            stderr(&output)
        );
    }
    assert_eq!(file.text(), CONF);
    // If there was no file before, there is none afterwards.
    let path = file.path.with_file_name("new.conf");
    assert!(!dat(&path, &["register", "", "liba.so"]).status.success());
    assert!(!path.exists());
    assert!(dat(&path, &["register", "n", "liba.so"]).status.success());
    assert!(path.exists());
}

#[test]
fn the_file_keeps_its_mode_and_stays_where_links_lead() {
    let file = file("real.conf", CONF);
    fs::set_permissions(&file.path, fs::Permissions::from_mode(0o640))
        .expect("the owner of the file may change its mode");
    let link = file.path.with_file_name("link.conf");
    symlink(&file.path, &link).expect("a link");
    assert!(dat(&link, &["register", "c", "libc.so"]).status.success());
    assert!(fs::symlink_metadata(&link).expect("the file exists").is_symlink());
    assert!(file.text().contains("\nc u2.0"));
    assert_eq!(
        fs::metadata(&file.path).expect("the file exists").permissions().mode() & 0o7777,
        0o640
    );
    let left = fs::read_dir(file.path.parent().expect("the path has a parent"))
        .expect("the directory exists")
        .count();
    assert_eq!(left, 2, "no temporary file may be left");
}

#[test]
fn concurrent_edits_lose_nothing() {
    let file = file("dat.conf", CONF);
    std::thread::scope(|scope| {
        for n in 0..16 {
            let path = &file.path;
            scope.spawn(move || {
                assert!(dat(path, &["register", &format!("n{n}"), "liba.so"]).status.success())
            });
        }
    });
    let text = file.text();
    assert!((0..16).all(|n| text.contains(&format!("\nn{n} u2.0"))), "{text}");
}

/// A file such as /dev/null must not be replaced by a regular file. If root did so by accident,
/// every process on the host would be affected.
#[test]
fn a_file_that_is_not_regular_is_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let fifo = dir.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).expect("a pipe");
    for (path, why) in
        [(&*fifo, "is not a regular file: it is left alone"), (dir.path(), "opening ")]
    {
        let before = std::fs::metadata(path).expect("the file exists").file_type();
        let output = Command::new(env!("CARGO_BIN_EXE_dat"))
            .args(["register", "new", "libnew.so", "--file"])
            .arg(path)
            .output()
            .expect("the program starts");
        assert!(!output.status.success() && stderr(&output).contains(why), "{}", stderr(&output));
        assert_eq!(std::fs::metadata(path).expect("the file exists").file_type(), before);
    }
}
