//! Tests of the program `dat` as its users run it.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Returns the program's command, in an environment without any configuration of OpenDAT.
fn dat(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dat"));
    command.args(arguments);
    // The variables that OpenDAT reads, and those that `cargo xtask test` sets for tests.
    let heeded =
        |name: &str| ["DAT_", "DAPL_", "OPENDAT_"].iter().any(|prefix| name.starts_with(prefix));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(heeded)) {
        command.env_remove(name);
    }
    command
}

fn run(command: &mut Command) -> Output {
    command.stdin(Stdio::null()).output().expect("the program starts")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&stdout(output))
        .unwrap_or_else(|e| panic!("{e}: {}{}", stdout(output), stderr(output)))
}

fn positive(value: &Value) -> bool {
    value.as_f64().is_some_and(|number| number > 0.0 && number.is_finite())
}

#[test]
fn the_demonstration_verifies_every_operation() {
    assert_everything_is_verified(&["--json", "--rounds", "1"], "tcp-emu");
}

#[test]
fn the_demonstration_verifies_every_operation_over_softroce() {
    assert_everything_is_verified(
        &["--json", "--rounds", "1", "--adapter", "softroce"],
        "softroce",
    );
    assert_everything_is_verified(
        &["--json", "--rounds", "1", "--adapter", "softroce", "--address", "::1"],
        "softroce",
    );
}

fn assert_everything_is_verified(arguments: &[&str], provider: &str) {
    let output = run(&mut dat(arguments));
    assert!(output.status.success(), "{}", stderr(&output));
    let document = json(&output);
    assert_eq!(document["verified"], true);
    assert_eq!(document["provider"], provider);
    let rows = document["rows"].as_array().expect("rows");
    let keys: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row["size"].as_u64().expect("a size"),
                row["operation"].as_str().expect("an operation"),
            )
        })
        .collect();
    let operations = ["send", "write", "read"];
    let sizes = [64, 4096, 65536, 1 << 20];
    let expected: Vec<_> =
        sizes.iter().flat_map(|&size| operations.map(|operation| (size, operation))).collect();
    assert_eq!(keys, expected);
    assert_eq!(document["also_verified"], serde_json::json!([1, 16 << 20]));
    for row in rows {
        assert_eq!(row["verified"], true, "{row}");
        assert!(row["rounds"].as_u64().is_some_and(|rounds| rounds >= 1), "{row}");
        for field in ["latency", "raw_latency", "bandwidth", "raw_bandwidth"] {
            assert!(positive(&row[field]), "{field}: {row}");
        }
    }
}

#[test]
fn the_table_fits_a_terminal_and_has_no_colours_in_a_file() {
    let output = run(&mut dat(&["--rounds", "2"]));
    let text = stdout(&output);
    assert!(output.status.success(), "{text}{}", stderr(&output));
    assert_eq!(text.lines().filter(|line| line.ends_with("  verified")).count(), 12, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(!text.contains('\x1b'));
    assert!(text.contains("Each figure is the median of "), "{text}");
    assert_eq!(stderr(&output), "");
}

#[test]
fn an_adapter_that_does_not_open_is_an_error_with_its_reason() {
    let text = fails(dat(&["--adapter", "no-such-adapter"]).env("DAT_OVERRIDE", "/dev/null"));
    assert!(text.contains("no-such-adapter") && text.contains("no entry has this name"), "{text}");
    assert!(text.contains("known are tcp-emu"), "{text}");
    let text = fails(dat(&["query", "softrose"]).env("DAT_OVERRIDE", "/dev/null"));
    assert!(text.contains(" (did you mean softroce?); known are tcp-emu"), "{text}");

    let text =
        fails(dat(&[]).env("OPENDAT_PARAMS", "builtin=off").env("DAT_OVERRIDE", "/dev/null"));
    assert!(
        text.contains("built-in providers are turned off by builtin=off in OPENDAT_PARAMS"),
        "{text}"
    );

    // Not even a built-in name can be opened, because the file may have had other parameters for
    // it.
    let text = fails(dat(&["--adapter", "tcp-emu"]).env("DAT_OVERRIDE", "/no/such/file"));
    assert!(
        text.contains("cannot read the registry file /no/such/file (named by DAT_OVERRIDE)"),
        "{text}"
    );
    let hidden = "built-in entries are hidden, because the registry file cannot be read";
    assert!(text.contains(hidden), "{text}");
}

#[test]
fn an_unusable_address_is_an_error_with_a_remedy() {
    let text = fails(&mut dat(&["--address", "192.0.2.1"]));
    assert!(
        text.contains("192.0.2.1 is not an address of this host; `ip -brief address` lists"),
        "{text}"
    );
    let text = fails(&mut dat(&["bench", "--address", "fe80::1"]));
    assert!(text.contains("fe80::1 does not say on which network device"), "{text}");
    let text = fails(&mut dat(&["--address", "localhost"]));
    assert!(
        text.contains("expected an IPv4 or IPv6 address of this host, as in 127.0.0.1"),
        "{text}"
    );
}

#[test]
fn an_adapter_of_one_address_is_used_at_that_address() {
    let entry = "one u2.0 nonthreadsafe default libdat_tcp_emu.so v.1.0 \"127.0.0.9\" \"\"\n";
    let Some(dist) = std::env::var_os("OPENDAT_DIST") else {
        println!("SKIP: no OPENDAT_DIST; `cargo xtask test` has one");
        return;
    };
    let library = Path::new(&dist).join("lib/libdat_tcp_emu.so");
    let entry = entry.replace("libdat_tcp_emu.so", &library.display().to_string());
    let (output, _) = with_registry(&["ping", "--ia", "one", "--count", "10", "--json"], &entry);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(json(&output)["address"], "127.0.0.9");
    let (output, _) = with_registry(&["ping", "--ia", "one", "--address", "127.0.0.1"], &entry);
    assert!(
        !output.status.success(),
        "the adapter must not be reachable at that address: {}",
        stdout(&output)
    );
}

#[test]
fn an_option_before_the_command_is_an_error_with_a_hint() {
    let text = fails(&mut dat(&["--json", "list"]));
    assert!(text.contains("write the option after the command: dat list --json"), "{text}");
    let text = fails(&mut dat(&["--json", "lists"]));
    assert!(!text.contains("write the option after the command"), "{text}");
}

#[test]
fn a_reader_that_has_read_enough_does_not_change_the_verdict() {
    let registry = file(".conf", "broken u2.0\n");
    let path = registry.display().to_string();
    let bench = ["bench", "--rounds", "1", "--sizes", "64", "--operations", "send"];
    for (arguments, code) in [(&["check", &path][..], 1), (&["query", "tcp-emu"], 0), (&bench, 141)]
    {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = run(dat(arguments).env("DAT_OVERRIDE", "/dev/null").stdout(writer));
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{arguments:?}");
    }
}

/// Returns the text that a failing command prints to standard error.
fn fails(command: &mut Command) -> String {
    let output = run(command);
    let text = stderr(&output);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{}: {text}", output.status);
    assert!(!text.contains("panicked"), "{text}");
    text
}

fn with_registry(arguments: &[&str], text: &str) -> (Output, String) {
    let path = file(".conf", text);
    let output = run(dat(arguments).env("DAT_OVERRIDE", &path));
    (output, path.display().to_string())
}

const REGISTRY: &str = "\
# ours
gone u2.0 nonthreadsafe default libopendat_not_there.so vendor.1.0 \"\" \"\"
off u2.0 nonthreadsafe nondefault libopendat_not_there.so vendor.1.0 \"\" \"\"
old u1.2 nonthreadsafe default libopendat_not_there.so vendor.1.0 \"\" \"\"
";

#[test]
fn list_shows_where_an_entry_is_and_why_it_does_not_open() {
    let (output, path) = with_registry(&["list"], REGISTRY);
    let text = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("gone ")).expect("the entry");
    assert!(lines[at].contains("fails") && lines[at].contains(&format!("{path}:2:1")), "{text}");
    let opens =
        lines.iter().position(|line| line.starts_with("tcp-emu ")).expect("the built-in entry");
    assert!(opens < at, "entries that open must come first: {text}");
    assert_eq!(lines[at + 1], "    u2.0 libopendat_not_there.so");
    assert!(
        lines[at + 2].contains("libopendat_not_there.so: cannot open shared object file"),
        "{text}"
    );
    // The number of built-in entries depends on the RDMA devices of this host.
    let summary = format!("3 entries of {path}, none usable; ");
    assert!(
        lines.last().is_some_and(|line| line.starts_with(&summary) && line.contains(" built in, ")),
        "{text}"
    );
    assert!(text.contains("marked nondefault"), "{text}");
    for name in ["tcp-emu", "softroce"] {
        let builtin = lines.iter().find(|line| line.starts_with(name)).expect("the built-in entry");
        assert!(builtin.contains("opens") && builtin.contains("built in"), "{text}");
    }
}

#[test]
fn list_prints_the_same_as_json() {
    let (output, path) = with_registry(&["list", "--json"], REGISTRY);
    let document = json(&output);
    assert_eq!(document["file"], path.as_str());
    let mut states = states(&document);
    states.retain(|(name, _)| !name.starts_with("verbs")); // their number depends on this host
    let expected = [
        ("gone", "fails"),
        ("off", "unused"),
        ("old", "unused"),
        ("tcp-emu", "opens"),
        ("softroce", "opens"),
    ];
    assert_eq!(states, expected);
    assert_eq!(document["entries"][0]["origin"], format!("{path}:2:1"));
    assert_eq!(document["entries"][3]["library"], Value::Null);
    let says = |entry: &Value, name: &str| {
        entry["attributes"].as_array().expect("pairs").iter().any(|a| a[0] == name)
    };
    assert!(says(&document["entries"][4], "engine"), "{document}");
    assert!(!says(&document["entries"][0], "engine"), "{document}");
}

/// Returns each entry's name and state.
fn states(document: &Value) -> Vec<(&str, &str)> {
    let entries = document["entries"].as_array().expect("entries").iter();
    entries
        .map(|entry| {
            (entry["name"].as_str().expect("a name"), entry["state"].as_str().expect("a state"))
        })
        .collect()
}

/// Runs `dat list` with only these RDMA devices in sysfs, and without libibverbs.
fn list_with_devices(devices: &[&str]) -> Option<Value> {
    let hide = "mount -t tmpfs none /sys/class && mkdir /sys/class/infiniband || exit 77
        for port in $PORTS; do mkdir -p /sys/class/infiniband/$port/gid_attrs/ndevs; done
        for port in $PORTS; do echo lo >/sys/class/infiniband/$port/gid_attrs/ndevs/0; done
        for library in $(ldconfig -p | sed -n 's/.*libibverbs.so.1 .*=> //p'); do mount --bind \
        /dev/null $library; done
        exec \"$@\"";
    let list = dat(&["list", "--json"]);
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "--", "sh", "-c", hide, "sh"]);
    command.arg(list.get_program()).args(list.get_args());
    command
        .env("PORTS", devices.join(" "))
        .env("DAT_OVERRIDE", "/dev/null")
        .env_remove("OPENDAT_PARAMS");
    let output = command.stdin(Stdio::null()).output().ok();
    match output.filter(|output| !matches!(output.status.code(), Some(1 | 77))) {
        Some(output) => Some(json(&output)),
        None => {
            println!("SKIP: no mount namespaces (they need unshare, and the permission)");
            None
        }
    }
}

fn reason_of<'d>(document: &'d Value, name: &str) -> &'d str {
    let entries = document["entries"].as_array().expect("entries");
    let entry = entries.iter().find(|entry| entry["name"] == name).expect(name);
    assert_eq!(entry["origin"], "built in");
    entry["reason"].as_str().expect("a reason")
}

#[test]
fn list_has_an_entry_for_each_rdma_device_and_says_what_to_install() {
    let Some(document) = list_with_devices(&["rxe0/ports/1", "mlx5_0/ports/1", "mlx5_0/ports/2"])
    else {
        return;
    };
    let expected = [
        ("tcp-emu", "opens"),
        ("softroce", "opens"),
        ("verbs", "fails"),
        ("verbs-mlx5_0", "fails"),
        ("verbs-mlx5_0-2", "fails"),
        ("verbs-rxe0", "fails"),
    ];
    assert_eq!(states(&document), expected);
    for name in ["verbs", "verbs-rxe0", "verbs-mlx5_0-2"] {
        let reason = reason_of(&document, name);
        let install = "libibverbs.so.1 cannot be loaded: install libibverbs1 and ibverbs-providers";
        assert!(reason.contains(install), "{name}: {reason}");
    }
}

#[test]
fn list_explains_how_to_add_an_rdma_device() {
    let Some(document) = list_with_devices(&[]) else { return };
    assert_eq!(
        states(&document),
        [("tcp-emu", "opens"), ("softroce", "opens"), ("verbs", "fails")]
    );
    let reason = reason_of(&document, "verbs");
    assert!(reason.contains("no RDMA device") && reason.contains("rdma link add"), "{reason}");
}

#[test]
fn list_groups_entries_that_fail_for_the_same_reason() {
    let entry = |n| {
        format!("gone{n} u2.0 nonthreadsafe default libopendat_not_there.so vendor.1.0 \"\" \"\"\n")
    };
    let registry: String = (0..62).map(entry).collect();
    let reason = "libopendat_not_there.so: cannot open shared object file";
    let (output, path) = with_registry(&["list"], &registry);
    let text = stdout(&output);
    assert_eq!(text.matches(reason).count(), 1, "{text}");
    assert!(text.contains("\n62 entries  fails   libopendat_not_there.so\n"), "{text}");
    assert!(text.contains(" gone61\n") && text.lines().count() < 40, "{text}");
    assert!(text.contains(&format!("62 entries of {path}, none usable; ")), "{text}");

    let (output, path) = with_registry(&["list", "--all"], &registry);
    let text = stdout(&output);
    assert_eq!(
        (text.matches(reason).count(), text.matches(&format!("{path}:")).count()),
        (62, 62),
        "{text}"
    );

    let (output, _) = with_registry(&["list", "--usable"], &registry);
    let text = stdout(&output);
    assert!(text.starts_with("tcp-emu   opens   built in\n"), "{text}");
    assert!(!text.contains("gone") && !text.contains("fails"), "{text}");

    let (output, _) = with_registry(&["list", "--json"], &registry);
    let document = json(&output);
    assert_eq!(states(&document).iter().filter(|(name, _)| name.starts_with("gone")).count(), 62);
}

#[test]
fn list_shows_the_entries_whose_name_contains_a_word() {
    let (output, _) = with_registry(&["list", "emu", "one", "--json"], REGISTRY);
    assert_eq!(states(&json(&output)), [("gone", "fails"), ("tcp-emu", "opens")]);
    let (output, _) = with_registry(&["list", "softroce"], REGISTRY);
    let text = stdout(&output);
    assert!(output.status.success() && text.starts_with("softroce  opens   built in\n"), "{text}");
    assert!(!text.contains("gone") && !text.contains("tcp-emu"), "{text}");
    let (output, _) = with_registry(&["list", "nobody", "nothing"], REGISTRY);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""));
    let said = "no entry has nobody or nothing in its name; `dat list` without a name lists all";
    assert!(stderr(&output).contains(said), "{}", stderr(&output));
}

#[test]
fn list_fits_a_terminal_unless_wide() {
    let output = run(dat(&["list"]).env("DAT_OVERRIDE", "/dev/null"));
    let text = stdout(&output);
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let wide = run(dat(&["list", "--wide"]).env("DAT_OVERRIDE", "/dev/null"));
    let words = |text: &str| text.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>();
    assert_eq!(words(&text), words(&stdout(&wide)));
    assert!(stdout(&wide).lines().count() < text.lines().count(), "{text}");
}

#[test]
fn list_asks_a_library_that_does_not_load_once() {
    // To start a process for each entry would take minutes.
    let line =
        |n: u32| format!("ia{n} u2.0 nonthreadsafe default libopendat_gone.so v.1.0 \"\" \"\"\n");
    let (output, _) = with_registry(&["list", "--all"], &(0..10_000).map(line).collect::<String>());
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(
        stdout(&output).matches("libopendat_gone.so: cannot open shared object file").count(),
        10_000
    );
}

/// Each entry has a different library, so that a process would be needed for each of them.
#[test]
fn list_opens_a_limited_number_of_entries_and_those_that_are_named() {
    let line = |n: u32| {
        format!("ia{n} u2.0 nonthreadsafe default libopendat_gone{n}.so v.1.0 \"\" \"\"\n")
    };
    let registry: String = (1..=100).rev().map(line).collect();
    let states_of = |arguments: &[&str]| {
        let document = json(&with_registry(&[arguments, &["--json"]].concat(), &registry).0);
        let of_file = |(name, state): &(&str, &str)| {
            name.starts_with("ia").then(|| (name.to_string(), state.to_string()))
        };
        let states: Vec<(String, String)> = states(&document).iter().filter_map(of_file).collect();
        (states, document["not_opened"].as_u64())
    };
    let names = |states: &[(String, String)], wanted: &str| -> Vec<String> {
        let with_state = states.iter().filter(|(_, state)| state == wanted);
        with_state.map(|(name, _)| name.clone()).collect()
    };

    let (states, not_opened) = states_of(&["list"]);
    assert_eq!((names(&states, "fails").len(), not_opened), (64, Some(36)));
    assert_eq!(names(&states, "not_opened").first().map(String::as_str), Some("ia36"));
    let (states, not_opened) = states_of(&["list", "--limit", "100"]);
    assert_eq!((names(&states, "fails").len(), not_opened), (100, None));
    // The entry with exactly this name is opened before the entries whose names contain it.
    let (states, not_opened) = states_of(&["list", "ia1", "--limit", "1"]);
    assert_eq!((names(&states, "fails"), not_opened), (vec!["ia1".to_owned()], Some(11)));
    let (states, not_opened) = states_of(&["list", "--usable", "--limit", "1"]);
    assert_eq!((states, not_opened), (Vec::new(), Some(99)));

    let (output, path) = with_registry(&["list"], &registry);
    let text = stdout(&output);
    assert!(text.contains("\n36 entries  not opened\n"), "{text}");
    assert!(text.contains("note: 36 entries were not opened, because there are so many"), "{text}");
    let summary = format!("100 entries of {path}, 0 ready, 36 not opened; ");
    assert!(text.replace("\n  ", " ").contains(&summary), "{text}");
    let (output, _) = with_registry(&["list", "ia1"], &registry);
    assert!(!stdout(&output).contains("not opened"), "{}", stdout(&output));
}

#[test]
fn a_registry_file_does_not_reach_the_terminal() {
    let evil = "evil\u{1b}[2J u2.0 nonthreadsafe default lib\u{1b}]0;gone\u{7}.so v.1.0 \
                \"\u{9b}1m\" \"\"\nx\u{1b}c u9\n";
    let path = file(".conf", evil);
    let shown = path.to_str().expect("UTF-8");
    for arguments in [
        &["list"][..],
        &["list", "--all"],
        &["doctor"],
        &["check", shown],
        &["query", "evil\u{1b}[2J"],
    ] {
        let output = run(dat(arguments).env("DAT_OVERRIDE", &path));
        let said = stdout(&output) + &stderr(&output);
        let control = said.chars().find(|c| c.is_control() && !['\n', '\t'].contains(c));
        assert_eq!(control, None, "{arguments:?}: {said:?}");
    }
}

#[test]
fn a_registry_file_must_be_a_regular_file() {
    let output = run(&mut dat(&["check", "/dev/zero"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(
        stderr(&output).contains("a registry file must be a regular file"),
        "{}",
        stderr(&output)
    );
    let output = run(dat(&["list", "--usable"]).env("DAT_OVERRIDE", "/dev/zero"));
    assert!(
        stdout(&output).contains("cannot read the registry file /dev/zero"),
        "{}",
        stdout(&output)
    );
}

#[test]
fn list_reports_an_error_and_uses_the_other_entries() {
    let (output, path) = with_registry(&["list"], "broken u2.0 \"nonthreadsafe\n");
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(text.contains(&format!("{path}:1:13: ")) && text.contains("never closed"), "{text}");
    assert!(text.contains("tcp-emu   opens"), "{text}");
    let output = run(dat(&["list"]).env("DAT_OVERRIDE", "/no/such/file"));
    assert!(stdout(&output).contains("/no/such/file"), "{}", stdout(&output));
    assert_eq!(output.status.code(), Some(1));
}

fn file(suffix: &str, text: &str) -> tempfile::TempPath {
    let file = tempfile::Builder::new().suffix(suffix).tempfile().expect("a temporary file");
    file.as_file().write_all(text.as_bytes()).expect("the file can be written");
    file.into_temp_path()
}

fn convert(path: &Path) -> Output {
    run(&mut dat(&["convert", path.to_str().expect("UTF-8")]))
}

#[test]
fn convert_goes_both_ways_without_loss() {
    let conf = "\
a u2.0 nonthreadsafe default liba.so a.1.0 \"eth0 \\\"crc=on\\\"\" \"\"
b u1.2 threadsafe nondefault \"/opt/lib b.so\" b.2.1 \"\" \"platform\"
k k1.2 threadsafe default libk.so k.1.0 \"\" \"\"
";
    let toml = convert(&file(".conf", conf));
    assert!(toml.status.success(), "{}", stderr(&toml));
    let toml = stdout(&toml);
    assert!(toml.starts_with("[[interface]]\nname = \"a\"\n"), "{toml}");
    let again = convert(&file(".toml", &toml));
    assert_eq!(stdout(&again), conf, "{}", stderr(&again));
    // A file without an extension is identified by its content.
    assert_eq!(stdout(&convert(&file("", &format!("# ours\n\n{toml}")))), conf);
    assert_eq!(stdout(&convert(&file(".old", &format!("# ours\n{conf}")))), toml);
}

#[test]
fn convert_reports_errors_and_prints_no_partial_file() {
    let good = "a u2.0 nonthreadsafe default liba.so a.1.0 \"\" \"\"\n";
    let path = file(".conf", &format!("{good}b u2.0 sometimes default libb.so b.1.0 \"\" \"\"\n"));
    let output = convert(&path);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""));
    let text = stderr(&output);
    assert!(
        text.starts_with(&format!("{}:2:8: unknown thread safety \"sometimes\"", path.display())),
        "{text}"
    );
    assert!(text.contains("nothing was converted"), "{text}");

    let path = file(".toml", "[[interface]]\nname = \"a\"\nlibrary = \"\"\n");
    let output = convert(&path);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""));
    assert!(stderr(&output).starts_with(&format!("{}:3:11: the library is empty", path.display())));

    let text = fails(&mut dat(&["convert", "/no/such/file"]));
    assert!(text.contains("reading /no/such/file: No such file"), "{text}");
}

#[test]
fn conformance_counts_unsupported_separately() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let junit = dir.path().join("result.xml");
    let ids =
        ["dat_ep_reset/in-*connected", "dat_ep_reset/in-connected-multi-path", "dat_pz_create"];
    let arguments =
        [&["conformance", "--json", "--junit", junit.to_str().expect("UTF-8")][..], &ids].concat();
    let lenient = run(&mut dat(&arguments));
    assert_eq!(lenient.status.code(), Some(0), "{}", stderr(&lenient));
    let document = json(&lenient);
    let (all, unsupported) =
        (document["all"]["cases"].as_u64(), document["all"]["unsupported"].as_u64());
    assert_eq!((unsupported, document["all"]["failed"].as_u64()), (Some(1), Some(0)), "{document}");
    assert_eq!(document["all"]["passed"].as_u64(), all.map(|all| all - 1));
    let xml = std::fs::read_to_string(&junit).expect("the file is there");
    assert_eq!(Some(xml.matches("<testcase ").count() as u64), all);
    assert_eq!(xml.matches("<skipped ").count(), 1);

    let strict = run(&mut dat(&[&arguments[..], &["--strict"]].concat()));
    assert_eq!(strict.status.code(), Some(1), "{}", stderr(&strict));
}

/// Returns what `dat conformance` prints.
fn conformance(arguments: &[&str]) -> String {
    let output = run(&mut dat(&[&["conformance"], arguments].concat()));
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
    stdout(&output)
}

#[test]
fn conformance_explains_cases() {
    let names = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.starts_with("dat_")).map(str::to_owned).collect()
    };
    // A name stands for its case, although other names begin with it. Other IDs are prefixes.
    let one = conformance(&["--explain", "dat_ep_reset/in-connected"]);
    assert_eq!(names(&one), ["dat_ep_reset/in-connected"], "{one}");
    assert!(one.contains("DAT_INVALID_STATE, and the state stays the same."), "{one}");
    assert_eq!(names(&conformance(&["--explain", "dat_ep_reset/in-conn"])).len(), 3);

    let known = conformance(&["--explain", "dat_ia_query/private-data-size"]);
    assert!(known.contains("  known       fails over softroce: RoCE's REQ has room"), "{known}");
    assert!(known.contains("  attribute   DAT_PROVIDER_ATTR, max_private_data_size: "), "{known}");
    // Only the name of a whole function also stands for what no case tests.
    assert!(!known.contains("Not tested:"), "{known}");
    let whole = conformance(&["--explain", "dat_ia_query"]);
    let gaps = whole.split_once("\nNot tested:\n").expect("what no case tests").1;
    assert!(gaps.contains("  dat_ia_query, DESCRIPTION 2.3: "), "{gaps}");
    assert!(!gaps.contains("  dat_ep_create, "), "{gaps}");

    let several = ["dat_lmr_free/dead", "dat_ep_create/max-rdma-size"];
    let document =
        json(&run(&mut dat(&[&["conformance", "--explain", "--json"][..], &several].concat())));
    let explanations = document["explanations"].as_array().expect("explanations");
    assert_eq!(explanations.len(), 2, "{document}");
    let of = |id: &str| explanations.iter().find(|of| of["id"] == id).expect(id);
    assert!(of(several[0])["room"]["accepted"].is_string(), "{document}");
    assert!(of(several[0])["strict"].is_null(), "{document}");
    let strict = of(several[1])["strict"]["on"].as_str();
    assert!(strict.is_some_and(|on| on.starts_with("DAT_LENGTH_ERROR")), "{document}");
}

#[test]
fn conformance_prints_the_return_values_of_functions() {
    let document = json(&run(&mut dat(&["conformance", "--returns", "--json", "dat_rmr_create"])));
    let values = document["return_values"].as_array().expect("return values");
    let functions: Vec<_> = values.iter().filter_map(|value| value["function"].as_str()).collect();
    assert_eq!(functions[0], "dat_rmr_create");
    assert_eq!(functions.last(), Some(&"dat_rmr_create_for_ep"));
    let because = |value: &Value| value["unprovoked"].as_str().map(str::to_owned);
    assert!(because(&values[0]).is_some_and(|why| why.contains("max_rmrs")), "{document}");

    let completion = conformance(&["--returns", "dat_ep_post_rdma_read"]);
    let completion = completion.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        completion.contains("; in a completion: dat_ep_post_rdma_read/no-remote-read"),
        "{completion}"
    );
    let both = run(&mut dat(&["conformance", "--returns", "--explain"]));
    assert_eq!(both.status.code(), Some(2), "{}", stdout(&both));
}

/// The numbers of lines in the source may differ.
#[test]
fn the_examples_of_the_page_about_conformance_are_as_printed() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/conformance.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let without_numbers = |text: &str| -> Vec<String> {
        let lines =
            text.lines().map(|line| line.rsplit_once(".rs:").map_or(line, |(file, _)| file));
        lines.map(str::to_owned).collect()
    };
    let mut options = Vec::new();
    for block in page.split("```text\n$ dat conformance ").skip(1) {
        let (block, _) = block.split_once("\n```").expect("the end of the block");
        let (arguments, shown) = block.split_once('\n').expect("a command and its output");
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let printed = conformance(&arguments);
        assert_eq!(without_numbers(shown), without_numbers(&printed), "{arguments:?}: {printed}");
        options.push(arguments[0]);
    }
    assert_eq!(options, ["--explain", "--returns"]);
}

#[test]
fn conformance_reports_a_provider_that_does_not_open() {
    let refused = |arguments: &[&str], why: &str| {
        let output =
            run(&mut dat(&[&["conformance", "--registry", "/dev/null"], arguments].concat()));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stdout(&output));
        assert!(stderr(&output).contains(why), "{arguments:?}: {}", stderr(&output));
    };
    refused(&["dat_ep_created"], "no case is called dat_ep_created or begins with it");
    refused(&["--provider", "other"], "other through the linked-in registry cannot be opened");
    refused(
        &["--library", "/no/such/library.so"],
        "cannot load /no/such/library.so: /no/such/library.so:",
    );
    refused(&["--library", "libc.so.6"], "libc.so.6 does not export dat_ia_openv");

    // If the registry file is missing, no case may run with a built-in adapter.
    let output =
        run(&mut dat(&["conformance", "--registry", "/no/such/dat.conf", "dat_pz_create"]));
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert!(
        stderr(&output).contains("cannot read the registry file /no/such/dat.conf: No such file")
    );
}

#[test]
fn a_process_ends_with_its_parent() {
    let (ours, theirs) = UnixStream::pair().expect("sockets");
    let mut child =
        dat(&["peer"]).stdin(OwnedFd::from(theirs)).spawn().expect("the program starts");
    let plan = r#"{"role":"Server","adapters":["tcp-emu"],"address":"127.0.0.1","server":null,"cpu":null,
        "wait":"poll","raw_wait":"poll","task":{"Demo":{"sizes":[64],"unmeasured":[],"rounds":1}}}"#;
    writeln!(&ours, "{}", plan.replace('\n', " ")).expect("the program reads its input");
    let mut line = String::new();
    BufReader::new(&ours).read_line(&mut line).expect("the program writes a line");
    assert!(line.contains("Listening"), "{line}");
    drop(ours); // the end of a parent, for any reason, has the same effect
    assert_eq!(child.wait().expect("the program ends").code(), Some(1));
}

#[test]
fn what_providers_print_does_not_disturb_the_result() {
    // The registry prints each step to standard output in both processes, like a verbose provider.
    let output =
        run(dat(&["--json", "--rounds", "1"]).env("DAT_DBG_TYPE", "0xff").env("DAT_DBG_DEST", "1"));
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(json(&output)["verified"], true);
    let noise = stderr(&output);
    assert_eq!(
        noise.matches("provider tcp-emu registered").count(),
        2,
        "each process must print this once: {noise}"
    );
}

#[test]
fn vendor_providers_find_the_registry_in_the_program() {
    let output = Command::new("nm")
        .args(["--dynamic", "--defined-only", env!("CARGO_BIN_EXE_dat")])
        .output()
        .expect("nm comes with every C compiler");
    let symbols = stdout(&output);
    for symbol in
        ["dat_registry_add_provider", "dat_registry_remove_provider", "dats_get_ia_handle"]
    {
        assert!(
            symbols.lines().any(|line| line.ends_with(&format!(" T {symbol}"))),
            "{symbol}: {symbols}"
        );
    }
}

#[test]
fn query_prints_every_attribute_under_the_standards_name() {
    let output = run(dat(&["query", "tcp-emu"]).env("DAT_OVERRIDE", "/dev/null"));
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(
        text.starts_with(
            "adapter (DAT_IA_ATTR)\n    adapter_name                         tcp-emu\n"
        ),
        "{text}"
    );
    for line in [
        "    zb_supported                         yes",
        "    max_lmr_virtual_address              no limit",
        "provider (DAT_PROVIDER_ATTR)",
        "    completion_flags_supported           SUPPRESS, SOLICITED_WAIT, UNSIGNALLED,",
        "                                         BARRIER_FENCE, EVD_THRESHOLD",
        "    srq_watermarks_supported             SRQ_LOW, EP_SOFT_HIGH, EP_HARD_HIGH",
        "    rmr_scope_supported                  ANY",
        "of the transport",
    ] {
        assert!(text.lines().any(|other| other == line), "{line}: {text}");
    }
    assert_eq!(stderr(&output), "");
}

#[test]
fn query_prints_the_same_as_json() {
    let output = run(dat(&["query", "softroce", "--json"]).env("DAT_OVERRIDE", "/dev/null"));
    let document = json(&output);
    assert_eq!(document["ia"], "softroce");
    assert!(positive(&document["adapter"]["max_eps"]));
    assert_eq!(document["adapter"]["zb_supported"], true);
    assert_eq!(document["provider"]["provider_name"], "softroce");
    assert_eq!(document["provider"]["rmr_scope_supported"], serde_json::json!(["ANY"]));
    assert!(
        document["transport"]["transport"].as_str().is_some_and(|text| text.contains("RoCEv2")),
        "{document}"
    );
}

#[test]
fn query_reports_once_why_nothing_opens() {
    let text = fails(dat(&["query", "none"]).env("DAT_OVERRIDE", "/dev/null"));
    assert_eq!(text.matches("cannot open IA \"none\"").count(), 1, "{text}");
    assert!(text.contains("`dat list` shows all names"), "{text}");
}

/// Returns the findings of `dat doctor`. Except for those that the test causes, they depend on the
/// host.
fn findings(document: &Value) -> Vec<(&str, &str, &str)> {
    let text = |finding: &'_ Value, name: &str| {
        finding[name].as_str().expect("text").to_owned().leak() as &str
    };
    let findings = document["findings"].as_array().expect("findings").iter();
    findings
        .map(|finding| (text(finding, "subject"), text(finding, "state"), text(finding, "message")))
        .collect()
}

#[test]
fn doctor_looks_at_all_that_rdma_needs() {
    let output = run(dat(&["doctor", "--json"]).env("DAT_OVERRIDE", "/dev/null"));
    let document = json(&output);
    let findings = findings(&document);
    for subject in [
        "registry",
        "adapters",
        "programs",
        "environment",
        "memlock",
        "port 4791",
        "IP headers",
        "libraries",
        "devices",
        "modules",
    ] {
        assert!(findings.iter().any(|(other, ..)| *other == subject), "{subject}: {document}");
    }
    assert!(findings.contains(&("registry", "fine", "/dev/null: no errors")), "{document}");
    assert!(findings.contains(&("environment", "note", "DAT_OVERRIDE=/dev/null")), "{document}");
    let problems = findings.iter().filter(|(_, state, _)| *state == "problem").count();
    assert_eq!(output.status.code(), Some(i32::from(problems > 0)));

    let output = run(dat(&["doctor"]).env("DAT_OVERRIDE", "/dev/null"));
    let text = stdout(&output);
    assert!(text.contains("fine     registry     /dev/null: no errors\n"), "{text}");
    // The text fits on one screen, unless there are many devices.
    assert!(text.lines().count() < 24 + findings.len(), "{text}");
}

#[test]
fn doctor_points_at_mistakes_in_the_registry() {
    let (output, path) = with_registry(&["doctor", "--json"], "broken u2.0\n");
    assert_eq!(output.status.code(), Some(1));
    let document = json(&output);
    let message = format!(
        "{path}:1:12: the line ends after 2 of 8 fields; expected threadsafe or nonthreadsafe"
    );
    assert!(findings(&document).contains(&("registry", "problem", message.as_str())), "{document}");
    assert_eq!(document["findings"][0]["fix"], format!("dat check {path}"));

    let (output, path) = with_registry(&["doctor"], REGISTRY);
    assert!(
        stdout(&output).contains(&format!(
            "note     registry     {path}: 3 entries are unusable: lines 2-4\n"
        )),
        "{}",
        stdout(&output)
    );
}

#[test]
fn every_shell_gets_completions_of_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let text = stdout(&run(&mut dat(&["completions", shell])));
        for command in ["list", "query", "check", "register", "unregister", "doctor", "conformance"]
        {
            assert!(text.contains(command), "{shell}: {command}");
        }
        assert!(!text.contains("open-entry"), "{shell}: a hidden command must not be completed");
    }
}

#[test]
fn every_command_has_a_page_of_the_manual() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = run(&mut dat(&["manual", dir.path().to_str().expect("UTF-8")]));
    assert!(output.status.success(), "{}", stderr(&output));
    let page = |name: &str| std::fs::read_to_string(dir.path().join(name)).expect(name);
    assert!(
        page("dat.1").contains("OPENDAT_PARAMS"),
        "the page must list the environment variables"
    );
    assert!(page("dat-check.1").contains("registry file"));
    for name in ["dat-list.1", "dat-query.1", "dat-doctor.1", "dat-register.1", "dat-bench.1"] {
        assert!(page(name).contains(".SH"), "{name}");
    }
    assert!(
        page("dat.1").contains(
            ".SH ENVIRONMENT\n.in 0\n.nf\n\\&  DAT_OVERRIDE=FILE     the registry file to use"
        ),
        "the page must show the variables in the layout of --help"
    );
    assert!(
        page("dat-trace.1").contains(".SH TARGETS\n")
            && page("dat-trace.1").contains("127 if it does not exist")
    );
    for name in ["dat.1", "dat-check.1", "dat-trace.1"] {
        assert!(
            page(name).contains(".SH EXIT STATUS\n") && page(name).contains(".BR dat.conf (5)"),
            "{name}"
        );
    }
}
