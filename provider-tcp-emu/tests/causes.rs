//! The mistakes of docs/causes.md over iWARP: what both ends say about them.

#[path = "../../dat-core/tests/table/causes.rs"]
mod causes;
#[path = "../../dat-core/tests/table/client.rs"]
#[allow(dead_code)] // Other tests use the rest.
mod client;

#[test]
fn causes_are_told_at_both_ends() {
    let table = client::register::<provider_tcp_emu::TcpEmu>("causes", "127.0.0.1", false);
    causes::sentences_are_right(table, "causes", causes::Protocol::Iwarp);
}

/// Without a wait, a message that finds no receive ends the connection.
#[test]
fn a_message_without_a_receive_ends_the_connection() {
    let params = "127.0.0.1 rnr=terminate";
    let table = client::register::<provider_tcp_emu::TcpEmu>("terminate", params, false);
    causes::no_receive_ends_the_connection(table, "terminate");
}
