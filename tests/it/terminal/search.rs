//! Search in the output of commands.

use serde_json::{Value, json};

use harness::{Home, Server, wait_for};

/// The lines that a search found, with their streams, and the status of each command.
fn found(result: &Value) -> Vec<String> {
    let hits = result["items"].as_array().unwrap().iter();
    let lines = hits.flat_map(|hit| {
        let status = hit["status"].as_str().unwrap();
        let lines = hit["lines"].as_array().unwrap().iter();
        lines.map(move |line| {
            let field = |name: &str| line[name].as_str().unwrap().to_owned();
            format!("{status} {} {}", field("stream"), field("text"))
        })
    });
    lines.collect()
}

#[test]
fn the_output_of_a_command_is_found_while_it_runs_and_afterwards() {
    let home = Home::new();
    let server = Server::start(&home);
    let client = server.client();
    client.put("/api/threads/t", json!({"provider": "local"})).expect_success();
    // The command runs until the fifo is written to. Its text does not contain what is searched for.
    let fifo = home.path().join("fifo");
    let command = format!(
        "mkfifo {0}; echo a 'nee'dle; echo another 'Nee'dle >&2; cat {0}; echo the last 'nee'dle",
        fifo.display()
    );
    client.post("/api/threads/t/exec", json!({"command": command, "yield_ms": 1})).expect_success();
    let search = || found(&client.get("/api/search?q=needle").expect(200));
    let is = |expected: &[&str]| {
        wait_for("the matching lines", || match search() {
            lines if lines == expected => Ok(()),
            lines => Err(lines),
        });
    };
    is(&["running stdout a needle", "running stderr another Needle"]);
    std::fs::write(fifo, "").unwrap();
    is(&[
        "finished stdout a needle",
        "finished stdout the last needle",
        "finished stderr another Needle",
    ]);
}
