//! The errors of an adapter as errors of DAT.

use dat_core::{Error, OpenError};
use dat_sys::*;

/// Returns the error with which the consumer's call fails.
pub fn error(error: adapter::Error) -> Error {
    use adapter::Error::*;
    match error {
        NoMemory => Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_MEMORY),
        NoLocalPort => Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_DEVICE),
        NoQueuePair => Error::new(DAT_INSUFFICIENT_RESOURCES, DAT_RESOURCE_TEP),
        NoSuchAddress => Error::of(DAT_INVALID_ADDRESS),
        PortTaken => Error::of(DAT_CONN_QUAL_IN_USE),
        PortUnavailable => Error::of(DAT_CONN_QUAL_UNAVAILABLE),
        NotSupported => Error::of(DAT_MODEL_NOT_SUPPORTED),
        InvalidArgument => Error::of(DAT_INVALID_PARAMETER),
        InvalidState => Error::of(DAT_INVALID_STATE),
    }
}

/// Returns the error of an adapter that could not be opened.
pub fn open_error(error: adapter::OpenError) -> OpenError {
    OpenError::new(self::error(error.code), error.reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_the_codes_of_the_standard() {
        let [memory, ports] = [adapter::Error::NoMemory, adapter::Error::NoLocalPort].map(error);
        assert_eq!([memory, ports].map(Error::kind), [DAT_INSUFFICIENT_RESOURCES; 2]);
        assert_eq!(memory.subtype(), DAT_RESOURCE_MEMORY);
        assert_eq!(ports.subtype(), DAT_RESOURCE_DEVICE);
        assert_eq!(error(adapter::Error::PortTaken), Error::of(DAT_CONN_QUAL_IN_USE));
        assert_eq!(error(adapter::Error::PortUnavailable), Error::of(DAT_CONN_QUAL_UNAVAILABLE));
        let reason = "ia_params: crc=maybe: expected on or off".to_owned();
        let refused = open_error(adapter::OpenError::new(adapter::Error::InvalidArgument, reason));
        assert_eq!(refused.code, Error::of(DAT_INVALID_PARAMETER));
        assert_eq!(refused.reason, "ia_params: crc=maybe: expected on or off");
    }
}
