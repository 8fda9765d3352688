//! A second process: what takes a peer that can be held still, or dies.
//!
//! It is a worker like this one, asked to be a peer (`worker.rs`). It listens on the same adapter, and does what it is
//! told, a line each; it goes when this process or its standard input does.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::ptr::null_mut;

use dat_sys::*;
use serde::{Deserialize, Serialize};

use super::{Ep, Region, Rig, Shared};
use crate::api::Api;
use crate::case::{Outcome, Stop};
use crate::check::{failed, ok, unsupported};
use crate::death;

/// In place of the name of a case: be a peer from now on.
pub(crate) const PEER: &str = "peer";
/// What marks its answers: libraries may print too.
const MARK: &str = "peer: ";
/// Bytes of memory that it shows to us.
const MEMORY: u32 = 4096;

/// What a peer is told to do.
#[derive(Serialize, Deserialize)]
enum Ask {
    /// Listen on this qualifier.
    Listen(DAT_CONN_QUAL),
    /// Accept what comes to the service point.
    Accept,
    /// Connect to this qualifier, and do not wait for the answer.
    Connect(DAT_CONN_QUAL),
    /// Send a message of so many octets, none of them 0, through the endpoint that was accepted last.
    Send(u32),
    /// Register these bytes of a file, mapped, as shared memory under a name.
    Share(Shared),
}

/// What it answers.
#[derive(Serialize, Deserialize)]
enum Told {
    /// It is there, and has memory: address, key.
    Ready(DAT_VADDR, DAT_RMR_CONTEXT),
    /// It has done so.
    Done,
    /// The status of its call.
    Status(DAT_RETURN),
    /// It could not.
    Failed(String),
}

/// A second process that has opened the adapter too.
pub(crate) struct Peer {
    child: Child,
    asked: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Where it listens.
    pub(crate) qualifier: DAT_CONN_QUAL,
    /// Its memory, for RDMA.
    pub(crate) memory: DAT_RMR_TRIPLET,
}

impl Rig {
    /// A process that listens on this adapter.
    pub(crate) fn peer(&self) -> Outcome<Peer> {
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args(std::env::args_os().skip(1)).stdin(Stdio::piped()).stdout(Stdio::piped());
        let end_with_us = || match
            // SAFETY: a system call without pointers.
            unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) }
        {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        // SAFETY: nothing but that system call happens between fork and exec.
        let mut child = unsafe { command.pre_exec(end_with_us) }.spawn().map_err(failed)?;
        let (Some(asked), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed("a child without pipes"));
        };
        let memory = DAT_RMR_TRIPLET::zeroed();
        let mut peer =
            Peer { child, asked, answers: BufReader::new(answers), qualifier: 0, memory };
        writeln!(peer.asked, "{PEER}").map_err(failed)?;
        let Told::Ready(virtual_address, rmr_context) = peer.told()? else {
            return Err(failed("the peer answers something else"));
        };
        peer.memory = DAT_RMR_TRIPLET { virtual_address, segment_length: MEMORY, rmr_context };
        // One that is free here, so that nobody else answers where an adapter does not leave its process. Whoever is
        // quick may have it by then.
        for _ in 0..8 {
            peer.qualifier = self.free_qualifier()?;
            match DAT_GET_TYPE(peer.status(&Ask::Listen(peer.qualifier))?) {
                DAT_SUCCESS => return Ok(peer),
                DAT_CONN_QUAL_IN_USE => {}
                _ => return Err(failed("the peer cannot listen")),
            }
        }
        Err(failed("the peer finds no qualifier to listen on"))
    }

    /// An endpoint that is connected to a process, where the adapter leads from one to another.
    pub(crate) fn far_pair(&self) -> Outcome<(Ep, Peer)> {
        self.far_pair_of(self.ep()?)
    }

    /// The same of this endpoint.
    pub(crate) fn far_pair_of(&self, ep: Ep) -> Outcome<(Ep, Peer)> {
        let mut peer = self.peer()?;
        ok(self.connect(ep.ep, peer.qualifier, b""))?;
        peer.ask(&Ask::Accept)?;
        match self.event(ep.connect)?.event_number {
            DAT_CONNECTION_EVENT_ESTABLISHED => peer.done()?,
            DAT_CONNECTION_EVENT_NON_PEER_REJECTED | DAT_CONNECTION_EVENT_UNREACHABLE => {
                return unsupported("this adapter does not lead to another process");
            }
            number => return Err(failed(super::events::event_name(number))),
        }
        Ok((ep, peer))
    }

    /// Keeps a process until the case has ended.
    pub(crate) fn keep(&self, peer: Peer) {
        self.peers.borrow_mut().push(peer);
    }
}

impl Peer {
    /// Has it connect to a qualifier of ours; the answer is not waited for.
    pub(crate) fn connect(&mut self, qualifier: DAT_CONN_QUAL) -> Outcome {
        self.ask(&Ask::Connect(qualifier))?;
        self.done()
    }

    /// Has it send a message of so many octets, none of them 0.
    pub(crate) fn send(&mut self, length: u32) -> Outcome {
        self.ask(&Ask::Send(length))?;
        self.done()
    }

    /// What dat_lmr_create answers it.
    pub(crate) fn share(&mut self, memory: &Shared) -> Outcome<DAT_RETURN> {
        self.status(&Ask::Share(memory.clone()))
    }

    /// Stops it, until its end: what is on the way to it stays there.
    pub(crate) fn hold(&self) -> Outcome {
        let (pid, mut status) = (self.child.id() as libc::pid_t, 0);
        // SAFETY: a child of ours that has not been waited for; the status can be written.
        let stopped = unsafe {
            libc::kill(pid, libc::SIGSTOP) == 0
                && libc::waitpid(pid, &mut status, libc::WUNTRACED) == pid
        };
        match stopped && libc::WIFSTOPPED(status) {
            true => Ok(()),
            false => Err(failed("the peer cannot be stopped")),
        }
    }

    fn ask(&mut self, what: &Ask) -> Outcome {
        writeln!(self.asked, "{}", line(what)).map_err(failed)
    }

    fn status(&mut self, what: &Ask) -> Outcome<DAT_RETURN> {
        self.ask(what)?;
        match self.told()? {
            Told::Status(status) => Ok(status),
            _ => Err(failed("the peer answers something else")),
        }
    }

    fn done(&mut self) -> Outcome {
        match self.told()? {
            Told::Done => Ok(()),
            _ => Err(failed("the peer answers something else")),
        }
    }

    fn told(&mut self) -> Outcome<Told> {
        loop {
            let mut text = Vec::new();
            if self.answers.read_until(b'\n', &mut text).map_err(failed)? == 0 {
                return Err(failed("the peer is gone"));
            }
            let text = String::from_utf8_lossy(&text);
            if let Some(place) = text.strip_prefix(death::MARK) {
                return Err(failed(format_args!(
                    "the peer: {} in {}",
                    death::DIED,
                    place.trim_end()
                )));
            }
            let Some((_, answer)) = text.split_once(MARK) else { continue };
            match serde_json::from_str(answer).map_err(failed)? {
                Told::Failed(why) => return Err(failed(format_args!("the peer: {why}"))),
                told => return Ok(told),
            }
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // Also ends one that is stopped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other side: until the end of what is asked.
pub(crate) fn serve(
    api: &'static Api,
    provider: &str,
    asked: impl Iterator<Item = io::Result<String>>,
) -> io::Result<()> {
    let opened = Rig::open(api, provider).and_then(|rig| {
        let (evd, memory) = (rig.evd(DAT_EVD_CR_FLAG)?, rig.memory(MEMORY)?);
        Ok((rig, evd, memory))
    });
    let (rig, evd, memory) = match opened {
        Ok(opened) => opened,
        Err(stop) => return say(&Told::Failed(words(stop))),
    };
    say(&Told::Ready(memory.address, memory.rmr_context))?;
    let mut accepted = None;
    for asked in asked {
        let told = match serde_json::from_str(&asked?)? {
            Ask::Listen(qualifier) => {
                let flags = DAT_PSP_CONSUMER_FLAG;
                Ok(Told::Status(api.dat_psp_create(rig.ia, qualifier, evd, flags, &mut null_mut())))
            }
            Ask::Accept => accept(&rig, evd).map(|ep| {
                accepted = Some(ep);
                Told::Done
            }),
            Ask::Send(length) => send(&rig, accepted.as_ref(), length),
            Ask::Connect(qualifier) => {
                rig.ep().and_then(|ep| ok(rig.connect(ep.ep, qualifier, b""))).map(|()| Told::Done)
            }
            Ask::Share(memory) => rig.share(&memory, &mut Region::none()).map(Told::Status),
        };
        say(&told.unwrap_or_else(|stop| Told::Failed(words(stop))))?;
    }
    Ok(())
}

fn accept(rig: &Rig, evd: DAT_EVD_HANDLE) -> Outcome<Ep> {
    let (ep, arrival) = (rig.ep()?, rig.arrival(evd)?);
    ok(rig.accept(arrival.cr, ep.ep, b""))?;
    rig.connection(ep.connect, DAT_CONNECTION_EVENT_ESTABLISHED)?;
    Ok(ep)
}

fn send(rig: &Rig, ep: Option<&Ep>, length: u32) -> Outcome<Told> {
    let (ep, memory) = (ep.ok_or_else(|| failed("nothing was accepted"))?, rig.memory(length)?);
    memory.store(0, &vec![0xff; length as usize]);
    ok(rig.send(ep.ep, &[memory.all()], 1)).map(|()| Told::Done)
}

fn words(stop: Stop) -> String {
    match stop {
        Stop::Failed(why) | Stop::Unsupported(why) => why,
    }
}

fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

fn say(told: &Told) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{MARK}{}", line(told))?;
    out.flush()
}
