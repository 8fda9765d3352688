//! Tests the built library as programs use it: loaded at run time, called through its C functions.

mod differential;
mod loading;
mod support;
