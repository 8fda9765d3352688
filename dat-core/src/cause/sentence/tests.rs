//! The sentences of causes that only a special peer, network or device provokes. docs/causes.md
//! lists them.

use super::*;

const DOCUMENT: &str = include_str!("../../../../docs/causes.md");

/// The causes, with the data that the document calls N, M and E.
fn special() -> Vec<Cause> {
    let why = || "E".to_owned();
    vec![
        Cause::ProcessGone,
        Cause::Forgotten,
        Cause::BrokenByPeer,
        Cause::Silent,
        Cause::ConnectionLost { errno: None },
        Cause::PartialMessage,
        Cause::Protocol { by_peer: false, what: why() },
        Cause::Protocol { by_peer: true, what: why() },
        Cause::Broken { why: Some(why()) },
        Cause::NoAdapter,
        Cause::RejectedByProvider { why: None },
        Cause::RejectedByProvider { why: Some(why()) },
        Cause::Unreachable { why: None },
        Cause::Unreachable { why: Some(why()) },
        Cause::AcceptFailed,
        Cause::BindFailed,
        Cause::PeerFailed,
        Cause::ReceiveTooSmall { lengths: None },
        Cause::LocalMemory { usage: LocalUse::Receive, why: Refusal::Unmapped },
        Cause::LocalMemory { usage: LocalUse::WindowSink, why: Refusal::Right },
    ]
}

#[test]
fn the_document_has_the_sentences() {
    let peer = IpAddr::from([10, 0, 0, 2]);
    let document = DOCUMENT.split_whitespace().collect::<Vec<_>>().join(" ") + " ";
    for cause in special() {
        let sentence = about(&cause, Some(peer)).to_string().replace("10.0.0.2", "P");
        // The document may leave out what to do.
        let start = sentence.split_once(": ").map_or(&*sentence, |(start, _)| start);
        let is_listed = [format!("- {sentence} "), format!("- {start}: … ")]
            .iter()
            .any(|item| document.contains(item));
        assert!(is_listed, "docs/causes.md lacks: {sentence}");
    }
}

#[test]
fn a_lost_connection_names_the_error_of_the_system() {
    let lost = about(&Cause::ConnectionLost { errno: Some(104) }, None).to_string();
    assert!(lost.starts_with("the connection to the peer was lost (Connection reset"), "{lost}");
}

#[test]
fn packets_that_are_too_long_have_a_remedy() {
    let peer = Some(IpAddr::from([10, 0, 0, 2]));
    let sentence = |path| about(&Cause::PacketsTooLong { octets: 4140, path }, peer).to_string();
    assert_eq!(
        sentence(Some(1500)),
        "packets of 4140 octets do not reach peer 10.0.0.2, because the path takes 1500: give all \
         interfaces on the path the same MTU, or set mtu= to a smaller path MTU"
    );
    assert_eq!(
        sentence(None),
        "packets of 4140 octets do not reach peer 10.0.0.2 or do not come back, although short \
         ones do: an interface or a switch on the path takes less. Give all interfaces on the path \
         the same MTU, or set mtu= to a smaller path MTU"
    );
}

#[test]
fn an_unknown_peer_has_no_address() {
    let without = about(&Cause::Silent, None).to_string();
    assert!(without.starts_with("the peer does not answer"), "{without}");
}
