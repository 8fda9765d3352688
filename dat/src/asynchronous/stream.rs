//! The events of a dispatcher as a stream.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_core::stream::FusedStream;

use super::runtime::{Runtime, Watch};
use crate::{Adapter, Event, EventDispatcher, NotificationDescriptor, Streams};

/// A dispatcher whose events are a stream. It ends after an error.
///
/// ```no_run
/// use std::future::poll_fn;
/// use std::pin::Pin;
///
/// use dat::asynchronous::{EventStream, Runtime};
/// use dat::{Adapter, Streams};
/// use futures_core::Stream;
///
/// async fn print_requests(adapter: &Adapter, runtime: &dyn Runtime) -> std::io::Result<()> {
///     let mut events = EventStream::new(adapter, 16, Streams::REQUESTS, runtime)?;
///     let _listener = adapter.listen(7777, events.dispatcher())?;
///     while let Some(event) = poll_fn(|cx| Pin::new(&mut events).poll_next(cx)).await {
///         println!("{}", event?);
///     }
///     Ok(())
/// }
/// ```
pub struct EventStream {
    // The order of the fields is the order in which they are dropped: the runtime forgets the
    // descriptor first.
    watch: Box<dyn Watch>,
    events: EventDispatcher,
    notify: NotificationDescriptor,
    ended: bool,
}

impl EventStream {
    /// Creates a dispatcher with room for at least `depth` events, and watches it.
    ///
    /// # Errors
    ///
    /// The errors of [`Adapter::dispatcher_for`] and [`Adapter::notification_descriptor`], and
    /// those of the runtime.
    pub fn new(
        adapter: &Adapter,
        depth: usize,
        streams: Streams,
        runtime: &dyn Runtime,
    ) -> io::Result<Self> {
        let notify = adapter.notification_descriptor()?;
        let events = adapter.dispatcher_for(depth, streams, Some(&notify))?;
        let watch = runtime.watch(notify.as_fd().try_clone_to_owned()?)?;
        Ok(EventStream { watch, events, notify, ended: false })
    }

    /// The dispatcher, for listeners and endpoints. Only the stream takes its events.
    pub fn dispatcher(&self) -> &EventDispatcher {
        &self.events
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Event>> {
        loop {
            if let Some(event) = self.events.dequeue()? {
                return Poll::Ready(Ok(event));
            }
            // After a trigger was taken, the queue is looked at once more, because the trigger may
            // be of an event that has arrived since.
            if self.notify.take()?.is_none() {
                ready!(self.watch.poll_readable(context))?;
            }
        }
    }
}

impl Stream for EventStream {
    type Item = io::Result<Event>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let event = ready!(self.poll_event(context));
        self.ended = event.is_err();
        Poll::Ready(Some(event))
    }
}

impl FusedStream for EventStream {
    fn is_terminated(&self) -> bool {
        self.ended
    }
}
