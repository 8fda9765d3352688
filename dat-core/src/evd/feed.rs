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

/// What decides when completions wake: with these flags the consumer, for each work request
/// (`DAT_COMPLETION_UNSIGNALLED_FLAG`) or at the peer (`DAT_COMPLETION_SOLICITED_WAIT_FLAG`). With the others, which are
/// 0 here, every completion counts against the threshold of dat_evd_wait.
fn control(flags: DAT_COMPLETION_FLAGS) -> DAT_COMPLETION_FLAGS {
    flags & (DAT_COMPLETION_UNSIGNALLED_FLAG | DAT_COMPLETION_SOLICITED_WAIT_FLAG)
}

impl<T: Transport> Feed<T> {
    /// A stream with an endpoint's completion flags. None: they do not match those of the other streams (uDAPL 1.2,
    /// dat_ep_create, usage), or the EVD takes streams that are not of completions and so cannot have a waiter that some
    /// completions do not wake.
    pub fn new(evd: &Node<Evd<T>>, flags: DAT_COMPLETION_FLAGS) -> Option<Self> {
        let (bell, control) = (&evd.bell, control(flags));
        let mixed = evd.flags & !(DAT_EVD_DTO_FLAG | DAT_EVD_RMR_BIND_FLAG) != 0;
        let others = bell.feeds.load(Ordering::Relaxed);
        if (control != 0 && mixed) || (others > 0 && control != evd.config()) {
            return None;
        }
        bell.feeds.store(others + 1, Ordering::Relaxed);
        if others == 0 {
            bell.config.store(control, Ordering::Relaxed);
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
            self.bell.config.store(0, Ordering::Relaxed);
        }
    }
}

impl<T: Transport> Deref for Feed<T> {
    type Target = Node<Evd<T>>;
    fn deref(&self) -> &Node<Evd<T>> {
        self.0.node()
    }
}
