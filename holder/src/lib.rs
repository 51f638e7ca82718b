//! The borrower: it decides when a node asks for permits and for how many, what the node believes of an answer, and
//! what it does without one. It is pure: synchronous, in integers, with the time as an argument. It does no IO, reads
//! no clock and draws no random number. The client's background task and every simulated node drive it.
//!
//! In reading order: [`permits`] (where permits are kept), [`demand`] (how fast callers try to spend), [`calls`] (calls
//! that report their end), [`refill`] (one pool: when to ask, what to say, what to install), [`answer`] (what an answer
//! leads to), [`timing`], [`backoff`] (how long to wait after a failure), [`rotation`] (which allocator is asked, in
//! which session), [`connection`] (the exchanges that all pools share), [`round`] (which pools an exchange is for) and
//! [`safe_allowance`] (the safe share of an outage). [`hand`] keeps permits in plain cells.

pub mod answer;
pub mod backoff;
pub mod calls;
pub mod connection;
pub mod demand;
pub mod hand;
pub mod permits;
pub mod refill;
pub mod rotation;
pub mod round;
pub mod safe_allowance;
pub mod timing;
