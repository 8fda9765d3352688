//! Tests of experiments, and of what the reports compute.

use std::time::Duration;

use crate::report::{jain, percentile};
use crate::*;

fn scenario(text: &str) -> Scenario {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str) -> String {
    text.parse::<Scenario>().expect_err(text).to_string()
}

#[test]
fn a_scenario_has_the_keys_of_the_network_and_of_the_load() {
    let parsed = scenario(
        "rate=200mbit,delay=1ms,queue=64K,mark=16K,paths=2,skew=1us,balance=packet,mtu=9000,\
         flows=8,operation=read,size=256K,messages=3,depth=2,cubic=1,reno=2,rxe=3,seed=7",
    );
    assert_eq!((parsed.flows, parsed.operation, parsed.size), (8, Operation::Read, 256 << 10));
    assert_eq!((parsed.messages, parsed.depth, parsed.time), (Some(3), 2, None));
    assert_eq!(parsed.cross_traffic.map(|(_, flows)| flows), [1, 2, 3]);
    assert_eq!(parsed.dumbbell.queue_octets, 64 << 10);
    assert_eq!(parsed.dumbbell.conditions.seed, 7);
    // Without a time, each flow moves one message.
    assert_eq!(scenario("flows=2").messages, Some(1));
    assert_eq!(scenario("time=1s,rate=1gbit").messages, None);
}

#[test]
fn errors_name_the_word_and_what_is_valid() {
    for (text, valid) in [
        ("flows=0", "a number of flows from 1 to 1000"),
        ("cubic=-1", "a number of flows from 0 to 1000"),
        ("operation=atomic", "write, read or send"),
        ("size=65M", "1 to 64M octets"),
        ("size=0", "1 to 64M octets"),
        ("messages=none", "a number from 1 to 1000000"),
        ("depth=65", "a number from 1 to 64"),
        ("time=0s", "a time from 1us to 1 hour"),
        ("receives=two", "many, one or none"),
        ("peer=cubic", "same, opendat or rxe"),
        ("queue=0", "a number of octets, at least 1"),
        ("red=90K-30K", "two numbers of octets, the smaller one first"),
        ("paths=17", "a number from 1 to 16"),
        ("balance=host", "flow or packet"),
        ("mtu=100", "a number of octets from 576 to 9216"),
        ("loss=1", "a percentage"),
        ("speed=1", "flows, operation, size"),
        ("flows", "flows, operation, size"),
    ] {
        let why = error(&format!("seed=1,{text}"));
        assert!(why.starts_with(&format!("{text}: expected ")) && why.contains(valid), "{why}");
    }
    for (text, key, missing) in [
        ("queue=64K", "queue", "add a rate"),
        ("mark=64K,queue=128K", "mark", "add a rate"),
        ("red=10K-20K", "red", "add a rate"),
        ("operation=send,receives=none", "receives", "add a time"),
        ("receives=one", "receives", "add operation=send"),
        ("operation=send,peer=rxe,receives=one", "receives", "use receives=many"),
        ("time=1s", "time", "add a rate"),
        ("flows=1000,cubic=1", "flows", "at most 1000 flows"),
        ("rate=400gbit,time=10s", "messages", "at most 64 GiB"),
        ("flows=1000,size=64M,messages=1000000", "messages", "at most 64 GiB"),
    ] {
        let why = error(text);
        assert!(why.starts_with(&format!("{key}: ")) && why.contains(missing), "{why}");
    }
}

/// One flow of each protocol and operation in an ideal network is as fast as the network.
#[test]
fn each_protocol_fills_an_ideal_network() {
    for operation in ["write", "read", "send"] {
        let text =
            format!("rate=1gbit,delay=50us,operation={operation},size=1M,messages=16,depth=4");
        let scenario = scenario(&text);
        for protocol in [Protocol::OpenDat, Protocol::Rxe, Protocol::Cubic, Protocol::Reno] {
            if !scenario.suits(protocol) {
                continue;
            }
            let report = run(&scenario, protocol);
            assert_eq!((report.messages, report.unfinished), (16, 0), "{protocol} {operation}");
            assert_eq!((report.waste, report.fairness), (0.0, 1.0), "{protocol} {operation}");
            assert!(report.goodput > 920_000_000, "{protocol} {operation}: {}", report.goodput);
            assert!(report.goodput < 960_000_000, "{protocol} {operation}: {}", report.goodput);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_report() {
    let text = "rate=100mbit,delay=1ms,queue=32K,flows=3,messages=2,loss=1%,reorder=1%,cubic=1,\
                size=100K";
    for protocol in [Protocol::OpenDat, Protocol::Rxe, Protocol::Cubic, Protocol::Reno] {
        let [first, second, third] = ["seed=1", "seed=1", "seed=2"]
            .map(|seed| run(&scenario(&format!("{text},{seed}")), protocol));
        assert!(first == second, "{protocol}");
        assert!(first != third, "{protocol}");
    }
}

#[test]
fn a_peer_without_receives_gets_no_message_and_one_at_a_time_gets_all() {
    let none = run(
        &scenario("operation=send,receives=none,time=20ms,delay=10us,rate=1gbit,size=64"),
        Protocol::OpenDat,
    );
    assert_eq!((none.messages, none.unfinished, none.failures.len()), (0, 0, 0));
    assert!(none.packets > 20, "{}", none.packets);
    let one = run(
        &scenario("operation=send,receives=one,delay=10us,rate=1gbit,size=64,messages=50,depth=4"),
        Protocol::OpenDat,
    );
    assert_eq!((one.messages, one.unfinished), (50, 0));
}

/// rxe and OpenDAT understand each other, in both directions, and with losses.
#[test]
fn the_model_of_rxe_speaks_with_the_engine() {
    for (protocol, peer) in [(Protocol::OpenDat, "rxe"), (Protocol::Rxe, "opendat")] {
        for operation in ["write", "send", "read"] {
            let text = format!(
                "rate=1gbit,delay=50us,loss=0.5%,operation={operation},peer={peer},size=256K,\
                 messages=8,seed=3"
            );
            let report = run(&scenario(&text), protocol);
            let outcome = (report.messages, report.unfinished);
            assert_eq!(outcome, (8, 0), "{protocol}: {:?}", report.failures);
            assert!(report.waste > 0.0 && report.waste < 0.5, "{protocol}: {}", report.waste);
        }
    }
}

#[test]
fn cross_traffic_takes_its_share() {
    let text = "rate=100mbit,delay=1ms,queue=64K,time=2s,depth=2,size=64K";
    let alone = run(&scenario(text), Protocol::Cubic);
    let loaded = run(&scenario(&format!("{text},reno=1")), Protocol::Cubic);
    let &[(Protocol::Reno, reno)] = &loaded.cross_traffic[..] else {
        panic!("{:?}", loaded.cross_traffic)
    };
    assert!(reno > 20_000_000 && loaded.goodput < alone.goodput * 3 / 4, "{reno}");
}

#[test]
fn fairness_is_jains_index() {
    assert_eq!(jain(&[3.0, 3.0, 3.0]), 1.0);
    assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
    assert_eq!(jain(&[1.0, 2.0]), 0.9);
    assert_eq!(jain(&[]), 1.0);
}

#[test]
fn a_percentile_is_the_nearest_rank() {
    let times: Vec<Duration> = (1..=200).map(Duration::from_millis).collect();
    assert_eq!(percentile(&times, 99), Duration::from_millis(198));
    assert_eq!(percentile(&times, 50), Duration::from_millis(100));
    assert_eq!(percentile(&times[..1], 99), Duration::from_millis(1));
    assert_eq!(percentile(&[], 99), Duration::ZERO);
}

#[test]
fn a_series_merges_its_intervals() {
    let mut sums = Series::of_sums();
    let mut maxima = Series::of_maxima();
    let micros = Duration::from_micros;
    for at in 0..1280 {
        sums.note(micros(at), 1);
        maxima.note(micros(at), at);
    }
    assert_eq!((sums.interval(), sums.values()), (micros(10), &[10; 128][..]));
    sums.note(micros(1280), 5);
    maxima.note(micros(1280), 0);
    assert_eq!((sums.interval(), sums.values().len()), (micros(20), 65));
    assert_eq!(sums.values()[..2], [20, 20]);
    assert_eq!(sums.values()[64], 5);
    assert_eq!(maxima.values()[..2], [19, 39]);
    assert_eq!(sums.parts(micros(1280), 4), [20; 4]);
    assert_eq!(maxima.parts(micros(1280), 4), [319, 639, 959, 1279]);
    // Parts that are shorter than an interval have the value of their interval.
    assert_eq!(sums.parts(micros(40), 4), [20; 4]);
}

#[test]
fn bars_apply_where_they_mean_something() {
    let names = |text: &str, protocols: &[Protocol]| -> Vec<&str> {
        let scenario = scenario(text);
        let reports: Vec<_> = protocols.iter().map(|&protocol| run(&scenario, protocol)).collect();
        bars(&scenario, &reports).iter().map(|bar| bar.what).collect()
    };
    let both = [Protocol::OpenDat, Protocol::Cubic];
    let network = "rate=100mbit,delay=100us,size=64K";
    assert_eq!(names(network, &both), ["unfinished flows", "time / CUBIC's"]);
    assert_eq!(names(network, &both[..1]), ["unfinished flows"]);
    assert_eq!(names(network, &both[1..]), [""; 0]);
    assert_eq!(
        names(&format!("{network},flows=2,operation=read"), &both),
        ["unfinished flows", "share sent in vain", "time / CUBIC's"]
    );
    assert_eq!(
        names(&format!("{network},flows=2,time=50ms"), &both),
        ["unfinished flows", "fairness"]
    );
    assert_eq!(
        names(&format!("{network},loss=1%"), &both),
        ["unfinished flows", "goodput / CUBIC's"]
    );
    assert_eq!(
        names(&format!("{network},reorder=5%"), &both[..1]),
        ["unfinished flows", "goodput / in order"]
    );
    let send = "operation=send,delay=5us,size=64";
    assert_eq!(
        names(&format!("{send},receives=none,time=5ms,rate=1gbit"), &both[..1]),
        ["packets per RNR time", "broken connections"]
    );
    let from_rxe = "rate=1gbit,delay=100us,peer=opendat,messages=2,depth=2";
    for (loss, expected) in [
        ("2%", &["connections from rxe that break", "MB/s from rxe"][..]),
        ("5%", &["connections from rxe that break"]),
        ("6%", &[]),
    ] {
        assert_eq!(names(&format!("{from_rxe},loss={loss}"), &[Protocol::Rxe]), expected, "{loss}");
    }
    let broken = Report {
        failures: vec![String::from("broken")],
        ..run(&scenario(from_rxe), Protocol::Rxe)
    };
    let verdicts: Vec<_> = bars(&scenario(from_rxe), &[broken]).iter().map(Bar::is_met).collect();
    assert_eq!(verdicts, [false, true]);
    // A broken connection sends few packets, too.
    let never_ready = format!("{send},receives=none,time=5ms,rate=1gbit");
    let broken = Report {
        failures: vec![String::from("broken")],
        ..run(&scenario(&never_ready), Protocol::OpenDat)
    };
    let verdicts: Vec<_> =
        bars(&scenario(&never_ready), &[broken]).iter().map(Bar::is_met).collect();
    assert_eq!(verdicts, [true, false]);
    assert_eq!(
        names(&format!("{send},receives=one"), &both[..1]),
        ["messages a second", "unfinished flows"]
    );
    let bar = Bar { what: "", value: 2.0, limit: 1.0, is_minimum: true };
    assert!(bar.is_met() && !Bar { is_minimum: false, ..bar }.is_met());
}
