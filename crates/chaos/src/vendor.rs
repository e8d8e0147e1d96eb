//! A vendor of sandboxes beneath the server: another server that speaks a vendor's API, and a proxy before it that is
//! slow, loses requests and answers, and lies.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use parking_lot::Mutex;

use crate::{
    rng::Rng,
    server::{RunDirectory, Server, free_address},
};

/// How the vendor treats requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VendorBehavior {
    /// It answers.
    Correct,
    /// Answers are late.
    Slow,
    /// Requests or their answers are lost.
    Lossy,
    /// It answers 500.
    Failing,
    /// It answers 200 with something else than what was asked for.
    Lying,
}

/// The behaviors that the fault `vendor` chooses from.
pub const FAULTY_BEHAVIORS: [VendorBehavior; 4] =
    [VendorBehavior::Slow, VendorBehavior::Lossy, VendorBehavior::Failing, VendorBehavior::Lying];

/// The percentage of requests that a faulty vendor treats wrongly; it answers the rest, so that work stops half way.
const AFFECTED_PERCENT: u64 = 60;

const FAILURE: &str = "HTTP/1.1 500 Internal Server Error\r\ncontent-type: text/html\r\n\
                       connection: close\r\ncontent-length: 13\r\n\r\n<h1>oops</h1>";
const LIES: [&str; 3] = [
    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}",
    "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\ncontent-length: 13\r\n\r\n<h1>home</h1>",
    "HTTP/1.1 201 Created\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: 900\r\n\r\n{\"sandboxID\": \"sbx",
];

/// The vendor and its proxy.
#[derive(Debug)]
pub struct SandboxVendor {
    server: Server,
    directory: RunDirectory,
    proxy: SocketAddr,
    behavior: Arc<Mutex<(VendorBehavior, Rng)>>,
    affected: Arc<AtomicU64>,
}

impl SandboxVendor {
    /// Starts a vendor whose files are below the directory of a run.
    ///
    /// # Errors
    /// If it does not become ready.
    pub fn start(binary: &Path, run: &RunDirectory, seed: u64) -> Result<SandboxVendor> {
        let directory = run.below("vendor")?;
        let server = Server::start(binary, &directory, "local", Vec::new())?;
        let to = server.http().address;
        let listener = TcpListener::bind(free_address()?).context("the vendor's proxy")?;
        let proxy = listener.local_addr()?;
        let behavior = Arc::new(Mutex::new((VendorBehavior::Correct, Rng::new(seed, &[7]))));
        let affected = Arc::new(AtomicU64::new(0));
        let (behaviors, counter) = (behavior.clone(), affected.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (behaviors, counter) = (behaviors.clone(), counter.clone());
                std::thread::spawn(move || drop(pass(client, to, proxy, &behaviors, &counter)));
            }
        });
        Ok(SandboxVendor { server, directory, proxy, behavior, affected })
    }

    /// Returns the options of a server that runs its sandboxes here.
    #[must_use]
    pub fn options(&self, run: &RunDirectory) -> Vec<String> {
        let key = self.server.http().token;
        let inside = run.home().join("inside");
        [
            format!("e2b.key={key}"),
            format!("e2b.endpoint=http://{}", self.proxy),
            format!("e2b.directory={}", inside.display()),
        ]
        .into_iter()
        .flat_map(|setting| ["--set".to_owned(), setting])
        .collect()
    }

    /// Returns the directory of the vendor.
    #[must_use]
    pub fn directory(&self) -> &RunDirectory {
        &self.directory
    }

    /// Returns the process of the vendor.
    #[must_use]
    pub fn pid(&self) -> Option<i32> {
        self.server.pid()
    }

    pub fn set_behavior(&self, behavior: VendorBehavior) {
        self.behavior.lock().0 = behavior;
    }

    /// Returns how many requests were treated wrongly.
    #[must_use]
    pub fn affected(&self) -> u64 {
        self.affected.load(Ordering::Relaxed)
    }

    /// Returns the sandboxes that the vendor has.
    ///
    /// # Errors
    /// If it does not list them.
    pub fn sandboxes(&self) -> Result<Vec<String>> {
        let answer = self.server.http().get("/v2/sandboxes");
        let answer = answer.map_err(|failure| anyhow::anyhow!("the vendor's list: {failure:?}"))?;
        let items = answer.json();
        let items = items.as_array().context("the vendor's list is no list")?;
        Ok(items.iter().filter_map(|item| item["sandboxID"].as_str().map(str::to_owned)).collect())
    }
}

/// Forwards one request, with `connection: close`, unless the behavior prevents it.
fn pass(
    mut client: TcpStream,
    to: SocketAddr,
    own: SocketAddr,
    behavior: &Mutex<(VendorBehavior, Rng)>,
    affected_requests: &AtomicU64,
) -> io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let Some(head) = read_head(&mut reader, to)? else { return Ok(()) };
    let (behavior, mut rng) = {
        let mut shared = behavior.lock();
        let (behavior, rng) = &mut *shared;
        let affected = rng.chance(AFFECTED_PERCENT);
        (if affected { *behavior } else { VendorBehavior::Correct }, Rng::new(rng.bits(), &[]))
    };
    if behavior != VendorBehavior::Correct {
        affected_requests.fetch_add(1, Ordering::Relaxed);
    }
    let lost_before = behavior == VendorBehavior::Lossy && rng.chance(50);
    let answer = match behavior {
        VendorBehavior::Failing => Some(FAILURE),
        VendorBehavior::Lying => Some(*rng.pick(&LIES)),
        VendorBehavior::Correct | VendorBehavior::Slow | VendorBehavior::Lossy => None,
    };
    if lost_before {
        return client.shutdown(Shutdown::Both);
    }
    if let Some(answer) = answer {
        client.write_all(answer.as_bytes())?;
        client.shutdown(Shutdown::Write)?;
        // The rest of the request is read, or the client's connection is reset before it reads the answer.
        io::copy(&mut reader, &mut io::sink())?;
        return Ok(());
    }
    if behavior == VendorBehavior::Slow {
        std::thread::sleep(Duration::from_millis(rng.between(50, 4000)));
    }
    let mut server = TcpStream::connect(to)?;
    server.write_all(head.as_bytes())?;
    let mut back = server.try_clone()?;
    let mut out = client.try_clone()?;
    let answers = std::thread::spawn(move || {
        if behavior == VendorBehavior::Lossy {
            let _ = back.read(&mut [0; 1]);
        } else {
            let _ = copy_renamed(&mut back, &mut out, to, own);
        }
        let _ = out.shutdown(Shutdown::Both);
    });
    let _ = io::copy(&mut reader, &mut server);
    let _ = server.shutdown(Shutdown::Write);
    let _ = answers.join();
    Ok(())
}

/// Reads the head of a request and returns it with the vendor's address as its host.
fn read_head(reader: &mut impl BufRead, to: SocketAddr) -> io::Result<Option<String>> {
    let mut head = String::new();
    let mut upgrade = false;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let lower = line.to_ascii_lowercase();
        upgrade |= lower.starts_with("upgrade:");
        if line == "\r\n" {
            break;
        }
        if lower.starts_with("host:") {
            head.push_str(&format!("host: {to}\r\n"));
        } else if upgrade || !lower.starts_with("connection:") {
            head.push_str(&line);
        }
    }
    head.push_str(if upgrade {
        "connection: upgrade\r\n\r\n"
    } else {
        "connection: close\r\n\r\n"
    });
    Ok(Some(head))
}

/// Copies a stream and replaces the vendor's address with the proxy's, so that the proxy receives all requests.
fn copy_renamed(
    from: &mut impl Read,
    to: &mut impl Write,
    old: SocketAddr,
    new: SocketAddr,
) -> io::Result<()> {
    let (old, new) = (old.to_string().into_bytes(), new.to_string().into_bytes());
    let (mut held, mut piece) = (Vec::new(), [0; 64 << 10]);
    loop {
        let count = from.read(&mut piece)?;
        held.extend_from_slice(&piece[..count]);
        let mut at = 0;
        while at + old.len() <= held.len() {
            // All free ports have five digits, so the length of a body does not change.
            if held[at..].starts_with(&old) {
                held[at..at + new.len()].copy_from_slice(&new);
            }
            at += 1;
        }
        // A possible start of an address waits for the rest.
        let start = (1..old.len()).rev().find(|length| held.ends_with(&old[..*length]));
        let whole = if count == 0 { held.len() } else { held.len() - start.unwrap_or(0) };
        to.write_all(&held[..whole])?;
        held.drain(..whole);
        if count == 0 {
            return Ok(());
        }
    }
}
