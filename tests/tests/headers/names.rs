//! A program that uses every name that this project's headers define, and every name in a list of
//! those that other headers of uDAPL 1.2 define (`c/udapl_1_2.names`). The tests compile the
//! program in each language that the headers support.

use super::*;

/// What a name in the headers stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The name stands for this integer value.
    Value(i64),
    /// The name is a macro.
    Macro,
    /// The name is a type, which has a size.
    Type,
    /// The name is a function, which has an address.
    Function,
}

type Names = Vec<(String, Kind)>;

#[test]
fn a_program_that_uses_every_name_compiles_in_every_language() {
    for headers in [our_headers(), our_headers_1_2()] {
        let names = defined_by(&headers);
        let number = |kind: fn(&Kind) -> bool| names.iter().filter(|(_, it)| kind(it)).count();
        let values = number(|kind| matches!(kind, Kind::Value(_)));
        let functions = number(|kind| *kind == Kind::Function);
        let counted = (values, functions, names.len());
        assert!(
            values > 350 && functions > 70 && names.len() > values + functions + 100,
            "{counted:?}"
        );
        compile(&headers, &names);
    }
}

#[test]
fn every_name_of_udapl_1_2_is_there() {
    let names = of_udapl_1_2();
    assert!(names.len() > 700, "{}", names.len());
    let ours: BTreeSet<String> =
        defined_by(&our_headers_1_2()).into_iter().map(|(name, _)| name).collect();
    let missing: Vec<&String> = names
        .iter()
        .map(|(name, _)| name)
        .filter(|name| name.starts_with("DAT_") || name.starts_with("dat_"))
        .filter(|name| !ours.contains(*name))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    compile(&our_headers_1_2(), &names);
}

/// Reads the list. Each line is `KIND PREFIX SUFFIX[=VALUE] …`. A constant without a value is one
/// more than the constant before.
fn of_udapl_1_2() -> Names {
    let text = fs::read_to_string(c_source("udapl_1_2.names")).expect("the file exists");
    let mut names = Names::new();
    let mut last = 0;
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split(' ');
        let (kind, prefix) = (words.next().expect("a kind"), words.next().expect("a prefix"));
        for word in words {
            let (suffix, value) =
                word.split_once('=').map_or((word, None), |(s, v)| (s, Some(integer(v))));
            let name = format!("{}{suffix}", prefix.trim_start_matches('-'));
            let kind = match (kind, value) {
                ("constant", value) => {
                    last = value.unwrap_or(last + 1);
                    Kind::Value(last)
                }
                ("alias", Some(value)) => Kind::Value(value),
                ("alias" | "macro", None) => Kind::Macro,
                ("type", None) => Kind::Type,
                ("function", None) => Kind::Function,
                _ => panic!("{line}"),
            };
            names.push((name, kind));
        }
    }
    names
}

fn integer(text: &str) -> i64 {
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).expect(text),
        None => text.parse().expect(text),
    }
}

/// Returns all names of this project's headers that start like those of DAT and have a meaning by
/// themselves.
fn defined_by(headers: &Headers) -> Names {
    let texts = headers_text(&headers.directory());
    // Names of files and texts in quotes are left out.
    let lines = texts
        .iter()
        .flat_map(|(_, text)| text.lines())
        .filter(|line| !line.starts_with("#include"));
    let text: String = lines.flat_map(|line| line.split('"').step_by(2).chain(["\n"])).collect();
    let values: Vec<(&str, i64)> =
        (headers.api.constants)().iter().map(|constant| (constant.name, constant.value)).collect();
    let words: Vec<&str> = text.split_whitespace().collect();
    let after = |before: &[&str]| -> BTreeSet<&str> {
        let pairs = words.windows(2).filter(|pair| before.contains(&pair[0]));
        pairs
            .map(|pair| pair[1].split(|c: char| !is_of_name(c)).next().unwrap_or_default())
            .collect()
    };
    let (macros, tags) = (after(&["#define"]), after(&["struct", "union", "enum"]));
    let mut names: Vec<String> = dat_names(&text).collect();
    names.sort();
    names.dedup();
    let kind = |name: String| -> Option<(String, Kind)> {
        let value = values.iter().find(|(constant, _)| *constant == name);
        let kind = if let Some((_, value)) = value {
            Kind::Value(*value)
        } else if macros.contains(name.as_str()) {
            Kind::Macro
        } else if name.starts_with("DAT_") || name.starts_with("DCNT_") {
            Kind::Type
        } else if text.contains(&format!(" {name}(")) && !tags.contains(name.as_str()) {
            Kind::Function
        } else {
            // The program does not use the name. It is a member, a parameter, or a tag whose type
            // has the same name in capitals.
            return None;
        };
        Some((name, kind))
    };
    names.into_iter().filter_map(kind).collect()
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The unions that have no name in C because each is declared inside a member.
const UNNAMED_IN_C: &[&str] = &["DAT_CNO_PROXY", "DAT_IB_EVENT_VALUE"];

/// Returns the program. Each of its lines fails to compile if the line's name does not exist or is
/// of another kind.
fn program(headers: &Headers, names: &Names) -> String {
    let mut text = String::from("#include <stddef.h>\n#include <netinet/in.h>\n");
    let directory = headers.api.directory;
    let mut own: Vec<&str> = vec!["udat.h", "dat_registry.h"];
    own.extend((directory == "dat2").then_some("dat_ib_extensions.h"));
    for header in own {
        writeln!(text, "#include <{directory}/{header}>").unwrap();
    }
    for (name, kind) in names {
        match kind {
            Kind::Value(value) => {
                writeln!(
                    text,
                    "typedef char value_{name}\
                     [(long long)({name}) == {value}LL ? 1 : -1];"
                )
            }
            Kind::Macro => writeln!(text, "#ifndef {name}\n#error {name}\n#endif"),
            Kind::Type => writeln!(text, "typedef char size_{name}[sizeof({name}) > 0 ? 1 : -1];"),
            Kind::Function => writeln!(
                text,
                "extern void (*const use_{name})(void);\n\
                 void (*const use_{name})(void) = (void (*)(void))&{name};"
            ),
        }
        .unwrap();
    }
    // The program uses each member of each record.
    for record in headers.api.named_records().filter(|record| !UNNAMED_IN_C.contains(&record.name))
    {
        for (offset, field) in headers.api.named_members(record) {
            let (record, member) = (record.name, c_name(field));
            writeln!(
                text,
                "typedef char offset_{record}_{member}\
                 [offsetof({record}, {member}) == {offset} ? 1 : -1];"
            )
            .unwrap();
        }
    }
    text
}

fn compile(headers: &Headers, names: &Names) {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("every_name.c");
    fs::write(&source, program(headers, names)).unwrap();
    for language in [&C90, &C99, &C11, &CXX17] {
        let compiler = match language.compiler() {
            Ok(compiler) => compiler,
            Err(reason) => return skip(&reason),
        };
        let output = language
            .command(&compiler, headers)
            // `-Wno-long-long` suppresses warnings about 64-bit integers, which are newer than C90.
            .args(["-Wno-long-long", "-c"])
            .arg(&source)
            .output()
            .unwrap();
        assert_succeeds(&format!("{} in {}", headers.api.directory, language.standard), &output);
    }
}
