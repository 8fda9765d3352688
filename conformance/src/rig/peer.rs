//! A second process, for cases that need a peer which can be stopped or killed.
//!
//! The peer is a worker process (`worker.rs`) that has got the command to be a peer. It opens the
//! same adapter, listens, and executes commands, one per line. It ends when this process ends or
//! when its standard input ends.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::ptr::null_mut;

use dat_sys::*;
use serde::{Deserialize, Serialize};

use super::adapter::Rig;
use super::events::event_name;
use super::memory::Region;
use super::objects::Ep;
use super::shared_memory::SharedMemory;
use crate::api::Api;
use crate::check::{NotPassed, Outcome, failed, ok, unsupported};
use crate::crash;

/// The command that makes a worker a peer. It is sent in place of the name of a case.
pub(crate) const PEER_COMMAND: &str = "peer";
/// The prefix of each answer of a peer. It is needed because libraries may also print to standard
/// output.
const ANSWER_PREFIX: &str = "peer: ";
/// The size of the memory that a peer offers for RDMA, in bytes.
const MEMORY_BYTES: u32 = 4096;

/// A command to a peer.
#[derive(Serialize, Deserialize)]
enum PeerCommand {
    /// The peer listens on this qualifier.
    Listen(DAT_CONN_QUAL),
    /// The peer accepts the connection request that arrives at its service point.
    Accept,
    /// The peer connects to this qualifier of the other process. It does not wait for the answer.
    Connect(DAT_CONN_QUAL),
    /// The peer sends a message of this many octets through the endpoint that it has accepted last.
    /// None of the octets is 0.
    Send(u32),
    /// The peer maps this memory, and registers it as shared memory under its cookie.
    Share(SharedMemory),
}

/// A peer's answer.
#[derive(Serialize, Deserialize)]
enum PeerAnswer {
    /// The peer is ready. The fields are the address and the RMR context of its memory.
    Ready(DAT_VADDR, DAT_RMR_CONTEXT),
    /// The peer has carried out the command.
    Done,
    /// The call of DAT that the command requested has returned this status.
    Status(DAT_RETURN),
    /// The peer could not carry out the command, for this reason.
    Failed(String),
}

/// A second process that has opened the same adapter.
pub(crate) struct Peer {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// The connection qualifier on which the peer listens.
    pub(crate) qualifier: DAT_CONN_QUAL,
    /// The memory that the peer offers for RDMA.
    pub(crate) memory: DAT_RMR_TRIPLET,
}

impl Rig {
    /// Starts a second process, which opens the same adapter and listens.
    pub(crate) fn peer(&self) -> Outcome<Peer> {
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(std::env::args_os().skip(1)).stdin(Stdio::piped()).stdout(Stdio::piped());
        let end_with_us = || match
            // SAFETY: this system call takes no pointers.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) }
        {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        // SAFETY: no code but this system call runs between fork and exec.
        let mut child = unsafe { command.pre_exec(end_with_us) }.spawn().map_err(failed)?;
        let (Some(commands), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed("a child without pipes"));
        };
        let memory = DAT_RMR_TRIPLET::zeroed();
        let mut peer =
            Peer { child, commands, answers: BufReader::new(answers), qualifier: 0, memory };
        writeln!(peer.commands, "{PEER_COMMAND}").map_err(failed)?;
        let PeerAnswer::Ready(virtual_address, rmr_context) = peer.read_answer()? else {
            return Err(failed("unexpected answer from the peer"));
        };
        peer.memory =
            DAT_RMR_TRIPLET { virtual_address, segment_length: MEMORY_BYTES, rmr_context };
        // The qualifier must be free in this process. Otherwise, if the adapter connects only
        // within a process, another service point of this process would answer. Another process may
        // take the qualifier before the peer listens, so there are several attempts.
        for _ in 0..8 {
            peer.qualifier = self.free_qualifier()?;
            match DAT_GET_TYPE(peer.status(&PeerCommand::Listen(peer.qualifier))?) {
                DAT_SUCCESS => return Ok(peer),
                DAT_CONN_QUAL_IN_USE => {}
                _ => return Err(failed("the peer cannot listen")),
            }
        }
        Err(failed("the peer finds no qualifier to listen on"))
    }

    /// Returns an endpoint that is connected to another process. If the adapter cannot connect to
    /// other processes, the case is unsupported.
    pub(crate) fn pair_with_peer_process(&self) -> Outcome<(Ep, Peer)> {
        self.connect_to_peer_process(self.ep()?)
    }

    /// Starts another process, and connects this endpoint to it.
    pub(crate) fn connect_to_peer_process(&self, ep: Ep) -> Outcome<(Ep, Peer)> {
        let mut peer = self.peer()?;
        ok(self.connect(ep.ep, peer.qualifier, b""))?;
        peer.request(&PeerCommand::Accept)?;
        match self.event(ep.connect)?.event_number {
            DAT_CONNECTION_EVENT_ESTABLISHED => peer.done()?,
            DAT_CONNECTION_EVENT_NON_PEER_REJECTED | DAT_CONNECTION_EVENT_UNREACHABLE => {
                return unsupported("this adapter cannot connect to another process");
            }
            number => return Err(failed(event_name(number))),
        }
        Ok((ep, peer))
    }
}

impl Peer {
    /// Makes the peer connect to a qualifier of this process. The peer does not wait for the
    /// answer.
    pub(crate) fn connect(&mut self, qualifier: DAT_CONN_QUAL) -> Outcome {
        self.request(&PeerCommand::Connect(qualifier))?;
        self.done()
    }

    /// Makes the peer send a message of this many octets, none of which is 0.
    pub(crate) fn send(&mut self, length: u32) -> Outcome {
        self.request(&PeerCommand::Send(length))?;
        self.done()
    }

    /// Makes the peer register shared memory. Returns the status of dat_lmr_create in the peer.
    pub(crate) fn share(&mut self, memory: &SharedMemory) -> Outcome<DAT_RETURN> {
        self.status(&PeerCommand::Share(memory.clone()))
    }

    /// Stops the process of the peer until it is killed. Messages that are on the way to the peer
    /// are not processed any more.
    pub(crate) fn stop_process(&self) -> Outcome {
        let (pid, mut status) = (self.child.id() as libc::pid_t, 0);
        // SAFETY: the child has not been waited for, and the status is writable.
        let stopped = unsafe {
            libc::kill(pid, libc::SIGSTOP) == 0
                && libc::waitpid(pid, &mut status, libc::WUNTRACED) == pid
        };
        match stopped && libc::WIFSTOPPED(status) {
            true => Ok(()),
            false => Err(failed("the peer cannot be stopped")),
        }
    }

    fn request(&mut self, what: &PeerCommand) -> Outcome {
        writeln!(self.commands, "{}", line(what)).map_err(failed)
    }

    fn status(&mut self, what: &PeerCommand) -> Outcome<DAT_RETURN> {
        self.request(what)?;
        match self.read_answer()? {
            PeerAnswer::Status(status) => Ok(status),
            _ => Err(failed("unexpected answer from the peer")),
        }
    }

    fn done(&mut self) -> Outcome {
        match self.read_answer()? {
            PeerAnswer::Done => Ok(()),
            _ => Err(failed("unexpected answer from the peer")),
        }
    }

    fn read_answer(&mut self) -> Outcome<PeerAnswer> {
        loop {
            let mut text = Vec::new();
            if self.answers.read_until(b'\n', &mut text).map_err(failed)? == 0 {
                return Err(failed("the peer is gone"));
            }
            let text = String::from_utf8_lossy(&text);
            if let Some(place) = text.strip_prefix(crash::LINE_PREFIX) {
                return Err(failed(format_args!(
                    "the peer: {} in {}",
                    crash::DIED,
                    place.trim_end()
                )));
            }
            let Some((_, answer)) = text.split_once(ANSWER_PREFIX) else { continue };
            match serde_json::from_str(answer).map_err(failed)? {
                PeerAnswer::Failed(why) => return Err(failed(format_args!("the peer: {why}"))),
                read_answer => return Ok(read_answer),
            }
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // `kill` sends SIGKILL, which also ends a stopped process.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the peer's side: executes the commands until the input ends.
pub(crate) fn serve(
    api: &'static Api,
    provider: &str,
    commands: impl Iterator<Item = io::Result<String>>,
) -> io::Result<()> {
    let opened = Rig::open(api, provider).and_then(|rig| {
        let (evd, memory) = (rig.evd(DAT_EVD_CR_FLAG)?, rig.memory(MEMORY_BYTES)?);
        Ok((rig, evd, memory))
    });
    let (rig, evd, memory) = match opened {
        Ok(opened) => opened,
        Err(stop) => return write_answer(&PeerAnswer::Failed(words(stop))),
    };
    write_answer(&PeerAnswer::Ready(memory.address, memory.rmr_context))?;
    let mut accepted = None;
    for commands in commands {
        let read_answer = match serde_json::from_str(&commands?)? {
            PeerCommand::Listen(qualifier) => {
                let flags = DAT_PSP_CONSUMER_FLAG;
                Ok(PeerAnswer::Status(api.dat_psp_create(
                    rig.ia,
                    qualifier,
                    evd,
                    flags,
                    &mut null_mut(),
                )))
            }
            PeerCommand::Accept => accept(&rig, evd).map(|ep| {
                accepted = Some(ep);
                PeerAnswer::Done
            }),
            PeerCommand::Send(length) => send(&rig, accepted.as_ref(), length),
            PeerCommand::Connect(qualifier) => rig
                .ep()
                .and_then(|ep| ok(rig.connect(ep.ep, qualifier, b"")))
                .map(|()| PeerAnswer::Done),
            PeerCommand::Share(memory) => {
                rig.share(&memory, &mut Region::none()).map(PeerAnswer::Status)
            }
        };
        write_answer(&read_answer.unwrap_or_else(|stop| PeerAnswer::Failed(words(stop))))?;
    }
    Ok(())
}

fn accept(rig: &Rig, evd: DAT_EVD_HANDLE) -> Outcome<Ep> {
    let (ep, arrival) = (rig.ep()?, rig.request_event(evd)?);
    ok(rig.accept(arrival.cr, ep.ep, b""))?;
    rig.connection(ep.connect, DAT_CONNECTION_EVENT_ESTABLISHED)?;
    Ok(ep)
}

fn send(rig: &Rig, ep: Option<&Ep>, length: u32) -> Outcome<PeerAnswer> {
    let (ep, memory) =
        (ep.ok_or_else(|| failed("the peer has accepted no connection"))?, rig.memory(length)?);
    memory.store(0, &vec![0xff; length as usize]);
    ok(rig.send(ep.ep, &[memory.all()], 1)).map(|()| PeerAnswer::Done)
}

fn words(stop: NotPassed) -> String {
    match stop {
        NotPassed::Failed(why) | NotPassed::Unsupported(why) => why,
    }
}

fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn write_answer(answer: &PeerAnswer) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{ANSWER_PREFIX}{}", line(answer))?;
    out.flush()
}
