//! Bounds the connections of each address: one that opened as many as there may be would leave none for others.

use crate::places::{Place, Places};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// Bits of an IPv6 address that identify a network; a machine chooses the others as it likes.
const NETWORK_BITS: u32 = 64;

/// The address of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Address {
    /// A peer over a network.
    Ip(IpAddr),
    /// A peer on this machine, over a Unix socket. All of them count as one address.
    Unix,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Ip(address) => write!(f, "{address}"),
            Address::Unix => f.write_str("unix"),
        }
    }
}

/// Places taken by each address.
#[derive(Clone, Debug)]
pub(crate) struct Addresses(Places<Address>);

impl Addresses {
    /// Makes `max` places for each address. Only addresses with a place are remembered.
    pub(crate) fn new(max: usize) -> Self {
        Addresses(Places::new(max))
    }

    /// Places that each address may take.
    pub(crate) fn max(&self) -> usize {
        self.0.max()
    }

    /// Takes a place for `address`; `None` if it has as many as it may.
    pub(crate) fn place(&self, address: Address) -> Option<Place<Address>> {
        self.0.place(network(address))
    }
}

/// Returns what counts as one address: of IPv6 the network, because a machine may use all of its addresses.
pub(crate) fn network(address: Address) -> Address {
    let Address::Ip(address) = address else { return address };
    Address::Ip(match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = address.to_bits() >> NETWORK_BITS << NETWORK_BITS;
            IpAddr::V6(Ipv6Addr::from_bits(network))
        }
        address @ IpAddr::V4(_) => address,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        Address::Ip(text.parse().expect("an address"))
    }

    #[test]
    fn an_address_has_so_many_places_and_others_have_theirs() {
        let addresses = Addresses::new(2);
        let one = addresses.place(address("10.0.0.1")).expect("room");
        let _two = addresses.place(address("::ffff:10.0.0.1")).expect("room");
        assert!(addresses.place(address("10.0.0.1")).is_none());
        assert!(addresses.place(address("10.0.0.2")).is_some(), "another one");
        drop(one);
        assert!(addresses.place(address("10.0.0.1")).is_some());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let addresses = Addresses::new(2);
        let _places =
            ["2001:db8::1", "2001:db8::2"].map(|text| addresses.place(address(text)).expect("room"));
        assert!(addresses.place(address("2001:db8::ffff:1")).is_none());
        assert!(addresses.place(address("2001:db8:0:1::1")).is_some());
    }
}
