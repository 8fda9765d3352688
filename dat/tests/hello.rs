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
    let mut lines: Vec<&str> = stdout.lines().collect();
    lines.sort_unstable(); // two threads print
    assert_eq!(lines, [r#"client: "RDMA read""#, r#"server: "RDMA write""#, r#"server: "send""#]);
}
