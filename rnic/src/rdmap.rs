//! RDMAP over DDP over MPA over a byte stream (RFC 5040, 5041, 5044, 6581, 7306).
//!
//! | file | contents |
//! |---|---|
//! | [`setup`] | negotiates the terms of a connection over TCP |
//! | [`stream`] | the engine of an established connection: its interface and common state |
//! | `tx` | sending: from work requests to frames |
//! | `rx` | receiving: from frames to memory and completions |
//! | `answer` | the peer's RDMA reads and atomic operations, and their answers |
//! | `placement` | which writes the peer has placed |
//! | `message`, `frame` | the layout of a message, and the FPDUs made from it |
//! | `terminated` | what a TERMINATE message of the peer says |
//! | [`mod@vec`] | the buffers of one system call |

mod answer;
mod frame;
mod message;
mod placement;
mod rx;
pub mod setup;
pub mod stream;
mod terminated;
mod tx;
pub mod vec;

#[cfg(test)]
mod tests;
