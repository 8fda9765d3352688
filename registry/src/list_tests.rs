use std::fs;

use super::*;

const BUILTINS: Builtins = Builtins {
    adapters: &[&[EMU, Builtin { name: "both", ..EMU }]],
    api: Api::U2_0,
    threadsafe: &[false],
};

const EMU: Builtin =
    Builtin { name: "emu", params: "", table: |_, _| Err("none".to_owned()), discover: None };

const FILE: &str = "\
both u2.0 threadsafe default a.so a.1.0 \"\" \"\"
both u2.0 threadsafe default b.so a.1.0 \"\" \"\"
both u2.1 nonthreadsafe default c.so a.1.0 \"\" \"\"
both u2.0 nonthreadsafe default d.so a.1.0 \"\" \"\"
old  u1.2 nonthreadsafe default e.so a.1.0 \"\" \"\"
off  u2.0 nonthreadsafe nondefault f.so a.1.0 \"\" \"\"
kern k2.0 nonthreadsafe default g.so a.1.0 \"\" \"\"
slow u2.0 nonthreadsafe default h.so a.1.0 \"\" \"\"
broken line
";

fn list() -> List {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("dat.conf");
    fs::write(&path, FILE).expect("the file can be written");
    List::new(Some(path.into()), None, BUILTINS)
}

fn find(name: &str, major: u32, minor: u32, threadsafe: bool) -> Result<Vec<String>, Mismatch> {
    let list = list();
    let found = list.find(&Wanted { name, major, minor, threadsafe })?;
    Ok(found.iter().map(|candidate| candidate.entry.library.clone()).collect())
}

#[test]
fn exact_matches_come_before_others() {
    let libraries = |names: &[&str]| Ok(names.iter().map(|&name| name.to_owned()).collect());
    assert_eq!(find("both", 2, 0, false), libraries(&["d.so", "a.so", "b.so", "c.so"]));
    assert_eq!(find("both", 2, 0, true), libraries(&["a.so", "b.so"]));
    assert_eq!(find("both", 2, 1, false), libraries(&["c.so"]));
    assert_eq!(find("emu", 2, 0, false), libraries(&["builtin"]));
}

#[test]
fn what_is_missing_has_a_name() {
    assert_eq!(find("none", 2, 0, false), Err(Mismatch::Name));
    assert_eq!(find("off", 2, 0, false), Err(Mismatch::Name));
    assert_eq!(find("kern", 2, 0, false), Err(Mismatch::Name));
    assert_eq!(find("old", 2, 0, false), Err(Mismatch::Major));
    assert_eq!(find("slow", 2, 1, false), Err(Mismatch::Minor));
    assert_eq!(find("slow", 2, 0, true), Err(Mismatch::ThreadSafety));
    assert_eq!(find("both", 2, 1, true), Err(Mismatch::ThreadSafety));
}

#[test]
fn duplicates_are_listed_once_in_the_order_of_the_file() {
    let list = list();
    let listed: Vec<_> = list
        .interfaces()
        .iter()
        .map(|e| format!("{} {} {}", e.ia_name, e.api, e.threadsafe))
        .collect();
    assert_eq!(
        listed,
        [
            "both u2.0 true",
            "both u2.1 false",
            "both u2.0 false",
            "old u1.2 false",
            "slow u2.0 false",
            "emu u2.0 false"
        ]
    );
    assert_eq!(list.candidates().len(), 9);
}

#[test]
fn mistakes_are_kept_and_located() {
    let list = list();
    let errors: Vec<_> = list.errors().iter().map(|e| e.to_string()).collect();
    assert_eq!(errors.len(), 1);
    assert!(errors[0].contains("dat.conf:9:12: the line ends after 2 of 8 fields"), "{errors:?}");
}

#[test]
fn a_file_that_cannot_be_read_hides_the_builtins() {
    let list = List::new(Some("/nonexistent/dat.conf".into()), None, BUILTINS);
    let errors: Vec<_> = list.errors().iter().map(|e| e.to_string()).collect();
    assert_eq!(
        errors,
        ["cannot read the registry file /nonexistent/dat.conf (named by DAT_OVERRIDE): \
          No such file or directory (os error 2)"]
    );
    assert!(list.file_unreadable() && list.interfaces().is_empty());
    assert_eq!(list.file(), None);
    let directory = tempfile::tempdir().expect("a directory");
    let list = List::new(Some(directory.path().into()), None, WITH_DEVICES);
    assert!(
        list.errors().len() == 1 && list.candidates().is_empty(),
        "no entry of a device may be listed"
    );
    let list = List::new(Some("".into()), None, BUILTINS);
    assert!(matches!(list.errors(), [ListError::EmptyOverride]) && list.interfaces().is_empty());
}

#[test]
fn a_toml_file_is_read_as_such() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("dat.toml");
    fs::write(&path, "[[interface]]\nname = \"t\"\nlibrary = \"t.so\"\n")
        .expect("the file can be written");
    let list = List::new(Some(path.clone().into()), None, Builtins::NONE);
    assert!(list.errors().is_empty());
    assert_eq!(list.interfaces()[0].ia_name, "t");
    assert_eq!(list.file(), Some(path.as_path()));
}

#[test]
fn builtins_can_be_turned_off() {
    let list = |value: &str| List::new(Some("/dev/null".into()), Some(value.into()), BUILTINS);
    let off = list("mtu=1024 builtin=off");
    assert!(off.builtins_off() && off.interfaces().is_empty());
    assert!(!list("builtin=on").builtins_off() && list("builtin=on").interfaces().len() == 2);
    assert!(
        !List::new(Some("/dev/null".into()), Some("builtin=off".into()), Builtins::NONE)
            .builtins_off(),
        "without built-in entries, none can be turned off"
    );
}

/// An adapter for any device, and one for each of two devices.
const ANY: Builtin = Builtin {
    name: "any",
    params: "first",
    discover: Some(|| ["a", "b"].map(|device| (format!("any-{device}"), device.to_owned())).into()),
    ..EMU
};

const WITH_DEVICES: Builtins =
    Builtins { adapters: &[&[ANY]], api: Api::U2_0, threadsafe: &[true] };

#[test]
fn what_a_builtin_provider_finds_is_listed_and_found() {
    let list = List::new(Some("/dev/null".into()), None, WITH_DEVICES);
    assert_eq!(list.names(), ["any", "any-a", "any-b"]);
    let find = |name| list.find(&Wanted { name, major: 2, minor: 0, threadsafe: true });
    let of_b = find("any-b").expect("the entry exists");
    let [Candidate { entry, builtin: Some(_) }] = of_b[..] else {
        panic!("one entry must be listed: {of_b:?}")
    };
    assert_eq!(
        (entry.ia_params.as_str(), entry.threadsafe, &entry.origin),
        ("b", true, &Origin::Builtin)
    );
    assert_eq!(find("any").expect("the entry exists")[0].entry.ia_params, "first");
    assert_eq!(find("any-c").err(), Some(Mismatch::Name));
}

#[test]
fn nobody_looks_for_devices_who_asks_for_something_else() {
    const UNTOUCHED: Builtin =
        Builtin { discover: Some(|| panic!("the devices must not be listed")), ..EMU };
    let builtins = Builtins { adapters: &[&[UNTOUCHED, ANY]], ..WITH_DEVICES };
    let list = List::new(Some("/dev/null".into()), None, builtins);
    for name in ["emu", "any"] {
        assert_eq!(
            list.find(&Wanted { name, major: 2, minor: 0, threadsafe: false }).map(|c| c.len()),
            Ok(1)
        );
    }
}

#[test]
fn an_entry_of_the_file_hides_a_device() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("dat.conf");
    fs::write(&path, "any-a u2.0 threadsafe default a.so a.1.0 \"\" \"\"\n")
        .expect("the file can be written");
    let list = List::new(Some(path.into()), None, WITH_DEVICES);
    let found = list
        .find(&Wanted { name: "any-a", major: 2, minor: 0, threadsafe: false })
        .expect("the entry exists");
    assert_eq!(found.iter().map(|c| c.entry.library.as_str()).collect::<Vec<_>>(), ["a.so"]);
}

/// An entry of the file hides built-in entries of the same name, even if it is switched off or has
/// a mistake. Otherwise another adapter would serve that name on every address and without CRCs.
#[test]
fn an_entry_of_the_file_hides_what_is_built_in() {
    let directory = tempfile::tempdir().expect("a directory");
    let lines = [
        "emu u2.0 nonthreadsafe default e.so a.1.0 \"10.0.0.1 crc=on\" \"\"",
        "emu u1.2 nonthreadsafe default e.so a.1.0 \"10.0.0.1 crc=on\" \"\"",
        "emu u2.0 nonthreadsafe nondefault e.so a.1.0 \"\" \"\"",
        "emu u2.0 nonthreadsafe defualt e.so a.1.0 \"crc=on\" \"\"",
        "\"emu u2.0 nonthreadsafe default e.so a.1.0 crc=on",
        "emu\"",
        "emu",
        "\"emu u2.0 nonthreadsafe default e.so a.1.0 \"10.0.0.1 crc=on\" \"\"",
        "emu,u2.0 nonthreadsafe default e.so a.1.0 \"10.0.0.1 crc=on\" \"\"",
        "emu\u{a0}u2.0 nonthreadsafe default e.so a.1.0 \"10.0.0.1 crc=on\" \"\"",
    ];
    for line in lines {
        let path = directory.path().join("dat.conf");
        fs::write(&path, line).expect("the file can be written");
        let list = List::new(Some(path.into()), None, BUILTINS);
        let found = list.find(&Wanted { name: "emu", major: 2, minor: 0, threadsafe: false });
        assert!(found.into_iter().flatten().all(|candidate| candidate.builtin.is_none()), "{line}");
        assert!(
            list.candidates().iter().all(|c| c.builtin.is_none() || c.entry.ia_name != "emu"),
            "{line}"
        );
        assert!(
            list.find(&Wanted { name: "both", major: 2, minor: 0, threadsafe: false }).is_ok(),
            "{line}"
        );
    }
    let tables: [&[u8]; 8] = [
        b"[[interface]]\nname = \"emu\"\nlibrary = 7\n",
        b"[[interface]]\nlibrary = \"x\nname = \"emu\"\n",
        b"[[interface]]\nname = \"emu\"\nlibrary = \"x\n",
        b"[[interface]]\nname = \"a\"\nname = \"emu\"\nlibrary = \"e.so\"\n",
        b"[[interface]\nname = 'emu'\nlibrary = 'e.so'\n",
        b"[interface]\nname = 'emu'\nlibrary = 'e.so'\n",
        b"[[interfaces]]\nname = 'emu'\nlibrary = 'e.so'\n",
        b"# caf\xe9\n[[interface]]\nname = \"emu\"\nlibrary = \"e.so\"\n",
    ];
    for table in tables {
        let path = directory.path().join("dat.toml");
        fs::write(&path, table).expect("the file can be written");
        let list = List::new(Some(path.into()), None, BUILTINS);
        let find = |name| list.find(&Wanted { name, major: 2, minor: 0, threadsafe: false });
        let table = String::from_utf8_lossy(table);
        assert!(find("emu").into_iter().flatten().all(|c| c.builtin.is_none()), "{table}");
        assert!(find("both").is_ok(), "{table}");
    }
    // A kernel entry hides no built-in entry.
    let path = directory.path().join("dat.conf");
    fs::write(&path, "emu k1.2 nonthreadsafe default e.ko a.1.0 \"\" \"\"")
        .expect("the file can be written");
    let list = List::new(Some(path.into()), None, BUILTINS);
    assert!(list.find(&Wanted { name: "emu", major: 2, minor: 0, threadsafe: false }).is_ok());
}

#[test]
fn only_a_regular_file_is_a_registry() {
    let directory = tempfile::tempdir().expect("a directory");
    let pipe = directory.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo starts");
    assert!(made.success());
    for path in [pipe.as_path(), Path::new("/dev/zero"), directory.path()] {
        let list = List::new(Some(path.into()), None, BUILTINS);
        assert!(
            matches!(list.errors(), [ListError::File { .. }]),
            "{}: {:?}",
            path.display(),
            list.errors()
        );
    }
}

/// The list has a hundred thousand entries, first with different names and then with one name. A
/// quadratic search would take minutes.
#[test]
fn many_entries_are_read_and_listed_in_linear_time() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("dat.conf");
    for different in [true, false] {
        let name = |n: usize| if different { format!("ia{n}") } else { "ia".to_owned() };
        let lines = (0..100_000).map(|n| {
            format!("{} u2.0 nonthreadsafe default e.so a.1.0 \"lo {n}\" \"\"\n", name(n))
        });
        fs::write(&path, lines.collect::<String>()).expect("the file can be written");
        let list = List::new(Some(path.clone().into()), None, Builtins::NONE);
        let many = if different { 100_000 } else { 1 };
        assert_eq!(
            (list.candidates().len(), list.names().len(), list.interfaces().len()),
            (100_000, many, many)
        );
    }
}

/// Programs request as many entries as their buffer has room for.
#[test]
fn a_consumer_of_one_version_is_told_of_its_own_entries_first() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("dat.conf");
    let line = |name: &str, api: &str, library: &str| {
        format!("{name} {api} nonthreadsafe default {library} vendor.1.0 \"\" \"\"\n")
    };
    let text = line("other", "u2.0", "libvendor.so.2")
        + &line("gone", "u1.2", "/nowhere/libvendor.so")
        + &line("own", "u1.2", "libvendor.so.1");
    std::fs::write(&file, text).expect("the file can be written");
    for library in ["libvendor.so.1", "libvendor.so.2"] {
        std::fs::write(dir.path().join(library), "").expect("the file can be written");
    }
    let list = List::new(Some(file.into()), None, Builtins::NONE);
    let host = Host::new(dir.path(), None, vec![dir.path().to_owned()]);
    let names = |major| {
        list.interfaces_for(major, &host).iter().map(|e| e.ia_name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(names(1), ["own", "gone", "other"]);
    assert_eq!(names(2), ["other", "own", "gone"]);
}
