//! The networks between client and server.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::prerequisites::is_root;

pub(super) enum Network {
    SharedMemory,
    Tcp,
    TcpReno(Namespace),
}

impl Network {
    /// Returns a command that runs a program in the network.
    pub(super) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let Self::TcpReno(namespace) = self else { return Command::new(program) };
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", namespace.holder.id())).arg(program);
        command
    }

    /// The parameters of our adapter.
    pub(super) fn our_parameters(&self) -> &'static str {
        match self {
            Self::SharedMemory => "",
            Self::Tcp => "shm=off",
            Self::TcpReno(_) => "shm=off cc=reno",
        }
    }

    /// The environment variables of UCX. UCX's own allocations have a faster way through shared
    /// memory, but our consumers register memory of their own, which is memory from the heap.
    pub(super) fn ucx_settings(&self) -> [(&'static str, &'static str); 2] {
        match self {
            Self::SharedMemory => [("UCX_TLS", "posix,cma"), ("UCX_ALLOC_PRIO", "heap")],
            Self::Tcp | Self::TcpReno(_) => [("UCX_TLS", "tcp"), ("UCX_NET_DEVICES", "lo")],
        }
    }

    /// The provider and the endpoint type of libfabric.
    pub(super) fn libfabric_arguments(&self) -> [&'static str; 4] {
        match self {
            Self::SharedMemory => ["-p", "shm", "-e", "rdm"],
            Self::Tcp | Self::TcpReno(_) => ["-p", "tcp", "-e", "msg"],
        }
    }
}

/// A network namespace whose only interface is the loopback interface. The namespace exists as long
/// as its holder, and the holder exits when its standard input is closed, even if this program is
/// killed.
pub(super) struct Namespace {
    holder: Child,
}

impl Namespace {
    /// Makes a namespace in which reno is the congestion control of TCP.
    pub(super) fn with_reno() -> Result<Self> {
        ensure!(is_root(), "only root can make a network namespace");
        let script = "ip link set lo up && \
                      echo reno > /proc/sys/net/ipv4/tcp_congestion_control && echo ready && exec cat";
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("unshare does not start")?;
        let stdout = holder.stdout.take().context("unshare has no standard output")?;
        let namespace = Self { holder };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("unshare's output cannot be read")?;
        ensure!(line == "ready\n", "the network namespace cannot be made");
        Ok(namespace)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        self.holder.wait().ok();
    }
}
