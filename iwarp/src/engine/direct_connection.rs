//! Decides which connection a consumer's pass reads without asking the poller.
//!
//! A read without data takes about as long as asking the poller. So a pass reads at most one
//! connection, the *direct* one, and only while the next data are likely to arrive there: the
//! latest data arrived there twice in a row, or were the first part of a message. If data arrive on
//! many connections, there is no direct one, and every pass asks the poller.

/// The number of passes that only read the direct connection before a pass asks the poller, if the
/// adapter has other connections.
const DIRECT_PASSES: u32 = 4;
/// The number of these passes if the adapter has no other connection. Then only new callers need
/// the poller.
const DIRECT_PASSES_ALONE: u32 = 256;

/// The choice of the direct connection.
#[derive(Default)]
pub(super) struct DirectConnection {
    connection: Option<usize>,
    /// The connection on which the latest data arrived.
    latest: Option<usize>,
    /// The number of consecutive passes that have only read the direct connection.
    passes: u32,
}

impl DirectConnection {
    /// Returns the direct connection.
    pub(super) fn connection(&self) -> Option<usize> {
        self.connection
    }

    /// Returns the connection that the next pass reads, or `None` if the pass asks the poller.
    #[inline]
    pub(super) fn next_pass(&mut self, has_others: bool) -> Option<usize> {
        let limit = if has_others { DIRECT_PASSES } else { DIRECT_PASSES_ALONE };
        let connection = self.connection.filter(|_| self.passes < limit);
        self.passes = if connection.is_some() { self.passes + 1 } else { 0 };
        connection
    }

    /// Records that a pass has read data from the direct connection.
    #[inline]
    pub(super) fn has_read(&mut self) {
        self.latest = self.connection;
    }

    /// Records that the poller has reported a connection with data. `partial`: the rest of a
    /// message has not arrived.
    pub(super) fn has_reported(&mut self, connection: usize, partial: bool) {
        if self.latest == Some(connection) || partial {
            self.connection = Some(connection);
        } else if self.connection != self.latest {
            // Data have arrived on two other connections since they arrived on the direct one.
            self.connection = None;
        }
        self.latest = Some(connection);
    }

    /// Records that the direct connection has ended.
    pub(super) fn has_ended(&mut self) {
        self.connection = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acts as if the poller had reported these connections. Returns the connection that is then
    /// read directly.
    fn report(direct: &mut DirectConnection, connections: &[usize]) -> Option<usize> {
        connections.iter().for_each(|&connection| direct.has_reported(connection, false));
        direct.connection()
    }

    #[test]
    fn one_active_connection_is_read_directly() {
        let mut direct = DirectConnection::default();
        assert_eq!(direct.next_pass(true), None);
        assert_eq!(report(&mut direct, &[7]), None);
        assert_eq!(report(&mut direct, &[7]), Some(7));
        let passes: Vec<_> = (0..6).map(|_| direct.next_pass(true)).collect();
        assert_eq!(passes, [Some(7), Some(7), Some(7), Some(7), None, Some(7)]);
        let asks = (0..2 * DIRECT_PASSES_ALONE).filter(|_| direct.next_pass(false).is_none());
        assert_eq!(asks.count(), 1, "without other connections, the poller is asked rarely");
    }

    #[test]
    fn many_active_connections_are_left_to_the_poller() {
        let mut direct = DirectConnection::default();
        assert_eq!(report(&mut direct, &[1, 2, 3, 1, 2, 3]), None);
        assert_eq!(report(&mut direct, &[3]), Some(3));
        assert_eq!(report(&mut direct, &[1]), Some(3), "one other arrival does not count");
        direct.has_read();
        assert_eq!(report(&mut direct, &[2]), Some(3));
        assert_eq!(report(&mut direct, &[1]), None);
        assert_eq!(direct.next_pass(true), None);
    }

    #[test]
    fn the_rest_of_a_message_is_read_directly() {
        let mut direct = DirectConnection::default();
        report(&mut direct, &[1, 1]);
        direct.has_reported(2, true);
        assert_eq!(direct.connection(), Some(2));
        direct.has_ended();
        assert_eq!(direct.next_pass(true), None);
    }
}
