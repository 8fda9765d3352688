//! Connection qualifiers, and the ports on which transports listen.

use dat_sys::*;
use tracing::warn;

use super::csp::Csp;
use super::psp::Psp;
use super::rsp::Rsp;
use crate::error::{Error, Result};
use crate::ia::Ia;
use crate::provider::{Sink, Transport};

/// The connection qualifier for which a call creates a service point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Qualifier {
    /// Exactly this qualifier.
    Exactly(DAT_CONN_QUAL),
    /// Any free qualifier.
    Any,
}

/// Converts a connection qualifier to a port, as OFED's provider libdaplofa does. A qualifier up to
/// 65,535 is its own port. Larger ones share the 32,001 ports from 33,534 on, so two of them may
/// have the same port.
pub fn port(qualifier: DAT_CONN_QUAL) -> u16 {
    u16::try_from(qualifier).unwrap_or((qualifier % 32001 + 33534) as u16)
}

/// Checks the qualifier that a call names. It is the argument at position 2. No service point has
/// the qualifier 0, which stands for any free port in sockets.
pub(super) fn check(qualifier: DAT_CONN_QUAL) -> Result<()> {
    if qualifier == 0 { Err(Error::arg(2)) } else { Ok(()) }
}

/// Opens the listener of a service point. If its port is in use because of another qualifier, logs
/// which one.
///
/// # Safety
/// The caller holds the adapter's control lock.
pub(super) unsafe fn listen<T: Transport>(
    ia: &Ia<T>,
    qualifier: Qualifier,
    backlog: usize,
    sink: Sink<T>,
) -> Result<T::Listener> {
    let wanted = match qualifier {
        Qualifier::Exactly(wanted) => wanted,
        Qualifier::Any => return ia.transport.listen(None, backlog, sink),
    };
    ia.transport.listen(Some(port(wanted)), backlog, sink).inspect_err(|&error| {
        // SAFETY: the caller holds the control lock.
        let find = |is_wanted: &dyn Fn(_) -> bool| unsafe { find_qualifier(ia, is_wanted) };
        if error == Error::of(DAT_CONN_QUAL_IN_USE)
            && find(&|other| other == wanted).is_none()
            && let Some(reason) = collision(wanted, find(&|other| port(other) == port(wanted)))
        {
            warn!(target: "dat::cm", ia = ia.name, "{reason}");
        }
    })
}

/// Finds the qualifier of a service point of the adapter.
///
/// # Safety
/// The caller holds the adapter's control lock.
unsafe fn find_qualifier<T: Transport>(
    ia: &Ia<T>,
    is_wanted: &dyn Fn(DAT_CONN_QUAL) -> bool,
) -> Option<DAT_CONN_QUAL> {
    // SAFETY: the caller holds the control lock, and the objects are not used after this call.
    let (psp, csp, rsp) = unsafe {
        (
            ia.find::<Psp<T>>(|psp| is_wanted(psp.qualifier())),
            ia.find::<Csp<T>>(|csp| is_wanted(csp.qualifier())),
            ia.find::<Rsp<T>>(|rsp| is_wanted(rsp.qualifier())),
        )
    };
    psp.map(|psp| psp.qualifier())
        .or(csp.map(|csp| csp.qualifier()))
        .or(rsp.map(|rsp| rsp.qualifier()))
}

/// Says why the port of `wanted` is in use, if the qualifier alone does not say it. `other` is the
/// qualifier of a service point of this adapter that has the same port, if there is one.
fn collision(wanted: DAT_CONN_QUAL, other: Option<DAT_CONN_QUAL>) -> Option<String> {
    let port = port(wanted);
    let user = match other {
        Some(other) => format!("the service point with connection qualifier {other}"),
        None if wanted == u64::from(port) => return None,
        None => "another adapter or program of this host".to_owned(),
    };
    Some(format!(
        "cannot listen on connection qualifier {wanted}: it has port {port}, which {user} uses; \
         qualifiers above 65535 share the ports from 33534 to 65534, so choose another one"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualifiers_map_to_ports() {
        assert_eq!(port(0xFFFF), 0xFFFF);
        // libdaplofa has the same ports for these qualifiers.
        assert_eq!([65_536, 96_003, 96_004].map(port), [35_068, 33_534, 33_535]);
        assert!((33534..=65534).contains(&port(u64::MAX)));
    }

    #[test]
    fn only_a_port_that_differs_from_its_qualifier_needs_an_explanation() {
        assert_eq!(collision(7, None), None);
        let other = collision(97_537, Some(65_536)).expect("an explanation");
        assert!(other.contains("97537: it has port 35068, which the service point"), "{other}");
        assert!(other.contains("connection qualifier 65536 uses"), "{other}");
        let program = collision(97_537, None).expect("an explanation");
        assert!(
            program.contains("which another adapter or program of this host uses"),
            "{program}"
        );
        assert!(collision(35_068, Some(65_536)).is_some());
    }
}
