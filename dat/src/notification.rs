//! Notification objects, which wait for several dispatchers: in a call, or by a file descriptor.

use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use dat_sys::*;

use crate::adapter::timeout_to_c;
use crate::dispatcher::DispatcherId;
use crate::error::{Error, ErrorKind, Result};
use crate::object::{Interface, Object, call};

/// An object that is triggered by events of any of its dispatchers (CNO in the standard).
///
/// ```no_run
/// use dat::{Adapter, Streams};
///
/// let adapter = Adapter::open("tcp-emu")?;
/// let mut notify = adapter.notification_object()?;
/// let mut requests = adapter.dispatcher_for(8, Streams::REQUESTS, Some(&notify))?;
/// let mut completions = adapter.dispatcher_for(64, Streams::COMPLETIONS, Some(&notify))?;
/// let triggered = notify.wait(None)?;
/// let events = if triggered == requests.id() { &mut requests } else { &mut completions };
/// for event in events.drain() {
///     println!("{}", event?);
/// }
/// # Ok::<(), dat::Error>(())
/// ```
pub struct NotificationObject {
    pub(crate) object: Arc<Object>,
}

impl NotificationObject {
    pub(crate) fn create(interface: &Arc<Interface>) -> Result<Self> {
        let mut handle = DAT_HANDLE_NULL;
        // SAFETY: the IA is open, there is no agent, and the handle is writable.
        unsafe {
            call!(
                interface,
                "dat_cno_create",
                cno_create_func(interface.handle(), DAT_OS_WAIT_PROXY_AGENT_NULL, &mut handle)
            )
        }?;
        // SAFETY: the object was just created.
        Ok(unsafe { Self::new(interface, handle) })
    }

    /// Takes ownership of a CNO.
    ///
    /// # Safety
    ///
    /// `handle` must be a CNO of the interface that no other code frees.
    unsafe fn new(interface: &Arc<Interface>, handle: DAT_HANDLE) -> Self {
        let free = interface.table().cno_free_func;
        // SAFETY: the caller guarantees the handle.
        let object = unsafe { Object::new(interface, handle, free, Vec::new()) };
        NotificationObject { object: Arc::new(object) }
    }

    /// Waits until a dispatcher triggers the object. A `timeout` of `None` waits for ever. The
    /// returned dispatcher is a hint: look for events there first, but it may have no event.
    ///
    /// # Errors
    ///
    /// [`TimeoutExpired`](ErrorKind::TimeoutExpired),
    /// [`InterruptedCall`](ErrorKind::InterruptedCall), and other errors of the provider.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<DispatcherId> {
        const CALL: &str = "dat_cno_wait";
        let mut evd = DAT_HANDLE_NULL;
        // SAFETY: this value owns the handle, and the returned handle is writable.
        unsafe {
            call!(
                self.object.interface,
                "dat_cno_wait",
                cno_wait_func(self.object.handle, timeout_to_c(timeout), &mut evd)
            )
        }
        .map_err(|error| match error.kind() {
            // Unlike dat_evd_wait, dat_cno_wait reports a time-out as an empty queue (uDAPL 1.2,
            // dat_cno_wait).
            ErrorKind::QueueEmpty => {
                Error::new(CALL, DAT_ERROR(DAT_TIMEOUT_EXPIRED, DAT_NO_SUBTYPE))
            }
            _ => error,
        })?;
        Ok(DispatcherId(evd.addr()))
    }
}

/// A notification object with a file descriptor, for event loops.
///
/// The descriptor is readable while the object has a trigger that was not taken. When it is
/// readable, call [`take`](Self::take) until there is no trigger, and take all events of each
/// dispatcher that it returns. Events that are left trigger the object again. The program only
/// waits for the descriptor; it must not read, write or close it.
///
/// ```no_run
/// use std::os::fd::AsFd;
///
/// use dat::{Adapter, Streams};
///
/// # fn poll(descriptor: std::os::fd::BorrowedFd<'_>) -> std::io::Result<()> { Ok(()) }
/// let adapter = Adapter::open("tcp-emu")?;
/// let mut notify = adapter.notification_descriptor()?;
/// let mut events = adapter.dispatcher_for(64, Streams::default(), Some(&notify))?;
/// loop {
///     poll(notify.as_fd())?; // poll(2), epoll(7), or the program's event loop
///     while notify.take()?.is_some() {
///         for event in events.drain() {
///             println!("{}", event?);
///         }
///     }
/// }
/// # #[expect(unreachable_code)]
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct NotificationDescriptor {
    object: NotificationObject,
    descriptor: RawFd,
}

impl NotificationDescriptor {
    pub(crate) fn create(interface: &Arc<Interface>) -> Result<Self> {
        let (mut handle, mut descriptor) = (DAT_HANDLE_NULL, -1);
        // SAFETY: the IA is open, and the variables are writable.
        unsafe {
            call!(
                interface,
                "dat_cno_fd_create",
                cno_fd_create_func(interface.handle(), &mut descriptor, &mut handle)
            )
        }?;
        // SAFETY: the object was just created.
        let object = unsafe { NotificationObject::new(interface, handle) };
        Ok(NotificationDescriptor { object, descriptor })
    }

    /// Takes a trigger, if there is one, and returns the dispatcher that it came from. The
    /// dispatcher is a hint, as for [`NotificationObject::wait`].
    ///
    /// # Errors
    ///
    /// The error of the provider. If there is no trigger, the result is `None`.
    pub fn take(&mut self) -> Result<Option<DispatcherId>> {
        let mut evd = DAT_HANDLE_NULL;
        // SAFETY: this value owns the handle, and the returned handle is writable.
        let taken = unsafe {
            call!(
                self.object.object.interface,
                "dat_cno_trigger",
                cno_trigger_func(self.object.object.handle, &mut evd)
            )
        };
        match taken {
            Ok(()) => Ok(Some(DispatcherId(evd.addr()))),
            Err(error) if error.kind() == ErrorKind::QueueEmpty => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for NotificationDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the CNO owns the descriptor and closes it when it is freed, which is not before
        // this value is dropped.
        unsafe { BorrowedFd::borrow_raw(self.descriptor) }
    }
}

impl AsRawFd for NotificationDescriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.descriptor
    }
}

impl Deref for NotificationDescriptor {
    type Target = NotificationObject;

    fn deref(&self) -> &NotificationObject {
        &self.object
    }
}

impl DerefMut for NotificationDescriptor {
    fn deref_mut(&mut self) -> &mut NotificationObject {
        &mut self.object
    }
}
