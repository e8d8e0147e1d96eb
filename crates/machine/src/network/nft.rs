//! The nftables rules of sandboxes and of the machine, and the veth pair between them.
//!
//! ```text
//!   sandbox                       machine
//!   eth0 198.18.x.2/30 ─────── stead?… 198.18.x.1/30 ──▶ forward, masquerade ──▶ uplink
//!   output: the sandbox's rules   table inet stead: rules for all sandboxes
//! ```
//! The sandbox's own rules are in its namespace, where no program may change them. They end with it, as
//! does
//! the veth pair. The machine's table is the same for every sandbox: no sandbox can connect to the machine
//! itself or to another sandbox, and nothing can connect to a sandbox. The name of a veth determines which
//! of the machine's rules apply to it.

use std::fmt::Write;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::BorrowedFd;

use super::egress_log::{self, NAMES_SET};
use super::netlink::Netlink;
use super::rules::EgressBase;
use crate::slot::SLOTS;
use crate::spec::EgressPolicy;
use provider::EgressVerdict;

/// Addresses that are not on the internet: this machine, private networks, link-local addresses, metadata
/// services, multicast and reserved ranges. Sandboxes use the benchmark range.
const NOT_PUBLIC: &str = "0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 168.63.129.16/32, \
    169.254.0.0/16, 172.16.0.0/12, 192.0.0.0/24, 192.168.0.0/16, 198.18.0.0/15, 224.0.0.0/3";

/// The first address of the sandboxes' range; each slot has four.
const RANGE: u32 = u32::from_be_bytes([198, 18, 0, 0]);

/// The prefix of the names of all veth interfaces; the machine's rules match it.
pub(super) const PREFIX: &str = "stead";

/// The name of our nftables table, in the machine and in sandboxes.
pub(super) const TABLE: &str = "stead";

/// The chain that Docker keeps for the rules of others.
pub(super) const DOCKER_CHAIN: &str = "DOCKER-USER";

/// Our rules in that chain, for `iptables`.
pub(super) const DOCKER_RULES: [&[&str]; 2] = [
    &["-i", "stead+", "-j", "ACCEPT"],
    &["-o", "stead+", "-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "ACCEPT"],
];

/// Deletes our table, for `nft -f`.
pub(super) const DELETE_TABLE: &str = "table inet stead {}\ndelete table inet stead\n";

/// A veth pair between the machine and a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VethPair {
    /// The name of the machine's end.
    pub(super) name: String,
    machine: Ipv4Addr,
    sandbox: Ipv4Addr,
}

impl VethPair {
    /// Returns the veth pair of a slot, or `None` without egress.
    pub(super) fn new(slot: u32, egress: &EgressPolicy) -> Option<Self> {
        let kind = match egress {
            EgressPolicy::None => return None,
            EgressPolicy::Public => 'p',
            EgressPolicy::All => 'a',
            EgressPolicy::Ruled(rules) => match rules.base {
                EgressBase::Public => 'p',
                EgressBase::All => 'a',
            },
            EgressPolicy::Only(_) => 'l',
        };
        let first = RANGE + (slot % SLOTS) * 4;
        Some(Self {
            name: format!("{PREFIX}{kind}{slot}"),
            machine: Ipv4Addr::from(first + 1),
            sandbox: Ipv4Addr::from(first + 2),
        })
    }

    /// Creates both ends and sets the machine's end up. Called in the machine's namespace.
    pub(super) fn create(&self, sandbox: BorrowedFd<'_>) -> io::Result<()> {
        let kernel = Netlink::routes()?;
        kernel.add_veth(&self.name, sandbox)?;
        kernel.add_address(&self.name, self.machine)?;
        kernel.set_up(&self.name)
    }

    /// Sets the sandbox's end up. Called in the sandbox's namespace.
    pub(super) fn connect(&self) -> io::Result<()> {
        let kernel = Netlink::routes()?;
        kernel.add_address("eth0", self.sandbox)?;
        kernel.set_up("eth0")?;
        kernel.add_default_route(self.machine)
    }
}

/// The uplink of this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Uplink {
    /// The interface of the default route; empty if there is none.
    pub(crate) name: String,
    /// The name servers that sandboxes may query.
    pub(super) resolvers: Vec<Ipv4Addr>,
}

/// The machine's table, for `nft -f`.
pub(super) fn machine_rules(uplink: &Uplink) -> String {
    let dns = match addresses(&uplink.resolvers) {
        None => String::new(),
        Some(resolvers) => format!(
            "iifname \"steadp*\" ip daddr {{ {resolvers} }} meta l4proto {{ tcp, udp }} \
             th dport 53 accept"
        ),
    };
    format!(
        "{DELETE_TABLE}\
         table inet stead {{\n\
         chain input {{ type filter hook input priority -5; iifname \"stead*\" drop; }}\n\
         chain forward {{ type filter hook forward priority -5;\n\
         oifname \"stead*\" ct state established,related accept\n\
         oifname \"stead*\" drop\n\
         {dns}\n\
         iifname \"steadp*\" ip daddr {{ {NOT_PUBLIC} }} drop\n\
         iifname \"stead*\" meta nfproto ipv6 drop\n\
         }}\n\
         chain postrouting {{ type nat hook postrouting priority 100; \
         ip saddr 198.18.0.0/15 oifname != \"stead*\" masquerade; }}\n\
         }}\n"
    )
}

/// The table of a sandbox's namespace, for `nft -f`. It replaces the rules of a table that is loaded, and
/// keeps its log. `allowed` are the names in an allow-list with their addresses. `machine` are the addresses
/// of this machine, if it has no table that keeps the sandbox from them.
pub(super) fn sandbox_rules(
    egress: &EgressPolicy,
    resolvers: &[Ipv4Addr],
    allowed: &[(String, Ipv4Addr, u16)],
    machine: &[Ipv4Addr],
) -> String {
    let mut out = String::new();
    if let Some(machine) = addresses(machine) {
        let _ = writeln!(out, "ip daddr {{ {machine} }} {REJECT}");
    }
    match egress {
        EgressPolicy::None => {}
        EgressPolicy::Public => out.push_str(&base_rules(EgressBase::Public, resolvers)),
        EgressPolicy::All => out.push_str(&base_rules(EgressBase::All, resolvers)),
        EgressPolicy::Ruled(rules) => {
            let only = match rules.base {
                EgressBase::Public => format!("ip daddr != {{ {NOT_PUBLIC} }} "),
                EgressBase::All => String::new(),
            };
            let (allow, deny) = rules.blocks();
            let named = allowed.iter().map(|(_, address, _)| address.to_string());
            for block in allow.into_iter().chain(named) {
                let _ = writeln!(out, "ip daddr {block} {only}{ACCEPT}");
            }
            for block in deny {
                let _ = writeln!(out, "ip daddr {block} {REJECT}");
            }
            out.push_str(&base_rules(rules.base, resolvers));
        }
        EgressPolicy::Only(_) => {
            for (_, address, port) in allowed {
                let _ = writeln!(out, "ip daddr {address} tcp dport {port} {ACCEPT}");
            }
        }
    }
    let back = out.replace("daddr", "saddr").replace("dport", "sport");
    let back = back.replace(REJECT, "drop").replace(ACCEPT, "accept");
    let names: Vec<(&str, Ipv4Addr)> =
        allowed.iter().map(|(name, address, _)| (name.as_str(), *address)).collect();
    let named = match egress_log::named_elements(&names) {
        none if none.is_empty() => none,
        elements => format!("add element inet stead {NAMES_SET} {{ {elements} }}\n"),
    };
    let (sets, allow, refuse) = (
        egress_log::sets(),
        egress_log::record(EgressVerdict::Allowed),
        egress_log::record(EgressVerdict::Refused),
    );
    // Every packet is checked, not only the first of a connection: when the rules are tightened, connections
    // to destinations that are no longer allowed end.
    format!(
        "table inet stead {{\n{sets}}}\n\
         flush table inet stead\n\
         flush set inet stead {NAMES_SET}\n\
         {named}\
         table inet stead {{\n\
         chain allow {{\n\
         ct state != new accept\n\
         {allow}\
         accept\n\
         }}\n\
         chain refuse {{\n\
         {refuse}\
         tcp flags & (fin | syn | rst | ack) != syn reject with tcp reset\n\
         reject with icmpx admin-prohibited\n\
         }}\n\
         chain output {{ type filter hook output priority 0; policy drop;\n\
         oifname \"lo\" accept\n\
         ct state related accept\n\
         ct state new ct count over {MAX_CONNECTIONS} {REJECT}\n\
         {out}\
         {REJECT}\n\
         }}\n\
         chain input {{ type filter hook input priority 0; policy drop;\n\
         iifname \"lo\" accept\n\
         ct state related accept\n\
         ct state != established drop\n\
         {back}\
         }}\n\
         }}\n"
    )
}

/// Connections of one sandbox. All sandboxes share the machine's connection tracking table.
const MAX_CONNECTIONS: u32 = 4096;

/// Accepts a packet, and records the first of a connection.
const ACCEPT: &str = "goto allow";

/// Records and rejects with a reply: a connection is reset, and `connect` fails.
const REJECT: &str = "goto refuse";

/// The rules for everything that the base allows.
fn base_rules(base: EgressBase, resolvers: &[Ipv4Addr]) -> String {
    let mut out = String::new();
    if base == EgressBase::Public {
        if let Some(resolvers) = addresses(resolvers) {
            let dns = "meta l4proto { tcp, udp } th dport 53";
            let _ = writeln!(out, "ip daddr {{ {resolvers} }} {dns} {ACCEPT}");
        }
        let _ = writeln!(out, "ip daddr {{ {NOT_PUBLIC} }} {REJECT}");
    }
    let _ = writeln!(out, "meta nfproto ipv4 {ACCEPT}");
    out
}

fn addresses(list: &[Ipv4Addr]) -> Option<String> {
    let list: Vec<String> = list.iter().map(Ipv4Addr::to_string).collect();
    (!list.is_empty()).then(|| list.join(", "))
}

/// The IPv4 name servers of a `resolv.conf`. One on this machine's loopback cannot be reached from a
/// sandbox, and is left out.
pub(super) fn resolvers(resolv_conf: &str) -> Vec<Ipv4Addr> {
    resolv_conf
        .lines()
        .filter_map(|line| line.trim().strip_prefix("nameserver"))
        .filter_map(|rest| rest.trim().parse::<IpAddr>().ok())
        .filter_map(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        })
        .filter(|address| !address.is_loopback() && !address.is_unspecified())
        .take(3)
        .collect()
}

/// Further addresses of this machine are ignored.
const MAX_ADDRESSES: usize = 4096;

/// The local addresses of this machine, from `/proc/net/fib_trie`: each is a line, and the next line has its
/// type.
pub(super) fn own_addresses(fib_trie: &str) -> Vec<Ipv4Addr> {
    let pairs = fib_trie.lines().zip(fib_trie.lines().skip(1));
    let own = pairs.filter(|(_, what)| what.trim() == "/32 host LOCAL");
    let mut found: Vec<Ipv4Addr> = own
        .filter_map(|(address, _)| address.trim().strip_prefix("|-- ")?.parse().ok())
        .take(MAX_ADDRESSES)
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The names of the interfaces, from `/proc/net/dev`.
pub(super) fn interfaces(devices: &str) -> Vec<String> {
    let names = devices.lines().filter_map(|line| line.split_once(':'));
    names.map(|(name, _)| name.trim().to_owned()).collect()
}

/// The interface of the default route, from `/proc/net/route`.
pub(super) fn default_interface(routes: &str) -> Option<String> {
    routes.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let default = fields.get(1) == Some(&"00000000") && fields.get(7) == Some(&"00000000");
        let ours = fields.first()?.starts_with(PREFIX);
        (default && !ours).then(|| fields[0].to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::rules::EgressRules;

    #[test]
    fn every_slot_has_a_veth_with_a_name_that_fits() {
        let last = VethPair::new(SLOTS - 1, &EgressPolicy::Public).unwrap();
        assert_eq!(last.sandbox, Ipv4Addr::new(198, 19, 255, 254));
        assert!(last.name.len() <= 15, "{}", last.name);
        let first = VethPair::new(0, &EgressPolicy::All).unwrap();
        assert_eq!((first.name.as_str(), first.machine), ("steada0", Ipv4Addr::new(198, 18, 0, 1)));
        assert_eq!(VethPair::new(7, &EgressPolicy::None), None);
    }

    #[test]
    fn a_resolver_on_the_loopback_is_left_out() {
        let text = "# x\nnameserver 127.0.0.53\nnameserver 10.0.0.2\nnameserver ::1\nsearch a\n";
        assert_eq!(resolvers(text), [Ipv4Addr::new(10, 0, 0, 2)]);
    }

    #[test]
    fn the_uplink_is_the_interface_of_the_default_route() {
        let routes = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\n\
            eth1\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\n\
            eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\n";
        assert_eq!(default_interface(routes).as_deref(), Some("eth0"));
        assert_eq!(default_interface("Iface\n"), None);
    }

    #[test]
    fn an_allow_list_accepts_exactly_its_pairs() {
        let rules = sandbox_rules(
            &EgressPolicy::Only(vec![]),
            &[Ipv4Addr::new(9, 9, 9, 9)],
            &[("a.example".to_owned(), Ipv4Addr::new(203, 0, 113, 5), 443)],
            &[],
        );
        assert!(rules.contains("ip daddr 203.0.113.5 tcp dport 443 goto allow\n"));
        assert!(rules.contains("ip saddr 203.0.113.5 tcp sport 443 accept"), "the replies");
        assert_eq!(rules.matches("goto allow").count(), 1, "{rules}");
        assert_eq!(rules.matches("accept").count(), 7, "{rules}");
        assert!(rules.contains(r#"names { 203.0.113.5 comment "a.example" }"#), "{rules}");
        assert!(!rules.contains("9.9.9.9"));
    }

    /// Allowed destinations precede denied ones, and private addresses stay unreachable.
    #[test]
    fn rules_for_single_destinations_are_in_order() {
        let rules = EgressRules {
            base: EgressBase::Public,
            allow: vec!["1.1.1.1".parse().unwrap(), "example.com".parse().unwrap()],
            deny: vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()],
        };
        let named = [("example.com".to_owned(), Ipv4Addr::new(203, 0, 113, 5), 0)];
        let text = sandbox_rules(&EgressPolicy::Ruled(rules), &[], &named, &[]);
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("ip daddr")).collect();
        assert_eq!(
            lines,
            [
                format!("ip daddr 1.1.1.1/32 ip daddr != {{ {NOT_PUBLIC} }} {ACCEPT}"),
                format!("ip daddr 203.0.113.5 ip daddr != {{ {NOT_PUBLIC} }} {ACCEPT}"),
                format!("ip daddr 0.0.0.0/0 {REJECT}"),
                format!("ip daddr {{ {NOT_PUBLIC} }} {REJECT}"),
            ]
        );
    }

    /// A connection must not outlive the rule that allowed it.
    #[test]
    fn packets_of_established_connections_are_checked_too() {
        for egress in [EgressPolicy::Public, EgressPolicy::All, EgressPolicy::Only(vec![])] {
            let rules = sandbox_rules(&egress, &[], &[], &[]);
            let lines = rules.lines().filter(|line| line.contains("established"));
            assert!(lines.clone().all(|line| line == "ct state != established drop"), "{rules}");
            assert!(rules.contains("ct count over 4096 goto refuse"), "{rules}");
        }
    }

    /// The machine may be in an allow-list, or be a name server.
    #[test]
    fn the_machine_itself_is_rejected_first() {
        let machine = Ipv4Addr::new(203, 0, 113, 5);
        for egress in [EgressPolicy::Public, EgressPolicy::All, EgressPolicy::Only(vec![])] {
            let named = [("m.example".to_owned(), machine, 443)];
            let rules = sandbox_rules(&egress, &[machine], &named, &[machine]);
            let refused = rules.find("ip daddr { 203.0.113.5 } goto refuse").unwrap();
            let accepted =
                rules.find("ip daddr 203.0.113.5").or(rules.find("nfproto ipv4 goto allow"));
            assert!(refused < accepted.unwrap(), "{rules}");
        }
    }

    #[test]
    fn the_addresses_of_a_machine_are_those_that_are_local() {
        let text = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n\
            \x20    |-- 192.0.2.2\n        /32 host LOCAL\n     |-- 192.0.2.255\n        /32 link BROADCAST\n\
            Local:\n     |-- 127.0.0.1\n        /32 host LOCAL\n     |-- 192.0.2.2\n        /32 host LOCAL\n";
        let found = [Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 2)];
        assert_eq!(own_addresses(text), found);
        assert!(own_addresses("").is_empty());
    }
}
