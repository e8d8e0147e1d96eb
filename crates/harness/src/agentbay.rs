//! The stand-in for AgentBay (`tests/agentbay`): a separate process, which ends with its parent.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use serde_json::{Value, json};

/// The API key of the stand-in.
pub const KEY: &str = "akm-of-a-test";

/// A vendor with sessions of real processes.
pub struct StandIn {
    pub address: SocketAddr,
    child: Child,
    directory: PathBuf,
}

impl StandIn {
    /// Starts a stand-in with these options; returns `None` without Python.
    pub fn start(choices: &[&str]) -> Option<StandIn> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("stead-agentbay-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/agentbay/stand_in.py");
        std::fs::create_dir_all(&directory).unwrap();
        let started = Command::new("python3")
            .args(["-B", program])
            .arg(&directory)
            .args(["--key", KEY])
            .args(choices)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = match started {
            Ok(child) => child,
            Err(error) => {
                println!("skipped: python3 is not installed ({error})");
                let _ = std::fs::remove_dir_all(directory);
                return None;
            }
        };
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let status: Value = serde_json::from_str(&line).unwrap();
        let address =
            status["url"].as_str().unwrap().trim_start_matches("http://").parse().unwrap();
        Some(StandIn { address, child, directory })
    }

    /// Changes options that no client can change; returns the state.
    pub fn control(&self, wishes: &Value) -> Value {
        let body = wishes.to_string();
        let mut stream = TcpStream::connect(self.address).unwrap();
        let head = "POST /control HTTP/1.1\r\nhost: here\r\nconnection: close\r\n";
        write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        serde_json::from_str(body).unwrap()
    }

    /// Injects these faults into the next calls of these actions.
    pub fn harm(&self, harms: &[(&str, &str)]) {
        let harm = |(action, harm): &(&str, &str)| json!({"action": action, "harm": harm});
        let harms: Vec<Value> = harms.iter().map(harm).collect();
        self.control(&json!({"harms": harms}));
    }

    /// The ids of its sessions.
    pub fn sessions(&self) -> Vec<String> {
        let status = self.control(&json!({}));
        status["sessions"].as_object().unwrap().keys().cloned().collect()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
