//! A DAT provider that needs no RDMA device: RoCEv2 over UDP sockets, from user space.

#![allow(dead_code, unused_imports)]
mod port;
mod socket;
