//! An allocator that asks for identities: what each may do, whose sessions are whose, and tokens that come and go.

mod attacks;
mod audit;
mod desk;
mod flood;
mod jwt;
mod keys;
mod matrix;
mod operators;
mod places;
mod sessions;
mod status;
mod stored;
mod tokens;
