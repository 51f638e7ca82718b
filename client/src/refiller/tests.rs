//! A background task for tests, which is driven step by step.

use super::*;
use crate::transport::Credentials;

/// Makes the task of a client with `shared` that knows the allocators at `urls`.
pub(super) fn refiller(shared: &Arc<Shared>, urls: &[&str]) -> Refiller {
    let second = Duration::from_secs(1);
    let transport =
        |url: &&str| Transport::try_new(url, second, &Credentials::default()).expect("an address");
    let transports = urls.iter().map(transport).collect();
    let numbers = (fastrand::Rng::with_seed(1), SessionNumbers::System);
    Refiller::new(shared.clone(), transports, second, "a".to_owned(), Default::default(), numbers)
}
