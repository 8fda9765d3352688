//! One table with the result of every operation in every state of an endpoint. The table follows
//! only the manual pages of the operations ("valid in", "state transitions").

mod operation;
pub(super) mod reach;

use std::panic::Location;

use dat_sys::*;

use self::operation::Operation;
use super::ib_posts::IbPost;
use crate::case::{Case, Level, Run};
use crate::check::{
    NotPassed, Outcome, answers, answers_with, ensure_equal, failed, name, ok, supported,
};
use crate::rig::Rig;

/// A cell of the table: an operation, the state of the endpoint, and the expected result.
struct Cell {
    operation: Operation,
    state: DAT_EP_STATE,
    expected: Expected,
}

/// The expected result of an operation in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// The operation is refused with DAT_INVALID_STATE, and the endpoint does not change.
    Refused,
    /// The operation succeeds, and the state of the endpoint does not change.
    Stays,
    /// The operation succeeds, and the endpoint enters this state, immediately or later.
    To(DAT_EP_STATE),
    /// The operation succeeds, and the posted request is flushed.
    Flushed,
    /// The operation succeeds, and the endpoint no longer exists.
    Gone,
    /// The standard does not determine the result, so no case tests it.
    Open,
}

/// The states of endpoints in the order of the columns, each with its words in the names of cases.
const STATES: [(DAT_EP_STATE, &str); 15] = [
    (DAT_EP_STATE_UNCONNECTED, "unconnected"),
    (DAT_EP_STATE_UNCONFIGURED_UNCONNECTED, "unconfigured-unconnected"),
    (DAT_EP_STATE_RESERVED, "reserved"),
    (DAT_EP_STATE_UNCONFIGURED_RESERVED, "unconfigured-reserved"),
    (DAT_EP_STATE_PASSIVE_CONNECTION_PENDING, "passive-connection-pending"),
    (DAT_EP_STATE_UNCONFIGURED_PASSIVE, "unconfigured-passive"),
    (DAT_EP_STATE_ACTIVE_CONNECTION_PENDING, "active-connection-pending"),
    (DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING, "tentative-connection-pending"),
    (DAT_EP_STATE_UNCONFIGURED_TENTATIVE, "unconfigured-tentative"),
    (DAT_EP_STATE_CONNECTED, "connected"),
    (DAT_EP_STATE_DISCONNECT_PENDING, "disconnect-pending"),
    (DAT_EP_STATE_DISCONNECTED, "disconnected"),
    (DAT_EP_STATE_COMPLETION_PENDING, "completion-pending"),
    (DAT_EP_STATE_CONNECTED_SINGLE_PATH, "connected-single-path"),
    (DAT_EP_STATE_CONNECTED_MULTI_PATH, "connected-multi-path"),
];

/// Short names of the expected results, so that each row of the table fits on one line.
const X: Expected = Expected::Refused;
const S: Expected = Expected::Stays;
const F: Expected = Expected::Flushed;
const G: Expected = Expected::Gone;
const O: Expected = Expected::Open;
const UNC: Expected = Expected::To(DAT_EP_STATE_UNCONNECTED);
const RSV: Expected = Expected::To(DAT_EP_STATE_RESERVED);
const URS: Expected = Expected::To(DAT_EP_STATE_UNCONFIGURED_RESERVED);
const TEN: Expected = Expected::To(DAT_EP_STATE_TENTATIVE_CONNECTION_PENDING);
const ACT: Expected = Expected::To(DAT_EP_STATE_ACTIVE_CONNECTION_PENDING);
const CON: Expected = Expected::To(DAT_EP_STATE_CONNECTED);
const DIS: Expected = Expected::To(DAT_EP_STATE_DISCONNECTED);

/// The table of results. The states connected-single-path and connected-multi-path are kinds of the
/// state connected (headers of 2.0).
#[rustfmt::skip]
const TABLE: &[(Operation, [Expected; 15])] = {
    use IbPost::*;
    use Operation::*;
    &[
        // operation             unc  uunc  rsv  ursv pass upas act  tent uten conn dpen disc comp
        // sing mult
        (Query,                 [S,   S,    S,   S,   S,   S,   S,   S,   S,   S,   S,   S,   S,   S,   S]),
        (GetStatus,             [S,   S,    S,   S,   S,   S,   S,   S,   S,   S,   S,   S,   S,   S,   S]),
        (RecvQuery,             [S,   O,    S,   O,   S,   O,   S,   S,   O,   S,   S,   S,   S,   S,   S]),
        (ModifyPz,              [S,   UNC,  X,   O,   X,   O,   X,   S,   TEN, X,   X,   X,   X,   X,   X]),
        (ModifyTransportAttr,   [S,   S,    X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X]),
        (ModifyRequestEvd,      [S,   S,    S,   S,   S,   S,   X,   S,   S,   X,   X,   X,   X,   X,   X]),
        (ModifyMaxRecvDtos,     [S,   S,    S,   S,   S,   S,   X,   S,   S,   X,   X,   X,   X,   X,   X]),
        (ModifyAddress,         [X,   X,    X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X]),
        (Connect,               [ACT, X,    X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X]),
        (DupConnect,            [ACT, X,    X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X]),
        (CommonConnect,         [ACT,  X,    X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X]),
        (RspCreate,             [RSV, URS,  X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X]),
        (CrAccept,              [CON, X,    X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X,   X]),
        (DisconnectGracefully,  [X,   X,    X,   X,   X,   X,   DIS, X,   X,   DIS, S,   S,   DIS, DIS, DIS]),
        (DisconnectAbruptly,    [X,   X,    X,   X,   X,   X,   DIS, X,   X,   DIS, DIS, S,   DIS, DIS, DIS]),
        (Reset,                 [S,   S,    X,   X,   X,   X,   X,   X,   X,   X,   X,   UNC, X,   X,   X]),
        (Free,                  [G,   G,    X,   X,   X,   X,   G,   X,   X,   G,   G,   G,   G,   G,   G]),
        (PostRecv,              [S,   O,    S,   O,   S,   O,   S,   S,   O,   S,   S,   F,   S,   S,   S]),
        (PostSend,              [X,   X,    X,   X,   X,   X,   X,   X,   X,   S,   X,   F,   X,   S,   S]),
        (PostRdmaWrite,         [X,   X,    X,   X,   X,   X,   X,   X,   X,   S,   X,   F,   X,   S,   S]),
        (PostRdmaRead,          [X,   X,    X,   X,   X,   X,   X,   X,   X,   S,   X,   F,   X,   S,   S]),
        (RmrBind,               [X,   X,    X,   X,   X,   X,   X,   X,   X,   S,   X,   F,   X,   S,   S]),
        (PostSendWithInvalidate,[X,   X,    X,   X,   X,   X,   X,   X,   X,   S,   X,   F,   X,   S,   S]),
        (PostRdmaReadToRmr,     [X,   X,    X,   X,   X,   X,   X,   X,   X,   S,   X,   F,   X,   S,   S]),
        (Ib(WriteImmed),        [X,   X,    X,   X,   X,   X,   X,   X,   X,   S,   X,   F,   X,   S,   S]),
        (Ib(FetchAdd),          [X,   X,    X,   X,   X,   X,   X,   X,   X,   S,   X,   F,   X,   S,   S]),
        (Ib(CmpSwap),           [X,   X,    X,   X,   X,   X,   X,   X,   X,   S,   X,   F,   X,   S,   S]),
    ]
};

/// The subtypes of DAT_INVALID_STATE in the order of the columns. The headers define none for the
/// states of a connection over several paths.
const SUBTYPES: [DAT_RETURN_SUBTYPE; 13] = [
    DAT_INVALID_STATE_EP_UNCONNECTED,
    DAT_INVALID_STATE_EP_UNCONFIGURED,
    DAT_INVALID_STATE_EP_RESERVED,
    DAT_INVALID_STATE_EP_UNCONFRESERVED,
    DAT_INVALID_STATE_EP_PASSCONNPENDING,
    DAT_INVALID_STATE_EP_UNCONFPASSIVE,
    DAT_INVALID_STATE_EP_ACTCONNPENDING,
    DAT_INVALID_STATE_EP_TENTCONNPENDING,
    DAT_INVALID_STATE_EP_UNCONFTENTATIVE,
    DAT_INVALID_STATE_EP_CONNECTED,
    DAT_INVALID_STATE_EP_DISCPENDING,
    DAT_INVALID_STATE_EP_DISCONNECTED,
    DAT_INVALID_STATE_EP_COMPLPENDING,
];

/// Returns a case for each cell that the standard determines, and a case for each subtype.
pub(super) fn cases() -> impl Iterator<Item = Case> {
    cells().chain(subtypes())
}

/// Returns a case for each state that has a subtype: a refusal names the state.
fn subtypes() -> impl Iterator<Item = Case> {
    (0..SUBTYPES.len()).map(|column| {
        let (state, words) = STATES[column];
        let (function, _) = refused_in(state).names();
        Case {
            id: format!("{function}/subtype-in-{words}"),
            level: Level::Should,
            clause: "1.2 headers: subtypes of DAT_INVALID_STATE",
            requirement: format!(
                "If {function} refuses an EP in the state {words}, the subtype of the status names \
                 this state."
            ),
            place: Location::caller(),
            run: Run::Numbered(names_the_state, column),
        }
    })
}

/// Calls an operation that the state of this column forbids, and checks the subtype.
fn names_the_state(rig: &mut Rig, column: usize) -> Outcome {
    let (state, _) = STATES[column];
    let tools = operation::Tools::new(rig, refused_in(state))?;
    let end = reach::reach(rig, state)?;
    answers_with(refused_in(state).run(rig, &tools, end), DAT_INVALID_STATE, SUBTYPES[column])
}

/// Returns an operation that is refused in this state.
fn refused_in(state: DAT_EP_STATE) -> Operation {
    match state {
        DAT_EP_STATE_CONNECTED | DAT_EP_STATE_DISCONNECTED => Operation::Connect,
        _ => Operation::PostSend,
    }
}

/// Returns a case for each cell that the standard determines.
fn cells() -> impl Iterator<Item = Case> {
    (0..TABLE.len() * STATES.len()).filter_map(|number| {
        let (Cell { operation, state, expected }, words) = Cell::numbered(number);
        (expected != Expected::Open).then(|| {
            let (function, variant) = operation.names();
            let multipath = [DAT_EP_STATE_CONNECTED_SINGLE_PATH, DAT_EP_STATE_CONNECTED_MULTI_PATH];
            Case {
                id: format!("{function}/{variant}in-{words}"),
                level: Level::Must,
                clause: match multipath.contains(&state) {
                    true => "2.0 headers: states of a connection over several paths",
                    false => operation.clause(),
                },
                requirement: format!("In the state {words}, {}.", expected.words(operation)),
                place: Location::caller(),
                run: Run::Numbered(|rig, number| Cell::numbered(number).0.run(rig), number),
            }
        })
    })
}

impl Expected {
    fn words(self, operation: Operation) -> String {
        match self {
            Expected::Refused if operation == Operation::ModifyAddress => {
                "the operation is refused with DAT_INVALID_PARAMETER".into()
            }
            Expected::Refused => {
                "the operation is refused with DAT_INVALID_STATE, and the state stays the same"
                    .into()
            }
            Expected::Stays => "the operation succeeds, and the state stays the same".into(),
            Expected::To(to) => match STATES.iter().find(|(state, _)| *state == to) {
                Some((_, words)) => {
                    format!("the operation succeeds, and the state becomes {words}")
                }
                None => "the operation succeeds".into(),
            },
            Expected::Flushed => {
                "the operation succeeds, and the request is flushed at once".into()
            }
            Expected::Gone => "the operation succeeds and frees the endpoint".into(),
            Expected::Open => "the standard does not determine the result".into(),
        }
    }
}

impl Cell {
    /// Returns the cell of the table with this number, and the words for its state. Cells are
    /// numbered row by row.
    fn numbered(number: usize) -> (Cell, &'static str) {
        let (row, column) = (number / STATES.len(), number % STATES.len());
        let ((operation, results), (state, words)) = (TABLE[row], STATES[column]);
        (Cell { operation, state, expected: results[column] }, words)
    }

    /// Brings an endpoint into the state, runs the operation, and checks the result.
    fn run(&self, rig: &mut Rig) -> Outcome {
        // The objects that the operation needs are created first, because the endpoint may leave
        // the state after a short time.
        let tools = operation::Tools::new(rig, self.operation)?;
        let end = reach::reach(rig, self.state)?;
        let answer = self.operation.run(rig, &tools, end);
        if self.operation == Operation::ModifyAddress {
            // The address can never be modified, whatever the state is. The provider decides which
            // of the two errors it reports.
            return rig.answers_or(answer, DAT_INVALID_PARAMETER, &[DAT_INVALID_STATE]);
        }
        match self.expected {
            Expected::Refused => {
                answers(answer, DAT_INVALID_STATE)?;
                rig.state_is(end.ep, self.state)
            }
            Expected::Stays => {
                supported(answer)?;
                rig.state_is(end.ep, self.state)
            }
            Expected::To(state) => {
                supported(answer)?;
                self.comes_to(rig, end.ep, state)
            }
            Expected::Flushed => {
                supported(answer)?;
                self.operation.is_flushed(rig, end)
            }
            Expected::Gone => {
                ok(answer)?;
                let (mut state, mut recv_idle, mut request_idle) = (0, 0, 0);
                let stale = rig.api.dat_ep_get_status(
                    end.ep,
                    &mut state,
                    &mut recv_idle,
                    &mut request_idle,
                );
                answers(stale, DAT_INVALID_HANDLE)
            }
            Expected::Open => Err(failed("no case")),
        }
    }

    /// Checks that the endpoint enters this state. If an event reports the entry, waits for the
    /// event.
    fn comes_to(&self, rig: &Rig, ep: DAT_EP_HANDLE, to: DAT_EP_STATE) -> Outcome {
        let event = match to {
            DAT_EP_STATE_CONNECTED => DAT_CONNECTION_EVENT_ESTABLISHED,
            DAT_EP_STATE_DISCONNECTED => DAT_CONNECTION_EVENT_DISCONNECTED,
            _ => return rig.state_is(ep, to),
        };
        let evd = rig.query(ep)?.connect_evd_handle;
        let arrived = rig.connection(evd, event)?;
        ensure_equal("ep_handle of the event", arrived.ep_handle, ep)?;
        rig.state_is(ep, to).map_err(|stop| match stop {
            NotPassed::Failed(why) => failed(format_args!("after {}: {why}", name(event))),
            other => other,
        })
    }
}
