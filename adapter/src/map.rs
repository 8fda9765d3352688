//! Conversion between the types of rnic and dat-core, which correspond variant for variant.

use dat_core::provider as dat;

pub(crate) fn access(access: dat::Access) -> rnic::Access {
    let dat::Access { local_read, local_write, remote_read, remote_write, remote_atomic } = access;
    rnic::Access { local_read, local_write, remote_read, remote_write, remote_atomic }
}

#[inline]
fn segments(segments: &[dat::Segment]) -> &[rnic::Segment] {
    const {
        use std::mem::offset_of;
        assert!(size_of::<dat::Segment>() == size_of::<rnic::Segment>());
        assert!(align_of::<dat::Segment>() == align_of::<rnic::Segment>());
        assert!(offset_of!(dat::Segment, addr) == offset_of!(rnic::Segment, addr));
        assert!(offset_of!(dat::Segment, len) == offset_of!(rnic::Segment, len));
        assert!(offset_of!(dat::Segment, key) == offset_of!(rnic::Segment, key));
    }
    // SAFETY: both types consist of integers without padding and have the same layout.
    unsafe { std::slice::from_raw_parts(segments.as_ptr().cast(), segments.len()) }
}

#[inline]
pub(crate) fn send<'a>(wr: &dat::SendWr<'a>) -> rnic::SendWr<'a> {
    let remote = |dat::Remote { addr, key }| rnic::Remote { addr, key };
    rnic::SendWr {
        id: wr.id,
        op: match wr.op {
            dat::SendOp::Send { invalidate } => rnic::SendOp::Send { invalidate },
            dat::SendOp::Write(to) => rnic::SendOp::Write(remote(to)),
            dat::SendOp::Read(from) => rnic::SendOp::Read(remote(from)),
            dat::SendOp::ReadToWindow(from) => rnic::SendOp::ReadToWindow(remote(from)),
            dat::SendOp::WriteImm { to, immediate } => {
                rnic::SendOp::WriteImm { to: remote(to), immediate }
            }
            dat::SendOp::FetchAdd { at, add } => rnic::SendOp::FetchAdd { at: remote(at), add },
            dat::SendOp::CompareSwap { at, compare, swap } => {
                rnic::SendOp::CompareSwap { at: remote(at), compare, swap }
            }
        },
        segments: segments(wr.segments),
        signalled: wr.signalled,
        solicited: wr.solicited,
        fence: wr.fence,
        quiet: wr.quiet,
    }
}

#[inline]
pub(crate) fn recv<'a>(wr: &dat::RecvWr<'a>) -> rnic::RecvWr<'a> {
    rnic::RecvWr { id: wr.id, segments: segments(wr.segments), quiet: wr.quiet }
}

pub(crate) fn bind_state(state: rnic::BindState) -> dat::BindState {
    match state {
        rnic::BindState::Posted => dat::BindState::Posted,
        rnic::BindState::Bound => dat::BindState::Bound,
        rnic::BindState::Over => dat::BindState::Over,
    }
}

pub(crate) fn post_error(error: rnic::PostError) -> dat::PostError {
    match error {
        rnic::PostError::Full => dat::PostError::Full,
        rnic::PostError::Key => dat::PostError::Key,
        rnic::PostError::Bounds => dat::PostError::Bounds,
        rnic::PostError::Domain => dat::PostError::Domain,
        rnic::PostError::Access { write } => dat::PostError::Access { write },
        rnic::PostError::Unsupported => dat::PostError::Unsupported,
    }
}

/// # Safety
/// The token in `wc` is that of a queue pair that [`Transport::qp`](dat::Transport::qp) has
/// created.
#[inline]
pub(crate) unsafe fn wc(wc: rnic::Wc) -> dat::Wc {
    let rnic::Wc { id, qp, bytes, invalidated, immediate, op, status } = wc;
    // SAFETY: the caller guarantees that the token is of such a queue pair.
    let qp = unsafe { dat::Token::from_bits(qp) };
    dat::Wc { id, qp, bytes, invalidated, immediate, op: wc_op(op), status: wc_status(status) }
}

#[inline]
fn wc_op(op: rnic::WcOp) -> dat::WcOp {
    match op {
        rnic::WcOp::Send => dat::WcOp::Send,
        rnic::WcOp::Write => dat::WcOp::Write,
        rnic::WcOp::Read => dat::WcOp::Read,
        rnic::WcOp::WriteImm => dat::WcOp::WriteImm,
        rnic::WcOp::FetchAdd => dat::WcOp::FetchAdd,
        rnic::WcOp::CompareSwap => dat::WcOp::CompareSwap,
        rnic::WcOp::Recv => dat::WcOp::Recv,
        rnic::WcOp::Bind => dat::WcOp::Bind,
    }
}

#[inline]
fn wc_status(status: rnic::WcStatus) -> dat::WcStatus {
    match status {
        rnic::WcStatus::Success => dat::WcStatus::Success,
        rnic::WcStatus::Flushed => dat::WcStatus::Flushed,
        rnic::WcStatus::LocalLength => dat::WcStatus::LocalLength,
        rnic::WcStatus::LocalEp => dat::WcStatus::LocalEp,
        rnic::WcStatus::LocalProtection => dat::WcStatus::LocalProtection,
        rnic::WcStatus::BadResponse => dat::WcStatus::BadResponse,
        rnic::WcStatus::RemoteAccess => dat::WcStatus::RemoteAccess,
        rnic::WcStatus::RemoteResponder => dat::WcStatus::RemoteResponder,
        rnic::WcStatus::Transport => dat::WcStatus::Transport,
        rnic::WcStatus::ReceiverNotReady => dat::WcStatus::ReceiverNotReady,
        rnic::WcStatus::BindFailed => dat::WcStatus::BindFailed,
    }
}
