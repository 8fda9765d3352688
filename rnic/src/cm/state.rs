//! The state chart of a connection (IBA volume 1, section 12.9) as one table.

use wire::cm::Reason;

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Active: waits for the answer to its REQ.
    ReqSent,
    /// Passive: waits for its consumer's decision.
    ReqRcvd,
    /// Passive: refused, or given up by the caller. Kept for a while, since the REJ may be lost, and the REQ come
    /// again: taken for a new one, it would end what connects the caller's queue pair by now.
    Rejected,
    /// Passive: waits for the answer to its REP.
    RepSent,
    /// Both may send.
    Established,
    /// Waits for the answer to its DREQ.
    DreqSent,
    /// Waits until its consumer is ready for the answer to the peer's DREQ.
    DreqRcvd,
    /// Ended. Kept until nothing that belongs to it can be under way any more.
    TimeWait,
    /// Nothing is left of it.
    Closed,
}

/// What happens to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Its REQ came again.
    Req,
    /// MRA of its REQ.
    MraOfReq,
    /// MRA of its REP.
    MraOfRep,
    /// REJ of its REQ.
    RejOfReq,
    /// REJ of anything else, or because the peer gave up.
    Rej,
    /// REP.
    Rep,
    /// RTU.
    Rtu,
    /// DREQ.
    Dreq,
    /// DREP.
    Drep,
    /// An RC packet came for its queue pair.
    Data,
    /// The peer's queue pair is said to be in another connection, and the peer has not answered over this one.
    Stale,
    /// The consumer accepts.
    Accept,
    /// The consumer rejects.
    Reject,
    /// The consumer disconnects, or gives up an attempt, or is ready for the end that the peer wants.
    Disconnect,
    /// What is repeated has been repeated as often as it may, or cannot arrive.
    Exhausted,
    /// The time for this state is over.
    Deadline,
}

/// What is done about it, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Send what is kept for repetition, if anything is: the REP, or the REJ of the consumer.
    SendKept,
    /// Send an RTU.
    SendRtu,
    /// Send an MRA of the REQ.
    SendMra,
    /// Send a DREQ, and repeat it.
    SendDreq,
    /// Send a DREP.
    SendDrep,
    /// Send a REJ of the REQ: a peer minds it only while it waits for the answer to that.
    RefuseReq(Reason),
    /// Send a REJ to say that this is the end.
    SendRej(Reason),
    /// Repeat nothing for as long as an MRA says.
    Wait,
    /// Tell the consumer.
    Tell(News),
}

/// What the consumer is told; [`Event`](super::Event) has the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum News {
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

/// What an input does in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The state afterwards.
    pub to: State,
    /// What is done.
    pub acts: &'static [Act],
}

/// The table. `None`: a message is ignored, a call refused.
pub const fn effect(state: State, input: Input) -> Option<Effect> {
    use Act::*;
    use Input::*;
    use State::*;
    let (to, acts): (State, &'static [Act]) = match (input, state) {
        (Req, ReqRcvd) => (state, &[SendMra]),
        (Req, Rejected) => (state, &[SendKept]),
        // The peer has not seen the REP. A DREQ would mean nothing to it.
        (Req, DreqSent) => (state, &[RefuseReq(Reason::CONSUMER)]),
        (Req, TimeWait) => (state, &[RefuseReq(Reason::STALE_CONNECTION)]),

        (MraOfReq, ReqSent) | (MraOfRep, RepSent) => (state, &[Wait]),

        (RejOfReq | Rej, ReqSent) => (Closed, &[Tell(News::Refused)]),
        (Rej, ReqRcvd) => (Rejected, &[Tell(News::Withdrawn)]),
        (Rej, RepSent) => (TimeWait, &[Tell(News::AcceptFailed)]),
        // It gave up waiting for the RTU.
        (Rej, Established) => (TimeWait, &[Tell(News::Broken)]),
        (Rej, DreqSent) => (TimeWait, &[Tell(News::Disconnected)]),

        (Rep, ReqSent) => (Established, &[SendRtu, Tell(News::Accepted)]),
        // The RTU was lost. Linux tells its consumer nothing before it has one.
        (Rep, Established) => (state, &[SendRtu]),
        (Rep | Rtu, TimeWait) => (state, &[SendRej(Reason::INVALID_COMM_ID)]),

        (Rtu | Data, RepSent) => (Established, &[Tell(News::Established)]),

        // Who disconnects has had the REP: the RTU was lost, not the connection.
        (Dreq, RepSent) => (DreqRcvd, &[Tell(News::Established), Tell(News::Disconnecting)]),
        (Dreq, Established) => (DreqRcvd, &[Tell(News::Disconnecting)]),
        (Dreq, DreqSent) => (TimeWait, &[SendDrep, Tell(News::Disconnected)]),
        (Dreq, TimeWait) => (state, &[SendDrep]),
        (Drep, DreqSent) => (TimeWait, &[Tell(News::Disconnected)]),

        // Said once: nobody answers to it. In other states the connection ends by itself if its peer has left.
        (Stale, Established) => (TimeWait, &[SendDreq, Tell(News::Broken)]),

        (Accept, ReqRcvd) => (RepSent, &[SendKept]),
        (Reject, ReqRcvd) => (Rejected, &[SendKept]),
        (Disconnect, ReqSent) => (Closed, &[SendRej(Reason::TIMEOUT), Tell(News::Disconnected)]),
        // The peer waits for the REP, or it has had it: one of the two tells it.
        (Disconnect, RepSent) => {
            (DreqSent, &[RefuseReq(Reason::CONSUMER), SendDreq, Tell(News::Disconnected)])
        }
        (Disconnect, Established) => (DreqSent, &[SendDreq]),
        (Disconnect, DreqSent) => (state, &[]),
        (Disconnect, DreqRcvd) => (TimeWait, &[SendDrep, Tell(News::Disconnected)]),

        (Exhausted, ReqSent) => (Closed, &[SendRej(Reason::TIMEOUT), Tell(News::Unreachable)]),
        (Exhausted, RepSent) => (TimeWait, &[SendRej(Reason::TIMEOUT), Tell(News::AcceptFailed)]),
        (Exhausted, DreqSent | DreqRcvd) => (TimeWait, &[Tell(News::Disconnected)]),

        (Deadline, ReqSent) => (Closed, &[SendRej(Reason::TIMEOUT), Tell(News::TimedOut)]),
        // Many wait for an RTU (`half_open`). As where the consumer disconnects, but not for long.
        (Deadline, RepSent) => {
            (DreqSent, &[RefuseReq(Reason::NO_RESOURCES), SendDreq, Tell(News::AcceptFailed)])
        }
        // Neither the consumer nor the peer asks for it any more.
        (Deadline, ReqRcvd) => (Closed, &[RefuseReq(Reason::NO_RESOURCES), Tell(News::Withdrawn)]),
        // The consumer need not wait; the peer is asked for some time yet.
        (Deadline, DreqSent) => (state, &[Tell(News::Disconnected)]),
        (Deadline, Rejected | TimeWait) => (Closed, &[]),

        _ => return None,
    };
    Some(Effect { to, acts })
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

impl News {
    /// Whether nothing more is told of the connection after this.
    pub const fn is_last(self) -> bool {
        !matches!(self, News::Accepted | News::Established | News::Disconnecting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole matrix: review a change of this snapshot like code.
    #[test]
    #[cfg_attr(miri, ignore = "not a test: Miri cannot start the program that finds the snapshot")]
    fn matrix() {
        let mut text = String::new();
        for input in Input::ALL {
            text += &format!("{input:?}\n");
            for state in State::ALL {
                let effect = match effect(state, input) {
                    None => "-".to_owned(),
                    Some(Effect { to, acts }) if to == state => format!("stays: {acts:?}"),
                    Some(Effect { to, acts }) => format!("-> {to:?}: {acts:?}"),
                };
                text += &format!("  {:<12}{effect}\n", format!("{state:?}"));
            }
        }
        insta::assert_snapshot!(text);
    }

    /// Whatever happens, a connection that ends is told of as ended, and one that is told of as ended ends.
    #[test]
    fn the_end_is_told() {
        let open = |state| {
            use State::*;
            matches!(state, ReqSent | ReqRcvd | RepSent | Established | DreqRcvd)
        };
        for input in Input::ALL {
            for state in State::ALL.into_iter().filter(|&state| open(state)) {
                let Some(Effect { to, acts }) = effect(state, input) else { continue };
                let ended = acts.iter().any(|act| matches!(act, Act::Tell(news) if news.is_last()));
                // DREQ: the end is told when it is answered. A rejection is the consumer's own.
                let later = matches!(
                    (input, to),
                    (Input::Disconnect, State::DreqSent) | (Input::Reject, _)
                );
                assert!(ended != open(to) || later, "{input:?} in {state:?}");
            }
        }
    }
}
