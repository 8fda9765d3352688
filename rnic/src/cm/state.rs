//! The state chart of a connection (IBA volume 1, section 12.9) as one table.

use wire::cm::Reason;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Active: the connection waits for the answer to its REQ.
    ReqSent,
    /// Passive: the connection waits for the decision of its program.
    ReqRcvd,
    /// Passive: the request was rejected, or was withdrawn by the caller. The request is kept for a
    /// while, because the REJ may be lost and the REQ may come again. If the request were forgotten
    /// at once, the repeated REQ would count as a new REQ, and would end the connection in which
    /// the caller's queue pair is at that time.
    Rejected,
    /// Passive: the connection waits for the answer to its REP.
    RepSent,
    /// The connection is established.
    Established,
    /// The connection waits for the answer to its DREQ.
    DreqSent,
    /// The connection waits until its program permits the answer to the peer's DREQ.
    DreqRcvd,
    /// The connection has ended. It is kept until no packet of it can be under way any more.
    TimeWait,
    /// The connection is removed.
    Closed,
}

/// An input to the state chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// The REQ of the connection came again.
    Req,
    /// An MRA that answers this side's REQ arrived.
    MraOfReq,
    /// An MRA that answers this side's REP arrived.
    MraOfRep,
    /// A REJ that answers this side's REQ arrived.
    RejOfReq,
    /// A REJ arrived that answers a message other than this side's REQ, or reports that the peer
    /// gave up.
    Rej,
    /// A REP arrived.
    Rep,
    /// An RTU arrived.
    Rtu,
    /// A DREQ arrived.
    Dreq,
    /// A DREP arrived.
    Drep,
    /// An RC packet has arrived for the queue pair of the connection.
    Data,
    /// A REQ or REP claims that the peer's queue pair is in another connection, and the peer has
    /// not answered a challenge over this connection.
    Stale,
    /// The program accepts.
    Accept,
    /// The program rejects.
    Reject,
    /// The program disconnects, gives up an attempt, or permits the answer to the peer's DREQ.
    Disconnect,
    /// The kept message has been repeated as often as allowed, or it cannot reach the peer.
    Exhausted,
    /// The time for the current state has ended.
    Deadline,
}

/// An action of a transition. A transition performs its actions in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send the message that is kept for repetition, if there is one: the REP, or the program's
    /// REJ.
    SendKept,
    /// Send an RTU.
    SendRtu,
    /// Send an MRA that answers the REQ.
    SendMra,
    /// Send a DREQ, and repeat it.
    SendDreq,
    /// Send a DREP.
    SendDrep,
    /// Send a REJ that rejects the REQ. The peer ignores the REJ if it does not wait for the answer
    /// to its REQ.
    RefuseReq(Reason),
    /// Send a REJ that ends the connection.
    SendRej(Reason),
    /// Postpone the next repetition by the time that the MRA requests.
    Wait,
    /// Report an event to the program.
    Tell(EventKind),
}

/// The kind of an [`Event`](super::Event), without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum EventKind {
    Accepted,
    Established,
    Refused,
    AcceptFailed,
    Withdrawn,
    Unreachable,
    TimedOut,
    Disconnecting,
    Disconnected,
    Broken,
}

/// The effect of an input in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transition {
    /// The state after the transition.
    pub to: State,
    /// The actions of the transition.
    pub actions: &'static [Action],
}

/// The state chart. `None` means that a message is ignored, or that a call is refused.
pub const fn transition(state: State, input: Input) -> Option<Transition> {
    use Action::*;
    use Input::*;
    use State::*;
    let (to, actions): (State, &'static [Action]) = match (input, state) {
        (Req, ReqRcvd) => (state, &[SendMra]),
        (Req, Rejected) => (state, &[SendKept]),
        // The caller repeats its REQ, so it has not received the REP. It would not understand a
        // DREQ.
        (Req, DreqSent) => (state, &[RefuseReq(Reason::CONSUMER)]),
        (Req, TimeWait) => (state, &[RefuseReq(Reason::STALE_CONNECTION)]),

        (MraOfReq, ReqSent) | (MraOfRep, RepSent) => (state, &[Wait]),

        (RejOfReq | Rej, ReqSent) => (Closed, &[Tell(EventKind::Refused)]),
        (Rej, ReqRcvd) => (Rejected, &[Tell(EventKind::Withdrawn)]),
        (Rej, RepSent) => (TimeWait, &[Tell(EventKind::AcceptFailed)]),
        // The peer gave up waiting for the RTU.
        (Rej, Established) => (TimeWait, &[Tell(EventKind::Broken)]),
        (Rej, DreqSent) => (TimeWait, &[Tell(EventKind::Disconnected)]),

        (Rep, ReqSent) => (Established, &[SendRtu, Tell(EventKind::Accepted)]),
        // The RTU was lost. Linux reports nothing to its program before an RTU arrives.
        (Rep, Established) => (state, &[SendRtu]),
        (Rep | Rtu, TimeWait) => (state, &[SendRej(Reason::INVALID_COMM_ID)]),

        (Rtu | Data, RepSent) => (Established, &[Tell(EventKind::Established)]),

        // A peer that disconnects has received the REP: only the RTU was lost.
        (Dreq, RepSent) => {
            (DreqRcvd, &[Tell(EventKind::Established), Tell(EventKind::Disconnecting)])
        }
        (Dreq, Established) => (DreqRcvd, &[Tell(EventKind::Disconnecting)]),
        (Dreq, DreqSent) => (TimeWait, &[SendDrep, Tell(EventKind::Disconnected)]),
        (Dreq, TimeWait) => (state, &[SendDrep]),
        (Drep, DreqSent) => (TimeWait, &[Tell(EventKind::Disconnected)]),

        // The peer has left this connection and does not answer the DREQ, so this side sends the
        // DREQ only once. In other states, a connection that the peer has left ends without a DREQ.
        (Stale, Established) => (TimeWait, &[SendDreq, Tell(EventKind::Broken)]),

        (Accept, ReqRcvd) => (RepSent, &[SendKept]),
        (Reject, ReqRcvd) => (Rejected, &[SendKept]),
        (Disconnect, ReqSent) => {
            (Closed, &[SendRej(Reason::TIMEOUT), Tell(EventKind::Disconnected)])
        }
        // A peer that still waits for the REP needs the REJ. A peer that has received the REP needs
        // the DREQ.
        (Disconnect, RepSent) => {
            (DreqSent, &[RefuseReq(Reason::CONSUMER), SendDreq, Tell(EventKind::Disconnected)])
        }
        (Disconnect, Established) => (DreqSent, &[SendDreq]),
        (Disconnect, DreqSent) => (state, &[]),
        (Disconnect, DreqRcvd) => (TimeWait, &[SendDrep, Tell(EventKind::Disconnected)]),

        (Exhausted, ReqSent) => (Closed, &[SendRej(Reason::TIMEOUT), Tell(EventKind::Unreachable)]),
        (Exhausted, RepSent) => {
            (TimeWait, &[SendRej(Reason::TIMEOUT), Tell(EventKind::AcceptFailed)])
        }
        (Exhausted, DreqSent | DreqRcvd) => (TimeWait, &[Tell(EventKind::Disconnected)]),

        (Deadline, ReqSent) => (Closed, &[SendRej(Reason::TIMEOUT), Tell(EventKind::TimedOut)]),
        // The time of the acceptance has ended because many acceptances wait for an RTU
        // (`half_open`). The connection ends as if the program had disconnected, but sends its
        // DREQs for a shorter time.
        (Deadline, RepSent) => {
            (DreqSent, &[RefuseReq(Reason::NO_RESOURCES), SendDreq, Tell(EventKind::AcceptFailed)])
        }
        // The program has not decided, and the caller has not repeated its REQ.
        (Deadline, ReqRcvd) => {
            (Closed, &[RefuseReq(Reason::NO_RESOURCES), Tell(EventKind::Withdrawn)])
        }
        // The program need not wait any longer. The DREQ is still repeated for some time.
        (Deadline, DreqSent) => (state, &[Tell(EventKind::Disconnected)]),
        (Deadline, Rejected | TimeWait) => (Closed, &[]),

        _ => return None,
    };
    Some(Transition { to, actions })
}

impl State {
    /// All states.
    pub const ALL: [State; 9] = [
        State::ReqSent,
        State::ReqRcvd,
        State::Rejected,
        State::RepSent,
        State::Established,
        State::DreqSent,
        State::DreqRcvd,
        State::TimeWait,
        State::Closed,
    ];

    /// Whether the caller of a request possibly does not have the answer yet, and so may repeat its
    /// REQ.
    pub const fn is_open_request(self) -> bool {
        matches!(self, State::ReqRcvd | State::Rejected | State::RepSent)
    }
}

impl Input {
    /// All inputs.
    pub const ALL: [Input; 16] = [
        Input::Req,
        Input::MraOfReq,
        Input::MraOfRep,
        Input::RejOfReq,
        Input::Rej,
        Input::Rep,
        Input::Rtu,
        Input::Dreq,
        Input::Drep,
        Input::Data,
        Input::Stale,
        Input::Accept,
        Input::Reject,
        Input::Disconnect,
        Input::Exhausted,
        Input::Deadline,
    ];
}

impl EventKind {
    /// Whether this event is the last of a connection, except
    /// [`Event::Released`](super::Event::Released).
    pub const fn is_last(self) -> bool {
        !matches!(self, EventKind::Accepted | EventKind::Established | EventKind::Disconnecting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole state chart: review a change of this snapshot like a change of code.
    #[test]
    #[cfg_attr(miri, ignore = "not a test: Miri cannot start the program that finds the snapshot")]
    fn matrix() {
        let mut text = String::new();
        for input in Input::ALL {
            text += &format!("{input:?}\n");
            for state in State::ALL {
                let transition = match transition(state, input) {
                    None => "-".to_owned(),
                    Some(Transition { to, actions }) if to == state => {
                        format!("stays: {actions:?}")
                    }
                    Some(Transition { to, actions }) => format!("-> {to:?}: {actions:?}"),
                };
                text += &format!("  {:<12}{transition}\n", format!("{state:?}"));
            }
        }
        insta::assert_snapshot!(text);
    }

    /// Whenever a connection ends, its end is reported. After that report, the connection does not
    /// continue.
    #[test]
    fn each_end_is_reported_once() {
        let open = |state| {
            use State::*;
            matches!(state, ReqSent | ReqRcvd | RepSent | Established | DreqRcvd)
        };
        for input in Input::ALL {
            for state in State::ALL.into_iter().filter(|&state| open(state)) {
                let Some(Transition { to, actions }) = transition(state, input) else { continue };
                let ended = actions
                    .iter()
                    .any(|action| matches!(action, Action::Tell(kind) if kind.is_last()));
                // After a DREQ, the end is reported when the DREQ is answered. A rejection by the
                // program itself is not reported.
                let later = matches!(
                    (input, to),
                    (Input::Disconnect, State::DreqSent) | (Input::Reject, _)
                );
                assert!(ended != open(to) || later, "{input:?} in {state:?}");
            }
        }
    }
}
