use std::path::Path;

use super::{parse, write};
use crate::conf;
use crate::entry::Entry;

fn read(text: &str) -> (Vec<String>, Vec<String>) {
    let (entries, errors) = parse(Path::new("dat.toml"), text.as_bytes());
    (
        entries.iter().map(|e| format!("{} {}", e.origin, conf::Line(e))).collect(),
        errors.iter().map(|e| e.to_string()).collect(),
    )
}

#[test]
fn fields_have_sensible_defaults() {
    let (entries, errors) = read("# mine\n\n[[interface]]\nname = \"a\"\nlibrary = \"l.so\"\n");
    assert_eq!(errors, [""; 0]);
    assert_eq!(entries, [r#"dat.toml:3:1 a u2.0 nonthreadsafe default l.so unknown.0.0 "" """#]);
}

#[test]
fn the_example_of_the_module_is_what_it_says() {
    let example: String = include_str!("toml.rs")
        .lines()
        .skip_while(|line| !line.contains("```toml"))
        .skip(1)
        .take_while(|line| !line.contains("```"))
        .map(|line| format!("{}\n", line.trim_start_matches("//!")))
        .collect();
    let (entries, errors) = read(&example);
    assert_eq!(errors, [""; 0]);
    assert_eq!(
        entries,
        [r#"dat.toml:1:2 tcp-emu u2.0 threadsafe default libdat_tcp_emu.so opendat.0.1 "lo 0" """#]
    );
}

#[test]
fn a_mistake_is_located_and_the_other_tables_are_read() {
    let text = r#"
[[interface]]
name = "a"
library = "l.so"
api = "2.0"

[[interface]]
name = "b"
library = "l.so"
thread_safe = true

[[interface]]
name = "c"

[[interface]]
name = "d"
library = "l.so"
params = "two\nlines"

[[interface]]
name = "e"
library = ["l.so"]

[[interface]]
name = ""
library = "l.so"

[[interface]]
name = "f"
library = "l.so"
version = "dapl"

[[interface]]
name = "good"
library = "l.so"
"#;
    let (entries, errors) = read(text);
    assert_eq!(entries.len(), 1);
    assert!(entries[0].starts_with("dat.toml:33:1 good "), "{entries:?}");
    assert_eq!(
        errors,
        [
            "dat.toml:5:7: unknown API version \"2.0\"; expected u or k and two numbers, as in \
             u2.0",
            "dat.toml:10:1: unknown field `thread_safe`, expected one of `name`, `api`, \
             `threadsafe`, \
             `default`, `library`, `version`, `params`, `platform_params`",
            "dat.toml:12:1: missing field `library`",
            "dat.toml:18:10: params contains a NUL or line end, which a registry entry cannot \
             carry",
            "dat.toml:22:11: invalid type: sequence, expected a string",
            "dat.toml:25:8: the IA name is empty; expected 1 to 255 bytes",
            "dat.toml:31:11: unknown provider version \"dapl\"; expected a name and two numbers, \
             as in dapl.2.0",
        ]
    );
}

#[test]
fn a_syntax_error_costs_one_table() {
    let text = "[[interface]]\nname = \"a\nlibrary = \"l.so\"\n\n[[interface]]\nname = \"b\"\n\
                library = \"l\"\n";
    let (entries, errors) = read(text);
    assert_eq!(entries, [r#"dat.toml:5:1 b u2.0 nonthreadsafe default l unknown.0.0 "" """#]);
    assert!(
        !errors.is_empty() && errors.iter().all(|e| e.starts_with("dat.toml:2:")),
        "{errors:?}"
    );
}

#[test]
fn other_keys_are_pointed_out() {
    let (entries, errors) = read("[interfaces]\nname = \"a\"\n");
    assert_eq!(entries, [""; 0]);
    assert_eq!(errors, ["dat.toml:1:2: unexpected `interfaces`; expected [[interface]] tables"]);
}

#[test]
fn both_forms_convert_without_loss() {
    let text = r##"
a u2.0 threadsafe default /opt/lib/x.so dapl.2.0 "mlx5_0 1" "pci \"3\" \\ 4"
"b c" u1.2 nonthreadsafe nondefault "my lib.so" d.1.0 "" "tab	inside"
c k1.2 nonthreadsafe default l.so d.4294967295.1 x "#"
zürich u2.0 nonthreadsafe default "\"" d.1.0 "\\" "\\"
"##;
    let (entries, errors) = conf::parse(Path::new("dat.conf"), text.as_bytes());
    assert_eq!(errors, []);
    assert_eq!(entries.len(), 4);
    let (from_toml, errors) = parse(Path::new("dat.toml"), write(&entries).as_bytes());
    assert_eq!(errors, []);
    let (back, errors) = conf::parse(Path::new("dat.conf"), conf::write(&from_toml).as_bytes());
    assert_eq!(errors, []);
    let same = |a: &[Entry], b: &[Entry]| {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.same_fields(b))
    };
    assert!(same(&entries, &from_toml) && same(&entries, &back));
}
