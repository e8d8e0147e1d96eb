//! Which client may type, and which size applies. Pure.
//!
//! There is at most one driver. A client in `driver` mode becomes the driver if there is none; otherwise
//! it watches until it takes over. The size follows the driver's window; viewers never change it. A size
//! that was set through the API stays until a driver takes over.

pub type ClientId = u64;

/// The mode that a client requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientMode {
    /// May type and resize.
    Driver,
    Viewer,
    /// A viewer with a share link. It does not keep the terminal in use.
    Guest,
}

impl ClientMode {
    pub fn as_str(self) -> &'static str {
        match self {
            ClientMode::Driver => "driver",
            ClientMode::Viewer | ClientMode::Guest => "viewer",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct AttachedClient {
    id: ClientId,
    name: String,
    mode: ClientMode,
    size: Option<(u16, u16)>,
}

/// The connected clients and the driver.
#[derive(Debug, Default)]
pub struct Clients {
    clients: Vec<AttachedClient>,
    driver: Option<ClientId>,
}

/// What changed for the other clients.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Whether the driver changed.
    pub driver: bool,
    /// The terminal should take this size.
    pub size: Option<(u16, u16)>,
}

impl Clients {
    /// Adds a client. It becomes the driver if it requests to be and there is none.
    pub fn enter(&mut self, id: ClientId, name: String, mode: ClientMode) -> Change {
        self.clients.push(AttachedClient { id, name, mode, size: None });
        if mode == ClientMode::Driver && self.driver.is_none() {
            self.give(id)
        } else {
            Change::default()
        }
    }

    /// Removes a client. If it was the driver, the oldest other client in driver mode follows.
    pub fn leave(&mut self, id: ClientId) -> Change {
        self.clients.retain(|client| client.id != id);
        if self.driver == Some(id) { self.pass_on() } else { Change::default() }
    }

    /// Makes a client the driver in place of the current one.
    pub fn take_over(&mut self, id: ClientId) -> Change {
        match self.clients.iter_mut().find(|client| client.id == id) {
            Some(client) if self.driver != Some(id) => {
                client.mode = ClientMode::Driver;
                self.give(id)
            }
            Some(_) | None => Change::default(),
        }
    }

    /// Makes the driver a viewer.
    pub fn hand_back(&mut self, id: ClientId) -> Change {
        if let Some(client) = self.clients.iter_mut().find(|client| client.id == id) {
            client.mode = ClientMode::Viewer;
        }
        if self.driver == Some(id) { self.pass_on() } else { Change::default() }
    }

    /// Notes the size of a client's window. Only the driver's size is applied.
    pub fn resize(&mut self, id: ClientId, size: (u16, u16)) -> Change {
        if let Some(client) = self.clients.iter_mut().find(|client| client.id == id) {
            client.size = Some(size);
        }
        Change { driver: false, size: (self.driver == Some(id)).then_some(size) }
    }

    pub fn driving(&self) -> Option<ClientId> {
        self.driver
    }

    /// Returns the name of the driver.
    pub fn driver(&self) -> Option<&str> {
        let id = self.driver?;
        self.clients.iter().find(|client| client.id == id).map(|client| client.name.as_str())
    }

    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Returns the number of clients that keep the terminal in use.
    pub fn attending(&self) -> usize {
        self.clients.iter().filter(|client| client.mode != ClientMode::Guest).count()
    }

    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    fn give(&mut self, id: ClientId) -> Change {
        self.driver = Some(id);
        let size = self.clients.iter().find(|client| client.id == id).and_then(|c| c.size);
        Change { driver: true, size }
    }

    fn pass_on(&mut self) -> Change {
        self.driver = None;
        match self.clients.iter().find(|client| client.mode == ClientMode::Driver).map(|c| c.id) {
            Some(next) => self.give(next),
            None => Change { driver: true, size: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_driver_keeps_control_until_another_takes_over() {
        let mut clients = Clients::default();
        assert!(clients.enter(1, "agent".into(), ClientMode::Driver).driver);
        assert!(!clients.enter(2, "person".into(), ClientMode::Driver).driver);
        assert_eq!(clients.driving(), Some(1));
        clients.resize(2, (120, 40));
        let change = clients.take_over(2);
        assert_eq!(change, Change { driver: true, size: Some((120, 40)) });
        assert_eq!(clients.driver(), Some("person"));
        assert_eq!(clients.hand_back(2), Change { driver: true, size: None });
        assert_eq!(clients.driver(), Some("agent"));
    }

    #[test]
    fn a_viewer_never_changes_the_size() {
        let mut clients = Clients::default();
        clients.enter(1, "person".into(), ClientMode::Driver);
        clients.enter(2, "phone".into(), ClientMode::Viewer);
        assert_eq!(clients.resize(2, (40, 10)), Change::default());
        assert_eq!(clients.resize(1, (90, 30)).size, Some((90, 30)));
    }

    #[test]
    fn the_keyboard_falls_to_the_next_who_asked_for_it() {
        let mut clients = Clients::default();
        clients.enter(1, "a".into(), ClientMode::Driver);
        clients.enter(2, "b".into(), ClientMode::Viewer);
        clients.enter(3, "c".into(), ClientMode::Driver);
        assert!(clients.leave(1).driver);
        assert_eq!(clients.driving(), Some(3));
        assert!(clients.leave(3).driver);
        assert_eq!(clients.driver(), None);
        assert!(clients.is_empty() || clients.len() == 1);
    }
}
