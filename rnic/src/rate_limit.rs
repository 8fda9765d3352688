//! Limits the work that an adapter does for strangers.
//!
//! Anybody can send datagrams to an adapter without having a connection. The adapter takes a token
//! from a bucket before it does the work that such a datagram asks for. Without a token the adapter
//! drops the datagram.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// A token bucket.
#[derive(Clone, Debug)]
pub struct TokenBucket {
    /// The time in which one token is added.
    period: Duration,
    /// The time in which an empty bucket fills up.
    fill: Duration,
    /// The time at which the bucket is full. `None` if no token was ever taken.
    full_at: Option<Instant>,
}

impl TokenBucket {
    /// Makes a full bucket that gains `rate` tokens per second and holds at most `burst` tokens.
    pub fn new(rate: u32, burst: u32) -> Self {
        let period = Duration::from_secs(1) / rate.max(1);
        TokenBucket { period, fill: period * burst, full_at: None }
    }

    /// Takes a token. Returns false if the bucket is empty.
    pub fn take(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.map_or(now, |at| at.max(now)) + self.period;
        let available = full_at.duration_since(now) <= self.fill;
        if available {
            self.full_at = Some(full_at);
        }
        available
    }
}

/// The number of buckets.
const GROUP_COUNT: usize = 32;
/// The number of tokens that a bucket gains per second. A host with many processes may need that
/// many answers.
const TOKENS_PER_SECOND: u32 = 256;
/// The maximum number of tokens in a bucket.
const MAX_TOKENS: u32 = 512;

/// A token bucket for each of 32 groups of addresses. A hash with a random key maps an address to
/// its group. So a flood from one address empties one bucket, and the sender cannot choose which
/// other addresses share it. A flood from many forged addresses empties all buckets, and gets 32
/// times as many tokens.
pub struct TokenBuckets {
    groups: [TokenBucket; GROUP_COUNT],
    key: RandomState,
    /// The number of times that a bucket was empty.
    refused: u64,
}

impl Default for TokenBuckets {
    fn default() -> Self {
        let group = TokenBucket::new(TOKENS_PER_SECOND, MAX_TOKENS);
        let groups = std::array::from_fn(|_| group.clone());
        TokenBuckets { groups, key: RandomState::new(), refused: 0 }
    }
}

impl TokenBuckets {
    /// Takes a token for a datagram from this address. Returns false if the bucket is empty: the
    /// caller must drop the datagram.
    pub fn take(&mut self, now: Instant, from: IpAddr) -> bool {
        let group = self.key.hash_one(network(from)) as usize % GROUP_COUNT;
        let available = self.groups[group].take(now);
        self.refused += u64::from(!available);
        available
    }

    /// The number of times that a bucket was empty.
    pub fn refused(&self) -> u64 {
        self.refused
    }
}

/// The number of unconfirmed acceptances that one address may hold if no queue pair is free. A
/// program may create a queue pair only when it accepts a request.
const UNCONFIRMED_WITHOUT_FREE_QUEUE_PAIR: usize = 4;

/// Returns whether one address may hold another unconfirmed acceptance: the program has accepted
/// the request, and the caller has not confirmed that it has the answer. An unconfirmed acceptance
/// occupies a queue pair, and the caller's address may be forged. `held` is the number of
/// acceptances that the address holds or has requested, and `free` the number of queue pairs that
/// nobody occupies. `undecided` is the number of requests of all addresses that wait for the
/// program, each of which may take a free queue pair.
///
/// An address may hold as many acceptances as free queue pairs are left, and one in any case. So
/// one address leaves half of the queue pairs to others, two addresses leave a third, and `n`
/// addresses leave one of `n + 1`.
pub fn may_hold_another(held: usize, free: usize, undecided: usize) -> bool {
    held < match free {
        0 => UNCONFIRMED_WITHOUT_FREE_QUEUE_PAIR,
        _ => free.saturating_sub(undecided).max(1),
    }
}

/// Returns the part of a sender's address that limits apply to. For IPv6 this part is the first 64
/// bits, because one host can use all addresses with these bits. For link-local addresses it is the
/// whole address, because all of them have the same first 64 bits. For an IPv4-mapped address it is
/// the IPv4 address.
pub fn network(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(ip) if !ip.is_unicast_link_local() => {
            Ipv6Addr::from(u128::from(ip) >> 64 << 64).into()
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn taken(bucket: &mut TokenBucket, now: Instant) -> usize {
        (0..10_000).take_while(|_| bucket.take(now)).count()
    }

    /// Each case has a number of addresses. Each address holds as many queue pairs as it can.
    #[test]
    fn addresses_leave_queue_pairs_to_others() {
        let cases = [
            (100, 1, 50),
            (16, 1, 8),
            (16, 3, 4),
            (12, 3, 3),
            (7, 1, 3),
            (4, 1, 2),
            (4, 3, 1),
            (2, 1, 1),
            (1, 1, 0),
        ];
        for (queue_pairs, addresses, left) in cases {
            let (mut held, mut free) = (vec![0; addresses], queue_pairs);
            while let Some(least) = held.iter_mut().min()
                && free > 0
                && may_hold_another(*least, free, 0)
            {
                *least += 1;
                free -= 1;
            }
            assert_eq!(free, left, "{queue_pairs} queue pairs, {addresses} addresses");
        }
        let most = |free, undecided| {
            (0..100).take_while(|&held| may_hold_another(held, free, undecided)).count()
        };
        // A program that creates its queue pairs later has none that is free.
        assert_eq!([most(0, 0), most(0, 9)], [4, 4]);
        // Queue pairs that undecided requests may take are not left.
        assert_eq!([most(16, 6), most(16, 16), most(16, 99)], [10, 1, 1]);
    }

    #[test]
    fn a_burst_and_then_the_rate() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(100, 20);
        assert_eq!(taken(&mut bucket, start), 20);
        assert_eq!(taken(&mut bucket, start + Duration::from_millis(9)), 0);
        assert_eq!(taken(&mut bucket, start + Duration::from_millis(10)), 1);
        assert_eq!(taken(&mut bucket, start + Duration::from_millis(105)), 9);
        // In the long run the rate is the limit, even if tokens are requested more often.
        let mut bucket = TokenBucket::new(100, 20);
        let asked = (0..100_000).filter(|&n| bucket.take(start + n * SECOND / 10_000)).count();
        assert_eq!(asked, 20 + 10 * 100 - 1);
    }

    #[test]
    fn an_idle_bucket_is_full_and_no_more() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(1000, 50);
        for years in [0, 1, 100] {
            let now = start + years * 365 * 24 * 3600 * SECOND;
            assert_eq!(taken(&mut bucket, now), 50);
        }
        // When the clock goes back, no token is added or removed.
        assert_eq!(taken(&mut bucket, start), 0);
        let later = start + 101 * 365 * 24 * 3600 * SECOND;
        assert_eq!(taken(&mut bucket, later), 50);
    }

    #[test]
    fn extreme_figures() {
        let now = Instant::now();
        assert_eq!(taken(&mut TokenBucket::new(0, 1), now), 1);
        assert_eq!(taken(&mut TokenBucket::new(5, 0), now), 0);
        assert!(TokenBucket::new(1, u32::MAX).take(now));
        assert!(TokenBucket::new(u32::MAX, u32::MAX).take(now));
    }

    #[test]
    fn a_flood_from_one_address_leaves_tokens_for_others() {
        let now = Instant::now();
        let mut buckets = TokenBuckets::default();
        let flooder = IpAddr::from([10, 0, 0, 1]);
        let answered = (0..10_000).filter(|_| buckets.take(now, flooder)).count();
        assert_eq!(
            (answered, buckets.refused()),
            (MAX_TOKENS as usize, 10_000 - u64::from(MAX_TOKENS))
        );
        // About six of 200 other addresses are in the group of the flooder's address.
        let others = (0..200).map(|n| IpAddr::from([10, 1, 0, n]));
        assert!(others.filter(|&other| buckets.take(now, other)).count() > 150);
    }

    #[test]
    fn many_addresses_get_no_more_than_all_groups() {
        let now = Instant::now();
        let mut buckets = TokenBuckets::default();
        let addresses = (0..100_000_u32).map(|n| IpAddr::from(n.to_be_bytes()));
        let answered = addresses.filter(|&from| buckets.take(now, from)).count();
        assert_eq!(answered, GROUP_COUNT * MAX_TOKENS as usize);
    }

    #[test]
    fn addresses_of_one_network_share_a_bucket() {
        let now = Instant::now();
        let mut buckets = TokenBuckets::default();
        let addresses = (0..10_000_u16).map(|n| IpAddr::from([0xFD00, 0, 0, 1, 0, 0, 0, n]));
        let answered = addresses.filter(|&from| buckets.take(now, from)).count();
        assert_eq!(answered, MAX_TOKENS as usize);
    }

    #[test]
    fn the_network_of_an_address() {
        let of = |text: &str| network(text.parse().expect(text));
        assert_eq!(of("2001:db8::1"), of("2001:db8::2:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_ne!(of("fe80::1"), of("fe80::2"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
