//! Service ID resolution: how datagram queue pairs find out their peers' queue pairs, and how they
//! answer peers.

use std::net::SocketAddr;
use std::time::Instant;

use adapter::{DatagramEnd, Error, PeerAddress, RemoteQp, Result, Target};
use rnic::cm::sidr::{Event, Resolve, ResolveId, Sidr};
use wire::cm::sidr_trailer::DatagramQp;
use wire::cm::{SidrStatus, UDP_Q_KEY};
use work::{ResolveFailure, ServiceType};

use super::Engine;
use crate::datagram_link::DatagramLink;
use crate::listeners::PendingRequest;
use crate::local_address::random;
use crate::owner::{DatagramRequest, ResolutionOwner};
use crate::resources::EngineEvent;

impl Engine {
    /// Starts to resolve the address of a listener.
    pub(super) fn start_resolution(
        &mut self,
        qp: usize,
        number: u64,
        to: &Target<'_>,
    ) -> Result<()> {
        if to.private.len() > Sidr::MAX_REQUEST_PRIVATE {
            return Err(Error::InvalidArgument);
        }
        let (now, peer) = (Instant::now(), to.peer);
        let routed = self.route_to(peer);
        let Engine { local_addresses, resources, .. } = self;
        let link = self.datagram_links.get_mut(qp).ok_or(Error::InvalidState)?;
        let index = match routed {
            Ok((index, _)) => index,
            Err(local_failure) => {
                let why = local_failure.answer(peer)?;
                link.defer_failed_attempt(resources, number, why);
                return Ok(());
            }
        };
        let local_address = &mut local_addresses[index];
        let none_left = Error::NoQueuePair;
        let qpn = link.qpn_at(index, local_address).ok_or(none_left)?;
        let mut from = local_address.address();
        from.set_port(random() as u16 | 0xC000);
        let resolve = Resolve {
            local: from,
            remote: peer,
            caller: DatagramQp { qpn, q_key: link.q_key() },
            private: to.private,
            deadline: to.deadline,
        };
        match local_address.sidr.resolve(now, &resolve) {
            Ok(id) => {
                let owner = ResolutionOwner::Attempt { link: qp, number, qpn, peer };
                local_address.set_resolution_owner(id, owner);
            }
            Err(error) => link.defer_failed_attempt(resources, number, error.to_string()),
        }
        self.process_cm_events(index, now);
        Ok(())
    }

    /// Prepares a datagram queue pair for the answer to a request, which may have arrived at
    /// another engine of the adapter. Returns the number of the queue pair at the address to which
    /// the request was sent, with the Q_Key that the peer is told, and the address of the peer.
    ///
    /// A caller that has not told its queue pair is one of Linux's RDMA CM. It refuses an answer
    /// with another Q_Key than [`UDP_Q_KEY`], and its own queue pair has that key, too.
    pub(super) fn prepare_datagram_answer(
        &mut self,
        qp: usize,
        request: &PendingRequest,
    ) -> Result<(DatagramEnd, PeerAddress)> {
        let PendingRequest::Datagram(request) = request else {
            return Err(Error::InvalidState);
        };
        let unreachable = |_| Error::NoLocalPort;
        let index = self.index_of(request.at).map_err(unreachable)?;
        let local_address = &mut self.local_addresses[index];
        let link = self.datagram_links.get_mut(qp).ok_or(Error::InvalidState)?;
        let none_left = Error::NoQueuePair;
        let qpn = link.qpn_at(index, local_address).ok_or(none_left)?;
        let (ip, route) = (request.from.ip(), local_address.number);
        Ok(match request.caller {
            Some(DatagramQp { q_key, .. }) => {
                (DatagramEnd { qpn, q_key: link.q_key() }, PeerAddress { ip, route, q_key })
            }
            None => {
                let q_key = UDP_Q_KEY;
                link.accept_cm_key(ip);
                (DatagramEnd { qpn, q_key }, PeerAddress { ip, route, q_key })
            }
        })
    }

    /// Answers a request with the number and the Q_Key of a queue pair. Returns the number of the
    /// peer's queue pair, or 0 if the peer has not told it.
    pub(super) fn answer_datagram_request(
        &mut self,
        request: PendingRequest,
        DatagramEnd { qpn, q_key }: DatagramEnd,
        private: &[u8],
    ) -> Result<u32> {
        let PendingRequest::Datagram(request) = request else {
            return Err(Error::InvalidState);
        };
        if private.len() > Sidr::MAX_REPLY_PRIVATE {
            return Err(Error::InvalidArgument);
        }
        let now = Instant::now();
        let local_address = &mut self.local_addresses[request.local_address];
        if local_address.take_datagram_request(request.id, request.serial) {
            // If the peer has given up, there is nobody to answer.
            let service = DatagramQp { qpn, q_key };
            local_address.sidr.accept(now, request.id, service, private).ok();
        }
        self.process_cm_events(request.local_address, now);
        Ok(request.caller.map_or(0, |caller| caller.qpn))
    }

    /// Refuses a request.
    pub(super) fn refuse_datagram_request(
        &mut self,
        request: &DatagramRequest,
        status: SidrStatus,
        private: &[u8],
    ) -> Result<()> {
        let now = Instant::now();
        let local_address = &mut self.local_addresses[request.local_address];
        let mut result = Ok(());
        if local_address.take_datagram_request(request.id, request.serial) {
            let rejected = local_address.sidr.reject(now, request.id, status, private);
            result = rejected.map_err(|_| Error::InvalidArgument);
        }
        self.process_cm_events(request.local_address, now);
        result
    }

    /// Ends the attempts of a datagram queue pair that is gone.
    pub(super) fn cancel_resolutions(&mut self, qp: usize) {
        self.local_addresses.iter_mut().for_each(|of| of.cancel_resolutions(qp));
    }

    /// Sends the posted datagrams of a queue pair. Another engine may have found out where they go.
    /// Then this engine opens the local address from which they leave.
    pub(super) fn transmit_datagrams(&mut self, qp: usize, now: Instant) {
        loop {
            let Engine { local_addresses, datagram_links, resources, hosts, .. } = self;
            let Some(link) = datagram_links.get_mut(qp) else { return };
            let Some(route) = link.transmit(local_addresses, resources, now) else { return };
            let address = hosts.address(route);
            if address.is_none_or(|address| self.index_of(address).is_err())
                && let Engine { datagram_links, resources, .. } = self
                && let Some(link) = datagram_links.get_mut(qp)
            {
                link.lose(route, resources);
            }
        }
    }

    /// Delivers the events of service ID resolution to their owners.
    pub(super) fn process_sidr_events(&mut self, index: usize, now: Instant) {
        while let Some((id, event)) = self.local_addresses[index].sidr.poll_event() {
            if let Event::Request { from, to, private, caller } = event {
                self.deliver_datagram_request((index, id, now), (from, to), &private, caller);
                continue;
            }
            let local_address = &mut self.local_addresses[index];
            let Some(ResolutionOwner::Attempt { link, number, qpn, peer }) =
                local_address.take_resolution_owner(id)
            else {
                continue;
            };
            let Some(link) = self.datagram_links.get_mut(link) else { continue };
            report((link, number, qpn), (peer, local_address.number), event);
        }
    }

    fn deliver_datagram_request(
        &mut self,
        (local_address, id, now): (usize, ResolveId, Instant),
        (from, to): (SocketAddr, SocketAddr),
        private: &[u8],
        caller: Option<DatagramQp>,
    ) {
        let Engine { listeners, resources, local_addresses, .. } = self;
        let at = &mut local_addresses[local_address];
        let [from, to] = [from, to].map(|address| at.with_scope(address));
        let serial = listeners.next_serial();
        let request = DatagramRequest { local_address, id, serial, from, at: at.address(), caller };
        let request = resources.context.request(None, PendingRequest::Datagram(request));
        let (Some(sink), Ok(request)) = (listeners.sink_of(to.port()), request) else {
            // The listener was closed after the request had arrived. If the answer cannot be sent,
            // no other action is possible.
            at.sidr.reject(now, id, SidrStatus::UNSUPPORTED, &[]).ok();
            return;
        };
        at.set_resolution_owner(id, ResolutionOwner::Request(serial));
        let service = ServiceType::Datagram;
        sink.call(EngineEvent::Request { request, service, from, to, private });
    }
}

/// Reports the end of an attempt to its queue pair.
fn report(
    (link, number, own_qpn): (&mut DatagramLink, u64, u32),
    (peer, route): (SocketAddr, u32),
    event: Event,
) {
    if let Event::Resolved { knows_caller: false, service: DatagramQp { q_key: 1.., .. }, .. } =
        event
    {
        // The service is a queue pair of Linux's RDMA CM. Programs over it answer a datagram with
        // the Q_Key of their own queue pair, because they do not know ours.
        link.accept_cm_key(peer.ip());
    }
    let unresolved = |why| link.sink().call(EngineEvent::Unresolved { number, why });
    match event {
        Event::Resolved { service: DatagramQp { q_key: 0, .. }, .. } => {
            let why = "the peer has told no Q_Key";
            unresolved(ResolveFailure::Refused { because: Some(&why) })
        }
        Event::Resolved { service: DatagramQp { qpn, q_key }, private, .. } => {
            let address = PeerAddress { ip: peer.ip(), route, q_key };
            let remote = RemoteQp { address, qpn, own_qpn };
            link.sink().call(EngineEvent::Resolved { number, remote, peer, private: &private })
        }
        Event::Refused { status: SidrStatus::REJECT, private } => {
            unresolved(ResolveFailure::Rejected { private: &private })
        }
        Event::Refused { status, .. } => {
            unresolved(ResolveFailure::Refused { because: Some(&status) })
        }
        Event::NoAnswer => unresolved(ResolveFailure::Unreachable { because: None }),
        Event::TimedOut => unresolved(ResolveFailure::TimedOut),
        Event::Request { .. } => {}
    }
}
