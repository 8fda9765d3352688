//! Tests which engine serves softroce's entries, and which devices are listed, with and without an
//! RDMA device.

use std::sync::Arc;

use libtest_mimic::Trial;
use opendat_tests::{Stop, trial};
use serde_json::Value;

use super::machine::{Guest, Machine};

type Check = fn(&Guest) -> Result<(), Stop>;

const CHECKS: &[(&str, Check)] = &[
    ("each_device_has_an_entry", |guest| {
        let list = list(guest, "", BUILT_IN)?;
        for name in ["verbs", "verbs-rxe"] {
            opens(&list, name, "device", "rxe port 1")?;
        }
        Ok(())
    }),
    ("auto_takes_the_kernels", |guest| {
        opens(
            &list(guest, "", BUILT_IN)?,
            "softroce",
            "engine",
            "the kernel's rxe on wire: the device exists",
        )
    }),
    ("auto_says_why_it_cannot_take_the_kernels", |guest| {
        guest.run("chmod 600 /dev/infiniband/rdma_cm")?;
        let list = list(guest, "chroot --userspec=1000:1000 /", BUILT_IN);
        guest.run("chmod 666 /dev/infiniband/rdma_cm")?;
        let list = list?;
        // In this network namespace no other program can have taken the port.
        fails(
            &list,
            "softroce",
            &["UDP port 4791", "the kernel's rxe cannot be used", "/dev/infiniband/rdma_cm"],
        )
    }),
    ("the_kernels_is_made_if_asked_for", |guest| {
        let without = |who: &str| {
            guest.run("for old in $(ls /sys/class/infiniband); do rdma link delete $old; done")?;
            list(guest, who, "DAT_OVERRIDE=/tmp/dist/dat.within OPENDAT_PARAMS=builtin=off")
        };
        let (made, refused) = (without(""), without("chroot --userspec=1000:1000 /"));
        guest.run(
            "for old in $(ls /sys/class/infiniband); do rdma link delete $old; done; \
             /device rxe 1500",
        )?;
        let engine = "the kernel's rxe_wire on wire: engine=kernel, created for it";
        opens(&made?, "softroce-kernel", "engine", engine)?;
        fails(&refused?, "softroce-kernel", &["wire has no rxe device", "only root may create"])
    }),
    ("apart_from_the_kernels_it_is_ours", |guest| {
        let list = list(guest, "ip netns exec apart", BUILT_IN)?;
        opens(&list, "softroce", "transport", "RoCEv2, in user space")
    }),
];

const BUILT_IN: &str = "DAT_OVERRIDE=/dev/null";

pub(super) fn trials(machine: &Arc<Machine>) -> Vec<Trial> {
    let trials = CHECKS.iter().map(|&(name, check)| {
        let machine = Arc::clone(machine);
        trial(format!("guest::engines::{name}"), move || machine.run(("rxe", 1500), true, check))
    });
    trials.collect()
}

/// Returns the output of `dat list` in the guest. `who` is the command that runs it as a certain
/// user.
fn list(guest: &Guest, who: &str, registry: &str) -> Result<Value, Stop> {
    let output = guest.run(&format!("{registry} {who} /tmp/dist/bin/dat list --json"))?;
    let json = output.rsplit_once("exit status").map_or(output.as_str(), |(json, _)| json);
    Ok(serde_json::from_str(json).map_err(|error| format!("{error}: {output}"))?)
}

fn entry<'l>(list: &'l Value, name: &str, state: &str) -> Result<&'l Value, Stop> {
    let mut entries = list["entries"].as_array().into_iter().flatten();
    match entries.find(|entry| entry["name"] == name && entry["state"] == state) {
        Some(entry) => Ok(entry),
        None => Err(Stop::Fail(format!("no entry {name} {state}: {list:#}"))),
    }
}

fn opens(list: &Value, name: &str, attribute: &str, value: &str) -> Result<(), Stop> {
    let attributes = &entry(list, name, "opens")?["attributes"];
    match attributes
        .as_array()
        .into_iter()
        .flatten()
        .any(|pair| pair[0] == attribute && pair[1] == value)
    {
        true => Ok(()),
        false => Err(Stop::Fail(format!("{name} has {attributes}, not {attribute}: {value}"))),
    }
}

fn fails(list: &Value, name: &str, words: &[&str]) -> Result<(), Stop> {
    let reason = entry(list, name, "fails")?["reason"].as_str().unwrap_or_default();
    match words.iter().find(|word| !reason.contains(**word)) {
        None => Ok(()),
        Some(word) => Err(Stop::Fail(format!("the reason of {name} lacks {word:?}: {reason}"))),
    }
}
