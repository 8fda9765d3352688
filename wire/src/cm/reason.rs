//! Reasons of a REJ (IBA volume 1, section 12.6.7.2).

use std::fmt;

/// The reason of a rejection. It may contain any number, because a peer may send any.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reason(pub u16);

/// Defines the standard's reasons in one place: the constants and their descriptions.
macro_rules! reasons {
    ($($name:ident $number:literal $description:literal)*) => {
        impl Reason {
            $(#[doc = $description] pub const $name: Self = Reason($number);)*

            /// Every reason that the standard defines.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            const fn description(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($description),)*
                    _ => None,
                }
            }
        }
    };
}

reasons! {
    NO_QP                          1 "no queue pair available"
    NO_EEC                         2 "no end-to-end context available"
    NO_RESOURCES                   3 "no resources available"
    TIMEOUT                        4 "timeout"
    UNSUPPORTED                    5 "unsupported request"
    INVALID_COMM_ID                6 "invalid communication ID"
    INVALID_COMM_INSTANCE          7 "invalid communication instance"
    INVALID_SERVICE_ID             8 "invalid service ID"
    INVALID_TRANSPORT              9 "invalid transport service type"
    STALE_CONNECTION              10 "stale connection"
    NO_RDC                        11 "RDC does not exist"
    INVALID_GID                   12 "primary remote port GID rejected"
    INVALID_LID                   13 "primary remote port LID rejected"
    INVALID_SL                    14 "invalid primary SL"
    INVALID_TRAFFIC_CLASS         15 "invalid primary traffic class"
    INVALID_HOP_LIMIT             16 "invalid primary hop limit"
    INVALID_PACKET_RATE           17 "invalid primary packet rate"
    INVALID_ALT_GID               18 "alternate remote port GID rejected"
    INVALID_ALT_LID               19 "alternate remote port LID rejected"
    INVALID_ALT_SL                20 "invalid alternate SL"
    INVALID_ALT_TRAFFIC_CLASS     21 "invalid alternate traffic class"
    INVALID_ALT_HOP_LIMIT         22 "invalid alternate hop limit"
    INVALID_ALT_PACKET_RATE       23 "invalid alternate packet rate"
    CM_REDIRECT                   24 "port and CM redirection"
    PORT_REDIRECT                 25 "port redirection"
    INVALID_MTU                   26 "invalid path MTU"
    INSUFFICIENT_RESP_RESOURCES   27 "insufficient responder resources"
    CONSUMER                      28 "consumer reject"
    RNR_RETRY_COUNT               29 "RNR retry count reject"
    DUPLICATE_COMM_ID             30 "duplicate local communication ID"
    INVALID_CLASS_VERSION         31 "unsupported class version"
    INVALID_FLOW_LABEL            32 "invalid primary flow label"
    INVALID_ALT_FLOW_LABEL        33 "invalid alternate flow label"
    VENDOR_OPTION                 35 "vendor option is not supported"
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.description() {
            Some(description) => f.write_str(description),
            None => write!(f, "reason {}", self.0),
        }
    }
}

impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reason({}: {self})", self.0)
    }
}
