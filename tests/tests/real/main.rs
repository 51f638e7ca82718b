//! Suites in real time: real processes, servers, sockets and clocks. All are one binary, so that their waits overlap.
//! Each suite is a module and starts what it needs.

mod access;
mod blocking;
mod calls;
mod client;
mod client_examples;
mod compose;
mod fallback;
mod goodbye;
mod line;
mod live;
mod log;
mod middleware;
mod observe;
mod outgoing;
mod page;
mod parts;
mod processes;
mod rare;
mod rebinding;
mod regions;
mod reserve;
mod service;
mod several;
mod shadow;
mod shared;
mod store;
mod stores;
mod strangers;
mod supply;
mod tls;
mod transport;
#[cfg(target_os = "linux")]
mod trouble;
mod unix;
