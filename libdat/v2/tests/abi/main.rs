//! The built library, as programs see it: loaded at run time, called through its C functions.

mod differential;
mod loading;
mod support;
