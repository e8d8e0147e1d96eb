//! Clients that disconnect at any byte of the most used routes: half a request changes nothing, and no answer that was
//! not read leaves anything behind.

use std::{
    collections::BTreeMap,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    io::{ErrorKind, Read, Write},
    net::TcpStream,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use rusqlite::types::Value as SqlValue;
use serde_json::{Value, json};

use super::leaving::nothing_is_left;
use harness::{Client, Home, Request, Server, database, terminal::exec, wait_for};

/// Bytes of an answer after which the client leaves at every byte no more, but at every 37th up to [`ANSWER_BYTES`].
const ANSWER_START: usize = 64;
const ANSWER_STEP: usize = 37;
const ANSWER_BYTES: usize = 4096;
/// Where an answer costs a new shell, the client leaves at every 16th of these places.
const COSTLY_STEP: usize = 16;
/// An answer that is not closed by the server ends when it is silent for this long.
const SILENCE: Duration = Duration::from_millis(300);

const DEFAULT_PROJECT: &str = "default-00000000";

/// A server with a thread `walk`, and what its routes need.
struct World {
    home: Home,
    server: Server,
    client: Client,
    terminal: String,
    /// A command that runs and reads its input, for the routes of threads.
    command: String,
    /// How many threads `new_thread` has created.
    threads: AtomicUsize,
}

/// What an answer costs the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cost {
    Little,
    /// A shell or a sandbox starts or ends.
    Shell,
}

/// A request. `{new}` in its target is replaced by what `prepare` returns for each request that is sent whole.
struct Route {
    method: &'static str,
    target: String,
    body: Vec<u8>,
    headers: Vec<(&'static str, &'static str)>,
    cost: Cost,
    prepare: Option<fn(&World) -> String>,
}

impl Route {
    fn new(method: &'static str, target: impl Into<String>) -> Route {
        let target = target.into();
        Route { method, target, body: vec![], headers: vec![], cost: Cost::Little, prepare: None }
    }

    fn json(mut self, body: &Value) -> Route {
        self.headers.push(("content-type", "application/json"));
        self.body(body.to_string().as_bytes())
    }

    fn body(mut self, body: &[u8]) -> Route {
        self.body = body.to_vec();
        self
    }

    fn header(mut self, name: &'static str, value: &'static str) -> Route {
        self.headers.push((name, value));
        self
    }

    fn costly(self) -> Route {
        Route { cost: Cost::Shell, ..self }
    }

    fn after(self, prepare: fn(&World) -> String) -> Route {
        Route { prepare: Some(prepare), ..self }
    }

    fn request(&self, world: &World) -> Request {
        let new = self.prepare.map(|prepare| prepare(world)).unwrap_or_default();
        let mut request = world.client.request(self.method, &self.target.replace("{new}", &new));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if !self.headers.iter().any(|(name, _)| *name == "connection") {
            request = request.header("connection", "close");
        }
        request.body(&self.body)
    }
}

impl World {
    fn new() -> World {
        let home = Home::new();
        let server = Server::start(&home);
        let client = server.client();
        exec(&client, "walk", "export KEPT=1");
        exec(&client, "other", "true");
        let terminal = client.get("/api/threads/walk/terminal").expect(200);
        let terminal = terminal["terminal_id"].as_str().unwrap().to_owned();
        client.put("/api/threads/walk/fs/write?path=/workspace/x", json!("whole")).expect_success();
        World {
            home,
            server,
            client,
            terminal,
            command: String::new(),
            threads: AtomicUsize::new(0),
        }
    }

    /// Starts a command that does not end by itself.
    fn start(&self, thread: &str, command: &str) -> String {
        let body = json!({"command": command, "yield_ms": 1});
        let started = self.client.post(&format!("/api/threads/{thread}/exec"), body).expect(200);
        started["command_id"].as_str().unwrap().to_owned()
    }

    /// The id in the response of a creation.
    fn create(&self, target: &str, body: Value, id: &str) -> String {
        let made = self.client.post(target, body).expect(201);
        made[id].as_str().unwrap().to_owned()
    }

    fn at(&self, end: &str) -> String {
        format!("/api/terminals/{}{end}", self.terminal)
    }

    /// Everything that a request can change: all rows, the files of workspaces, and the output of the terminal.
    /// The rows of sessions are left out: the time of their last use is written later.
    fn state(&self) -> BTreeMap<String, String> {
        let mut state = BTreeMap::new();
        let rows = database(self.home.path());
        let tables = "SELECT name FROM sqlite_master \
                      WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'sessions'";
        let mut statement = rows.prepare(tables).unwrap();
        let tables = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
        for table in tables.map(Result::unwrap) {
            let mut statement = rows.prepare(&format!("SELECT * FROM {table}")).unwrap();
            let columns = statement.column_count();
            let content = statement.query_map([], |row| {
                let values = (0..columns).map(|at| row.get(at).map(|value| printed(&value)));
                Ok(values.collect::<Result<Vec<_>, _>>()?.join(" "))
            });
            let mut content: Vec<String> = content.unwrap().map(Result::unwrap).collect();
            content.sort();
            state.insert(table, content.join("\n"));
        }
        let mut files = Vec::new();
        list(&self.home.path().join("workspaces"), &mut files);
        list(&self.home.path().join("terminals").join(&self.terminal).join("log"), &mut files);
        files.sort();
        state.insert("files".into(), files.join("\n"));
        state
    }

    /// Waits until no connection but that of the question is open.
    fn all_have_left(&self, what: &str) {
        wait_for(what, || {
            let metrics = self.client.get("/metrics").text();
            let open =
                metrics.lines().find_map(|line| line.strip_prefix("stead_http_connections "));
            if open == Some("1") { Ok(()) } else { Err(open.map(str::to_owned)) }
        });
    }

    /// Cuts each request at each of its bytes and checks that nothing has changed.
    fn cut_requests(&self, routes: &[Route]) {
        let requests = routes.iter().map(|route| (route, route.request(self).bytes()));
        let requests: Vec<_> = requests.collect();
        self.receipts_are_stored();
        let before = self.state();
        for (route, whole) in requests {
            for length in 0..whole.len() {
                let mut stream = self.client.connect();
                stream.write_all(&whole[..length]).unwrap();
                leave(stream, length);
            }
            let name = format!("{} {}", route.method, route.target);
            self.all_have_left(&name);
            for (part, content) in &self.state() {
                let difference =
                    content.lines().zip(before[part].lines()).find(|(now, then)| now != then);
                assert!(*content == before[part], "half of {name} changed {part}: {difference:?}");
            }
        }
    }

    /// Waits until everything about the ended commands is in the store.
    fn receipts_are_stored(&self) {
        let open = "SELECT count(*) FROM commands WHERE status NOT IN ('queued', 'running') \
                    AND command_id NOT IN (SELECT command_id FROM command_output)";
        wait_for("the receipts of all ended commands", || {
            let missing =
                database(self.home.path()).query_row(open, [], |row| row.get::<_, i64>(0));
            if missing == Ok(0) { Ok(()) } else { Err(missing) }
        });
    }

    /// Leaves after each of the first bytes of the answer, and after some of the later ones.
    fn cut_answer(&self, route: &Route) {
        let length = receive(&route.request(self), ANSWER_BYTES).len();
        assert!(length > 12, "no answer to {} {}", route.method, route.target);
        let later = (ANSWER_START..length).step_by(ANSWER_STEP);
        let places = (0..ANSWER_START.min(length)).chain(later).chain([length]);
        let step = match route.cost {
            Cost::Little => 1,
            Cost::Shell => COSTLY_STEP,
        };
        for place in places.step_by(step) {
            let mut stream = route.request(self).start();
            let mut part = vec![0; place];
            // The answer of another moment may be shorter.
            let _ = stream.set_read_timeout(Some(SILENCE));
            let _ = stream.read_exact(&mut part);
            leave(stream, place);
        }
    }
}

/// Ends a connection, by turns with FIN and with RST.
fn leave(stream: TcpStream, turn: usize) {
    if turn.is_multiple_of(2) {
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    }
    drop(stream);
}

/// Sends a request and reads until the server closes the connection or is silent.
fn receive(request: &Request, most: usize) -> Vec<u8> {
    let mut stream = request.start();
    let (mut received, mut piece) = (Vec::new(), [0; 4096]);
    while received.len() < most {
        match stream.read(&mut piece) {
            Ok(count @ 1..) => received.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => break,
        }
        // The first bytes may take as long as a shell takes to start.
        stream.set_read_timeout(Some(SILENCE)).unwrap();
    }
    received.truncate(most);
    received
}

/// Returns a value of a row in short.
fn printed(value: &SqlValue) -> String {
    match value {
        SqlValue::Blob(bytes) => {
            let mut hasher = DefaultHasher::new();
            bytes.hash(&mut hasher);
            format!("{} bytes {:x}", bytes.len(), hasher.finish())
        }
        SqlValue::Text(text) => text.replace('\n', " "),
        SqlValue::Null | SqlValue::Integer(_) | SqlValue::Real(_) => format!("{value:?}"),
    }
}

/// Lists the files below a directory, each with its size.
fn list(directory: &Path, files: &mut Vec<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.path().symlink_metadata() else { continue };
        if metadata.is_dir() {
            list(&entry.path(), files);
        } else {
            files.push(format!("{} {}", entry.path().display(), metadata.len()));
        }
    }
}

fn new_terminal(world: &World) -> String {
    world.create("/api/threads/other/terminals", json!({}), "terminal_id")
}

fn new_sandbox(world: &World) -> String {
    world.create("/api/sandboxes", json!({}), "sandbox_id")
}

fn new_share(world: &World) -> String {
    world.create(&world.at("/shares"), json!({}), "share_id")
}

fn new_handoff(world: &World) -> String {
    let question = json!({"kind": "approval", "reason": "?"});
    world.create(&world.at("/handoffs"), question, "handoff_id")
}

fn new_thread(world: &World) -> String {
    // Another name each time, because the thread before may be being deleted.
    let thread = format!("new-{}", world.threads.fetch_add(1, Ordering::Relaxed));
    exec(&world.client, &thread, "true");
    thread
}

fn new_command(world: &World) -> String {
    world.start("busy", "sleep 1000")
}

fn new_file(world: &World) -> String {
    world.client.put("/api/threads/walk/fs/write?path=/workspace/y", json!(1)).expect_success();
    "y".to_owned()
}

/// The routes of a thread, of its commands and of its files.
fn routes_of_threads(world: &World) -> Vec<Route> {
    let walk = |end: &str| format!("/api/threads/walk{end}");
    let command = |end: &str| format!("/api/commands/{}{end}", world.command);
    let run = json!({"command": "true"});
    vec![
        Route::new("PUT", walk("")).json(&json!({"labels": {"a": "b"}})),
        Route::new("GET", "/api/threads"),
        Route::new("GET", walk("")),
        Route::new("POST", "/api/threads/other/exec").json(&run),
        Route::new("POST", "/api/threads/other/exec").json(&run).header("idempotency-key", "key"),
        Route::new("POST", "/api/threads/other/exec")
            .json(&run)
            .header("accept", "text/event-stream"),
        Route::new("POST", "/api/threads/other/exec")
            .json(&json!({"command": "true", "yield_ms": 1})),
        Route::new("GET", command("")),
        Route::new("GET", command("/output")),
        Route::new("POST", command("/stdin")).json(&json!({"data": "x\n"})),
        Route::new("POST", "/api/commands/{new}/cancel").after(new_command),
        Route::new("POST", walk("/messages")).json(&json!({"role": "user", "content": "hello"})),
        Route::new("GET", walk("/messages")),
        Route::new("GET", walk("/session")),
        Route::new("GET", walk("/lease")),
        Route::new("POST", walk("/pause")),
        Route::new("POST", walk("/resume")),
        Route::new("PUT", walk("/fs/write?path=/workspace/x")).body(b"another content"),
        Route::new("GET", walk("/fs/read?path=/workspace/x")),
        Route::new("GET", walk("/fs/list?path=/workspace")),
        Route::new("DELETE", walk("/fs/remove?path=/workspace/{new}")).after(new_file),
        Route::new("DELETE", "/api/threads/{new}").after(new_thread).costly(),
    ]
}

/// The routes of terminals, and all others.
fn routes_of_terminals(world: &World) -> Vec<Route> {
    let terminal = |end: &str| world.at(end);
    vec![
        Route::new("GET", terminal("")),
        Route::new("GET", terminal("/snapshot")),
        Route::new("GET", terminal("/stream")).header("accept", "text/event-stream"),
        Route::new("GET", terminal("/ws"))
            .header("connection", "Upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        Route::new("POST", terminal("/input")).json(&json!({"data": "x", "write_id": "w"})),
        Route::new("POST", terminal("/resize")).json(&json!({"cols": 100, "rows": 30})),
        Route::new("GET", terminal("/env")),
        Route::new("PATCH", terminal("/env")).json(&json!({"set": {"A": "b"}})),
        Route::new("GET", terminal("/versions")),
        Route::new("POST", terminal("/rollback")).json(&json!({"version": 1})),
        Route::new("POST", terminal("/fork")).json(&json!({})).costly(),
        Route::new("POST", "/api/threads/other/terminals").json(&json!({})).costly(),
        Route::new("DELETE", "/api/terminals/{new}").after(new_terminal).costly(),
        Route::new("POST", terminal("/shares")).json(&json!({"name": "a"})),
        Route::new("DELETE", "/api/shares/{new}").after(new_share),
        // Before those that stay open, of which there may be sixteen.
        Route::new("POST", "/api/handoffs/{new}/answer")
            .json(&json!({"approve": true}))
            .after(new_handoff),
        Route::new("POST", terminal("/handoffs")).json(&json!({"kind": "approval", "reason": "?"})),
        Route::new("GET", "/api/handoffs"),
        Route::new("POST", "/api/sandboxes").json(&json!({"labels": {"a": "b"}})).costly(),
        Route::new("GET", "/api/sandboxes"),
        Route::new("DELETE", "/api/sandboxes/{new}").after(new_sandbox).costly(),
        Route::new("POST", "/api/projects").json(&json!({"prefix": "walk"})).costly(),
        Route::new("GET", "/api/projects"),
        Route::new("GET", "/api/events").header("accept", "text/event-stream"),
    ]
}

/// The ids in a list of the API.
fn ids(client: &Client, list: &str, id: &str) -> Vec<String> {
    let page = client.get(&format!("{list}?limit=200")).expect(200);
    let items = page["items"].as_array().unwrap().iter();
    items.map(|item| item[id].as_str().unwrap().to_owned()).collect()
}

/// Deletes everything through the API, and checks that nothing is left anywhere.
fn nothing_remains(world: &World) {
    let client = &world.client;
    for (list, id) in [("/api/threads", "thread_id"), ("/api/projects", "project_id")] {
        wait_for("everything to be deleted", || {
            let (mut left, mut why) = (ids(client, list, id), String::new());
            // The default project stays, and its files.
            left.retain(|name| name != DEFAULT_PROJECT);
            for name in &left {
                let answer = client.delete(&format!("{list}/{name}"));
                // 409 while something in it is being deleted.
                let (status, text) = (answer.status, answer.text());
                assert!(matches!(status, 200..300 | 404 | 409), "{list}/{name}: {text}");
                why = text;
            }
            if left.is_empty() { Ok(()) } else { Err((left, why)) }
        });
    }
    nothing_is_left(client, &world.home);
    world.all_have_left("the end of all connections");
    wait_for("the end of all streams", || {
        let metrics = client.get("/metrics").text();
        let watchers = metrics.lines().find_map(|line| line.strip_prefix("stead_watchers "));
        if watchers == Some("0") { Ok(()) } else { Err(watchers.map(str::to_owned)) }
    });
    let rows = database(world.home.path());
    let count = |table: &str| {
        let query = format!("SELECT count(*) FROM {table}");
        rows.query_row(&query, [], |row| row.get::<_, i64>(0)).unwrap()
    };
    let tables = [
        ("threads", 0),
        ("terminals", 0),
        ("sandboxes", 0),
        ("projects", 1),
        ("shares", 0),
        ("handoffs", 0),
        ("sessions", 0),
        ("messages", 0),
        ("commands", 0),
        ("removals", 0),
    ];
    for (table, expected) in tables {
        wait_for(&format!("{expected} rows in {table}"), || match count(table) {
            found if found == expected => Ok(()),
            found => Err(found),
        });
    }
    let mut files = Vec::new();
    list(&world.home.path().join("workspaces"), &mut files);
    files.retain(|file| !file.contains(DEFAULT_PROJECT));
    assert_eq!(files, Vec::<String>::new());
}

fn is_without_faults(client: &Client) {
    let (mut answered, metrics) = (0, client.get("/metrics").expect_status(200).text());
    for line in metrics.lines().filter(|line| line.starts_with("stead_http_requests")) {
        let is_fault = line.contains("status=\"5");
        assert!(!is_fault || line.ends_with(" 0"), "{line}");
        answered += 1;
    }
    assert!(answered > 0, "{metrics}");
}

fn walk(world: &World, routes: &[Route]) {
    // First, while nothing else changes what is compared.
    world.cut_requests(routes);
    for route in routes {
        world.cut_answer(route);
        world.client.get("/healthz").expect_status(200);
    }
    is_without_faults(&world.client);
    nothing_remains(world);
}

#[test]
fn a_client_may_leave_at_any_byte_of_any_route_of_a_thread() {
    let mut world = World::new();
    world.command = world.start("walk", "echo output; cat >/dev/null");
    walk(&world, &routes_of_threads(&world));
}

#[test]
fn a_client_may_leave_at_any_byte_of_any_route_of_a_terminal() {
    let world = World::new();
    walk(&world, &routes_of_terminals(&world));
    assert!(!world.server.log().contains("panicked"), "{}", world.server.log());
}
