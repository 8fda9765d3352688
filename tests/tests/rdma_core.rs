//! rdma-core-sys and the C headers of libibverbs and librdmacm must agree.
//!
//! rdma-core-sys describes itself as data (`rdma_core_sys::describe`). These tests write the
//! description out as a C program of static assertions and typed pointers: every size, offset,
//! value, member type and function signature.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use opendat_tests::{Skip, find_program, skip};
use rdma_core_sys::describe::{CONSTANTS, FUNCTIONS, Field, OFFSETS_BEFORE_CONTEXT, RECORDS};
use rdma_core_sys::{LoadError, RdmaCore};

#[test]
fn the_c_headers_agree() {
    match compile(&program()) {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr))
        }
        Err(reason) => skip(&reason),
    }
}

/// Checks that the test above fails if one declaration is wrong.
#[test]
fn a_difference_is_found() {
    let right = program();
    for (from, to) in [
        ("IBV_WC_RETRY_EXC_ERR == 12", "IBV_WC_RETRY_EXC_ERR == 13"),
        ("offsetof(struct ibv_wc, byte_len) == 20", "offsetof(struct ibv_wc, byte_len) == 16"),
        (
            "int (*f_ibv_resize_cq)(struct ibv_cq *, int)",
            "int (*f_ibv_resize_cq)(struct ibv_cq *, long)",
        ),
        ("struct ibv_mr **p_ibv_mw_bind_info_mr", "struct ibv_mw **p_ibv_mw_bind_info_mr"),
        ("offsetof(struct verbs_context, sz) == 8", "offsetof(struct verbs_context, sz) == 16"),
    ] {
        assert!(right.contains(from), "the program does not contain \"{from}\"");
        match compile(&right.replacen(from, to, 1)) {
            Ok(output) => assert!(!output.status.success(), "\"{to}\" compiles"),
            Err(reason) => return skip(&reason),
        }
    }
}

#[test]
fn the_libraries_load_where_they_are() {
    match RdmaCore::load() {
        Ok(_) => {
            assert!(std::ptr::eq(RdmaCore::load().ok().unwrap(), RdmaCore::load().ok().unwrap()))
        }
        Err(error @ LoadError::NotLoaded { .. }) => skip(&Skip(error.to_string())),
        Err(error) => panic!("{error}"),
    }
}

fn compile(program: &str) -> Result<Output, Skip> {
    let compiler = find_program("cc", "gcc")?;
    for (header, package) in
        [("infiniband/verbs.h", "libibverbs-dev"), ("rdma/rdma_cma.h", "librdmacm-dev")]
    {
        if !Path::new("/usr/include").join(header).exists() {
            return Err(Skip(format!("no /usr/include/{header}: install {package}")));
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("layout.c");
    fs::write(&source, program).unwrap();
    let output = Command::new(compiler)
        .args(["-std=gnu11", "-Wall", "-Werror", "-Wno-unused-variable", "-c", "-o", "/dev/null"])
        .arg(source)
        .output()
        .unwrap();
    Ok(output)
}

fn program() -> String {
    let mut c = String::from("#include <stddef.h>\n#include <rdma/rdma_cma.h>\n");
    for constant in CONSTANTS.iter().copied().flatten() {
        writeln!(c, "_Static_assert({0} == {1}, \"{0}\");", constant.name, constant.value).unwrap();
    }
    for record in RECORDS.iter().copied().flatten() {
        let name = record_name(record.name);
        assert_static(&mut c, &format!("sizeof({name})"), record.size);
        assert_static(&mut c, &format!("_Alignof({name})"), record.align);
        for field in record.fields {
            let member = field.name.strip_prefix("r#").unwrap_or(field.name);
            assert_static(&mut c, &format!("offsetof({name}, {member})"), field.offset);
            assert_static(&mut c, &format!("sizeof((({name} *)0)->{member})"), field.size);
            if let Some(pointer) = pointer_to(field) {
                let variable = c_declaration(&pointer, &format!("p_{}_{member}", record.name));
                writeln!(c, "static {variable} = &(({name} *)0)->{member};").unwrap();
            }
        }
    }
    for (member, bytes) in OFFSETS_BEFORE_CONTEXT {
        let [context, member] =
            ["context", member].map(|m| format!("offsetof(struct verbs_context, {m})"));
        assert_static(&mut c, &format!("{context} - {member}"), *bytes);
    }
    for function in FUNCTIONS.iter().copied().flatten() {
        let variable = c_declaration((function.type_name)(), &format!("f_{}", function.name));
        writeln!(c, "static {variable} = {};", function.name).unwrap();
    }
    c
}

fn assert_static(c: &mut String, what: &str, value: usize) {
    writeln!(c, "_Static_assert({what} == {value}, \"{what}\");").unwrap();
}

/// Records that are members of other records and have no name of their own in C, each with an
/// expression for its type.
const ANONYMOUS: &[(&str, &str)] = &[
    ("ibv_async_element", "typeof(((struct ibv_async_event *)0)->element)"),
    ("ibv_wr_target", "typeof(((struct ibv_send_wr *)0)->wr)"),
    ("ibv_wr_rdma", "typeof(((struct ibv_send_wr *)0)->wr.rdma)"),
    ("ibv_wr_atomic", "typeof(((struct ibv_send_wr *)0)->wr.atomic)"),
    ("ibv_wr_ud", "typeof(((struct ibv_send_wr *)0)->wr.ud)"),
    ("ibv_wr_bind_mw", "typeof(((struct ibv_send_wr *)0)->bind_mw)"),
    ("rdma_addr_below", "typeof(((struct rdma_addr *)0)->addr)"),
    ("rdma_event_param", "typeof(((struct rdma_cm_event *)0)->param)"),
];

/// Returns the name of the C type that corresponds to a Rust path.
fn record_name(path: &str) -> String {
    let name = path.rsplit("::").next().unwrap();
    match (ANONYMOUS.iter().find(|(rust, _)| *rust == name), name) {
        (Some((_, c)), _) => (*c).to_owned(),
        (None, "ibv_gid") => "union ibv_gid".to_owned(),
        (None, "pthread_mutex_t" | "pthread_cond_t") => name.to_owned(),
        (None, _) => format!("struct {name}"),
    }
}

/// Returns the type of a pointer to the member. Returns `None` if Rust declares the member less
/// exactly than C does because no code uses it.
fn pointer_to(field: &Field) -> Option<String> {
    /// Members that are untyped pointers in C too, because only their owner uses them.
    const UNTYPED: &[&str] = &[
        "context",
        "cq_context",
        "srq_context",
        "qp_context",
        "private_data",
        "addr",
        "abi_compat",
    ];
    let type_name = (field.type_name)();
    let less = type_name.ends_with("c_void") && !UNTYPED.contains(&field.name);
    // C declares `qp_type` of a work request as a union that contains only a number for XRC.
    let union = field.name == "qp_type" && type_name == "u32" && field.offset > 64;
    // In C, `__be64` is not the same 64-bit type as `uint64_t`.
    let guid = field.name.ends_with("_guid");
    (!less && !union && !guid).then(|| format!("*mut {type_name}"))
}

/// Returns the C declaration of `name` with a Rust type.
fn c_declaration(type_name: &str, name: &str) -> String {
    if let Some(target) = type_name.strip_prefix("*mut ") {
        return c_declaration(target, &format!("*{name}"));
    }
    if let Some(target) = type_name.strip_prefix("*const ") {
        return c_declaration(target, &format!("const *{name}"));
    }
    if let Some((element, length)) = array(type_name) {
        return c_declaration(element, &format!("({name})[{length}]"));
    }
    let function =
        type_name.strip_prefix("core::option::Option<").and_then(|f| f.strip_suffix('>'));
    if let Some(function) = function.unwrap_or(type_name).strip_prefix("unsafe extern \"C\" fn(") {
        let (arguments, result) = function.rsplit_once(')').unwrap();
        let arguments: Vec<_> =
            arguments
                .split(", ")
                .map(|argument| {
                    if argument.is_empty() {
                        "void".to_owned()
                    } else {
                        c_declaration(argument, "")
                    }
                })
                .map(|argument| argument.trim_end().to_owned())
                .collect();
        let name = format!("(*{name})({})", arguments.join(", "));
        return c_declaration(result.strip_prefix(" -> ").unwrap_or("()"), &name);
    }
    let c = match type_name {
        "()" | "core::ffi::c_void" | "libc::c_void" => "void".to_owned(),
        "i8" => "char".to_owned(),
        "i32" => "int".to_owned(),
        "u8" | "u16" | "u32" | "u64" => format!("uint{}_t", &type_name[1..]),
        "usize" => "size_t".to_owned(),
        path => record_name(path),
    };
    format!("{c} {name}")
}

/// Returns the element type and the length of `[T; N]`.
fn array(type_name: &str) -> Option<(&str, &str)> {
    type_name.strip_prefix('[')?.strip_suffix(']')?.rsplit_once("; ")
}
