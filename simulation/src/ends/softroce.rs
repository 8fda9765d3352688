//! softroce's engine with a queue pair, as the provider uses it.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use rnic::rc::Failure;
use rnic::{Burst, RcCfg, ReliableConnection, Remote};
use wire::rocev2::{Bth, Packet, Psn, RnrTimer};

use super::{CONSUMER_TIME, Content, ETHERNET_IP_OCTETS, End, Outgoing};
use crate::network::Ecn;
use crate::posted_messages::{Load, PostedMessages};
use crate::queue_pair::{Memory, QUEUE_DEPTH, Queues};
use crate::{Operation, Receives, Scenario};

/// The number of octets of the UDP header. The ICRC, which a burst has room for, is counted with
/// the packet.
const UDP_OCTETS: usize = 8;
/// The number of the peer's queue pair, which matters to nobody in an experiment.
const PEER_QPN: u32 = 0x11;

/// The number of READs in flight, which consumers choose.
const READ_DEPTH: u32 = 16;
/// The values that provider-softroce chooses. It divides an ACK timeout of 2.1 s with 5 retries
/// into these shorter timeouts.
const WINDOW_MAX_OCTETS: usize = 8 << 20;
const WINDOW_PACKETS_MAX: usize = 8192;
const ACK_TIMEOUT_CODE: u8 = 17;
const RETRIES: u32 = 23;
const RNR_RETRIES: u8 = 7;
const RNR_TIMER_CODE: u8 = 6;
const BURST_PACKETS: usize = 64;
const BURST_OCTETS: usize = 1 << 16;

/// An end of a connection between queue pairs.
pub(crate) struct Softroce {
    rc: ReliableConnection,
    queues: Queues,
    /// The peer's memory.
    remote: Remote,
    burst: Burst,
    /// The messages of this end. `None` if the peer posts all messages.
    requests: Option<PostedMessages>,
    receives: Receives,
    /// The number of octets of a receive.
    receive_octets: u32,
    /// The time at which the consumer posts the next receive.
    next_receive: Option<Instant>,
    failure: Option<Failure>,
}

impl Softroce {
    /// An end that posts this load, or that serves it. `remote` is the peer's memory.
    pub(crate) fn new(
        (memory, remote): (&Rc<Memory>, Remote),
        scenario: &Scenario,
        load: Load,
        posts: bool,
        receives: Receives,
        now: Instant,
    ) -> Self {
        let (queues, work) = Queues::new(memory);
        let mtu = scenario.path_mtu();
        let window = (WINDOW_MAX_OCTETS / mtu.octets()).min(WINDOW_PACKETS_MAX) as u32;
        let cfg = RcCfg {
            mtu,
            ip_mtu: scenario.dumbbell.mtu,
            peer_qpn: PEER_QPN,
            p_key: Bth::DEFAULT_P_KEY,
            sq_psn: Psn::default(),
            rq_psn: Psn::default(),
            initiator_depth: READ_DEPTH,
            responder_resources: READ_DEPTH,
            ack_timeout: ACK_TIMEOUT_CODE,
            retries: RETRIES,
            rnr_retries: RNR_RETRIES,
            rnr_timer: RnrTimer::from_code(RNR_TIMER_CODE),
            window,
        };
        let receives = match load.operation == Operation::Send && !posts {
            true => receives,
            false => Receives::None,
        };
        let first = match receives {
            Receives::Many => QUEUE_DEPTH,
            Receives::One => 1,
            Receives::None => 0,
        };
        (0..first).for_each(|_| queues.post_receive(load.size));
        let mut rc = ReliableConnection::new(work, cfg, now).with_early_pool(&Arc::default());
        let mut burst = Burst::new(BURST_PACKETS, BURST_OCTETS);
        rc.check_path(&mut burst);
        Softroce {
            rc,
            queues,
            remote,
            burst,
            requests: posts.then(|| PostedMessages::new(load)),
            receives,
            receive_octets: load.size,
            next_receive: None,
            failure: None,
        }
    }

    /// Does everything that the engine can do now.
    fn run(&mut self, now: Instant, out: &mut Vec<Outgoing>) -> Result<(), Failure> {
        if self.rc.deadline().is_some_and(|at| at <= now) {
            self.rc.expire(now)?;
        }
        while self.rc.wants_tx() {
            let result = self.rc.transmit(now, &mut self.burst);
            self.take_burst(out);
            result?;
        }
        if self.rc.owes_ack() {
            self.rc.acknowledge(&mut self.burst);
            self.take_burst(out);
        }
        Ok(())
    }

    /// Moves the packets of the burst to `out`.
    fn take_burst(&mut self, out: &mut Vec<Outgoing>) {
        let mut rest = self.burst.octets();
        for &len in self.burst.lens() {
            let (datagram, after) = rest.split_at(len.into());
            rest = after;
            let packet = &datagram[..datagram.len() - rnic::rc::burst::ICRC_SIZE];
            out.push(Outgoing {
                octets: datagram.len() + UDP_OCTETS + ETHERNET_IP_OCTETS,
                payload: Packet::parse(packet).map_or(0, |packet| packet.payload.len()),
                content: Content::RoceV2(packet.to_vec()),
                ecn: Ecn::Capable,
            });
        }
        self.burst.clear();
    }

    /// Takes completions, and posts what the consumer posts next. Returns whether the engine has
    /// more to do now.
    fn consume(&mut self, now: Instant) -> bool {
        let mut goes_on = false;
        let received = self.queues.take_received();
        match self.receives {
            Receives::Many => {
                (0..received).for_each(|_| self.queues.post_receive(self.receive_octets))
            }
            Receives::One if received > 0 => self.next_receive = Some(now + CONSUMER_TIME),
            _ => {}
        }
        if self.next_receive.take_if(|at| *at <= now).is_some() {
            self.queues.post_receive(self.receive_octets);
            if self.rc.is_peer_waiting_for_receive() {
                self.rc.announce_receive();
                goes_on = true;
            }
        }
        let completed = self.queues.take_completions();
        if let Some(requests) = &mut self.requests {
            requests.complete(completed, now);
            while requests.post(now) {
                let Load { operation, size, .. } = requests.load;
                self.queues.post(operation, self.remote, size);
                goes_on = true;
            }
        }
        goes_on
    }
}

impl End for Softroce {
    fn receive(&mut self, now: Instant, content: &Content, is_marked: bool) {
        let Content::RoceV2(bytes) = content else { return };
        let Ok(packet) = Packet::parse(bytes) else { return };
        if self.failure.is_none() {
            self.failure = self.rc.receive(now, &packet).err();
        }
        if is_marked {
            self.rc.note_marked(packet.bth.opcode, now, &mut self.burst);
        }
    }

    fn act(&mut self, now: Instant, out: &mut Vec<Outgoing>) {
        self.take_burst(out);
        while self.failure.is_none() {
            self.failure = self.run(now, out).err();
            if !self.consume(now) {
                break;
            }
        }
        if self.failure.is_some() {
            // The peer is told once.
            self.rc.transmit_fatal_nak(&mut self.burst);
            self.take_burst(out);
            self.rc.flush();
        }
    }

    fn deadline(&self) -> Option<Instant> {
        if self.failure.is_some() {
            return None;
        }
        let start = self.requests.as_ref().and_then(PostedMessages::deadline);
        [start, self.rc.deadline(), self.next_receive].into_iter().flatten().min()
    }

    fn requests(&self) -> Option<&PostedMessages> {
        self.requests.as_ref()
    }

    fn failure(&self) -> Option<String> {
        self.failure.map(|failure| failure.to_string())
    }
}
