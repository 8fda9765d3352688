//! Endpoints' completion streams that feed an EVD, and what they agree on.

use std::ops::Deref;
use std::sync::atomic::Ordering;

use dat_sys::*;

use super::Evd;
use crate::handle::{Node, Ref};
use crate::provider::Transport;

/// One completion stream of an endpoint, which feeds an EVD as long as this lives. Made and dropped under the adapter's
/// control lock.
pub struct Feed<T: Transport>(Ref<Evd<T>>);

/// Whether the consumer says for each work request, here or at the peer, if its completion wakes. Else every completion
/// counts against the threshold of dat_evd_wait.
pub(super) fn is_selective(flags: DAT_COMPLETION_FLAGS) -> bool {
    flags & (DAT_COMPLETION_UNSIGNALLED_FLAG | DAT_COMPLETION_SOLICITED_WAIT_FLAG) != 0
}

impl<T: Transport> Feed<T> {
    /// A stream with an endpoint's completion flags. None: they do not match those of the other streams (uDAPL 1.2,
    /// dat_ep_create, usage), or the EVD takes streams that are not of completions and so cannot have a waiter that some
    /// completions do not wake.
    pub fn new(evd: &Node<Evd<T>>, flags: DAT_COMPLETION_FLAGS) -> Option<Self> {
        let bell = &evd.bell;
        let mixed = evd.flags & !(DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG) != 0;
        let others = bell.feeds.load(Ordering::Relaxed);
        if (is_selective(flags) && mixed) || (others > 0 && flags != evd.config()) {
            return None;
        }
        bell.feeds.store(others + 1, Ordering::Relaxed);
        if others == 0 {
            bell.config.store(flags, Ordering::Relaxed);
            // A CNO hears of what this stream wants it to, not of what the last one did.
            evd.renotify();
        }
        Some(Feed(Ref::new(evd)))
    }

    /// The EVD.
    pub fn evd(&self) -> Ref<Evd<T>> {
        self.0.clone()
    }
}

impl<T: Transport> Drop for Feed<T> {
    fn drop(&mut self) {
        let left = self.bell.feeds.load(Ordering::Relaxed) - 1;
        self.bell.feeds.store(left, Ordering::Relaxed);
        if left == 0 {
            self.bell.config.store(DAT_COMPLETION_DEFAULT_FLAG, Ordering::Relaxed);
        }
    }
}

impl<T: Transport> Deref for Feed<T> {
    type Target = Node<Evd<T>>;
    fn deref(&self) -> &Node<Evd<T>> {
        self.0.node()
    }
}
