//! The counters of a datagram queue pair.

/// Counters of a datagram queue pair. Each received packet counts in exactly one of the counters
/// from `rx_datagrams` on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The number of datagrams that were put into bursts.
    pub tx_datagrams: u64,
    /// The number of datagrams that completed but were not sent, because they were longer than the
    /// MTU.
    pub tx_too_long: u64,
    /// The number of datagrams that were placed in a receive buffer.
    pub rx_datagrams: u64,
    /// The number of packets that were dropped because they are no datagrams.
    pub rx_wrong_opcode: u64,
    /// The number of datagrams that were dropped because their sender is in another partition.
    pub rx_wrong_p_key: u64,
    /// The number of datagrams that were dropped because of their Q_Key.
    pub rx_wrong_q_key: u64,
    /// The number of datagrams that were dropped because no receive was posted.
    pub rx_no_receive: u64,
    /// The number of datagrams that were dropped because they were longer than the receive buffer.
    pub rx_too_long: u64,
    /// The number of datagrams that ended the queue pair: the memory of the receive was no longer
    /// registered, or the queue pair held too many receives.
    pub rx_failed: u64,
    /// The number of datagrams of the network layer that were dropped because they are no valid
    /// packets: their ICRC or their length is wrong.
    pub rx_invalid: u64,
}

impl Stats {
    /// The names and values of the counters. The names and their order are the same for all queue
    /// pairs.
    pub fn list(&self) -> [(&'static str, u64); 10] {
        [
            ("datagrams-sent", self.tx_datagrams),
            ("datagrams-too-long-to-send", self.tx_too_long),
            ("datagrams-received", self.rx_datagrams),
            ("dropped-wrong-opcode", self.rx_wrong_opcode),
            ("dropped-wrong-partition", self.rx_wrong_p_key),
            ("dropped-wrong-q-key", self.rx_wrong_q_key),
            ("dropped-no-receive", self.rx_no_receive),
            ("dropped-receive-too-small", self.rx_too_long),
            ("dropped-receive-failed", self.rx_failed),
            ("dropped-invalid", self.rx_invalid),
        ]
    }
}
