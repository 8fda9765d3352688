//! Operations: what a request does, and what all layers know of it.
//!
//! A new operation is a variant of [`SendOp`] and of [`OpKind`], and a row in [`OpKind::facts`].
//! The layers ask this table. An operation's name stands only where a layer has a name of its own
//! for it, for example an opcode on the wire or a constant of a programming interface.

use crate::Remote;
use crate::cause::{AccessKind, LocalUse};

/// The operation of a request.
///
/// An operation that is not [basic](OpFacts::set) works only if the transport and the peer support
/// it. If they do not, the post is refused with
/// [`PostError::Unsupported`](crate::PostError::Unsupported).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// Sends to the peer's next receive buffer, and may invalidate a remote key there.
    Send {
        /// The remote key that the peer invalidates.
        invalidate: Option<u32>,
    },
    /// Sends to the peer's next receive buffer. The completion of that buffer contains a number.
    SendImm {
        /// The number, which is called immediate data.
        immediate: u32,
    },
    /// Writes local segments to remote memory.
    Write(Remote),
    /// Reads remote memory into local segments. The number of bytes is the sum of the segments'
    /// lengths.
    Read(Remote),
    /// Works like [`Read`](SendOp::Read), but the segments name memory of this side by remote keys.
    /// A remote key belongs to a window or region that lets peers write.
    ReadToWindow(Remote),
    /// Writes local segments to remote memory, then consumes the peer's next receive buffer, of
    /// whatever size. The completion of that buffer contains a number. This is one request with one
    /// completion at each end.
    WriteImm {
        /// The memory to write to.
        to: Remote,
        /// The immediate data.
        immediate: u32,
    },
    /// Adds to a 64-bit word of remote memory, aligned to 8 bytes. Its previous value goes to the
    /// local segments, which have eight bytes in all. The operation is atomic with respect to all
    /// other atomic operations at the peer's adapter.
    FetchAdd {
        /// The word to add to.
        at: Remote,
        /// The number to add.
        add: u64,
    },
    /// Replaces a 64-bit word of remote memory if it has the expected value. The rules for
    /// alignment, the previous value and atomicity are the same as for
    /// [`FetchAdd`](SendOp::FetchAdd).
    CompareSwap {
        /// The word to compare and replace.
        at: Remote,
        /// The expected value.
        compare: u64,
        /// The replacement.
        swap: u64,
    },
}

impl SendOp {
    /// The kind of the operation, and its operands in a form that is the same for all kinds: the
    /// remote memory, whose key may also be one to invalidate, and up to two numbers. Immediate
    /// data is the first number.
    #[inline(always)]
    pub const fn parts(self) -> (OpKind, Remote, [u64; 2]) {
        const NOWHERE: Remote = Remote { addr: 0, key: 0 };
        match self {
            SendOp::Send { invalidate: None } => (OpKind::Send, NOWHERE, [0; 2]),
            SendOp::Send { invalidate: Some(key) } => {
                (OpKind::SendInvalidate, Remote { addr: 0, key }, [0; 2])
            }
            SendOp::SendImm { immediate } => (OpKind::SendImm, NOWHERE, [immediate as u64, 0]),
            SendOp::Write(to) => (OpKind::Write, to, [0; 2]),
            SendOp::Read(from) => (OpKind::Read, from, [0; 2]),
            SendOp::ReadToWindow(from) => (OpKind::ReadToWindow, from, [0; 2]),
            SendOp::WriteImm { to, immediate } => (OpKind::WriteImm, to, [immediate as u64, 0]),
            SendOp::FetchAdd { at, add } => (OpKind::FetchAdd, at, [add, 0]),
            SendOp::CompareSwap { at, compare, swap } => (OpKind::CompareSwap, at, [compare, swap]),
        }
    }

    /// The kind of the operation.
    #[inline(always)]
    pub const fn kind(self) -> OpKind {
        self.parts().0
    }

    /// What all layers know of the operation.
    #[inline(always)]
    pub const fn facts(self) -> OpFacts {
        self.kind().facts()
    }
}

/// The kind of a request: an operation of [`SendOp`] without its operands, or the bind of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpKind {
    /// A send.
    Send,
    /// A send that invalidates a remote key.
    SendInvalidate,
    /// A send with immediate data.
    SendImm,
    /// An RDMA write.
    Write,
    /// An RDMA write with immediate data.
    WriteImm,
    /// An RDMA read.
    Read,
    /// An RDMA read whose segments have remote keys.
    ReadToWindow,
    /// An atomic addition.
    FetchAdd,
    /// An atomic comparison and replacement.
    CompareSwap,
    /// The bind of a window.
    Bind,
}

/// The number of bytes that an atomic operation works on.
pub const ATOMIC_SIZE: u32 = size_of::<u64>() as u32;

/// What all layers know of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpFacts {
    /// The operation that its completion names.
    pub completes_as: WcOp,
    /// The use of the local segments. (A bind has none.)
    pub local: LocalUse,
    /// The access to the peer's memory or keys.
    pub remote: Option<AccessKind>,
    /// Whether the operation takes a receive buffer of the peer. Only the completion of a receive
    /// can be solicited.
    pub takes_receive: bool,
    /// Whether the completion of that receive buffer contains a number of the request.
    pub has_immediate: bool,
    /// The smallest set of operations that contains it.
    pub set: OpSet,
}

/// The operations that a protocol has. Each set contains the sets before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OpSet {
    /// The operations that all protocols have (iWARP: RFC 5040).
    Basic,
    /// Also immediate data with an RDMA write, and atomic operations (RFC 7306).
    Extended,
    /// Also immediate data with a send: all operations (IBA).
    All,
}

impl OpKind {
    /// What all layers know of the operation: the table of all operations.
    #[inline(always)]
    #[rustfmt::skip] // One operation is one line.
    pub const fn facts(self) -> OpFacts {
        use AccessKind::{Atomic, Invalidate, Read, Write};
        use LocalUse::{Sink, Source, WindowSink};
        use OpSet::{All, Basic, Extended};
        const NO: bool = false;
        const YES: bool = true;
        // completes as, local, remote, takes a receive, has immediate data, set
        match self {
            OpKind::Send           => row(WcOp::Send, Source, None, YES, NO, Basic),
            OpKind::SendInvalidate => row(WcOp::Send, Source, Some(Invalidate), YES, NO, Basic),
            OpKind::SendImm        => row(WcOp::Send, Source, None, YES, YES, All),
            OpKind::Write          => row(WcOp::Write, Source, Some(Write), NO, NO, Basic),
            OpKind::WriteImm       => row(WcOp::WriteImm, Source, Some(Write), YES, YES, Extended),
            OpKind::Read           => row(WcOp::Read, Sink, Some(Read), NO, NO, Basic),
            OpKind::ReadToWindow   => row(WcOp::Read, WindowSink, Some(Read), NO, NO, Basic),
            OpKind::FetchAdd       => row(WcOp::FetchAdd, Sink, Some(Atomic), NO, NO, Extended),
            OpKind::CompareSwap    => row(WcOp::CompareSwap, Sink, Some(Atomic), NO, NO, Extended),
            OpKind::Bind           => row(WcOp::Bind, Source, None, NO, NO, Basic),
        }
    }
}

#[inline(always)]
const fn row(
    completes_as: WcOp,
    local: LocalUse,
    remote: Option<AccessKind>,
    takes_receive: bool,
    has_immediate: bool,
    set: OpSet,
) -> OpFacts {
    OpFacts { completes_as, local, remote, takes_receive, has_immediate, set }
}

impl OpFacts {
    /// Whether the peer answers the request with data. Then the request completes when the response
    /// has arrived, and counts as one of the outstanding reads and atomic operations.
    #[inline(always)]
    pub const fn awaits_response(&self) -> bool {
        matches!(self.remote, Some(AccessKind::Read | AccessKind::Atomic))
    }

    /// Whether the operation writes octets of the local segments to the peer's memory.
    #[inline(always)]
    pub const fn is_write(&self) -> bool {
        matches!(self.remote, Some(AccessKind::Write))
    }

    /// Whether the operation reads octets of the peer's memory.
    #[inline(always)]
    pub const fn is_read(&self) -> bool {
        matches!(self.remote, Some(AccessKind::Read))
    }

    /// Whether the operation changes a word of the peer's memory and returns its previous value.
    #[inline(always)]
    pub const fn is_atomic(&self) -> bool {
        matches!(self.remote, Some(AccessKind::Atomic))
    }

    /// Whether the operation concerns only this side, so that nothing is sent for it.
    #[inline(always)]
    pub const fn is_local(&self) -> bool {
        self.remote.is_none() && !self.takes_receive
    }
}

/// The kind of a completed work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WcOp {
    /// A send.
    Send,
    /// An RDMA write.
    Write,
    /// An RDMA read.
    Read,
    /// An RDMA write with immediate data.
    WriteImm,
    /// An atomic addition.
    FetchAdd,
    /// An atomic comparison and replacement.
    CompareSwap,
    /// A receive. If it has immediate data, they came with an RDMA write or a datagram.
    Recv,
    /// A receive that has taken a message with immediate data.
    RecvMessageImm,
    /// The bind of a window.
    Bind,
}

impl WcOp {
    /// All kinds, each at the index that is its number.
    pub const ALL: [WcOp; 9] = [
        Self::Send,
        Self::Write,
        Self::Read,
        Self::WriteImm,
        Self::FetchAdd,
        Self::CompareSwap,
        Self::Recv,
        Self::RecvMessageImm,
        Self::Bind,
    ];

    /// Whether the work request is a receive.
    #[inline(always)]
    pub const fn is_recv(self) -> bool {
        matches!(self, Self::Recv | Self::RecvMessageImm)
    }

    /// The use of the local memory of the work request. (A bind has none.)
    pub const fn local(self) -> LocalUse {
        let request = match self {
            Self::Recv | Self::RecvMessageImm => return LocalUse::Receive,
            Self::Send => OpKind::Send,
            Self::Write => OpKind::Write,
            // A read to a window completes as a read, too.
            Self::Read => OpKind::Read,
            Self::WriteImm => OpKind::WriteImm,
            Self::FetchAdd => OpKind::FetchAdd,
            Self::CompareSwap => OpKind::CompareSwap,
            Self::Bind => OpKind::Bind,
        };
        request.facts().local
    }
}

const _: () = {
    let mut i = 0;
    while i < WcOp::ALL.len() {
        assert!(WcOp::ALL[i] as usize == i);
        i += 1;
    }
};
