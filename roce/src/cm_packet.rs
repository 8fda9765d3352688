//! The packets of connection management.

use wire::cm::MAD_SIZE;
use wire::rocev2::{Bth, Deth, Extension, Opcode, Packet, Psn};

/// Wraps a message of connection management in a packet.
pub(crate) fn cm_packet(mad: &[u8; MAD_SIZE], psn: u32) -> Packet<'_> {
    let mut bth = Bth::new(Opcode::DatagramSendOnly, GSI, Psn::new(psn));
    bth.migrated = true;
    let deth = Deth { q_key: Deth::GSI_Q_KEY, source_qpn: GSI };
    Packet { bth, extension: Extension::Deth(deth), payload: mad }
}

/// The number of the queue pair for connection management (GSI), in every adapter.
pub(crate) const GSI: u32 = 1;
