//! Tests that Wireshark's dissectors understand captures.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use dat_core::provider::Provider;
use dat_core::{Error, OpenError};
use dat_sys::DAT_INVALID_PARAMETER;
use provider_mem::contract;
use provider_tcp_emu::{Tcp, TcpEmu};

const TSHARK: &str = "/usr/bin/tshark";
/// Wireshark's preferences. The system chooses the ports, and some of them are assigned to other
/// protocols.
const PREFERENCES: [&str; 3] =
    ["tcp.try_heuristic_first:TRUE", "ip.check_checksum:TRUE", "tcp.check_checksum:TRUE"];
/// Dissectors that would guess the protocol of the consumers' payload.
const GUESSES: [&str; 2] = ["rpcrdma_iwarp", "smb_direct_iwarp"];

/// Returns tshark's output for the packets that pass the filter.
fn tshark(file: &Path, filter: &str, how: &[&str]) -> String {
    let mut command = Command::new(TSHARK);
    command.args(["-n", "-r"]).arg(file).args(["-Y", filter]).args(how);
    command.args(PREFERENCES.iter().flat_map(|preference| ["-o", preference]));
    command.args(GUESSES.iter().flat_map(|guess| ["--disable-heuristic", guess]));
    let output = command.output().expect("tshark starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The contents of a capture file.
#[derive(Default)]
struct Contents {
    connections: usize,
    requests: usize,
    replies: usize,
    rejections: usize,
    opcodes: BTreeSet<String>,
    /// Incoming and outgoing messages. For each connection, which its ports identify, these are the
    /// lengths of FPDUs, the opcodes, and the STags.
    messages: [BTreeMap<[String; 2], [Vec<String>; 3]>; 2],
}

impl Contents {
    fn of(file: &Path) -> Self {
        let fields = [
            "frame.packet_flags_direction",
            "tcp.srcport",
            "tcp.dstport",
            "tcp.flags",
            "iwarp_mpa.req",
            "iwarp_mpa.rep",
            "iwarp_mpa.rej_flag",
            "iwarp_mpa.ulpdulength",
            "iwarp_rdma.opcode",
            "iwarp_ddp.stag",
        ];
        let mut contents = Self::default();
        let how: Vec<_> =
            ["-T", "fields"].into_iter().chain(fields.iter().flat_map(|f| ["-e", f])).collect();
        for row in tshark(file, "tcp", &how).lines() {
            let row: Vec<_> = row.split('\t').collect();
            let [direction, src, dst, flags, request, reply, rejected, columns @ ..] = &row[..]
            else {
                panic!("{row:?}")
            };
            contents.connections += usize::from(*flags == "0x0002");
            contents.requests += usize::from(!request.is_empty());
            contents.replies += usize::from(!reply.is_empty());
            contents.rejections += usize::from(!reply.is_empty() && *rejected == "1");
            // A segment may contain several FPDUs. It contains none if no FPDU ends in it.
            let values = |column: &str| {
                column
                    .split(',')
                    .filter(|value| !value.is_empty())
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            contents.opcodes.extend(values(columns[1]));
            let way = usize::from(*direction == "0x00000002");
            let messages =
                contents.messages[way].entry([src, dst].map(ToString::to_string)).or_default();
            for (all, column) in messages.iter_mut().zip(columns) {
                all.extend(values(column));
            }
        }
        contents
    }
}

fn open(params: &str, file: &Path) -> Result<Tcp, OpenError> {
    TcpEmu.open("tcp-emu", &format!("{params} capture={}", file.display()))
}

/// Runs some cases of the contract between two adapters. Returns the capture files of the adapters.
fn captured(params: &str, dir: &Path) -> [PathBuf; 2] {
    let files = ["a", "b"].map(|name| dir.join(name).with_extension("%p.pcapng"));
    let [a, b] = files.each_ref().map(|file| open(params, file).unwrap_or_else(|e| panic!("{e}")));
    contract::private_data_and_addresses_arrive(&a, &b);
    contract::sends_arrive_in_order_and_complete(&a, &b);
    contract::every_size_arrives(&a, &b);
    contract::writes_land_where_they_should(&a, &b);
    contract::reads_fetch_what_is_there(&a, &b);
    contract::many_requests_in_both_directions(&a, &b);
    contract::a_send_invalidates_a_window(&a, &b);
    contract::atomic_operations_return_the_old_value(&a, &b);
    contract::a_rejection_carries_private_data(&a, &b);
    contract::forbidden_remote_access_breaks_the_connection(&a, &b);
    contract::an_abrupt_close_flushes(&a, &b);
    contract::connections_come_and_go(&a, &b);
    let process = std::process::id().to_string();
    files.map(|file| file.to_str().expect("UTF-8").replace("%p", &process).into())
}

#[test]
fn both_ends_are_dissected_and_tell_the_same() {
    if !Path::new(TSHARK).exists() {
        println!("SKIP: {TSHARK} is not installed (package tshark)");
        return;
    }
    for params in ["127.0.0.1", "::1 crc=on fpdu=1460"] {
        let dir = tempfile::tempdir().expect("a directory");
        let files = captured(params, dir.path());
        let [a, b] = files.each_ref().map(|file| {
            let filter = "_ws.malformed || _ws.expert.severity >= \"Warning\"";
            assert_eq!(tshark(file, filter, &[]), "", "{params}");
            // Correct CRCs show that the octets in the file are the octets that were sent.
            let details = tshark(file, "iwarp_mpa.fpdu", &["-O", "iwarp_mpa"]);
            let checked = details.matches("CRC check: ").count();
            assert_eq!(details.matches("(Good CRC32)").count(), checked);
            assert_eq!(checked > 200, params.contains("crc=on"), "{params}: {checked}");

            let contents = Contents::of(file);
            let Contents { connections, requests, replies, rejections, ref opcodes, .. } = contents;
            assert!(connections > 100, "{params}: {connections}");
            assert_eq!((requests, replies, rejections), (connections, connections, 1), "{params}");
            // These are the opcodes of WRITE, READ request, READ response, SEND, SEND with
            // invalidate, TERMINATE (RFC 5040, section 4.3), atomic request and atomic response
            // (RFC 7306, section 5).
            for opcode in ["0x00", "0x01", "0x02", "0x03", "0x04", "0x07", "0x0a", "0x0b"] {
                assert!(opcodes.contains(opcode), "{params}: no {opcode} in {opcodes:?}");
            }
            contents
        });
        for (sent, received) in [(&a.messages[1], &b.messages[0]), (&b.messages[1], &a.messages[0])]
        {
            assert!(sent.keys().eq(received.keys()), "{params}");
            let all = |messages: &BTreeMap<_, [Vec<String>; 3]>| {
                messages.values().flatten().flatten().count()
            };
            // A side that closes abruptly stops reading, so it does not receive the last messages
            // of its peer.
            assert!(
                all(sent) > 400 && all(sent) - all(received) < 100,
                "{params}: {} {}",
                all(sent),
                all(received)
            );
            for (ports, sent) in sent {
                for (sent, received) in sent.iter().zip(&received[ports]) {
                    assert!(
                        sent.starts_with(received),
                        "{params}: {ports:?}: {sent:?} {received:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_in_words() {
    let error = |file| open("lo", Path::new(file)).err().expect("it cannot be written");
    let missing = error("/no/such/place.pcapng");
    assert_eq!(missing.code, Error::of(DAT_INVALID_PARAMETER));
    let reason = "capture: /no/such/place.pcapng: No such file or directory (os error 2)";
    assert_eq!(missing.reason, reason);
    let pattern = error("%d").reason;
    assert!(
        pattern.starts_with("ia_params: capture=%d: expected %p (process id), %n"),
        "{pattern}"
    );
}

/// At its limit a capture ends, and the adapter moves all data as before.
#[test]
fn a_full_capture_does_not_disturb_the_adapter() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("a.pcapng");
    let open = || {
        let params = format!("127.0.0.1 capture={},max=256K", file.display());
        TcpEmu.open("tcp-emu", &params).unwrap_or_else(|e| panic!("{params}: {e}"))
    };
    let (a, b) = (open(), open());
    contract::every_size_arrives(&a, &b);
    contract::sends_arrive_in_order_and_complete(&a, &b);
    let length = std::fs::metadata(&file).expect("the file exists").len();
    assert!((64 << 10..=256 << 10).contains(&length), "{length}");
}
