//! Limits the clients of `dat serve` that have sent a plan. A client needs a permit, which is the
//! right to have a process on this host.
//!
//! A client whose DAT connection is established keeps its permit. A client that has not connected
//! yet may be silent on purpose. If too many clients have not connected yet, one of them loses its
//! permit to the next client: the oldest client of the address with the most such clients, but not
//! before [`MIN_CONNECT_TIME`]. Until then, the next client waits. So silent clients delay others,
//! but do not keep them out.

use std::collections::HashMap;
use std::net::{IpAddr, Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use adapter::half_open::{HalfOpen, network};
use anyhow::{Result, bail, ensure};

/// The maximum number of clients that are connected at a time.
const MAX_CONNECTED: usize = 32;
/// The maximum number of connected clients from one address, so that one host cannot take all
/// permits.
const MAX_CONNECTED_OF_ONE: usize = 24;
/// The maximum number of clients that have a process and are not connected yet.
const MAX_CONNECTING: usize = 32;
/// The maximum number of clients that wait for a process. Each has a thread.
const MAX_WAITING: usize = 512;
/// The maximum number of clients from one address that wait for a process.
const MAX_WAITING_OF_ONE: usize = 64;
/// A client keeps its process for at least this long, even if other clients wait for a process. An
/// honest client usually connects within a second.
const MIN_CONNECT_TIME: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(super) struct Permits {
    state: Mutex<State>,
    /// Signaled when a client has received a permit, has connected, or has left.
    changed: Condvar,
}

/// The right of a client to have a process. Dropping this value frees the permit.
pub(super) struct Permit<'a> {
    permits: &'a Permits,
    number: u64,
    address: IpAddr,
}

/// The clients of the server. Each client has a number. An address here is the result of
/// [`network`].
#[derive(Default)]
struct State {
    next_number: u64,
    /// The clients that wait for a process, oldest first.
    waiting: Vec<(u64, IpAddr)>,
    /// The clients that have a process and are not connected yet.
    connecting: HashMap<u64, Connecting>,
    half_open: HalfOpen<u64>,
    connected: HashMap<u64, IpAddr>,
}

struct Connecting {
    client: Arc<TcpStream>,
    address: IpAddr,
    since: Instant,
}

impl Permits {
    /// Waits until the client has a permit. Until the client is connected, it may lose the permit
    /// again. The loss shuts down the receiving side of the client's socket.
    pub(super) fn enter(&self, client: &Arc<TcpStream>) -> Result<Permit<'_>> {
        let address = network(client.peer_addr()?.ip());
        let mut state = self.lock();
        let number = state.wait(address)?;
        while let Some(until) = state.try_enter(number, address, client, Instant::now()) {
            let timeout = until.saturating_duration_since(Instant::now());
            let waited = self.changed.wait_timeout(state, timeout);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        // The next client of this address may now also get a permit.
        self.changed.notify_all();
        Ok(Permit { permits: self, number, address })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit<'_> {
    /// Records that the client is connected, so that it keeps its permit.
    pub(super) fn set_connected(&self) -> Result<()> {
        let mut state = self.permits.lock();
        state.check(self.number)?;
        state.check_limits(self.address)?;
        state.remove(self.number, self.address);
        state.connected.insert(self.number, self.address);
        self.permits.changed.notify_all();
        Ok(())
    }

    /// Returns an error if the client has lost its permit.
    pub(super) fn check(&self) -> Result<()> {
        self.permits.lock().check(self.number)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.permits.lock().remove(self.number, self.address);
        self.permits.changed.notify_all();
    }
}

impl State {
    /// Adds a client that waits, and returns its number.
    fn wait(&mut self, address: IpAddr) -> Result<u64> {
        self.check_limits(address)?;
        let of_one = self.waiting.iter().filter(|(_, of)| *of == address).count();
        ensure!(
            self.waiting.len() < MAX_WAITING && of_one < MAX_WAITING_OF_ONE,
            "too many clients wait to be served"
        );
        let number = self.next_number;
        self.next_number += 1;
        self.waiting.push((number, address));
        Ok(number)
    }

    /// Gives a permit to the waiting client and returns `None`. If no permit is free, returns the
    /// time at which to try again.
    fn try_enter(
        &mut self,
        number: u64,
        address: IpAddr,
        client: &Arc<TcpStream>,
        now: Instant,
    ) -> Option<Instant> {
        let first = self.waiting.iter().find(|(_, of)| *of == address);
        if first.is_some_and(|(first, _)| *first != number) {
            return Some(now + MIN_CONNECT_TIME);
        }
        if let Some(&oldest) = self.half_open.one_too_many(MAX_CONNECTING - 1)
            && let Some(other) = self.connecting.get(&oldest)
        {
            let until = other.since + MIN_CONNECT_TIME;
            if now < until {
                return Some(until);
            }
            // This shutdown ends the thread that watches the client. That thread then ends the
            // client's process.
            let _ = other.client.shutdown(Shutdown::Read);
            self.remove(oldest, other.address);
        }
        self.waiting.retain(|(of, _)| *of != number);
        let client = Arc::clone(client);
        self.connecting.insert(number, Connecting { client, address, since: now });
        self.half_open.add(address, number);
        None
    }

    fn check(&self, number: u64) -> Result<()> {
        let has = self.connecting.contains_key(&number) || self.connected.contains_key(&number);
        ensure!(has, "the client did not connect in time, and others wait");
        Ok(())
    }

    fn remove(&mut self, number: u64, address: IpAddr) {
        self.connecting.remove(&number);
        self.half_open.remove(address, |&of| of == number);
        self.connected.remove(&number);
    }

    /// Returns an error if no further client of this address may be connected.
    fn check_limits(&self, address: IpAddr) -> Result<()> {
        if self.connected.len() >= MAX_CONNECTED {
            bail!("the limit of {MAX_CONNECTED} clients at a time is reached");
        }
        let of_one = self.connected.values().filter(|of| **of == address).count();
        if of_one >= MAX_CONNECTED_OF_ONE {
            bail!("the limit of {MAX_CONNECTED_OF_ONE} clients of one address is reached");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn address(last: usize) -> IpAddr {
        IpAddr::from([10, 0, 0, last as u8])
    }

    #[test]
    fn the_oldest_that_is_not_connected_makes_room_after_a_time() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("the loopback interface is up");
        let at = listener.local_addr().expect("the listener is bound");
        let client = Arc::new(TcpStream::connect(at).expect("the server listens"));
        let (mut state, start, of) = (State::default(), Instant::now(), address(1));
        let later = start + MIN_CONNECT_TIME;
        for _ in 0..MAX_CONNECTING {
            let number = state.wait(of).expect("the server has a free permit");
            assert_eq!(state.try_enter(number, of, &client, start), None);
        }
        let next = state.wait(of).expect("the server has a free permit");
        let after = state.wait(of).expect("the server has a free permit");
        let other = state.wait(address(2)).expect("the server has a free permit");
        assert_eq!(state.try_enter(next, of, &client, start), Some(later));
        assert!(
            state.try_enter(after, of, &client, later).is_some(),
            "an earlier client of the address must enter first"
        );
        assert_eq!(state.try_enter(other, address(2), &client, later), None);
        assert_eq!(state.try_enter(next, of, &client, later), None);
        assert_eq!(state.try_enter(after, of, &client, later), None);
        assert!((0..3).all(|number| state.check(number).is_err()));
        assert!((3..next).chain([next, after, other]).all(|number| state.check(number).is_ok()));
        assert_eq!(state.connecting.len(), MAX_CONNECTING);
    }

    #[test]
    fn one_address_takes_only_some_of_the_places() {
        let mut state = State::default();
        for number in 0..MAX_CONNECTED {
            let of = address(1 + number / MAX_CONNECTED_OF_ONE);
            state.wait(of).expect("the server has a free permit");
            state.connected.insert(number as u64, of);
            let is_full = number + 1 >= MAX_CONNECTED_OF_ONE;
            assert_eq!(state.check_limits(address(1)).is_err(), is_full);
        }
        assert!(state.wait(address(9)).is_err());
        state.remove(0, address(1));
        assert!(state.wait(address(9)).is_ok() && state.wait(address(1)).is_ok());
    }

    #[test]
    fn one_address_takes_only_some_of_the_waiting_room() {
        let mut state = State::default();
        for _ in 0..MAX_WAITING_OF_ONE {
            state.wait(address(1)).expect("the server has a free permit");
        }
        assert!(state.wait(address(1)).is_err() && state.wait(address(2)).is_ok());
    }
}
