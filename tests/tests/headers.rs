//! The C headers of `libdat/include` (`dat/` for uDAPL 1.2, `dat2/` for 2.0) and the Rust
//! declarations of dat-sys must agree.
//!
//! dat-sys describes itself as data (`dat_sys::describe`). These tests write the description out as
//! lists that `c/layout.c` checks: every size, offset, value, text, member type and function
//! signature. OFED's own headers must pass the same check if they are installed.

#[path = "headers/names.rs"]
mod names;

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsString, c_char};
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use dat_sys::describe::{CONSTANTS, Constant, Field, RECORDS, Record, TEXTS};
use dat_sys::v1;
use opendat_tests::{Skip, compiled, find_program, skip};

#[test]
fn headers_agree_with_dat_sys_in_c() {
    for headers in [our_headers(), our_headers_1_2()] {
        run_layout_check(&C11, &headers);
    }
}

#[test]
fn headers_agree_with_dat_sys_in_cxx() {
    for headers in [our_headers(), our_headers_1_2()] {
        run_layout_check(&CXX11, &headers);
    }
}

#[test]
fn ofed_headers_agree_with_dat_sys_in_c() {
    match ofed_headers() {
        Ok(headers) => run_layout_check(&C11, &headers),
        Err(reason) => skip(&reason),
    }
}

#[test]
fn ofed_headers_agree_with_dat_sys_in_cxx() {
    match ofed_headers() {
        Ok(headers) => run_layout_check(&CXX11, &headers),
        Err(reason) => skip(&reason),
    }
}

#[test]
fn a_program_that_uses_every_function_compiles_without_warnings() {
    for language in [&C99, &C11, &CXX11] {
        compile_consumer(language, &our_headers());
    }
}

/// Compiles a program that uses every name, in each language in which programs are written,
/// including the oldest language.
#[test]
fn names_that_only_programs_use_are_there() {
    for headers in [our_headers(), our_headers_1_2()] {
        for language in [&C90, &C99, &C11, &CXX17] {
            let compiler = match language.compiler() {
                Ok(compiler) => compiler,
                Err(reason) => return skip(&reason),
            };
            let directory = tempfile::tempdir().unwrap();
            let program = directory.path().join("names");
            let output = language
                .command(&compiler, &headers)
                // This option suppresses warnings about UINT64_C and 64-bit integers, which are
                // newer than C90.
                .arg("-Wno-long-long")
                .arg(c_source("names.c"))
                .arg("-o")
                .arg(&program)
                .output()
                .unwrap();
            assert_succeeds(language.standard, &output);
            assert_succeeds("names", &compiled(&program).output().unwrap());
        }
    }
}

#[test]
fn the_same_program_compiles_with_ofed_headers() {
    // The headers are not checked as C++, because the constant member of OFED's DAT_PROVIDER_ATTR
    // forbids a variable of that type.
    match ofed_headers() {
        Ok(headers) => compile_consumer(&C11, &headers),
        Err(reason) => skip(&reason),
    }
}

#[test]
fn every_header_can_be_included_alone_and_first() {
    for (language, headers) in [
        (&C99, our_headers()),
        (&CXX11, our_headers()),
        (&C99, our_headers_1_2()),
        (&CXX11, our_headers_1_2()),
    ] {
        let compiler = match language.compiler() {
            Ok(compiler) => compiler,
            Err(reason) => return skip(&reason),
        };
        let directory = tempfile::tempdir().unwrap();
        for header in fs::read_dir(headers.directory()).unwrap() {
            let name = header.unwrap().file_name().into_string().unwrap();
            let source = directory.path().join("alone.c");
            fs::write(
                &source,
                format!("#include <{}/{name}>\nint nothing;\n", headers.api.directory),
            )
            .unwrap();
            let output =
                language.command(&compiler, &headers).arg("-c").arg(source).output().unwrap();
            assert_succeeds(&format!("{name} as {}", language.standard), &output);
        }
    }
}

#[test]
fn no_constant_of_the_headers_is_missing_from_dat_sys() {
    for (headers, at_least) in [(our_headers(), 500), (our_headers_1_2(), 350)] {
        let known: BTreeSet<&str> =
            (headers.api.constants)().iter().map(|constant| constant.name).collect();
        let mut seen = 0;
        for (name, _) in headers_text(&headers.directory()) {
            let text = fs::read_to_string(&name).unwrap();
            // The line is `NAME = 1,` of an enumeration or `#define NAME UINT64_C(1)` of a mask.
            for line in text.lines().map(str::trim) {
                let name = match (line.split_once(" = "), line.strip_prefix("#define ")) {
                    (Some((name, value)), None)
                        if value.starts_with(|c: char| c.is_ascii_digit()) =>
                    {
                        name.trim()
                    }
                    (None, Some(definition)) if definition.contains(" UINT64_C(") => {
                        definition.split_once(' ').unwrap().0
                    }
                    _ => continue,
                };
                assert!(known.contains(name), "{name} is in the headers but not in dat-sys");
                seen += 1;
            }
        }
        assert!(
            seen > at_least,
            "found only {seen} constants: the form of the headers has changed"
        );
    }
}

#[test]
fn no_name_of_ofed_headers_is_missing() {
    /// Names of OFED's headers that no program can use.
    const UNUSABLE: &[&str] = &[
        "DAT_IA_FIELD_IA_MAX_DTO_PER_OP",    // an alias of the next,
        "DAT_IA_FIELD_IA_MAX_DTO_PER_EP_IN", // which is defined nowhere
        "DAT_COUNTER_TYPE",                  // used by two macros, defined nowhere
    ];
    let ofed = match ofed_headers() {
        Ok(headers) => headers,
        Err(reason) => return skip(&reason),
    };
    let names = |directory: &Path| -> BTreeSet<String> {
        headers_text(directory).iter().flat_map(|(_, text)| dat_names(text)).collect()
    };
    let ours = names(&our_headers().directory());
    let missing: Vec<_> = names(&ofed.include.join("dat2"))
        .into_iter()
        .filter(|name| !ours.contains(name) && !UNUSABLE.contains(&name.as_str()))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

// ---- The C side ----

/// The directory in which to find the headers of an API version.
struct Headers {
    include: PathBuf,
    ofed: bool,
    api: &'static Api,
}

/// A version of the API, and the declarations of dat-sys for this version.
struct Api {
    /// The directory of the headers of this API version.
    directory: &'static str,
    /// Macros that select this API version in the C programs.
    defines: &'static [&'static str],
    constants: fn() -> Vec<&'static Constant>,
    records: fn() -> Vec<&'static Record>,
}

static API_2_0: Api = Api {
    directory: "dat2",
    defines: &[],
    constants: || CONSTANTS.iter().copied().flatten().collect(),
    records: || RECORDS.iter().copied().flatten().collect(),
};

static API_1_2: Api = Api {
    directory: "dat",
    defines: &["-DUDAPL_1_2"],
    constants: || v1::constants().collect(),
    records: || v1::records().collect(),
};

impl Headers {
    fn directory(&self) -> PathBuf {
        self.include.join(self.api.directory)
    }
}

fn our_headers() -> Headers {
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../libdat/include");
    Headers { include, ofed: false, api: &API_2_0 }
}

fn our_headers_1_2() -> Headers {
    Headers { api: &API_1_2, ..our_headers() }
}

fn ofed_headers() -> Result<Headers, Skip> {
    let include = PathBuf::from("/usr/include");
    if include.join("dat2/udat.h").exists() {
        Ok(Headers { include, ofed: true, api: &API_2_0 })
    } else {
        Err(Skip("no /usr/include/dat2: install libdapl-dev".to_owned()))
    }
}

/// A language in which the headers must compile.
struct Language {
    standard: &'static str,
    name: &'static str,
    /// The environment variable that names the compiler, and its default.
    compiler: (&'static str, &'static str),
}

const C90: Language = Language { standard: "c90", name: "c", compiler: ("CC", "cc") };
const C99: Language = Language { standard: "c99", name: "c", compiler: ("CC", "cc") };
const C11: Language = Language { standard: "c11", name: "c", compiler: ("CC", "cc") };
const CXX11: Language = Language { standard: "c++11", name: "c++", compiler: ("CXX", "c++") };
const CXX17: Language = Language { standard: "c++17", name: "c++", compiler: ("CXX", "c++") };

impl Language {
    fn compiler(&self) -> Result<OsString, Skip> {
        let (variable, default) = self.compiler;
        match env::var_os(variable) {
            Some(compiler) => Ok(compiler),
            None => Ok(find_program(default, "build-essential")?.into_os_string()),
        }
    }

    fn command(&self, compiler: &OsString, headers: &Headers) -> Command {
        let mut command = Command::new(compiler);
        command.arg(format!("-std={}", self.standard)).args(["-x", self.name, "-o", "/dev/null"]);
        command.args(["-Wall", "-Wextra", "-Werror", "-pedantic"]).args(headers.api.defines);
        if headers.ofed {
            // The directory counts as a system directory, so that the compiler does not warn about
            // OFED's headers, which this project does not fix.
            command.arg("-DOFED_HEADERS");
        } else {
            command.arg("-I").arg(&headers.include);
        }
        command
    }
}

fn c_source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("c").join(name)
}

fn compile_consumer(language: &Language, headers: &Headers) {
    let compiler = match language.compiler() {
        Ok(compiler) => compiler,
        Err(reason) => return skip(&reason),
    };
    let output = language
        .command(&compiler, headers)
        .arg("-c")
        .arg(c_source("consumer.c"))
        .output()
        .unwrap();
    assert_succeeds(language.standard, &output);
}

fn run_layout_check(language: &Language, headers: &Headers) {
    let compiler = match language.compiler() {
        Ok(compiler) => compiler,
        Err(reason) => return skip(&reason),
    };
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in headers.api.lists() {
        fs::write(directory.path().join(name), text).unwrap();
    }
    let program = directory.path().join("layout");
    let output = language
        .command(&compiler, headers)
        .arg("-I")
        .arg(directory.path())
        .arg(c_source("layout.c"))
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert_succeeds(language.standard, &output);
    assert_succeeds("layout", &compiled(&program).output().unwrap());
}

fn assert_succeeds(what: &str, output: &Output) {
    assert!(
        output.status.success(),
        "{what}: {}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
}

/// Returns the path and the text, without comments, of each header in a directory.
fn headers_text(directory: &Path) -> Vec<(PathBuf, String)> {
    let mut headers = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let bytes = fs::read(&path).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        let mut code = String::new();
        for (index, part) in text.split("/*").enumerate() {
            let part =
                if index == 0 { part } else { part.split_once("*/").map_or("", |(_, code)| code) };
            for line in part.lines() {
                code.push_str(line.split("//").next().unwrap());
                code.push('\n');
            }
        }
        headers.push((path, code));
    }
    headers
}

/// Returns the words of a text that begin with a prefix of DAT's names, such as `DAT_`.
fn dat_names(text: &str) -> impl Iterator<Item = String> + '_ {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| ["DAT_", "DCNT_", "dat_"].iter().any(|prefix| word.starts_with(prefix)))
        // The names of header files in #include lines are no names of DAT.
        .filter(|word| {
            !word.starts_with("dat_")
                || !["_specific", "_extensions"].iter().any(|end| word.ends_with(end))
        })
        .map(str::to_owned)
}

// ---- The lists ----

impl Api {
    fn lists(&self) -> Vec<(&'static str, String)> {
        vec![
            ("constants.h", self.constant_list()),
            ("handles.h", handles()),
            ("texts.h", self.texts()),
            ("events.h", self.events()),
            ("records.h", self.record_list()),
            ("member_types.h", self.member_types()),
            ("functions.h", self.functions()),
        ]
    }

    fn constant_list(&self) -> String {
        let mut list = String::new();
        for constant in (self.constants)() {
            writeln!(list, "CONSTANT({}, {}LL)", constant.name, constant.value).unwrap();
        }
        list
    }
    fn texts(&self) -> String {
        let mut list = String::new();
        // Both versions define the texts that begin with `DAT_PROVIDER_`: the names of a provider's
        // functions. Only 2.0 defines the texts of the InfiniBand extension.
        let in_1_2 = |name: &str| name.starts_with("DAT_PROVIDER_");
        for text in TEXTS
            .iter()
            .copied()
            .flatten()
            .filter(|text| self.directory == "dat2" || in_1_2(text.name))
        {
            writeln!(list, "TEXT({}, {:?})", text.name, text.value.to_str().unwrap()).unwrap();
        }
        list
    }

    /// Returns the list of events that our headers enumerate.
    fn events(&self) -> String {
        let directory = our_headers().include.join(self.directory);
        let mut list = String::new();
        for (_, text) in headers_text(&directory) {
            let ends = ["\n} DAT_EVENT_NUMBER;", "\n} DAT_IB_EVENT_NUMBER;"];
            for (events, _) in ends.into_iter().filter_map(|end| text.split_once(end)) {
                let (_, events) = events.rsplit_once('{').unwrap();
                let names = events.lines().filter_map(|line| line.trim().split_once(' '));
                // The beginning of a range of numbers is no event.
                for (name, _) in names.filter(|(name, _)| !name.ends_with("_RANGE_BASE")) {
                    writeln!(list, "EVENT({name})").unwrap();
                }
            }
        }
        assert!(list.lines().count() >= 17, "{list}");
        list
    }

    fn record_list(&self) -> String {
        let mut list = String::new();
        for record in self.named_records() {
            writeln!(list, "RECORD({}, {}, {})", record.name, record.size, record.align).unwrap();
            for (offset, field) in self.named_members(record) {
                writeln!(
                    list,
                    "MEMBER({}, {}, {offset}, {})",
                    record.name,
                    c_name(field),
                    field.size
                )
                .unwrap();
            }
        }
        list
    }

    fn member_types(&self) -> String {
        let mut list = String::new();
        for record in self.named_records() {
            // These records are types of the system, and dat-sys declares only their sizes.
            if ["DAT_SOCK_ADDR", "DAT_SOCK_ADDR6"].contains(&record.name) {
                continue;
            }
            for (_, field) in self.named_members(record) {
                // The member has 64 bits, as `unsigned long` in Rust and as `unsigned long long` in
                // C.
                if (record.name, field.name) == ("DAT_CONTEXT", "as_index") {
                    continue;
                }
                let mut type_name = (field.type_name)();
                let mut member = c_name(field).to_owned();
                while let Some((element, _)) = array(type_name) {
                    type_name = element;
                    member.push_str("[0]");
                }
                let mut declaration = c_declaration(type_name, "const *pointer");
                if field.name == "handle_extendedop_func" {
                    declaration = declaration.replace("int, void *)", "int, va_list)");
                }
                writeln!(list, "MEMBER_TYPE({}, {member}, {declaration})", record.name).unwrap();
            }
        }
        list
    }

    /// Returns the list of DAT functions that take the same arguments as the provider's function of
    /// the same name.
    fn functions(&self) -> String {
        let table = self.record("DAT_PROVIDER");
        let mut list = String::new();
        for name in table.fields.iter().filter_map(|field| field.name.strip_suffix("_func")) {
            // `ia_open` is left out because dat_ia_openv takes three more arguments.
            // `ia_ha_related` and `handle_extendedop` are left out because a consumer has no
            // functions of these names.
            if !["ia_open", "ia_ha_related", "handle_extendedop"].contains(&name) {
                writeln!(list, "FUNCTION({name})").unwrap();
            }
        }
        list
    }

    fn record(&self, name: &str) -> &'static Record {
        (self.records)().into_iter().find(|record| record.name == name).unwrap()
    }

    fn named_records(&self) -> impl Iterator<Item = &'static Record> {
        (self.records)().into_iter().filter(|record| record.name != ANONYMOUS.0)
    }

    /// Returns the members with their offsets. In place of an anonymous union, the list has the
    /// members of the union.
    fn named_members(&self, record: &Record) -> Vec<(usize, &'static Field)> {
        let mut members = Vec::new();
        for field in record.fields {
            if field.name == ANONYMOUS.1 {
                let union = self.record(ANONYMOUS.0);
                members
                    .extend(union.fields.iter().map(|inner| (field.offset + inner.offset, inner)));
            } else {
                members.push((field.offset, field));
            }
        }
        members
    }
}

/// The record and the name of a member that is an anonymous union in C, so that neither the union
/// nor the member has a name there.
const ANONYMOUS: (&str, &str) = ("DAT_IB_EVENT_DETAIL", "detail");

fn handles() -> String {
    format!(
        "HANDLE(DAT_HANDLE_NULL, {})\nHANDLE(DAT_EVD_ASYNC_EXISTS, {})\n\
         HANDLE(DAT_EVD_OUT_OF_SCOPE, {})\n",
        dat_sys::DAT_HANDLE_NULL.addr(),
        dat_sys::DAT_EVD_ASYNC_EXISTS.addr(),
        dat_sys::DAT_EVD_OUT_OF_SCOPE.addr(),
    )
}

fn c_name(field: &Field) -> &'static str {
    field.name.strip_prefix("r#").unwrap_or(field.name)
}

/// Returns the C declaration of `name` with a Rust type.
fn c_declaration(type_name: &str, name: &str) -> String {
    if let Some(target) = type_name.strip_prefix("*mut ") {
        return c_declaration(target, &format!("*{name}"));
    }
    if let Some(target) = type_name.strip_prefix("*const ") {
        return format!("const {}", c_declaration(target, &format!("*{name}")));
    }
    if let Some((element, length)) = array(type_name) {
        return c_declaration(element, &format!("({name})[{length}]"));
    }
    if let Some(function) = ["C", "C-unwind"]
        .iter()
        .find_map(|abi| {
            type_name.strip_prefix(&format!("core::option::Option<unsafe extern \"{abi}\" fn("))
        })
        .and_then(|f| f.strip_suffix('>'))
    {
        let (arguments, result) = function.rsplit_once(')').unwrap();
        let arguments: Vec<_> = arguments
            .split(", ")
            .map(|argument| c_declaration(argument, "").trim_end().to_owned())
            .collect();
        let result = result.strip_prefix(" -> ").map_or("void", c_type);
        return format!("{result} (*{name})({})", arguments.join(", "));
    }
    format!("{} {name}", c_type(type_name))
}

/// Returns the element type and the length of `[T; N]`.
fn array(type_name: &str) -> Option<(&str, &str)> {
    type_name.strip_prefix('[')?.strip_suffix(']')?.rsplit_once("; ")
}

fn c_type(type_name: &str) -> &str {
    match type_name {
        // `i8` or `u8`, which depends on the processor.
        name if name == std::any::type_name::<c_char>() => "char",
        "i32" => "int",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "core::ffi::c_void" => "void",
        "dat_sys::ib::ibv_ah" => "struct ibv_ah",
        path => path.strip_prefix("dat_sys::").unwrap_or(path).rsplit("::").next().unwrap(),
    }
}
