//! The network of sandboxes and containers: what they may reach, and how they are connected.

pub(crate) mod connect;
pub(crate) mod netlink;
mod nft;
pub(crate) mod pasta;
pub(crate) mod rules;
