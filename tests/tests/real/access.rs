//! An allocator that requires identities: what each may do, which sessions belong to it, and tokens that come and go.

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
