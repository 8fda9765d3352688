use super::*;
use crate::{Builtins, List};

fn entry(library: &str, params: &str) -> Entry {
    let line = format!("a u2.0 nonthreadsafe default {library} v.1.0 \"{params}\" \"\"");
    let (mut entries, _) = crate::conf::parse(Path::new("dat.conf"), line.as_bytes());
    entries.remove(0)
}

#[test]
fn only_what_a_known_provider_names_is_judged() {
    let devices = Devices { network: vec!["eth0".to_owned()], rdma: vec!["mlx5_0".to_owned()] };
    let missing = |library: &str, params: &str| {
        devices.missing(&entry(library, &format!("{params} 1"))).map(ToOwned::to_owned)
    };
    for fine in [
        "eth0",
        "mlx5_0",
        "127.0.0.5",
        "::ffff:127.0.0.5",
        "[::1]",
        "fe80::1%7",
        "crc=on",
        "node7.example.org",
    ] {
        assert_eq!(missing("libdaplofa.so.2", fine), None, "{fine}");
    }
    assert_eq!(devices.missing(&entry("libdaplofa.so.2", "")), None);
    // The address is from a block reserved for documentation (RFC 5737).
    for gone in ["eth7", "203.0.113.77", "mlx4_0"] {
        assert_eq!(missing("/opt/libdat_verbs.so", gone).as_deref(), Some(gone));
        assert_eq!(
            missing("libvendor.so", gone),
            None,
            "the parameters of an unknown provider must not be judged"
        );
    }
}

/// Creates a host with these empty files, and with a library path.
fn host(files: &[&str], library_path: Option<&Path>) -> (tempfile::TempDir, Host) {
    let root = tempfile::tempdir().expect("a directory");
    for file in files {
        let path = root.path().join(file);
        fs::create_dir_all(path.parent().expect("the path has a parent directory"))
            .expect("a directory");
        fs::write(path, "").expect("a file");
    }
    let host = Host::new(root.path(), library_path.map(Into::into), Vec::new());
    (root, host)
}

#[test]
fn a_library_is_looked_for_where_the_dynamic_linker_looks() {
    let elsewhere = tempfile::tempdir().expect("a directory");
    fs::write(elsewhere.path().join("libelsewhere.so"), "").expect("a file");
    let standard = format!("usr/lib/{MULTIARCH}/libmulti.so");
    let files = ["usr/lib/libplain.so", standard.as_str(), "opt/libhidden.so"];
    let (root, host) = host(&files, Some(elsewhere.path()));
    let may_open = |library: &str| host.may_open(&entry(library, ""));
    for there in ["libplain.so", "libmulti.so", "libelsewhere.so"] {
        assert!(may_open(there), "{there}");
    }
    for gone in ["libhidden.so", "libnowhere.so", "/nowhere/libplain.so", "nowhere/libplain.so"] {
        assert!(!may_open(gone), "{gone}");
    }
    assert!(may_open(&root.path().join("opt/libhidden.so").to_string_lossy()));
    assert!(
        may_open("$ORIGIN/libhidden.so"),
        "only the linker knows the place, so the entry may open"
    );
}

#[test]
fn names_in_the_linkers_cache_are_found() {
    let root = tempfile::tempdir().expect("a directory");
    fs::create_dir(root.path().join("etc")).expect("a directory");
    let texts = "libone.so.1\0/opt/one/libone.so.1\0libtwo.so\0/opt/two/libtwo.so\0";
    let cache =
        [b"glibc-ld.so.cache1.1\x02\0\0\0\xff\xfe\0\0".as_slice(), texts.as_bytes()].concat();
    fs::write(root.path().join("etc/ld.so.cache"), cache).expect("a file");
    let host = Host::new(root.path(), None, Vec::new());
    assert!(host.may_open(&entry("libone.so.1", "")) && host.may_open(&entry("libtwo.so", "")));
    for gone in ["libone.so", "one.so.1", "libthree.so"] {
        assert!(!host.may_open(&entry(gone, "")), "{gone}");
    }
}

/// The dynamic linker has found the C library, so this code must also find it.
#[test]
fn the_c_library_of_this_host_is_there() {
    let host = Host::of_process();
    assert!(host.may_open(&entry("libc.so.6", "")));
    assert!(!host.may_open(&entry("libnowhere.so.6", "")));
}

#[test]
fn ofeds_providers_need_an_rdma_device() {
    let library = "usr/lib/libdaplofa.so.2";
    let (_root, without) = host(&[library, "sys/class/net/eth2"], None);
    let ofed = entry("libdaplofa.so.2", "eth2 0");
    assert!(!without.may_open(&ofed));
    let (_root, with) = host(&[library, "sys/class/net/eth2", "sys/class/infiniband/siw0"], None);
    assert!(with.may_open(&ofed));
    assert!(
        !with.may_open(&entry("libdaplofa.so.2", "ib0 0")),
        "an entry for a missing device must not open"
    );
}

/// Lines like those of the /etc/dat.conf of Debian, with three libraries, and devices that few
/// hosts have.
fn as_debians() -> String {
    let line = |name: &str, library: &str, params: &str| {
        format!("{name} u2.0 nonthreadsafe default {library} dapl.2.0 \"{params}\" \"\"\n")
    };
    let mut text = ["ib0", "ib1", "eth2", "eth3"]
        .map(|device| line(&format!("ofa-v2-{device}"), "libdaplofa.so.2", &format!("{device} 0")))
        .concat();
    for device in ["mlx4_0", "mlx4_1", "mthca0", "ipath0", "qib0"] {
        for port in 1..=2 {
            for (kind, library) in [("s", "libdaploscm.so.2"), ("u", "libdaploucm.so.2")] {
                let name = format!("ofa-v2-{device}-{port}{kind}");
                text += &line(&name, library, &format!("{device} {port}"));
            }
        }
    }
    text
}

/// A program of either version gets a list that begins with the entries that can be opened. The
/// others follow in the order of the file.
#[test]
fn entries_that_cannot_open_come_last_and_none_is_hidden() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("dat.conf");
    let own = |api| format!("own {api} nonthreadsafe default libown.so own.1.0 \"\" \"\"\n");
    fs::write(&file, as_debians() + &own("u2.0") + &own("u1.2")).expect("the file can be written");
    let list = List::new(Some(file.into()), None, Builtins::NONE);
    let all = list.interfaces().len();
    let names = |host: &Host, major| {
        let entries = list.interfaces_for(major, host);
        assert_eq!(entries.len(), all);
        entries.iter().map(|entry| (entry.ia_name.clone(), entry.api.major)).collect::<Vec<_>>()
    };
    let own = |major| ("own".to_owned(), major);
    let ofeds = ["ofa", "oscm", "oucm"].map(|name| format!("usr/lib/libdapl{name}.so.2"));
    let installed: Vec<&str> =
        ofeds.iter().map(String::as_str).chain(["usr/lib/libown.so"]).collect();

    // There are three hosts: one without OFED's libraries, one with the libraries but no device,
    // and one with a device.
    let (_root, bare) = host(&["usr/lib/libown.so"], None);
    let (_root, idle) = host(&installed, None);
    let with_device: Vec<&str> =
        installed.iter().copied().chain(["sys/class/infiniband/mlx4_1"]).collect();
    let (_root, busy) = host(&with_device, None);
    for major in [1, 2] {
        assert_eq!(names(&bare, major)[0], own(major));
        assert_eq!(names(&idle, major)[0], own(major));
    }
    let first = names(&busy, 2);
    let first: Vec<&str> = first.iter().take(6).map(|(name, _)| name.as_str()).collect();
    let of_device =
        ["ofa-v2-mlx4_1-1s", "ofa-v2-mlx4_1-1u", "ofa-v2-mlx4_1-2s", "ofa-v2-mlx4_1-2u"];
    assert_eq!(first, [&of_device[..], &["own", "ofa-v2-ib0"]].concat());
    assert_eq!(names(&busy, 1)[0], own(1));
}
