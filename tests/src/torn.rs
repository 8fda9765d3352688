//! Checks text that was read from memory while another process was writing to it.

/// Returns whether each octet of the text is the octet at the same position in `before` or in
/// `after`.
pub fn is_torn(found: &str, before: &str, after: &str) -> bool {
    let (before, after) = (before.as_bytes(), after.as_bytes());
    let of_either = |(n, octet)| [before.get(n), after.get(n)].contains(&Some(&octet));
    found.len() >= before.len().min(after.len()) && found.bytes().enumerate().all(of_either)
}

#[cfg(test)]
mod tests {
    use super::is_torn;

    #[test]
    fn a_text_may_be_half_overwritten() {
        let torn = |found| is_torn(found, "server RDMA write data...", "client RDMA read data...");
        for found in
            ["server RDMA write data...", "cerver RDMA write data...", "client RDMA read data..."]
        {
            assert!(torn(found), "{found}");
        }
        for found in ["", "c", "blah, blah, blah", "client RDMA read", "server RDMA xrite data..."]
        {
            assert!(!torn(found), "{found}");
        }
    }
}
