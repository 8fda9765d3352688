//! A thousand connections: each message and timer costs what it does with one.

use super::*;

const CONNECTIONS: u32 = if cfg!(miri) { 20 } else { 1000 };

#[test]
fn a_thousand_connections() {
    let mut pair = Pair::new();
    pair.cms[B].listen(PORT, CONNECTIONS as usize).unwrap();
    let mut ids = vec![];
    for at in 0..CONNECTIONS {
        ids.push(pair.connect(at << 7 | 1));
    }
    pair.run();
    let requests = pair.told(B);
    assert_eq!(requests.len(), ids.len());
    for (at, (id, _)) in (0..).zip(&requests) {
        pair.accept(*id, at << 7 | 2);
    }
    pair.run();
    assert_eq!(pair.told(A).len(), ids.len());
    assert_eq!(pair.told(B).len(), ids.len());
    assert_eq!(pair.deadline(), None);
    for cm in &pair.cms {
        assert!(
            cm.conns.values().all(|conn| conn.state == State::Established && conn.kept.is_none())
        );
    }

    for &id in &ids {
        pair.cms[A].disconnect(pair.now, id, Ending::Graceful);
    }
    pair.pass_all();
    assert_eq!(pair.told(A).len(), 2 * ids.len());
    assert_eq!(pair.told(B).len(), 2 * ids.len());
    assert!(pair.is_empty());
}

/// Octets that an established connection takes, without the tables that name it.
#[test]
fn a_connection_is_small() {
    let size = size_of::<conn::Conn>();
    assert!(size <= 256, "{size}");
}
