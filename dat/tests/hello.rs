//! The example does what it says.

use std::process::Command;

#[test]
fn hello_sends_writes_and_reads() {
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--package", "dat", "--example", "hello"])
        .output()
        .expect("cargo runs");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = stdout.lines().collect();
    assert_eq!(
        lines,
        [
            r#"private data: "hello""#,
            "client: RDMA write 2: done, 10 bytes",
            "client: send 3: done, 4 bytes",
            "client: RDMA read 4: done, 9 bytes",
            "server: established",
            "server: receive 1: done, 4 bytes",
            r#"server has "send__RDMA write""#,
            r#"client has "RDMA read""#,
        ]
    );
}
