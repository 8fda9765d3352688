//! The events that an EVD must deliver. Each event belongs to a stream, and only the events of one
//! stream are ordered.

use std::collections::VecDeque;

use dat_sys::*;

use crate::world::ObservedEvent;

/// An event stream of one EVD. The standard defines no order between streams, except for
/// disconnects (see [`Due::after`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Software,
    /// The connection requests of the service point with this number.
    Arrivals(usize),
    /// The connection events of the endpoint incarnation with this number.
    Connection(usize),
    Receives(usize),
    Requests(usize),
}

/// An event that must or may arrive.
#[derive(Clone, Debug)]
pub(crate) struct ExpectedEvent {
    pub(crate) event: Event,
    /// Whether the event must arrive. An event of an endpoint that was freed or reset need not
    /// arrive (uDAPL 1.2, dat_ep_free, dat_ep_reset).
    pub(crate) required: bool,
    /// The number of the event. It says in which order events were queued.
    number: usize,
    /// If set, the event must come after the completions of this endpoint incarnation that were
    /// queued earlier (uDAPL 1.2, dat_ep_disconnect).
    after: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) enum Event {
    Software(u64),
    /// A connection request that belongs to the attempt with this number.
    Arrival {
        attempt: usize,
        qualifier: DAT_CONN_QUAL,
    },
    /// A connection event with one of these numbers.
    Connection {
        ep: usize,
        numbers: &'static [DAT_EVENT_NUMBER],
        private: &'static [u8],
    },
    Dto {
        ep: usize,
        cookie: u64,
        status: Status,
        length: u32,
        operation: DAT_DTOS,
    },
}

/// The result of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Success,
    Flushed,
    Is(DAT_DTO_COMPLETION_STATUS),
    /// The request failed with any status except flushed.
    Failed,
}

/// The queue of an EVD.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    streams: Vec<(Source, VecDeque<ExpectedEvent>)>,
    queued: usize,
}

impl Queue {
    pub(crate) fn push(
        &mut self,
        source: Source,
        event: Event,
        required: bool,
        after: Option<usize>,
    ) {
        self.queued += 1;
        let due = ExpectedEvent { event, required, number: self.queued, after };
        match self.streams.iter_mut().find(|(s, _)| *s == source) {
            Some((_, stream)) => stream.push_back(due),
            None => self.streams.push((source, VecDeque::from([due]))),
        }
    }

    /// The smallest and the largest number of events that the queue may contain.
    pub(crate) fn count(&self) -> std::ops::RangeInclusive<usize> {
        let all = || self.streams.iter().flat_map(|(_, stream)| stream);
        all().filter(|due| due.required).count()..=all().count()
    }

    /// The attempts to connect whose requests are in the queue.
    pub(crate) fn attempts(&self) -> impl Iterator<Item = usize> {
        let events = self.streams.iter().flat_map(|(_, stream)| stream);
        events.filter_map(|due| match due.event {
            Event::Arrival { attempt, .. } => Some(attempt),
            _ => None,
        })
    }

    /// The cookies of a stream's completions.
    pub(crate) fn cookies(&self, of: Source) -> impl Iterator<Item = u64> {
        let stream = self.streams.iter().filter(move |(source, _)| *source == of);
        stream.flat_map(|(_, stream)| stream).filter_map(|due| match due.event {
            Event::Dto { cookie, .. } => Some(cookie),
            _ => None,
        })
    }

    /// Records that the events of this endpoint incarnation need not arrive any more.
    pub(crate) fn make_optional(&mut self, incarnation: usize) {
        use Source::{Connection, Receives, Requests};
        for (source, stream) in &mut self.streams {
            if matches!(source, Connection(i) | Receives(i) | Requests(i) if *i == incarnation) {
                stream.iter_mut().for_each(|due| due.required = false);
            }
        }
    }

    /// Removes the event that the consumer has seen from the queue. Optional events before it in
    /// the same stream are removed as well, because they will never arrive.
    pub(crate) fn take(&mut self, seen: &ObservedEvent) -> Result<(Source, Event), String> {
        for i in 0..self.streams.len() {
            let (source, stream) = &self.streams[i];
            // The consumer must get the first required event of a stream before any later event of
            // the stream.
            let last = stream
                .iter()
                .position(|due| due.required)
                .unwrap_or(stream.len().saturating_sub(1));
            let Some(at) = stream.iter().take(last + 1).position(|due| due.event.is(seen)) else {
                continue;
            };
            let source = *source;
            if let Some(early) =
                stream[at].after.and_then(|i| self.completion_before(i, stream[at].number))
            {
                return Err(format!("{seen:?} came before {early:?}, which was queued earlier"));
            }
            let taken = self.streams[i]
                .1
                .drain(..=at)
                .next_back()
                .expect("the stream has a completion at this position");
            return Ok((source, taken.event));
        }
        Err(format!("{seen:?} is not expected next; the streams contain {:#?}", self.streams))
    }

    fn completion_before(&self, incarnation: usize, number: usize) -> Option<&ExpectedEvent> {
        let of_it = |source: &Source| match source {
            Source::Receives(i) | Source::Requests(i) => *i == incarnation,
            _ => false,
        };
        let streams = self.streams.iter().filter(|(source, _)| of_it(source));
        streams.flat_map(|(_, stream)| stream).find(|due| due.required && due.number < number)
    }
}

impl Event {
    fn is(&self, seen: &ObservedEvent) -> bool {
        match (self, seen) {
            (Event::Software(due), ObservedEvent::Software(cookie)) => due == cookie,
            (Event::Arrival { qualifier: due, .. }, ObservedEvent::Arrival { qualifier, .. }) => {
                due == qualifier
            }
            (
                Event::Connection { ep: due, numbers, private: bytes },
                ObservedEvent::Connection { ep, number, private },
            ) => {
                // An event of an endpoint that was reset has lost its private data.
                due == ep
                    && numbers.contains(number)
                    && private.as_ref().is_none_or(|private| bytes == private)
            }
            (
                Event::Dto {
                    ep: due,
                    cookie: due_cookie,
                    status: due_status,
                    length: due_length,
                    operation: due_op,
                },
                ObservedEvent::Dto { ep, cookie, status, length, operation },
            ) => {
                let success = *status == DAT_DTO_SUCCESS;
                let as_due = match due_status {
                    Status::Success => success && length == due_length,
                    Status::Flushed => *status == DAT_DTO_ERR_FLUSHED,
                    Status::Is(due) => status == due,
                    Status::Failed => !success && *status != DAT_DTO_ERR_FLUSHED,
                };
                (due, due_cookie, due_op) == (ep, cookie, operation) && as_due
            }
            _ => false,
        }
    }
}
