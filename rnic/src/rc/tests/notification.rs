//! Tests of congestion notifications.

use super::*;

/// The octets of a CNP, as annex A17.9.3 shows them: the opcode 0x81, the default partition, the
/// bit BECN, the queue pair, no PSN, and 16 reserved octets.
const CNP: &[u8] = b"\x81\x00\xFF\xFF\x40\x00\x00\x22\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";

const SEND: Opcode = Opcode::SendOnly;

#[test]
fn a_mark_is_reported_once_in_50_microseconds() {
    let start = Instant::now();
    let mut side = Side::new(cfg(1), start);
    let mut cnps_at = |micros| {
        side.rc.note_marked(SEND, start + Duration::from_micros(micros), &mut side.burst);
        take_packets(&mut side.burst)
    };
    let expected = [(0, 1), (1, 0), (49, 0), (50, 1), (99, 0), (500, 1), (549, 0), (550, 1)];
    for (micros, count) in expected {
        assert_eq!(cnps_at(micros), vec![CNP.to_vec(); count], "at {micros} µs");
    }
    assert_eq!(side.rc.stats().tx_packets, 4);
}

#[test]
fn each_connection_has_notifications_of_its_own() {
    let now = Instant::now();
    let mut sides = [Side::new(cfg(1), now), Side::new(cfg(0), now)];
    for side in &mut sides {
        side.rc.note_marked(SEND, now, &mut side.burst);
        assert_eq!(side.sent().len(), 1);
    }
}

#[test]
fn a_notification_that_finds_no_room_is_not_counted() {
    let now = Instant::now();
    let mut side = Side::new(cfg(1), now);
    side.burst = Burst::new(1, 1 << 16);
    assert!(side.burst.push(4).is_some());
    side.rc.note_marked(SEND, now, &mut side.burst);
    side.burst.clear();
    side.rc.note_marked(SEND, now, &mut side.burst);
    assert_eq!(side.sent(), [CNP]);
}

/// A failed connection sends nothing more.
#[test]
fn after_a_failure_no_mark_is_reported() {
    let now = Instant::now();
    let mut side = Side::new(cfg(1), now);
    side.rc.flush();
    side.rc.note_marked(SEND, now, &mut side.burst);
    assert!(side.burst.is_empty());
}

/// Packets of an unreliable connection, and datagrams, change nothing in a reliable connection.
#[test]
fn packets_of_other_transports_are_ignored() {
    let now = Instant::now();
    let mut side = Side::new(cfg(1), now);
    side.recv(1, &[]);
    for opcode in Opcode::ALL.into_iter().filter(|opcode| opcode.is_uc()) {
        let extension = match opcode.extension_kind() {
            wire::rocev2::ExtensionKind::Nothing => Extension::None,
            wire::rocev2::ExtensionKind::Immediate => Extension::Immediate(1),
            wire::rocev2::ExtensionKind::Reth => Extension::Reth(Reth { va: 0, r_key: 0, len: 0 }),
            _ => Extension::RethImmediate(Reth { va: 0, r_key: 0, len: 0 }, 1),
        };
        let packet = packet(opcode, PSNS[1], extension, &[]);
        assert!(!side.rc.has_expected_psn(&Packet::parse(&packet).unwrap()), "{opcode}");
        side.take(now, &packet).unwrap();
    }
    assert!(!side.rc.wants_tx() && !side.rc.owes_ack() && side.received().is_empty());
}
