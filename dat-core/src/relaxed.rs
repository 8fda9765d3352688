//! What an adapter permits although the standard forbids it.
//!
//! Every call obeys the letter of the standard, except where a known program would fail. This file
//! has one function for each such exception, with the programs that need it. An adapter with
//! `strict=on` makes no exception. docs/compatibility.md lists the exceptions, with the tests that
//! run the programs.

use dat_sys::*;

use crate::evd::{Stream, StreamOf};
use crate::provider::Attrs;

const UNSIGNALLED_REQUESTS: Stream =
    Stream { of: StreamOf::Requests, flags: DAT_COMPLETION_UNSIGNALLED_FLAG };
const DEFAULT_RECEIVES: Stream =
    Stream { of: StreamOf::Receives, flags: DAT_COMPLETION_DEFAULT_FLAG };

impl Attrs {
    /// Whether two streams may feed one EVD although their completion flags differ. Intel MPI and
    /// MVAPICH2 use one EVD for unsignalled requests and for receives with default flags.
    pub(crate) fn streams_may_differ(&self, one: Stream, other: Stream) -> bool {
        !self.strict
            && [(one, other), (other, one)].contains(&(UNSIGNALLED_REQUESTS, DEFAULT_RECEIVES))
    }

    /// Whether a stream with other flags than `DAT_COMPLETION_EVD_THRESHOLD_FLAG` may feed an EVD
    /// that was also created for the events `others`. With `I_MPI_WAIT_MODE=1`, the EVD with Intel
    /// MPI's unsignalled requests and receives with default flags also takes software events. Open
    /// MPI 1.6.5, pscom and MVAPICH2 use no EVD in this way, as their sources show.
    pub(crate) fn may_join_others(&self, stream: Stream, others: DAT_EVD_FLAGS) -> bool {
        !self.strict
            && [UNSIGNALLED_REQUESTS, DEFAULT_RECEIVES].contains(&stream)
            && others == DAT_EVD_SOFTWARE_FLAG
    }

    /// Whether a message may be longer than its endpoint's max_message_size. The programs dtest,
    /// dtestx and dtestsrq set this attribute to 0. Intel MPI sets it to 3 with
    /// `I_MPI_WAIT_MODE=1`.
    pub(crate) fn permits_longer_messages(&self) -> bool {
        !self.strict
    }

    /// Whether an RDMA operation may be longer than its endpoint's max_rdma_size. dtest sets this
    /// attribute to 64 KiB and writes 4 MiB.
    pub(crate) fn permits_longer_rdma(&self) -> bool {
        !self.strict
    }

    /// Whether max_message_size of an endpoint for datagrams may be larger than the longest
    /// datagram. dtestcm sets the attribute to 2048 on any network, and sends no such message. Each
    /// message that is too long is refused.
    pub(crate) fn permits_large_datagram_size(&self) -> bool {
        !self.strict
    }

    /// Whether the attribute srq_soft_hw of 0 means that there is no watermark. dtestsrq sets the
    /// attribute to 0 and fails if an event reports the watermark.
    pub(crate) fn ignores_soft_watermark_of_0(&self) -> bool {
        !self.strict
    }

    /// Whether local reading needs no privilege. dtest sends from memory that it has registered
    /// only for local writing.
    pub(crate) fn implies_local_read(&self) -> bool {
        !self.strict
    }
}
