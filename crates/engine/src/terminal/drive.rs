//! Who may type and which size holds. Pure.
//!
//! One driver at a time. A client that comes in `driver` mode gets the keyboard if nobody
//! has it; otherwise it watches until it takes over. The size follows the driver that last
//! typed or resized; viewers never vote; a size set through the API is pinned until a
//! driver resizes on purpose by taking over.

/// One connected client.
pub type ClientId = u64;

/// The mode a client asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// May type and resize.
    Driver,
    /// Only looks.
    Viewer,
    /// Only looks, by a share link: what it looks at is not in use because of that.
    Guest,
}

impl Mode {
    /// The word of the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Driver => "driver",
            Mode::Viewer | Mode::Guest => "viewer",
        }
    }
}

/// A connected client as the seat knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Client {
    id: ClientId,
    name: String,
    asked: Mode,
    size: Option<(u16, u16)>,
}

/// Who is there and who drives.
#[derive(Debug, Default)]
pub struct Seat {
    clients: Vec<Client>,
    driver: Option<ClientId>,
}

/// What changed for the others.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Somebody else drives.
    pub driver: bool,
    /// The terminal should take this size.
    pub size: Option<(u16, u16)>,
}

impl Seat {
    /// A client comes. It drives at once if it asks to and nobody does.
    pub fn enter(&mut self, id: ClientId, name: String, asked: Mode) -> Change {
        self.clients.push(Client { id, name, asked, size: None });
        if asked == Mode::Driver && self.driver.is_none() {
            self.give(id)
        } else {
            Change::default()
        }
    }

    /// A client goes; the keyboard falls to the longest-present client that asked to drive.
    pub fn leave(&mut self, id: ClientId) -> Change {
        self.clients.retain(|client| client.id != id);
        if self.driver == Some(id) { self.pass_on() } else { Change::default() }
    }

    /// A client takes the keyboard from whoever has it.
    pub fn take_over(&mut self, id: ClientId) -> Change {
        match self.clients.iter_mut().find(|client| client.id == id) {
            Some(client) if self.driver != Some(id) => {
                client.asked = Mode::Driver;
                self.give(id)
            }
            Some(_) | None => Change::default(),
        }
    }

    /// The driver gives the keyboard away and watches.
    pub fn hand_back(&mut self, id: ClientId) -> Change {
        if let Some(client) = self.clients.iter_mut().find(|client| client.id == id) {
            client.asked = Mode::Viewer;
        }
        if self.driver == Some(id) { self.pass_on() } else { Change::default() }
    }

    /// A client's window has this size. Only the driver's counts; others' are remembered.
    pub fn resize(&mut self, id: ClientId, size: (u16, u16)) -> Change {
        if let Some(client) = self.clients.iter_mut().find(|client| client.id == id) {
            client.size = Some(size);
        }
        Change { driver: false, size: (self.driver == Some(id)).then_some(size) }
    }

    /// Which client drives.
    pub fn driving(&self) -> Option<ClientId> {
        self.driver
    }

    /// The name of who drives.
    pub fn driver(&self) -> Option<&str> {
        let id = self.driver?;
        self.clients.iter().find(|client| client.id == id).map(|client| client.name.as_str())
    }

    /// How many are there.
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// How many are there who keep it in use.
    pub fn attending(&self) -> usize {
        self.clients.iter().filter(|client| client.asked != Mode::Guest).count()
    }

    /// Is nobody there?
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
        match self.clients.iter().find(|client| client.asked == Mode::Driver).map(|c| c.id) {
            Some(next) => self.give(next),
            None => Change { driver: true, size: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_driver_keeps_the_keyboard_until_it_is_taken() {
        let mut seat = Seat::default();
        assert!(seat.enter(1, "agent".into(), Mode::Driver).driver);
        assert!(!seat.enter(2, "person".into(), Mode::Driver).driver);
        assert_eq!(seat.driving(), Some(1));
        seat.resize(2, (120, 40));
        let change = seat.take_over(2);
        assert_eq!(change, Change { driver: true, size: Some((120, 40)) });
        assert_eq!(seat.driver(), Some("person"));
        assert_eq!(seat.hand_back(2), Change { driver: true, size: None });
        assert_eq!(seat.driver(), Some("agent"));
    }

    #[test]
    fn a_viewer_never_votes_on_the_size() {
        let mut seat = Seat::default();
        seat.enter(1, "person".into(), Mode::Driver);
        seat.enter(2, "phone".into(), Mode::Viewer);
        assert_eq!(seat.resize(2, (40, 10)), Change::default());
        assert_eq!(seat.resize(1, (90, 30)).size, Some((90, 30)));
    }

    #[test]
    fn the_keyboard_falls_to_the_next_who_asked_for_it() {
        let mut seat = Seat::default();
        seat.enter(1, "a".into(), Mode::Driver);
        seat.enter(2, "b".into(), Mode::Viewer);
        seat.enter(3, "c".into(), Mode::Driver);
        assert!(seat.leave(1).driver);
        assert_eq!(seat.driving(), Some(3));
        assert!(seat.leave(3).driver);
        assert_eq!(seat.driver(), None);
        assert!(seat.is_empty() || seat.len() == 1);
    }
}
