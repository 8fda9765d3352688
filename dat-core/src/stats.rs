//! Statistics of an adapter, for the server of [`telemetry::stats`].
//!
//! Statistics cost the data path nothing, because the counters ([`crate::counters`]) exist anyway
//! and are read only on request. The text consists of lines of words:
//!
//! - `ia NAME PROVIDER HANDLE`, followed by the adapter's counters that are not 0, as `COUNTER
//!   NUMBER`;
//! - `ep HANDLE STATE`, followed by the endpoint's counters;
//! - `sum ep` and `sum evd`, followed by the sums of all endpoints and EVDs.

use std::fmt::Write;

use dat_sys::*;
use telemetry::stats;

use crate::counters::{CounterQuery, EP, EP_ALL, EP_EXTRA, EVD, names};
use crate::ep::Ep;
use crate::evd::Evd;
use crate::handle::{self, Node};
use crate::ia::Ia;
use crate::provider::Transport;

/// Serves the counters of an adapter that was opened with `stats=on` in ia_params.
pub(crate) fn add_adapter<T: Transport>(ia: &'static Node<Ia<T>>) {
    if ia.transport.attrs().stats {
        stats::add_adapter(ia.handle() as usize, |text| report(ia, text));
    }
}

/// Removes an adapter that is about to be closed. When this function returns, the server no longer
/// uses the adapter.
pub(crate) fn remove_adapter<T: Transport>(ia: &Node<Ia<T>>) {
    stats::remove_adapter(ia.handle() as usize);
}

fn report<T: Transport>(ia: &Node<Ia<T>>, text: &mut String) {
    const ALL: CounterQuery = CounterQuery { which: None, reset: false };
    let _ = writeln!(
        text,
        "ia {} {} {:#x}",
        to_word(&ia.name),
        to_word(ia.provider),
        ia.handle() as usize
    );
    count(text, "DCNT_IA_PZ_CREATE", &ia.counters.read(ALL));
    for (name, value) in ia.transport.counters() {
        let _ = writeln!(text, "{name} {value}");
    }
    // While the control lock is held, no object of the adapter is freed.
    let _control = ia.control();
    let mut sum = [0u64; EP_ALL];
    for handle in ia.objects(DAT_HANDLE_TYPE_EP) {
        // SAFETY: the control lock is held, under which no endpoint of the adapter is freed.
        let Ok(ep) = (unsafe { handle::get::<Ep<T>>(handle) }) else { continue };
        let counted = ep.counters.read(ALL);
        let _ = writeln!(text, "ep {:#x} {:?}", handle as usize, ep.state());
        count_ep(text, &counted);
        sum.iter_mut().zip(counted).for_each(|(sum, n)| *sum += n);
    }
    let _ = writeln!(text, "sum ep");
    count_ep(text, &sum);
    let mut sum = [0u64; EVD];
    for handle in ia.objects(DAT_HANDLE_TYPE_EVD) {
        // SAFETY: the control lock is held, under which no EVD of the adapter is freed.
        let Ok(evd) = (unsafe { handle::get::<Evd<T>>(handle) }) else { continue };
        sum.iter_mut().zip(evd.counters(ALL)).for_each(|(sum, n)| *sum += n);
    }
    let _ = writeln!(text, "sum evd");
    count(text, "DCNT_EVD_WAIT", &sum);
}

fn count(text: &mut String, first: &'static str, counters: &[u64]) {
    for (name, value) in names(first).zip(counters).filter(|(_, value)| **value > 0) {
        let _ = writeln!(text, "{name} {value}");
    }
}

fn count_ep(text: &mut String, counters: &[u64; EP_ALL]) {
    let (of_the_header, own) = counters.split_at(EP);
    count(text, "DCNT_EP_CONNECT", of_the_header);
    for (name, value) in EP_EXTRA.iter().zip(own).filter(|(_, value)| **value > 0) {
        let _ = writeln!(text, "{name} {value}");
    }
}

/// Joins the words of a name by `_`, because a blank would end the name in the text.
fn to_word(name: &str) -> String {
    name.split_whitespace().collect::<Vec<_>>().join("_")
}
