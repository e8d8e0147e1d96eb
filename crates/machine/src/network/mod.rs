//! The network of sandboxes and containers: egress rules and connections.

pub(crate) mod connect;
pub(crate) mod netlink;
mod nft;
pub(crate) mod pasta;
pub(crate) mod rules;
