//! The network of sandboxes and containers: egress rules and connections.

pub(crate) mod connect;
mod egress_log;
pub(crate) mod netlink;
mod nft;
pub(crate) mod pasta;
pub(crate) mod read_log;
pub(crate) mod rules;
