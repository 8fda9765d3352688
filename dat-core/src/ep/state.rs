//! The states of endpoints and their transitions, in one table (uDAPL 1.2, chapter 6.5). uDAPL 2.0
//! adds nothing to this chapter.

use std::sync::atomic::{AtomicU32, Ordering};

use dat_sys::*;

use crate::error::{Error, Result};

/// `DAT_EP_STATE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[allow(missing_docs)] // the standard's names
pub enum State {
    Unconnected = DAT_EP_STATE_UNCONNECTED,
    UnconfiguredUnconnected = DAT_EP_STATE_UNCONFIGURED_UNCONNECTED,
    Reserved = DAT_EP_STATE_RESERVED,
    UnconfiguredReserved = DAT_EP_STATE_UNCONFIGURED_RESERVED,
    PassivePending = DAT_EP_STATE_PASSIVE_CONNECTION_PENDING,
    UnconfiguredPassive = DAT_EP_STATE_UNCONFIGURED_PASSIVE,
    ActivePending = DAT_EP_STATE_ACTIVE_CONNECTION_PENDING,
    TentativePending = DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING,
    UnconfiguredTentative = DAT_EP_STATE_UNCONFIGURED_TENTATIVE,
    Connected = DAT_EP_STATE_CONNECTED,
    DisconnectPending = DAT_EP_STATE_DISCONNECT_PENDING,
    Disconnected = DAT_EP_STATE_DISCONNECTED,
    CompletionPending = DAT_EP_STATE_COMPLETION_PENDING,
}

/// An event that may change the state of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// dat_ep_modify provided the missing protection zone.
    Configure,
    /// dat_ep_modify removed the protection zone.
    Unconfigure,
    /// A call of dat_ep_connect or dat_ep_dup_connect.
    Connect,
    /// A call of dat_rsp_create.
    Reserve,
    /// A call of dat_rsp_free.
    Unreserve,
    /// A connection request arrived at the reserved service point.
    Request,
    /// A call of dat_cr_accept.
    Accept,
    /// A call of dat_ep_connect on a datagram endpoint.
    Resolve,
    /// A call of dat_cr_accept with a datagram endpoint.
    Answer,
    /// A call of dat_cr_reject, or a connect or accept that has failed at once.
    Retract,
    /// A call of dat_ep_disconnect with the graceful flag.
    DisconnectGracefully,
    /// A call of dat_ep_disconnect with the abrupt flag.
    DisconnectAbruptly,
    /// A call of dat_ep_reset.
    Reset,
    /// A call of dat_ep_free.
    Free,
    /// A send, RDMA read, RDMA write or bind is posted.
    PostRequest,
    /// A datagram is posted.
    PostDatagram,
    /// A receive is posted.
    PostRecv,
    /// The transport has established the connection.
    Established,
    /// The transport could not establish a connection.
    Failed,
    /// The transport reports that the connection has ended.
    Ended,
}

/// The effect of an event in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The event is legal and changes the state.
    To(State),
    /// The event is legal and takes effect, but the state stays the same.
    Stay,
    /// The event is legal and has no effect at all.
    Nothing,
    /// The event is refused with `DAT_INVALID_STATE`.
    Refuse,
}

/// The table: the effect of each event in each state.
pub const fn effect(state: State, event: Event) -> Effect {
    use Effect::*;
    use Event::*;
    use State::*;
    match (event, state) {
        (Configure, UnconfiguredUnconnected) => To(Unconnected),
        (Configure, UnconfiguredReserved) => To(Reserved),
        (Configure, UnconfiguredPassive) => To(PassivePending),
        (Configure, UnconfiguredTentative) => To(TentativePending),
        (Configure, Unconnected | Reserved | PassivePending | TentativePending) => Stay,

        (Unconfigure, Unconnected) => To(UnconfiguredUnconnected),
        (Unconfigure, TentativePending) => To(UnconfiguredTentative),
        (
            Unconfigure,
            UnconfiguredUnconnected
            | UnconfiguredReserved
            | UnconfiguredPassive
            | UnconfiguredTentative,
        ) => Stay,

        (Connect, Unconnected) => To(ActivePending),
        (Reserve, Unconnected) => To(Reserved),
        (Reserve, UnconfiguredUnconnected) => To(UnconfiguredReserved),
        (Unreserve, Reserved) => To(Unconnected),
        (Unreserve, UnconfiguredReserved) => To(UnconfiguredUnconnected),
        // A connection request that arrived earlier has taken over the endpoint. So freeing the
        // service point does not change the endpoint.
        (Unreserve, _) => Nothing,
        (Request, Reserved) => To(PassivePending),
        (Request, UnconfiguredReserved) => To(UnconfiguredPassive),
        (Accept, Unconnected | PassivePending | TentativePending) => To(CompletionPending),
        // A datagram endpoint may connect and accept any number of times. As in OFED's library, its
        // state shows which of the two calls was the last one, and it is never connected.
        (Resolve, Unconnected | ActivePending | CompletionPending) => To(ActivePending),
        (
            Answer,
            Unconnected | PassivePending | TentativePending | ActivePending | CompletionPending,
        ) => To(CompletionPending),
        (Retract, PassivePending | ActivePending | CompletionPending) => To(Unconnected),
        (Retract, UnconfiguredPassive) => To(UnconfiguredUnconnected),

        (
            DisconnectGracefully | DisconnectAbruptly,
            Connected | ActivePending | CompletionPending,
        ) => To(DisconnectPending),
        (DisconnectAbruptly, DisconnectPending) => Stay,
        (DisconnectGracefully, DisconnectPending) => Nothing,
        (DisconnectGracefully | DisconnectAbruptly, Disconnected) => Nothing,

        (Reset, Disconnected) => To(Unconnected),
        (Reset, Unconnected | UnconfiguredUnconnected) => Nothing,
        (Free, Reserved | UnconfiguredReserved | PassivePending | UnconfiguredPassive) => Refuse,
        (Free, TentativePending | UnconfiguredTentative) => Refuse,
        (Free, _) => To(Disconnected),

        (PostRequest, Connected | Disconnected) => Stay,
        (PostDatagram, ActivePending | CompletionPending | Disconnected) => Stay,
        // Receives may be posted in all states (uDAPL 1.2, dat_ep_post_recv), but an unconfigured
        // endpoint has no queue for them.
        (
            PostRecv,
            UnconfiguredUnconnected
            | UnconfiguredReserved
            | UnconfiguredPassive
            | UnconfiguredTentative,
        ) => Refuse,
        (PostRecv, _) => Stay,

        (Established, ActivePending | CompletionPending) => To(Connected),
        (Failed | Ended, ActivePending | CompletionPending | Connected | DisconnectPending) => {
            To(Disconnected)
        }
        // The endpoint has already left the connection, for example by a local disconnect. So the
        // report of the transport has no effect.
        (Established | Failed | Ended, _) => Nothing,

        _ => Refuse,
    }
}

/// A set of states, with one bit for each state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct States(u32);

impl States {
    /// The states in which requests may be posted.
    pub const POST_REQUEST: States = States::accepting(Event::PostRequest);
    /// The states in which datagrams may be posted.
    pub const POST_DATAGRAM: States = States::accepting(Event::PostDatagram);
    /// The states in which receives may be posted.
    pub const POST_RECV: States = States::accepting(Event::PostRecv);

    /// The states in which the table does not refuse the event.
    const fn accepting(event: Event) -> States {
        let (mut bits, mut raw) = (0, 0);
        while raw < State::ALL.len() {
            if !matches!(effect(State::ALL[raw], event), Effect::Refuse) {
                bits |= 1 << raw;
            }
            raw += 1;
        }
        States(bits)
    }
}

impl State {
    /// All states.
    pub const ALL: [State; 13] = [
        State::Unconnected,
        State::UnconfiguredUnconnected,
        State::Reserved,
        State::UnconfiguredReserved,
        State::PassivePending,
        State::UnconfiguredPassive,
        State::ActivePending,
        State::TentativePending,
        State::UnconfiguredTentative,
        State::Connected,
        State::DisconnectPending,
        State::Disconnected,
        State::CompletionPending,
    ];

    const fn from_raw(raw: u32) -> State {
        State::ALL[raw as usize]
    }

    /// Whether dat_ep_modify may still replace the queue pair in this state.
    #[inline]
    pub const fn may_be_modified(self) -> bool {
        !matches!(effect(self, Event::Configure), Effect::Refuse)
    }

    /// `DAT_INVALID_STATE` with the subtype that names this state.
    pub const fn refusal(self) -> Error {
        Error::state(match self {
            State::Unconnected => DAT_INVALID_STATE_EP_UNCONNECTED,
            State::UnconfiguredUnconnected => DAT_INVALID_STATE_EP_UNCONFIGURED,
            State::Reserved => DAT_INVALID_STATE_EP_RESERVED,
            State::UnconfiguredReserved => DAT_INVALID_STATE_EP_UNCONFRESERVED,
            State::PassivePending => DAT_INVALID_STATE_EP_PASSCONNPENDING,
            State::UnconfiguredPassive => DAT_INVALID_STATE_EP_UNCONFPASSIVE,
            State::ActivePending => DAT_INVALID_STATE_EP_ACTCONNPENDING,
            State::TentativePending => DAT_INVALID_STATE_EP_TENTCONNPENDING,
            State::UnconfiguredTentative => DAT_INVALID_STATE_EP_UNCONFTENTATIVE,
            State::Connected => DAT_INVALID_STATE_EP_CONNECTED,
            State::DisconnectPending => DAT_INVALID_STATE_EP_DISCPENDING,
            State::Disconnected => DAT_INVALID_STATE_EP_DISCONNECTED,
            State::CompletionPending => DAT_INVALID_STATE_EP_COMPLPENDING,
        })
    }
}

/// The state of an endpoint. The consumer's calls and the network may change it concurrently.
pub struct StateCell(AtomicU32);

/// The result of applying an event to a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The state before the event.
    pub from: State,
    /// The effect of the event according to the table.
    pub effect: Effect,
}

impl StateCell {
    /// Creates a cell in this state.
    pub const fn new(state: State) -> Self {
        StateCell(AtomicU32::new(state as u32))
    }

    /// The current state.
    #[inline]
    pub fn get(&self) -> State {
        State::from_raw(self.0.load(Ordering::Acquire))
    }

    /// Applies an event atomically. If the table refuses the event, the error is
    /// `DAT_INVALID_STATE`.
    pub fn apply(&self, event: Event) -> Result<Transition> {
        let mut from = self.get();
        loop {
            let effect = effect(from, event);
            let to = match effect {
                Effect::To(to) => to,
                Effect::Stay | Effect::Nothing => return Ok(Transition { from, effect }),
                Effect::Refuse => return Err(from.refusal()),
            };
            match self.0.compare_exchange(
                from as u32,
                to as u32,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Ok(Transition { from, effect }),
                Err(now) => from = State::from_raw(now),
            }
        }
    }

    /// Returns the state if it is one of `legal`. The data path calls this function.
    #[inline]
    pub fn check(&self, legal: States) -> Result<State> {
        let raw = self.0.load(Ordering::Acquire);
        if legal.0 >> raw & 1 == 1 {
            Ok(State::from_raw(raw))
        } else {
            Err(State::from_raw(raw).refusal())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [Event; 20] = [
        Event::Configure,
        Event::Unconfigure,
        Event::Connect,
        Event::Reserve,
        Event::Unreserve,
        Event::Request,
        Event::Accept,
        Event::Resolve,
        Event::Answer,
        Event::Retract,
        Event::DisconnectGracefully,
        Event::DisconnectAbruptly,
        Event::Reset,
        Event::Free,
        Event::PostRequest,
        Event::PostDatagram,
        Event::PostRecv,
        Event::Established,
        Event::Failed,
        Event::Ended,
    ];

    #[test]
    fn states_are_numbered_as_in_the_standard() {
        for (i, state) in State::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, i);
        }
    }

    /// Compares the whole table with a snapshot. Review a change of this snapshot as carefully as a
    /// change of code.
    #[test]
    fn matrix() {
        let mut text = String::new();
        for event in EVENTS {
            text += &format!("{event:?}\n");
            for state in State::ALL {
                let effect = match effect(state, event) {
                    Effect::To(to) => format!("-> {to:?}"),
                    other => format!("{other:?}"),
                };
                text += &format!("  {:<24}{effect}\n", format!("{state:?}"));
            }
        }
        insta::assert_snapshot!(text);
    }

    /// uDAPL 1.2, headers: the subtype of `DAT_INVALID_STATE` names the state of the endpoint.
    #[test]
    fn a_refusal_names_the_state() {
        let subtypes = [
            (State::Unconnected, DAT_INVALID_STATE_EP_UNCONNECTED),
            (State::UnconfiguredUnconnected, DAT_INVALID_STATE_EP_UNCONFIGURED),
            (State::Reserved, DAT_INVALID_STATE_EP_RESERVED),
            (State::UnconfiguredReserved, DAT_INVALID_STATE_EP_UNCONFRESERVED),
            (State::PassivePending, DAT_INVALID_STATE_EP_PASSCONNPENDING),
            (State::UnconfiguredPassive, DAT_INVALID_STATE_EP_UNCONFPASSIVE),
            (State::ActivePending, DAT_INVALID_STATE_EP_ACTCONNPENDING),
            (State::TentativePending, DAT_INVALID_STATE_EP_TENTCONNPENDING),
            (State::UnconfiguredTentative, DAT_INVALID_STATE_EP_UNCONFTENTATIVE),
            (State::Connected, DAT_INVALID_STATE_EP_CONNECTED),
            (State::DisconnectPending, DAT_INVALID_STATE_EP_DISCPENDING),
            (State::Disconnected, DAT_INVALID_STATE_EP_DISCONNECTED),
            (State::CompletionPending, DAT_INVALID_STATE_EP_COMPLPENDING),
        ];
        assert_eq!(subtypes.map(|(state, _)| state), State::ALL);
        for (state, subtype) in subtypes {
            let (cell, refused) = (StateCell::new(state), Err(Error::state(subtype)));
            let refusing = EVENTS.into_iter().find(|&event| effect(state, event) == Effect::Refuse);
            assert_eq!(cell.apply(refusing.unwrap()).map(drop), refused, "{state:?}");
            assert_eq!(cell.get(), state);
            assert_eq!(cell.check(States(0)).map(drop), refused, "{state:?}");
        }
    }
}
