//! Runs the programs that measure, and reads their output.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::network::Network;
use super::{Quantity, Row};
use crate::prerequisites::on_path;

/// The processors of the client and of the server.
const CLIENT_CPU: &str = "0";
const SERVER_CPU: &str = "1";

/// The time limit of a client in seconds. On a busy machine, a client takes several seconds.
const CLIENT_LIMIT_SECONDS: &str = "300";
/// How long a server may take until it listens, and until it exits after its client.
const SERVER_LIMIT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

const UCX: &str = "ucx_perftest";
const LIBFABRIC: &str = "fi_pingpong";

pub(super) struct Programs {
    dat: PathBuf,
    has_ucx: bool,
    has_libfabric: bool,
}

impl Programs {
    /// Finds the programs of the peers, and prints which are measured and which are left out.
    pub(super) fn find(dat: PathBuf) -> Self {
        let find = |library, program, package, version: [&str; 2]| {
            if !on_path(program) {
                println!("left out: {library}; Debian's package {package} has its {program}");
                return false;
            }
            let [command, option] = version;
            let output = Command::new(command).arg(option).output();
            let version = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            let first = version.as_deref().unwrap_or_default().lines().next();
            println!("{library}: {}", first.unwrap_or("version unknown").trim_start_matches("# "));
            true
        };
        Self {
            dat,
            has_ucx: find("UCX", UCX, "ucx-utils", ["ucx_info", "-v"]),
            has_libfabric: find("libfabric", LIBFABRIC, "libfabric-bin", ["fi_info", "--version"]),
        }
    }

    /// Measures OpenDAT.
    pub(super) fn ours(&self, row: &Row, network: &Network) -> Result<f64> {
        let mut command = network.command(&self.dat);
        command
            .env("OPENDAT_PARAMS", network.our_parameters())
            .args(["bench", "--csv", "--operations", row.operation])
            .args(["--sizes", &row.size.to_string(), "--depths", &row.window.to_string()])
            .args(["--cpus", &format!("{CLIENT_CPU},{SERVER_CPU}")]);
        let text = output_of(&mut command)?;
        let figure = row.figure_of_dat(&text);
        figure.with_context(|| format!("dat bench printed something unexpected\n{text}"))
    }

    /// Measures UCX. Returns `None` if UCX is not installed.
    pub(super) fn ucx(&self, row: &Row, network: &Network) -> Result<Option<f64>> {
        if !self.has_ucx {
            return Ok(None);
        }
        let port = free_port()?;
        let mut server = server_command(UCX, network);
        server.args(["-p", &port.to_string()]).envs(network.ucx_settings());
        let server = Server::start(server, port)?;
        let mut client = client_command(UCX, network);
        client
            .args(["-p", &port.to_string()])
            .envs(network.ucx_settings())
            .args(["-f", "-v", "-t", row.ucx_test])
            .args(["-s", &row.size.to_string(), "-n", &row.operations.to_string()])
            .args(["-O", &row.window.to_string(), "127.0.0.1"]);
        let text = output_of(&mut client)?;
        server.wait();
        let figure = row.figure_of_ucx(&text);
        figure.with_context(|| format!("{UCX} printed something unexpected\n{text}")).map(Some)
    }

    /// Measures libfabric. Returns `None` if libfabric is not installed, or if its program does not
    /// measure the row.
    pub(super) fn libfabric(&self, row: &Row, network: &Network) -> Result<Option<f64>> {
        if !self.has_libfabric || row.quantity != Quantity::Mean {
            return Ok(None);
        }
        let port = free_port()?;
        let (size, operations) = (row.size.to_string(), row.operations.to_string());
        let with_options = |mut command: Command, port_option| {
            command.args(network.libfabric_arguments());
            command.args(["-S", &size, "-I", &operations, port_option, &port.to_string()]);
            command
        };
        let server = with_options(server_command(LIBFABRIC, network), "-B");
        let server = Server::start(server, port)?;
        let mut client = with_options(client_command(LIBFABRIC, network), "-P");
        let text = output_of(client.arg("127.0.0.1"))?;
        server.wait();
        let figure = column(&text, "usec/xfer");
        figure
            .with_context(|| format!("{LIBFABRIC} printed something unexpected\n{text}"))
            .map(Some)
    }
}

/// Returns the command of a server. Its process becomes the program, so that killing the process
/// ends the program.
fn server_command(program: &str, network: &Network) -> Command {
    let mut command = network.command("taskset");
    command.args(["--cpu-list", SERVER_CPU, program]);
    command
}

fn client_command(program: &str, network: &Network) -> Command {
    let mut command = network.command("taskset");
    command.args(["--cpu-list", CLIENT_CPU, "timeout", CLIENT_LIMIT_SECONDS, program]);
    command
}

fn output_of(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?} does not start"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} failed ({})\n{text}{errors}", output.status);
    Ok(text)
}

/// Returns a port that no process on this host uses.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port is free")?;
    Ok(listener.local_addr()?.port())
}

/// A running server, which is killed when this value is dropped.
struct Server(Child);

impl Server {
    /// Starts a server and waits until it listens at a port.
    fn start(mut command: Command, port: u16) -> Result<Self> {
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("{command:?} does not start"))?;
        let mut server = Self(child);
        let net = format!("/proc/{}/net", server.0.id());
        let is_listening = |_: &mut Child| {
            ["tcp", "tcp6"].iter().any(|table| {
                fs::read_to_string(format!("{net}/{table}")).is_ok_and(|text| listens(&text, port))
            })
        };
        ensure!(server.wait_until(is_listening), "{command:?} does not listen at port {port}");
        Ok(server)
    }

    /// Waits until the server exits after its client.
    fn wait(mut self) {
        self.wait_until(|child| !matches!(child.try_wait(), Ok(None)));
    }

    /// Returns whether the condition is true before the time limit expires.
    fn wait_until(&mut self, mut condition: impl FnMut(&mut Child) -> bool) -> bool {
        let deadline = Instant::now() + SERVER_LIMIT;
        while !condition(&mut self.0) {
            if Instant::now() > deadline {
                return false;
            }
            thread::sleep(POLL_INTERVAL);
        }
        true
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Returns whether a socket listens at the port, according to the text of /proc/PID/net/tcp.
fn listens(text: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let port = format!(":{port:04X}");
    text.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (address, state) = (words.next(), words.nth(1));
        address.is_some_and(|address| address.ends_with(&port)) && state == Some(LISTEN)
    })
}

impl Row {
    /// Returns the row's figure from the output of `dat bench --csv`.
    fn figure_of_dat(&self, text: &str) -> Option<f64> {
        Some(match self.quantity {
            Quantity::Median => 1e6 * column(text, "latency_p50")?,
            Quantity::Mean => 1e6 * column(text, "latency_mean")?,
            Quantity::Rate => 1e-6 * column(text, "operations_per_second")?,
            Quantity::Bandwidth => 1e-9 * column(text, "bytes_per_second")?,
        })
    }

    /// Returns the row's figure from the output of `ucx_perftest -v`. Its bandwidth is in MiB/s, so
    /// the bandwidth is computed from the rate.
    fn figure_of_ucx(&self, text: &str) -> Option<f64> {
        Some(match self.quantity {
            Quantity::Median => column(text, "50.0_percentile_lat")?,
            Quantity::Mean => column(text, "overall_lat")?,
            Quantity::Rate => 1e-6 * column(text, "overall_mr")?,
            Quantity::Bandwidth => 1e-9 * f64::from(self.size) * column(text, "overall_mr")?,
        })
    }
}

/// Returns the figure in the last line of a table, in the column with this name. Commas or blanks
/// separate the columns.
fn column(text: &str, name: &str) -> Option<f64> {
    let columns = |line: &str| -> Vec<String> {
        if line.contains(',') {
            line.split(',').map(str::to_owned).collect()
        } else {
            line.split_whitespace().map(str::to_owned).collect()
        }
    };
    let index = text.lines().find_map(|line| columns(line).iter().position(|word| word == name))?;
    columns(text.lines().last()?).get(index)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::{Network, Quantity, Row, rows};
    use super::{column, listens};

    fn row(quantity: Quantity, size: u32) -> Row {
        let mut rows = rows(&Network::SharedMemory).into_iter();
        rows.find(|row| row.quantity == quantity && row.size == size).expect("the row exists")
    }

    fn near(figure: Option<f64>, expected: f64) {
        assert!(figure.is_some_and(|figure| (figure / expected - 1.0).abs() < 1e-9), "{figure:?}");
    }

    #[test]
    fn the_output_of_dat_bench() {
        let text = "adapter,operation,size,depth,connections,wait,rounds,operations,noisy,\
                    latency_min,latency_p50,latency_p90,latency_p99,latency_p999,latency_max,\
                    latency_mean,latency_spread,operations_per_second,bytes_per_second,\
                    rate_spread,client_cpu,server_cpu\n\
                    tcp-emu,send,64,1,1,poll,1,44875,true,0.0000004255,0.000000546,\
                    0.000000636,0.0000007765,0.000002564,0.0083418,0.00000193846,,831280,\
                    53201900,,0.000000944493,0.000000531301\n";
        near(row(Quantity::Median, 64).figure_of_dat(text), 0.546);
        near(row(Quantity::Mean, 64).figure_of_dat(text), 1.93846);
        near(row(Quantity::Rate, 64).figure_of_dat(text), 0.83128);
        near(row(Quantity::Bandwidth, 4096).figure_of_dat(text), 0.0532019);
        assert_eq!(row(Quantity::Mean, 64).figure_of_dat("no table\n"), None);
    }

    #[test]
    fn the_output_of_ucx_perftest() {
        let text = "iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,\
                    overall_mr\n\
                    20000,1.724,94.141,71.973,41.49,54.27,10622,13894\n";
        near(row(Quantity::Median, 64).figure_of_ucx(text), 1.724);
        near(row(Quantity::Mean, 64).figure_of_ucx(text), 71.973);
        near(row(Quantity::Rate, 64).figure_of_ucx(text), 0.013894);
        near(row(Quantity::Bandwidth, 4096).figure_of_ucx(text), 0.056909824);
    }

    #[test]
    fn the_output_of_fi_pingpong() {
        let text = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   \
                    Mxfers/sec\n\
                    64      100k    =100k    12m         0.63s     20.36       3.15       0.32\n";
        assert_eq!(column(text, "usec/xfer"), Some(3.15));
        assert_eq!(column("fi_getinfo(): No data available\n", "usec/xfer"), None);
    }

    #[test]
    fn a_socket_that_listens() {
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\n   \
                    0: 00000000:35D2 00000000:0000 0A 00000000:00000000 00:00000000 00000000\n   \
                    1: 0100007F:0050 0100007F:9C40 01 00000000:00000000 00:00000000 00000000\n";
        assert!(listens(text, 13778));
        assert!(!listens(text, 80), "the connection has a peer");
        assert!(!listens(text, 40000), "the port is the peer's");
    }
}
