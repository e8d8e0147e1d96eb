//! Limits on concurrent requests and connections, for each class of caller.
//!
//! ```text
//!   class             proves                           when its budget is used up
//!   health, web app   nothing, and waits for nothing   has no budget
//!   unauthenticated   nothing                          the oldest is evicted
//!   proxied           nothing; is for a program in     503; one sandbox gets a quarter
//!                     a sandbox
//!   key holder        a sandbox's key, a share link    503; one key gets a quarter
//!   owner             the token, a signed-in browser   503; has the budget alone
//! ```
//! Requests and connections are counted alike. A connection starts as unauthenticated and takes the
//! class of its latest request that proves something, so that peers without a token can never use up
//! the connections of the others. Behind a proxy, a connection is its client's from the first request on.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;

use super::error::{Code, Problem};

/// Unauthenticated requests being answered at once.
const MAX_UNAUTHENTICATED_REQUESTS: usize = 64;
/// Unauthenticated connections at once, where a quarter of all connections is more than that.
const MAX_UNAUTHENTICATED_CONNECTIONS: usize = 1024;

/// One peer has at most this part of the unauthenticated requests and connections: others never wait for it.
const PEER_DIVISOR: usize = 2;

/// All budgets of a server.
pub struct Budgets {
    owner: Semaphore,
    holders: NamedPermits,
    proxied: NamedPermits,
    unauthenticated: Evicting,
    connections: Arc<Connections>,
}

/// The kind of client that connects to the server directly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Front {
    Clients,
    /// A proxy, for many clients.
    Proxy,
}

/// The connections of the classes that are bounded; the owner has the rest.
struct Connections {
    unauthenticated: Evicting,
    front: Front,
    holders: NamedPermits,
    proxied: NamedPermits,
}

/// Room for one request.
#[derive(Debug)]
pub enum Room<'a> {
    /// For a request that waits for nothing.
    Free,
    Owner(SemaphorePermit<'a>),
    /// For a request to a sandbox, or with a key.
    Named(NamedPermit),
    /// For a request that can be evicted.
    Unauthenticated(ConnectionEntry),
}

impl Budgets {
    /// `evicted` counts the requests and connections that were dropped to make room.
    pub fn new(connections: usize, requests: usize, front: Front, evicted: &Counter) -> Budgets {
        let quarter = (connections / 4).max(1);
        let unauthenticated = quarter.min(MAX_UNAUTHENTICATED_CONNECTIONS);
        let connections = Connections {
            unauthenticated: Evicting::new(unauthenticated, evicted),
            front,
            holders: NamedPermits::new(quarter),
            proxied: NamedPermits::new(quarter),
        };
        Budgets {
            owner: Semaphore::new(requests),
            holders: NamedPermits::new(requests),
            proxied: NamedPermits::new(requests),
            unauthenticated: Evicting::new(MAX_UNAUTHENTICATED_REQUESTS, evicted),
            connections: Arc::new(connections),
        }
    }

    /// Registers a connection that was accepted. Evicts another if there are too many that have not
    /// authenticated.
    pub fn connected(&self, peer: SocketAddr, local: SocketAddr) -> Arc<ClientConnection> {
        let cut = CancellationToken::new();
        let set = &self.connections.unauthenticated;
        let max = match self.connections.front {
            Front::Clients => set.max_of_peer(),
            Front::Proxy => set.max,
        };
        let entry = set.enter(peer.ip(), cut.clone(), max);
        let standing = Mutex::new(Standing::Unauthenticated(entry));
        let connections = self.connections.clone();
        Arc::new(ClientConnection { peer, local, connections, standing, cut })
    }

    /// Drops one unauthenticated connection; returns `false` if there is none.
    pub fn evict_connection(&self) -> bool {
        self.connections.unauthenticated.evict()
    }

    /// Reserves room for a request of the owner.
    pub fn owner(&self, connection: &ClientConnection) -> Result<Room<'_>, Problem> {
        connection.becomes_owner();
        self.owner.try_acquire().map(Room::Owner).map_err(|_| overloaded())
    }

    /// Reserves room for a request with the key of the resource `name`.
    pub fn holder(&self, connection: &ClientConnection, name: &str) -> Result<Room<'_>, Problem> {
        connection.becomes(Class::Holder, name)?;
        self.holders.take(name).map(Room::Named).ok_or_else(overloaded)
    }

    /// Reserves room for a request to a program in a sandbox.
    pub fn proxied(
        &self,
        connection: &ClientConnection,
        sandbox: &str,
    ) -> Result<Room<'_>, Problem> {
        connection.becomes(Class::Proxied, sandbox)?;
        self.proxied.take(sandbox).map(Room::Named).ok_or_else(overloaded)
    }

    /// Reserves room for an unauthenticated request of a client; evicts the oldest one if there is none.
    pub fn unauthenticated(&self, connection: &ClientConnection, client: IpAddr) -> Room<'_> {
        if let Standing::Unauthenticated(entry) = &mut *connection.standing() {
            entry.move_to(client, self.connections.unauthenticated.max_of_peer());
        }
        let (set, cut) = (&self.unauthenticated, CancellationToken::new());
        Room::Unauthenticated(set.enter(client, cut, set.max_of_peer()))
    }
}

impl Room<'_> {
    /// Waits until this request is evicted.
    pub async fn evicted(&self) -> Problem {
        match self {
            Room::Unauthenticated(entry) => entry.cut.cancelled().await,
            Room::Free | Room::Owner(_) | Room::Named(_) => std::future::pending().await,
        }
        overloaded()
    }
}

fn overloaded() -> Problem {
    Problem::new(Code::Overloaded, "too many concurrent requests")
}

/// A class of callers whose budget is divided by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Holder,
    Proxied,
}

/// One accepted connection, also after an upgrade. An extension of every request.
#[derive(Debug)]
pub struct ClientConnection {
    /// The client's address.
    pub peer: SocketAddr,
    /// The local address of the connection.
    pub local: SocketAddr,
    connections: Arc<Connections>,
    standing: Mutex<Standing>,
    cut: CancellationToken,
}

/// The class a connection is counted in.
#[derive(Debug)]
enum Standing {
    Unauthenticated(ConnectionEntry),
    Named(Class, NamedPermit),
    Owner,
}

impl ClientConnection {
    /// Cancelled when this connection is evicted.
    pub fn cut(&self) -> &CancellationToken {
        &self.cut
    }

    /// Counts this connection as the owner's.
    pub fn becomes_owner(&self) {
        *self.standing() = Standing::Owner;
    }

    fn becomes(&self, class: Class, name: &str) -> Result<(), Problem> {
        let mut standing = self.standing();
        if matches!(&*standing, Standing::Named(now, share) if *now == class && share.name == name)
        {
            return Ok(());
        }
        let shares = match class {
            Class::Holder => &self.connections.holders,
            Class::Proxied => &self.connections.proxied,
        };
        *standing = Standing::Named(class, shares.take(name).ok_or_else(overloaded)?);
        Ok(())
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock()
    }
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connections")
    }
}

/// A number of permits, of which no name may hold more than a quarter.
struct NamedPermits {
    max: usize,
    used: Arc<Mutex<Used>>,
}

#[derive(Debug, Default)]
struct Used {
    total: usize,
    by_name: HashMap<String, usize>,
}

/// One permit of [`NamedPermits`].
#[derive(Debug)]
pub struct NamedPermit {
    used: Arc<Mutex<Used>>,
    name: String,
}

impl NamedPermits {
    fn new(max: usize) -> NamedPermits {
        NamedPermits { max, used: Arc::default() }
    }

    fn take(&self, name: &str) -> Option<NamedPermit> {
        let mut used = self.used.lock();
        let held = used.by_name.get(name).copied().unwrap_or(0);
        if used.total >= self.max || held >= (self.max / 4).max(1) {
            return None;
        }
        used.total += 1;
        used.by_name.insert(name.to_owned(), held + 1);
        Some(NamedPermit { used: self.used.clone(), name: name.to_owned() })
    }
}

impl Drop for NamedPermit {
    fn drop(&mut self) {
        let mut used = self.used.lock();
        used.total -= 1;
        match used.by_name.get_mut(&self.name) {
            Some(held) if *held > 1 => *held -= 1,
            _ => drop(used.by_name.remove(&self.name)),
        }
    }
}

/// A bounded set. An entry into a full set evicts the oldest entry of the peer that has the most entries: a
/// peer that is alone can only evict itself. So does a peer that has its part.
struct Evicting {
    max: usize,
    evicted: Counter,
    entries: Arc<Mutex<Entries>>,
}

/// The entries of each peer by age.
#[derive(Debug, Default)]
struct Entries {
    entered: u64,
    count: usize,
    by_peer: HashMap<IpAddr, BTreeMap<u64, CancellationToken>>,
}

/// An entry of an [`Evicting`] set; dropping it leaves the set.
#[derive(Debug)]
pub struct ConnectionEntry {
    entries: Arc<Mutex<Entries>>,
    evicted: Counter,
    peer: IpAddr,
    number: u64,
    cut: CancellationToken,
}

impl Evicting {
    fn new(max: usize, evicted: &Counter) -> Evicting {
        Evicting { max, evicted: evicted.clone(), entries: Arc::default() }
    }

    /// How many entries one peer may have.
    fn max_of_peer(&self) -> usize {
        (self.max / PEER_DIVISOR).max(1)
    }

    fn enter(&self, peer: IpAddr, cut: CancellationToken, max_of_peer: usize) -> ConnectionEntry {
        let peer = network(peer);
        let mut entries = self.entries.lock();
        entries.make_room(peer, max_of_peer, &self.evicted);
        if entries.count >= self.max && entries.evict() {
            self.evicted.inc();
        }
        entries.entered += 1;
        let number = entries.entered;
        entries.insert(peer, number, &cut);
        let evicted = self.evicted.clone();
        ConnectionEntry { entries: self.entries.clone(), evicted, peer, number, cut }
    }

    fn evict(&self) -> bool {
        let mut entries = self.entries.lock();
        let found = entries.evict();
        if found {
            self.evicted.inc();
        }
        found
    }
}

impl ConnectionEntry {
    /// Counts this entry as another peer's, unless it was evicted.
    fn move_to(&mut self, peer: IpAddr, max_of_peer: usize) {
        let peer = network(peer);
        let mut entries = self.entries.lock();
        if peer != self.peer && entries.remove(self.peer, self.number) {
            self.peer = peer;
            entries.make_room(peer, max_of_peer, &self.evicted);
            entries.insert(peer, self.number, &self.cut);
        }
    }
}

impl Entries {
    fn insert(&mut self, peer: IpAddr, number: u64, cut: &CancellationToken) {
        self.by_peer.entry(peer).or_default().insert(number, cut.clone());
        self.count += 1;
    }

    /// Evicts the oldest entry of a peer that has its part.
    fn make_room(&mut self, peer: IpAddr, max_of_peer: usize, evicted: &Counter) {
        let Some(of_peer) = self.by_peer.get_mut(&peer) else { return };
        if of_peer.len() >= max_of_peer
            && let Some((_, cut)) = of_peer.pop_first()
        {
            self.count -= 1;
            cut.cancel();
            evicted.inc();
        }
    }

    fn evict(&mut self) -> bool {
        // Among peers with equally many entries, the one with the older entry.
        let rank = |(_, of_peer): &(&IpAddr, &BTreeMap<u64, CancellationToken>)| {
            (of_peer.len(), std::cmp::Reverse(of_peer.first_key_value().map(|(number, _)| *number)))
        };
        let Some(peer) = self.by_peer.iter().max_by_key(rank).map(|(peer, _)| *peer) else {
            return false;
        };
        let oldest = self.by_peer.get(&peer).and_then(|of_peer| of_peer.first_key_value());
        let Some((number, cut)) = oldest.map(|(number, cut)| (*number, cut.clone())) else {
            return false;
        };
        self.remove(peer, number);
        cut.cancel();
        true
    }

    /// Returns whether the entry was there.
    fn remove(&mut self, peer: IpAddr, number: u64) -> bool {
        let Some(of_peer) = self.by_peer.get_mut(&peer) else { return false };
        let removed = of_peer.remove(&number).is_some();
        self.count -= usize::from(removed);
        if of_peer.is_empty() {
            self.by_peer.remove(&peer);
        }
        removed
    }
}

impl Drop for ConnectionEntry {
    fn drop(&mut self) {
        let mut entries = self.entries.lock();
        entries.remove(self.peer, self.number);
    }
}

/// Maps an IPv6 address to its /64, which usually belongs to one subscriber.
fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn enter(set: &Evicting, from: &str) -> ConnectionEntry {
        set.enter(peer(from), CancellationToken::new(), set.max)
    }

    #[test]
    fn a_full_set_evicts_the_oldest_of_the_peer_that_has_the_most() {
        let set = Evicting::new(4, &Counter::default());
        let quiet = enter(&set, "10.0.0.1");
        let mut greedy: Vec<_> = (0..3).map(|_| enter(&set, "10.0.0.2")).collect();
        greedy.extend((0..5).map(|_| enter(&set, "10.0.0.2")));
        let cut: Vec<bool> = greedy.iter().map(|entry| entry.cut.is_cancelled()).collect();
        assert_eq!(cut, [true, true, true, true, true, false, false, false]);
        assert!(!quiet.cut.is_cancelled());
        assert_eq!(set.evicted.get(), 5);
        drop(greedy);
        assert_eq!(set.entries.lock().count, 1);
        drop(quiet);
        assert!(set.entries.lock().by_peer.is_empty());
        assert!(!set.evict());
    }

    #[test]
    fn a_peer_that_is_alone_evicts_its_own_oldest_entry() {
        let set = Evicting::new(2, &Counter::default());
        let entries: Vec<_> = (0..3).map(|_| enter(&set, "127.0.0.1")).collect();
        let cut: Vec<bool> = entries.iter().map(|entry| entry.cut.is_cancelled()).collect();
        assert_eq!(cut, [true, false, false]);
        assert!(set.evict());
        assert!(entries[1].cut.is_cancelled() && !entries[2].cut.is_cancelled());
    }

    #[test]
    fn a_peer_that_has_its_part_evicts_its_own_oldest_entry() {
        let (set, cut) = (Evicting::new(8, &Counter::default()), CancellationToken::new);
        let quiet = enter(&set, "10.0.0.1");
        let greedy: Vec<_> =
            (0..6).map(|_| set.enter(peer("10.0.0.2"), cut(), set.max_of_peer())).collect();
        let cut: Vec<bool> = greedy.iter().map(|entry| entry.cut.is_cancelled()).collect();
        assert_eq!(cut, [true, true, false, false, false, false]);
        assert!(!quiet.cut.is_cancelled());
        assert_eq!((set.evicted.get(), set.entries.lock().count), (2, 5));
    }

    #[test]
    fn clients_behind_a_proxy_do_not_evict_each_other() {
        let budgets = Budgets::new(64, 16, Front::Proxy, &Counter::default());
        let proxy: SocketAddr = "10.0.0.1:9".parse().unwrap();
        let connect = || budgets.connected(proxy, proxy);
        let quiet = connect();
        let waiting = budgets.unauthenticated(&quiet, peer("192.0.2.1"));
        // A visitor who opens many connections and requests, beyond all budgets.
        let greedy: Vec<_> = (0..200).map(|_| connect()).collect();
        let requests: Vec<_> =
            greedy.iter().map(|it| budgets.unauthenticated(it, peer("192.0.2.2"))).collect();
        let Room::Unauthenticated(waiting) = &waiting else { panic!("{waiting:?}") };
        assert!(!waiting.cut.is_cancelled() && !quiet.cut().is_cancelled());
        let more = connect();
        let again = budgets.unauthenticated(&more, peer("192.0.2.1"));
        assert!(!more.cut().is_cancelled() && !waiting.cut.is_cancelled());
        let of_greedy = budgets.connections.unauthenticated.entries.lock().by_peer.clone();
        assert!(of_greedy.get(&peer("192.0.2.2")).is_none_or(|them| them.len() <= 8));
        drop((requests, again));
        assert_eq!(budgets.unauthenticated.entries.lock().count, 1);
    }

    #[test]
    fn addresses_of_one_subscriber_are_one_peer() {
        assert_eq!(network(peer("2001:db8:1:2:3::4")), network(peer("2001:db8:1:2:ffff::1")));
        assert_ne!(network(peer("2001:db8:1:2::4")), network(peer("2001:db8:1:3::4")));
        assert_eq!(network(peer("::ffff:10.0.0.1")), peer("10.0.0.1"));
        assert_ne!(network(peer("10.0.0.1")), network(peer("10.0.0.2")));
    }

    #[test]
    fn one_name_gets_a_quarter_of_the_permits() {
        let shares = NamedPermits::new(8);
        let held: Vec<_> = (0..3).map(|_| shares.take("a")).collect();
        assert_eq!(held.iter().flatten().count(), 2);
        let others: Vec<_> =
            ["b", "b", "c", "c", "d", "d", "e"].map(|name| shares.take(name)).into();
        assert_eq!(others.iter().flatten().count(), 6);
        drop(held);
        assert!(shares.take("e").is_some());
        drop(others);
        let used = shares.used.lock();
        assert_eq!((used.total, used.by_name.len()), (0, 0));
    }

    #[test]
    fn a_connection_takes_the_class_of_its_requests() {
        let budgets = Budgets::new(16, 16, Front::Proxy, &Counter::default());
        let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let first = budgets.connected(address, address);
        let rest: Vec<_> = (0..4).map(|_| budgets.connected(address, address)).collect();
        assert!(first.cut().is_cancelled(), "a quarter may be unauthenticated");
        let owner = budgets.owner(&rest[0]).unwrap();
        let more: Vec<_> = (0..4).map(|_| budgets.connected(address, address)).collect();
        assert!(!rest[0].cut().is_cancelled(), "the owner's is not evicted");
        assert!(rest[1].cut().is_cancelled());
        assert!(budgets.proxied(&more[0], "s").is_ok());
        assert!(budgets.proxied(&more[1], "s").is_err(), "a quarter of a quarter for each sandbox");
        assert!(budgets.proxied(&more[1], "t").is_ok());
        drop(owner);
    }
}
