//! Verifies that every byte arrives unchanged, and that nothing else in memory changes.

use anyhow::{Context, Result, bail, ensure};
use measurement::connection::{Connection, GUARD_BYTES};
use measurement::operation::Operation;
use measurement::plain_sockets::PlainSockets;
use measurement::wait_mode::Role;

/// The value of bytes that were not written to.
const UNTOUCHED_BYTE: u8 = 0xa5;

/// Moves `size` bytes once in each direction and verifies them.
pub(crate) fn both_ways(
    connection: &mut Connection,
    sockets: &mut PlainSockets,
    role: Role,
    operation: Operation,
    size: usize,
) -> Result<()> {
    for sender in [Role::Client, Role::Server] {
        // Each transfer has different data.
        let seed = (size as u64) << 8 | (operation as u64) << 4 | sender as u64;
        if role == sender {
            fill(connection, size, seed)?;
        } else {
            clear(connection, size)?;
        }
        sockets.barrier()?;
        let reader = operation == Operation::RdmaRead && role != sender;
        if reader {
            connection.post_read_or_atomic(operation, size)?;
            connection.complete(0)?;
            connection.notify()?; // tells the sender that the read is complete
            connection.complete(0)?;
        } else if operation == Operation::RdmaRead {
            connection.receive_notification()?;
        } else if role == sender {
            match operation {
                Operation::Send => connection.send(connection.outgoing(size)?)?,
                _ => connection.write_and_notify(size)?,
            }
            connection.complete(0)?;
        } else {
            let expected = if operation == Operation::Send { size } else { 0 };
            let length = connection.receive()?;
            ensure!(
                length == expected,
                "{} of {expected} bytes arrived with {length} bytes",
                operation.name()
            );
        }
        if role != sender {
            check(connection, operation, size, seed)?;
        }
        sockets.barrier()?;
    }
    Ok(())
}

/// Prepares the memory for a stream that [`stream_arrived`] verifies. The stream goes from the
/// client to the server, or from the server to the client for RDMA reads.
pub(crate) fn prepare_stream(
    connection: &mut Connection,
    role: Role,
    operation: Operation,
    size: usize,
) -> Result<()> {
    if role == sender_of_stream(operation) {
        fill(connection, size, stream_seed(operation, size))
    } else {
        clear(connection, size)
    }
}

/// Verifies that the last data of a stream have arrived.
pub(crate) fn stream_arrived(
    connection: &Connection,
    role: Role,
    operation: Operation,
    size: usize,
) -> Result<()> {
    if role == sender_of_stream(operation) {
        return Ok(());
    }
    check(connection, operation, size, stream_seed(operation, size))
}

fn sender_of_stream(operation: Operation) -> Role {
    if operation == Operation::RdmaRead { Role::Server } else { Role::Client }
}

fn stream_seed(operation: Operation, size: usize) -> u64 {
    (size as u64) << 8 | (operation as u64) << 4 | 0xf
}

fn fill(connection: &mut Connection, size: usize, seed: u64) -> Result<()> {
    Ok(connection.memory.store(0, &pattern(size, seed))?)
}

fn clear(connection: &mut Connection, size: usize) -> Result<()> {
    let start = connection.incoming_offset();
    Ok(connection.memory.store(start, &vec![UNTOUCHED_BYTE; size + GUARD_BYTES])?)
}

fn check(connection: &Connection, operation: Operation, size: usize, seed: u64) -> Result<()> {
    let start = connection.incoming_offset();
    let arrived = connection.memory.to_vec(start..start + size + GUARD_BYTES)?;
    compare(&arrived, &pattern(size, seed))
        .with_context(|| format!("{} of {size} bytes", operation.name()))
}

/// Verifies that the data is as expected, and that the memory after it is unchanged.
fn compare(arrived: &[u8], expected: &[u8]) -> Result<()> {
    let (data, guard) = arrived.split_at(expected.len());
    if let Some(at) = data.iter().zip(expected).position(|(got, wanted)| got != wanted) {
        bail!("byte {at} is {:#04x}, not {:#04x}", data[at], expected[at]);
    }
    ensure!(
        guard.iter().all(|&byte| byte == UNTOUCHED_BYTE),
        "memory after the received data was changed"
    );
    Ok(())
}

/// Returns pseudorandom bytes (splitmix64), so that data which are shifted, doubled or cut never
/// match.
fn pattern(size: usize, seed: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size + 8);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    while bytes.len() < size {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bytes.extend_from_slice(&(z ^ (z >> 31)).to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

#[cfg(test)]
mod tests {
    use super::{UNTOUCHED_BYTE, compare, pattern};

    #[test]
    fn patterns_differ_and_have_their_size() {
        for size in [0, 1, 7, 8, 9, 4096] {
            assert_eq!(pattern(size, 1).len(), size);
        }
        assert_ne!(pattern(8, 1), pattern(8, 2));
        let page = pattern(4096, 3);
        assert_ne!(page[..8], page[8..16]);
    }

    #[test]
    fn any_byte_that_is_wrong_is_found() {
        let expected = pattern(64, 1);
        let arrived = [expected.as_slice(), &[UNTOUCHED_BYTE; 8]].concat();
        assert!(compare(&arrived, &expected).is_ok());
        for at in 0..arrived.len() {
            let mut wrong = arrived.clone();
            wrong[at] ^= 0x10;
            let error =
                compare(&wrong, &expected).expect_err("wrong data must be reported").to_string();
            let place = if at < 64 {
                format!("byte {at} is")
            } else {
                "memory after the received data".into()
            };
            assert!(error.contains(&place), "{error}");
        }
    }
}
