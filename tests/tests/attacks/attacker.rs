//! The attacker: this same program, started again by another user. It attacks without a pause until it is killed, and says
//! each second how often it has tried.

use std::collections::VecDeque;
use std::env;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use wire::cm::{Answered, Dreq, IpHeader, Mad, Message, Path, Reason, Rej, Req, ServiceId, Timeout};
use wire::rocev2::{Aeth, Bth, Deth, Extension, Icrc, Opcode, Packet, PathMtu, Psn, Syndrome};

/// Set in such a process: the attack, and the port that is attacked.
const ATTACK: &str = "OPENDAT_TEST_ATTACK";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attack {
    /// Datagrams of all lengths that are no packets.
    Noise,
    /// REQs, right in all but the queue pair that they name, for services that nobody has.
    Requests,
    /// SENDs, acknowledgements, DREQs and REJs of connections that are guessed.
    Packets,
    /// Connections and datagrams to all local sockets that the kernel lists.
    LocalSockets,
    /// TCP connections that say nothing.
    SilentCallers,
    /// TCP connections that say what no caller says.
    LoudCallers,
}

const ALL: [Attack; 6] = [
    Attack::Noise,
    Attack::Requests,
    Attack::Packets,
    Attack::LocalSockets,
    Attack::SilentCallers,
    Attack::LoudCallers,
];

const VICTIM: Ipv4Addr = Ipv4Addr::LOCALHOST;
/// As many as a process may have, but for some.
const CALLERS: usize = 900;
/// Attempts between two looks at the clock.
const BURST: usize = 64;

/// The program, to be copied to where the attacker may start it.
pub(crate) fn command(program: &std::path::Path, attack: Attack, port: u16) -> Command {
    let mut command = Command::new(program);
    command.env(ATTACK, format!("{attack:?} {port}"));
    command
}

/// Whether this process is one.
pub(crate) fn is_attacker() -> bool {
    env::var_os(ATTACK).is_some()
}

/// What it does.
pub(crate) fn attack() -> ExitCode {
    let text = env::var(ATTACK).unwrap_or_default();
    let words = text.split_once(' ').and_then(|(name, port)| Some((name, port.parse::<u16>().ok()?)));
    let attack = words.and_then(|(name, port)| {
        ALL.into_iter().find(|attack| format!("{attack:?}") == name).map(|attack| (attack, port))
    });
    let Some((attack, port)) = attack else {
        eprintln!("{ATTACK}: expected an attack and a port");
        return ExitCode::FAILURE;
    };
    let mut attempt = attempts(attack, port);
    let (start, mut made, mut told) = (Instant::now(), 0u64, Duration::ZERO);
    loop {
        (0..BURST).for_each(|_| attempt(made));
        made += BURST as u64;
        if start.elapsed() > told {
            println!("{made} attempts in {:.1} s", start.elapsed().as_secs_f64());
            told = start.elapsed() + Duration::from_secs(1);
        }
    }
}

/// One attempt after the other; each is given how many were made before, or some fewer.
fn attempts(attack: Attack, port: u16) -> Box<dyn FnMut(u64)> {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    match attack {
        Attack::Noise => {
            let (stranger, noise) = (Stranger::new(port), vec![0x5a; 4200]);
            Box::new(move |_| stranger.send(&noise[..dice.next() as usize % noise.len()]))
        }
        Attack::Requests => {
            let stranger = Stranger::new(port);
            Box::new(move |_| stranger.request(dice.next()))
        }
        Attack::Packets => {
            let stranger = Stranger::new(port);
            Box::new(move |_| stranger.packet(dice.next(), dice.next() as u32))
        }
        Attack::LocalSockets => Box::new(move |_| local_sockets(port)),
        Attack::SilentCallers | Attack::LoudCallers => {
            let mut callers = VecDeque::new();
            Box::new(move |_| {
                let Ok(mut caller) = TcpStream::connect((VICTIM, port)) else { return };
                if attack == Attack::LoudCallers {
                    std::io::Write::write_all(&mut caller, &[0x5a; 300]).ok();
                }
                callers.push_back(caller);
                if callers.len() > CALLERS {
                    callers.pop_front();
                }
            })
        }
    }
}

/// xorshift: what it gives is not to be foreseen by whoever reads the packets, no more.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// A socket of its own, from which anything can be sent to a port of the victim's.
struct Stranger {
    socket: UdpSocket,
    icrc: Icrc,
}

impl Stranger {
    fn new(port: u16) -> Stranger {
        let socket = UdpSocket::bind((VICTIM, 0)).expect("a socket");
        socket.connect((VICTIM, port)).expect("an address of this host");
        let from = socket.local_addr().expect("bound");
        let icrc = Icrc::new(from, SocketAddr::from((VICTIM, port))).expect("both are IPv4");
        Stranger { socket, icrc }
    }

    fn send(&self, datagram: &[u8]) {
        // Errors tell of earlier datagrams.
        self.socket.send(datagram).ok();
    }

    fn send_packet(&self, packet: &Packet<'_>) {
        let mut datagram = vec![0; packet.len() + Icrc::SIZE];
        let length = packet.len();
        packet.emit(&mut datagram[..length]);
        self.icrc.seal(0, &mut datagram);
        self.send(&datagram);
    }

    fn send_message(&self, transaction: u64, message: Message<'_>) {
        let mad = Mad { transaction, message }.emit();
        let deth = Deth { q_key: Deth::GSI_Q_KEY, source_qpn: Deth::GSI_QPN };
        let bth = Bth::new(Opcode::DatagramSendOnly, Deth::GSI_QPN, Psn::new(0));
        self.send_packet(&Packet { bth, extension: Extension::Deth(deth), payload: &mad });
    }

    /// A REQ as from an adapter of this host.
    fn request(&self, random: u64) {
        let address = IpAddr::from(VICTIM);
        let header = IpHeader { source_port: random as u16, source: address, destination: address };
        let (private, timeout) = (header.emit(), Timeout::new(17));
        self.send_message(
            random,
            Message::Req(Req {
                local_id: random as u32 | 1,
                // No privileged port has a service.
                service: ServiceId::tcp((random >> 32) as u16 % 1024),
                ca_guid: random >> 16 | 1,
                qpn: (random >> 24) as u32 & 0xFF_FFFF,
                responder_resources: 4,
                initiator_depth: 4,
                remote_response_timeout: timeout,
                transport: Req::RC,
                flow_control: false,
                starting_psn: Psn::new(random as u32),
                local_response_timeout: timeout,
                retry_count: 7,
                p_key: 0xFFFF,
                path_mtu: PathMtu::Octets1024.code(),
                rnr_retry_count: 7,
                max_cm_retries: 15,
                srq: false,
                primary: Path::over_ip(address, address, timeout),
                alternate: None,
                private: &private,
            }),
        );
    }

    /// A packet of a queue pair whose slot is a likely one, or a message that ends a connection.
    fn packet(&self, random: u64, guess: u32) {
        let qpn = ((random >> 40) as u32 & 0xFF_FF80) | (random as u32 & 1);
        let psn = Psn::new(guess);
        let private = &[][..];
        match random >> 8 & 3 {
            0 => {
                let bth = Bth::new(Opcode::SendOnly, qpn, psn);
                self.send_packet(&Packet { bth, extension: Extension::None, payload: &[0x5a; 64] });
            }
            1 => {
                let (bth, msn) = (Bth::new(Opcode::Acknowledge, qpn, psn), guess & 0xFF_FFFF);
                let extension = Extension::Aeth(Aeth { syndrome: Syndrome::ACK, msn });
                self.send_packet(&Packet { bth, extension, payload: &[] });
            }
            2 => {
                let (local_id, remote_id) = (guess, random as u32);
                let dreq = Dreq { local_id, remote_id, remote_qpn: qpn, private };
                self.send_message(random, Message::Dreq(dreq));
            }
            _ => {
                let (local_id, remote_id, ari) = (guess, random as u32, private);
                let (answered, reason) = (Answered::Other, Reason::CONSUMER);
                let rej = Rej { local_id, remote_id, answered, reason, ari, private };
                self.send_message(random, Message::Rej(rej));
            }
        }
    }
}

/// Connects and sends to what the kernel lists; with another port than softroce's, to a name that nobody has.
fn local_sockets(port: u16) {
    if port != wire::rocev2::UDP_PORT {
        drop(UnixStream::connect("/tmp/opendat-attacked/nobody"));
        return;
    }
    let list = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    for path in
        list.lines().filter_map(|line| line.split_whitespace().nth(7)).filter(|path| path.starts_with('/'))
    {
        drop(UnixStream::connect(path));
        drop(UnixDatagram::unbound().and_then(|socket| socket.send_to(b"hello", path)));
    }
}
