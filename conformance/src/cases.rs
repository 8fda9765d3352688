//! The cases of the conformance suite. Each module contains the cases of a function or about a
//! topic.
#![forbid(unsafe_code)]

mod arguments;
mod attributes;
mod bad_requests;
mod cno;
mod connect;
mod datagram_posts;
mod datagrams;
mod dto;
mod ep_create;
mod ep_create_with_srq;
mod ep_modify;
mod ep_states;
mod evd;
mod extension;
mod far;
mod ia;
mod ia_query;
mod ib_posts;
mod ib_queries;
mod memory;
mod post_rdma_write;
mod posts;
mod recv_query;
mod rust;
mod srq;
mod statuses;
mod waiting;

use crate::case::{Case, Row};

/// Returns all cases of the suite.
pub fn all() -> Vec<Case> {
    let tables: &[&[Row]] = &[
        ia_query::CASES,
        ep_create::CASES,
        ep_create_with_srq::CASES,
        post_rdma_write::CASES,
        recv_query::CASES,
        evd::CASES,
        cno::CASES,
        ia::CASES,
        connect::CASES,
        dto::CASES,
        memory::CASES,
        srq::CASES,
        ep_modify::CASES,
        attributes::CASES,
        statuses::CASES,
        arguments::CASES,
        posts::CASES,
        waiting::CASES,
        far::CASES,
        extension::CASES,
        datagrams::CASES,
        datagram_posts::CASES,
        ib_posts::CASES,
        ib_queries::CASES,
        rust::CASES,
    ];
    let rows = tables.iter().flat_map(|table| table.iter()).map(Case::from);
    rows.chain(ep_states::cases()).collect()
}

#[cfg(test)]
mod tests;
