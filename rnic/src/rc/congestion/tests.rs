//! Tests of the window and the pacing, without packets.

use super::*;

const MS: Duration = Duration::from_millis(1);

/// A sender that always fills the window, and the network that acknowledges whole windows.
struct Sender {
    control: Cubic,
    now: Instant,
    psn: Psn,
}

impl Sender {
    fn new(max: u32) -> Self {
        let mut control = Cubic::new(PathMtu::Octets4096, ETHERNET_IP_MTU, max);
        (control.max, control.max_of_path) = (max, (max, max));
        Sender { control, now: Instant::now(), psn: Psn::new(0) }
    }

    /// A sender that has left slow start with this window.
    fn steady(window: u32) -> Self {
        let mut sender = Sender::new(1 << 20);
        let size = u64::from(window) << FRACTION_BITS;
        sender.control.size = Size { window: size, slow_start_threshold: size, at_loss: 0 };
        sender
    }

    /// Sends a window of packets, which are acknowledged after a round trip. Returns the new
    /// window.
    fn round(&mut self, round_trip: Duration) -> u32 {
        self.round_of(self.control.window(), round_trip)
    }

    fn round_of(&mut self, psns: u32, round_trip: Duration) -> u32 {
        self.control.on_sent(psns, psns, self.now);
        self.now += round_trip;
        self.psn = self.psn + psns;
        let ack = Acknowledged {
            psns,
            in_flight: 0,
            oldest: self.psn,
            is_last: true,
            round_trip: Some(round_trip),
            smoothed: Some(round_trip),
        };
        self.control.on_ack(&ack, self.now);
        self.control.window()
    }

    fn rounds(&mut self, round_trips: &[Duration]) -> Vec<u32> {
        round_trips.iter().map(|&round_trip| self.round(round_trip)).collect()
    }
}

#[test]
fn it_starts_with_few_packets_and_doubles() {
    for (mtu, initial) in PathMtu::ALL.into_iter().zip([64, 32, 16, INITIAL_WINDOW_PACKETS, 10]) {
        assert_eq!(Cubic::new(mtu, 1500, 1024).window(), initial, "{mtu:?}");
        assert_eq!(Cubic::new(mtu, 1500, 3).window(), 3, "{mtu:?}");
    }
    assert_eq!(Sender::new(256).rounds(&[MS; 6]), [20, 40, 80, 160, 256, 256]);
}

#[test]
fn slow_start_ends_when_round_trips_become_longer() {
    let mut sender = Sender::new(1 << 20);
    sender.rounds(&[MS / 10; 3]);
    // The queue grows by a millisecond. While the round trip stays longer, the window grows by
    // a quarter in each round trip, three times.
    let careful = sender.rounds(&[2 * MS; 5]);
    assert_eq!(careful, [100, 125, 156, 157, 158]);
    assert!(!sender.control.is_in_slow_start());

    // On a longer path, the window grows by a quarter once.
    let mut sender = Sender::new(1 << 20);
    sender.rounds(&[2 * MS; 3]);
    let careful = sender.rounds(&[4 * MS; 3]);
    assert_eq!(careful, [100, 101, 102]);

    // A single long round trip may have other reasons.
    let mut sender = Sender::new(1 << 20);
    sender.rounds(&[MS / 10; 3]);
    let rounds = sender.rounds(&[2 * MS, MS / 10, MS / 10]);
    assert_eq!(rounds, [100, 200, 400]);
}

#[test]
fn a_loss_costs_three_tenths_once_in_a_round_trip() {
    let mut sender = Sender::steady(100);
    sender.control.on_loss(sender.psn + 100);
    assert_eq!(sender.control.window(), 70);
    sender.control.on_loss(sender.psn + 100);
    assert_eq!(sender.control.window(), 70);
    // The window does not grow before the packets that were in flight are acknowledged.
    assert_eq!(sender.round_of(99, 10 * MS), 70);
    sender.round_of(1, 10 * MS);
    sender.control.on_loss(sender.psn + 70);
    assert_eq!(sender.control.window(), 49);
    for _ in 0..20 {
        sender.control.on_loss(sender.psn + 1);
        sender.round(MS);
    }
    assert_eq!(sender.control.window(), SLOW_START_THRESHOLD_MIN);
}

/// The values of the curve that follow from RFC 9438, section 4.2, for a window of 1000 packets
/// at a loss: K is the cube root of 300 / 0.4, which is 9.09 s.
#[test]
fn after_a_loss_the_window_grows_along_the_cubic_curve() {
    let mut sender = Sender::steady(1000);
    sender.control.on_loss(sender.psn);
    let round_trip = 100 * MS;
    let mut after = |seconds: usize| {
        for _ in 0..seconds * 10 {
            sender.round(round_trip);
        }
        sender.control.window()
    };
    // 1000 + 0.4 (t - 9.09)³ at t = 3, 6, 9, 12 and 15 s.
    for (seconds, expected) in [(3, 910), (3, 988), (3, 1000), (3, 1010), (3, 1083)] {
        let window = after(seconds);
        assert!(window.abs_diff(expected) <= 6, "expected {expected}, found {window}");
    }
}

/// On short paths the curve is slower than a Reno sender, whose growth counts then.
#[test]
fn on_a_short_path_the_window_grows_as_that_of_a_reno_sender() {
    let mut sender = Sender::steady(100);
    sender.control.on_loss(sender.psn);
    let windows = sender.rounds(&[MS; 60]);
    // 70 packets, and 0.53 packets in each round trip until 100, then one.
    assert_eq!([windows[0], windows[19], windows[39], windows[56]], [70, 80, 91, 100]);
    assert_eq!(sender.rounds(&[MS; 10])[9] - windows[59], 10);
}

#[test]
fn the_growth_depends_on_the_sizes_of_packets() {
    for (mtu, ip_mtu, factor) in [
        (PathMtu::Octets1024, 1500, 2.0),
        // The peer's interface may be Ethernet's.
        (PathMtu::Octets1024, 9000, 2.0),
        (PathMtu::Octets2048, 4000, 1.0),
        (PathMtu::Octets4096, 4200, 1.03),
        (PathMtu::Octets4096, 9000, 4.77),
        (PathMtu::Octets4096, 65_536, 4.77),
        (PathMtu::Octets256, 1500, 5.0),
        (PathMtu::Octets256, 0, 1.0),
    ] {
        let found = growth_factor(mtu, ip_mtu) as f64 / ONE as f64;
        assert!((found - factor).abs() < 0.01, "{mtu}, {ip_mtu}: {found}");
    }
}

#[test]
fn the_maximum_window_grows_with_the_round_trip() {
    for (round_trip, window) in [(1, 1024), (25, 1024), (50, 2048), (100, 4096), (300, 8192)] {
        let control = Cubic::new(PathMtu::Octets1024, 1500, 8192);
        let mut sender = Sender { control, now: Instant::now(), psn: Psn::new(0) };
        assert_eq!(sender.rounds(&[round_trip * MS; 12])[11], window, "{round_trip} ms");
    }
    let control = Cubic::new(PathMtu::Octets4096, 9000, 2048);
    assert_eq!((control.max, control.max_of(50 * MS)), (256, 512));
}

/// New packets may be sent in a recovery unless more than one packet in ten is lost.
/// A window of packets in a long queue makes a long round trip, which is no reason for a larger
/// window.
#[test]
fn a_queue_of_its_own_packets_does_not_raise_the_maximum() {
    let mut control = Cubic::new(PathMtu::Octets4096, ETHERNET_IP_MTU, 512);
    let start = Instant::now();
    control.note_round_trip(MS, start);
    assert_eq!(control.max, 256);
    for seconds in 1..60 {
        control.note_round_trip(84 * MS, start + Duration::from_secs(seconds));
        assert_eq!(control.max, 256, "after {seconds} s");
    }
    // After an idle time, the path is measured anew.
    control.restart(Duration::from_secs(10));
    control.note_round_trip(84 * MS, start + Duration::from_secs(70));
    assert_eq!(control.max, 512);
    // A window that has grown beyond the maximum of a shorter path becomes smaller.
    control.size.window = 500 << FRACTION_BITS;
    control.note_round_trip(MS, start + Duration::from_secs(71));
    assert_eq!((control.max, control.window()), (256, 256));
}

#[test]
fn many_losses_show_that_a_queue_is_full() {
    for (interval, may_send) in [(5, false), (9, false), (12, true), (30, true)] {
        let mut sender = Sender::steady(interval);
        for _ in 0..30 {
            sender.round_of(interval, MS);
            sender.control.on_loss(sender.psn);
        }
        assert_eq!(sender.control.may_send_in_recovery(), may_send, "{interval} packets");
    }
}

/// A path that becomes longer looks like a queue, but not for long.
#[test]
fn a_longer_path_is_no_queue() {
    let mut sender = Sender::steady(100);
    sender.rounds(&[10 * MS; 100]);
    sender.rounds(&[20 * MS; 100]);
    assert!(sender.control.has_queue);
    sender.rounds(&[20 * MS; 1000]);
    assert!(!sender.control.has_queue);
}

#[test]
fn cube_roots_are_exact() {
    for number in [0u64, 1, 2, 1000, 137_896, (1 << 21) - 1] {
        assert_eq!(cube_root(number.pow(3)), number);
        assert_eq!(cube_root(number.pow(3) + 1), number.max(1));
    }
}

/// With a path MTU of 1024, the growth is larger by (1448 / 1024)², unless a queue is growing.
#[test]
fn on_ethernet_the_window_grows_for_the_octets_of_a_reno_sender() {
    for (round_trip, grown) in [(MS, 10), (MS * 9 / 8, 5), (2 * MS, 5)] {
        let mut sender = Sender::steady(100);
        sender.control.growth_factor = growth_factor(PathMtu::Octets1024, 1500);
        sender.round(MS);
        sender.control.on_loss(sender.psn);
        let windows = sender.rounds(&[round_trip; 11]);
        assert!(windows[10].abs_diff(windows[0] + grown) <= 1, "{windows:?}");
    }
}

#[test]
fn a_timeout_leaves_one_packet_and_slow_start() {
    let mut sender = Sender::steady(100);
    sender.round_of(1, MS / 10);
    sender.control.on_timeout(sender.psn);
    assert_eq!(sender.control.window(), 1);
    assert_eq!(sender.rounds(&[MS / 10; 8]), [2, 4, 8, 16, 32, 64, 70, 70]);
    // The timer expires too soon if the first round trip is long.
    let mut sender = Sender::new(256);
    sender.control.on_timeout(sender.psn);
    assert_eq!(sender.rounds(&[20 * MS; 9]), [2, 4, 8, 16, 32, 64, 128, 256, 256]);
}

#[test]
fn a_reduction_without_a_loss_is_undone() {
    for reduce in [Cubic::on_loss, Cubic::on_timeout] {
        let mut sender = Sender::steady(100);
        reduce(&mut sender.control, sender.psn + 100);
        assert!(sender.control.window() < 100);
        sender.control.on_late_ack();
        assert_eq!(sender.control.window(), 100);
        assert!(!sender.control.is_in_slow_start());
    }
}

#[test]
fn marks_shrink_the_window_by_half_of_their_share() {
    let mut sender = Sender::steady(1000);
    // The first mark halves the window. Another mark in the same round trip changes nothing.
    sender.control.on_mark(sender.psn + 1);
    sender.control.on_mark(sender.psn + 1);
    assert_eq!(sender.control.window(), 500);
    // Without marks their share decreases, so that the next mark costs less.
    sender.rounds(&[MS; 100]);
    let before = sender.control.window();
    sender.control.on_mark(sender.psn + 1);
    let after = sender.control.window();
    assert!(before * 97 / 100 <= after && after < before, "{before} became {after}");
    // A notification cannot be wrong.
    sender.control.on_late_ack();
    assert_eq!(sender.control.window(), after);
}

/// A notification that may be forged ends the growth of slow start, but it makes no connection
/// slower than a new one.
#[test]
fn unproven_marks_keep_the_window_between_the_initial_one_and_what_it_was() {
    for (before, after) in [(1000, 10), (12, 10), (10, 10), (4, 4), (1, 1)] {
        let mut sender = Sender::steady(before);
        for _ in 0..50 {
            let window = sender.control.window();
            sender.control.on_unproven_mark(sender.psn + 1);
            assert!(sender.control.window() <= window, "the window was {window}");
            // No packet is acknowledged, so that the window does not grow.
            sender.control.recovery_end = None;
        }
        assert_eq!(sender.control.window(), after, "after {before}");
    }
    let mut sender = Sender::new(1 << 20);
    for round in 0..50 {
        sender.control.on_unproven_mark(sender.psn + 1);
        let window = sender.round(MS);
        assert!(window <= 20, "the window is {window} after round trip {round}");
    }
}

/// A loss in the round trip of a mark costs three tenths of the window before the mark.
#[test]
fn a_mark_does_not_hide_a_loss() {
    let mut sender = Sender::steady(1000);
    sender.control.marked_share = ONE / 10;
    sender.control.on_mark(sender.psn + 1);
    assert!((940..=950).contains(&sender.control.window()), "{}", sender.control.window());
    for _ in 0..2 {
        sender.control.on_loss(sender.psn + 1);
        assert_eq!(sender.control.window(), 700);
    }
    // A mark that has halved the window has cost more.
    let mut sender = Sender::steady(1000);
    sender.control.on_mark(sender.psn + 1);
    sender.control.on_loss(sender.psn + 1);
    assert_eq!(sender.control.window(), 500);
}

#[test]
fn a_window_that_is_not_used_does_not_grow() {
    let mut sender = Sender::steady(100);
    assert_eq!((0..50).map(|_| sender.round_of(49, MS)).max(), Some(100));
    let mut sender = Sender::new(100);
    assert_eq!((0..50).map(|_| sender.round_of(4, MS)).max(), Some(10));
}

#[test]
fn the_window_halves_while_the_connection_is_idle() {
    for (idle, window) in [(99, 800), (100, 400), (350, 100), (10_000, 10), (1_000_000, 10)] {
        let mut sender = Sender::steady(800);
        sender.round_of(1, MS);
        sender.now += idle * MS;
        sender.control.on_sent(1, 1, sender.now);
        assert_eq!(sender.control.window(), window, "{idle} ms");
    }
    // A window that was small stays as it is.
    let mut sender = Sender::steady(3);
    sender.round_of(1, MS);
    sender.control.on_sent(1, 1, sender.now + 10_000 * MS);
    assert_eq!(sender.control.window(), 3);
}

#[test]
fn a_receiver_that_is_not_ready_gets_one_packet() {
    let mut sender = Sender::steady(100);
    sender.control.on_receiver_not_ready();
    assert_eq!(sender.control.window(), 1);
    assert_eq!(sender.round(MS), 100);
}

/// Sends packets as soon as the pacing permits. Returns the times in microseconds at which
/// batches leave, and their sizes.
fn paced(sender: &mut Sender, packets: u32, mut late: impl FnMut() -> u32) -> Vec<(u128, u32)> {
    let start = sender.now;
    let mut batches: Vec<(u128, u32)> = Vec::new();
    for _ in 0..packets {
        if let Some(at) = sender.control.blocked_until() {
            sender.now = at.max(sender.now) + Duration::from_micros(late().into());
            sender.control.advance(sender.now);
        }
        let micros = (sender.now - start).as_micros();
        match batches.last_mut().filter(|(at, _)| *at == micros) {
            Some((_, size)) => *size += 1,
            None => batches.push((micros, 1)),
        }
        sender.control.on_sent(1, 1, sender.now);
    }
    batches
}

#[test]
fn a_window_leaves_in_batches() {
    // 100 packets in 10 ms, times 1.25: a packet every 80 µs, three in a batch.
    let mut sender = Sender::steady(100);
    sender.round(10 * MS);
    sender.round_of(1, 10 * MS);
    let batches = paced(&mut sender, 100, || 0);
    // The first batch follows an idle moment, and the second one need not wait for it.
    assert!(batches[0].1 <= 6 && batches[1..].iter().all(|&(_, size)| size <= 3), "{batches:?}");
    let (last, _) = batches[batches.len() - 1];
    assert!((7_500..=8_000).contains(&last), "{batches:?}");
}

/// A thread that wakes up late does not slow the connection down.
#[test]
fn batches_that_leave_late_do_not_delay_others() {
    let mut sender = Sender::steady(100);
    sender.round(10 * MS);
    for late in [100, 1000] {
        let batches = paced(&mut sender, 100, || late);
        let (last, _) = batches[batches.len() - 1];
        assert!(last <= 8_000 + u128::from(late), "{batches:?}");
    }
}

/// A window that has waited for long must not leave at once.
#[test]
fn unused_time_is_not_saved() {
    let mut sender = Sender::steady(100);
    sender.round(10 * MS);
    paced(&mut sender, 10, || 0);
    sender.now += 50 * MS;
    sender.control.advance(sender.now);
    let batches = paced(&mut sender, 100, || 0);
    let soon: u32 = batches.iter().filter(|(at, _)| *at <= 500).map(|(_, size)| size).sum();
    assert!(soon <= 13, "{batches:?}");
}

#[test]
fn a_request_for_many_responses_uses_up_their_time() {
    let mut sender = Sender::steady(100);
    sender.round(10 * MS);
    sender.control.on_sent(25, 25, sender.now);
    let wait = sender.control.blocked_until().unwrap() - sender.now;
    assert!((1_950..=2_000).contains(&wait.as_micros()), "{wait:?}");
}

#[test]
fn a_short_path_has_no_pacing() {
    let mut sender = Sender::steady(100);
    sender.round(MS - Duration::from_nanos(1));
    assert_eq!(paced(&mut sender, 1000, || 0).len(), 1);
}

#[test]
fn pacing_can_be_switched_off() {
    let mut sender = Sender::steady(100);
    sender.round(10 * MS);
    sender.control.disable_pacing();
    assert_eq!(paced(&mut sender, 1000, || 0).len(), 1);
    sender.round_of(1, 10 * MS);
    assert_eq!(paced(&mut sender, 1000, || 0).len(), 1);
}
