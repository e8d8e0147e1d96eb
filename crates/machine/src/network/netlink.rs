//! A small netlink client: interfaces, addresses, routes and the existence of nftables tables. Starting a
//! tool for each step would take longer than all other network setup.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

const NLMSG_ERROR: u16 = 2;
const REQUEST: u16 = 0x1;
const ACKNOWLEDGE: u16 = 0x4;
const CREATE: u16 = 0x400 | 0x200;

const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
/// In the nftables subsystem.
const GET_TABLE: u16 = (10 << 8) | 1;

/// A message for the kernel: numbers, bytes and attributes, each aligned to four bytes.
#[derive(Debug, Default)]
struct NetlinkMessage(Vec<u8>);

impl NetlinkMessage {
    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    fn number(self, number: u32) -> Self {
        self.bytes(&number.to_ne_bytes())
    }

    fn attribute(self, kind: u16, value: &[u8]) -> Self {
        let length = (value.len() + 4) as u16;
        let head = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
        self.bytes(&head).bytes(value)
    }

    fn text(self, kind: u16, text: &str) -> Self {
        self.attribute(kind, &[text.as_bytes(), &[0]].concat())
    }

    fn nested(self, kind: u16, inner: &Self) -> Self {
        self.attribute(kind, &inner.0)
    }
}

/// The address family of an nftables table.
#[derive(Debug, Clone, Copy)]
pub(super) enum TableFamily {
    /// Both IPv4 and IPv6.
    Inet = 1,
    V4 = 2,
}

/// A netlink socket in the network namespace that it was opened in.
#[derive(Debug)]
pub(crate) struct Netlink(OwnedFd);

impl Netlink {
    /// Opens a socket for interfaces, addresses and routes.
    pub(crate) fn routes() -> io::Result<Self> {
        // NETLINK_ROUTE is protocol 0, the default.
        Self::open(None)
    }

    /// Opens a socket for nftables.
    pub(super) fn rules() -> io::Result<Self> {
        Self::open(Some(netlink::NETFILTER))
    }

    fn open(protocol: Option<rustix::net::Protocol>) -> io::Result<Self> {
        let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?;
        rustix::net::bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        Ok(Self(socket))
    }

    /// Sends a request and waits for the acknowledgement.
    fn request(&self, kind: u16, flags: u16, body: NetlinkMessage) -> io::Result<()> {
        let flags = flags | REQUEST | ACKNOWLEDGE;
        let length = body.0.len() as u32 + 16;
        let head = NetlinkMessage::default()
            .number(length)
            .bytes(&[kind.to_ne_bytes(), flags.to_ne_bytes()].concat())
            .number(1)
            .number(0);
        let message = [head.0, body.0].concat();
        rustix::net::send(&self.0, &message, rustix::net::SendFlags::empty())?;
        let mut buffer = vec![0u8; 8192];
        loop {
            let (got, _) = rustix::net::recv(&self.0, &mut buffer[..], RecvFlags::empty())?;
            if let Some(result) = acknowledgement(&buffer[..got]) {
                return result;
            }
        }
    }

    /// Creates a veth pair: `name` here, and `eth0` in another namespace.
    pub(super) fn add_veth(&self, name: &str, other: BorrowedFd<'_>) -> io::Result<()> {
        let peer = NetlinkMessage::default()
            .bytes(&[0; 16])
            .text(IFNAME, "eth0")
            .attribute(NET_NS_FD, &(other.as_raw_fd() as u32).to_ne_bytes());
        let data = NetlinkMessage::default().nested(VETH_PEER, &peer);
        let info = NetlinkMessage::default().attribute(INFO_KIND, b"veth").nested(INFO_DATA, &data);
        let link =
            NetlinkMessage::default().bytes(&[0; 16]).text(IFNAME, name).nested(LINK_INFO, &info);
        self.request(NEW_LINK, CREATE, link)
    }

    /// Adds an address with the prefix length 30 to an interface.
    pub(super) fn add_address(&self, name: &str, address: Ipv4Addr) -> io::Result<()> {
        let message = NetlinkMessage::default()
            .bytes(&[libc::AF_INET as u8, 30, 0, 0])
            .number(self.index(name)?)
            .attribute(IFA_LOCAL, &address.octets())
            .attribute(IFA_ADDRESS, &address.octets());
        self.request(NEW_ADDRESS, CREATE, message)
    }

    /// Sets an interface up.
    pub(crate) fn set_up(&self, name: &str) -> io::Result<()> {
        let up = libc::IFF_UP as u32;
        let message =
            NetlinkMessage::default().number(0).number(self.index(name)?).number(up).number(up);
        self.request(NEW_LINK, 0, message)
    }

    /// Adds a default route through a gateway.
    pub(super) fn add_default_route(&self, gateway: Ipv4Addr) -> io::Result<()> {
        const MAIN: u8 = 254;
        const BOOT: u8 = 3;
        const UNICAST: u8 = 1;
        let message = NetlinkMessage::default()
            .bytes(&[libc::AF_INET as u8, 0, 0, 0, MAIN, BOOT, 0, UNICAST])
            .number(0)
            .attribute(GATEWAY, &gateway.octets());
        self.request(NEW_ROUTE, CREATE, message)
    }

    /// Whether an nftables table of this name exists.
    pub(super) fn has_table(&self, family: TableFamily, name: &str) -> io::Result<bool> {
        let message =
            NetlinkMessage::default().bytes(&[family as u8, 0, 0, 0]).text(TABLE_NAME, name);
        match self.request(GET_TABLE, 0, message) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn index(&self, name: &str) -> io::Result<u32> {
        Ok(rustix::net::netdevice::name_to_index(self.0.as_fd(), name)?)
    }
}

const IFNAME: u16 = 3;
const LINK_INFO: u16 = 18;
const NET_NS_FD: u16 = 28;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const VETH_PEER: u16 = 1;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const GATEWAY: u16 = 5;
const TABLE_NAME: u16 = 1;

/// The acknowledgement among these messages, if there is one.
fn acknowledgement(mut messages: &[u8]) -> Option<io::Result<()>> {
    loop {
        let length = u32::from_ne_bytes(messages.get(..4)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(messages.get(4..6)?.try_into().ok()?);
        if kind == NLMSG_ERROR {
            return Some(match i32::from_ne_bytes(messages.get(16..20)?.try_into().ok()?) {
                0 => Ok(()),
                errno => Err(io::Error::from_raw_os_error(-errno)),
            });
        }
        messages = messages.get(length.max(16).next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_aligned_to_four_bytes() {
        let message = NetlinkMessage::default().text(3, "eth0").attribute(1, b"veth");
        let native = u16::to_ne_bytes;
        let expected =
            [&native(9)[..], &native(3), b"eth0\0\0\0\0", &native(8), &native(1), b"veth"];
        assert_eq!(message.0, expected.concat());
    }

    #[test]
    fn the_acknowledgement_is_found_after_other_messages() {
        let message = |kind: u16, body: &[u32]| {
            let length = 16 + body.len() as u32 * 4;
            let head = NetlinkMessage::default().number(length).bytes(&kind.to_ne_bytes());
            let head = head.number(1).number(0);
            body.iter().fold(head, |message, number| message.number(*number)).0
        };
        let table = message(10 << 8, &[1, 2, 3]);
        assert!(acknowledgement(&table).is_none());
        assert!(acknowledgement(&[table.clone(), message(2, &[0])].concat()).unwrap().is_ok());
        let refused = acknowledgement(&message(2, &[(-2_i32) as u32])).unwrap().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotFound);
        assert!(acknowledgement(&[1, 2, 3]).is_none());
    }
}
