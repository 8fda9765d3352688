//! RDMAP over DDP over MPA over a byte stream (RFC 5040, 5041, 5044, 6581, 7306).
//!
//! | file | what |
//! |---|---|
//! | [`setup`] | from a TCP connection to an agreement |
//! | [`stream`] | the engine of an established connection: its interface and what both directions share |
//! | `tx` | from work requests to frames |
//! | `rx` | from frames to memory and completions: the rules of reception |
//! | `answer` | what the peer asked for: its RDMA reads and atomic operations, and their answers |
//! | `message`, `frame` | how a message is cut into FPDUs, and how these are made |
//! | [`mod@vec`] | the buffers of one system call |

mod answer;
mod frame;
mod message;
mod rx;
pub mod setup;
pub mod stream;
mod tx;
pub mod vec;

#[cfg(test)]
mod tests;
